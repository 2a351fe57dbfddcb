#!/bin/bash
# encrypted.sh - the cost of encryption: allreduce between two network namespaces, with and without TUTTI_ENCRYPT
#
#   perf/encrypted.sh [SIZES...]     default: 4 1K 16K 256K 4M 64M; run as root, after the build, in the build folder
#   ROUNDS=8                         each round measures every size plain and encrypted, in turn
#
# Two ranks, one in each namespace, over a veth pair that is not shaped. A figure is the shortest call of all rounds, or the
# median of the rounds' medians: the former is nearly independent of other load, the latter has it.
set -u
perf=${PERF:-./perf/allreduce_perf} rounds=${ROUNDS:-8} sizes=(${*:-4 1K 16K 256K 4M 64M})
. "$(dirname "$0")/two_hosts.sh"
out=$(mktemp -d) secret=$(openssl rand -hex 16)
undo() { kill $a $b 2>/dev/null; rm -rf "$out"; }
trap undo EXIT
die() { echo "encrypted.sh: $1" >&2; exit 1; }

[ -x "$perf" ] || die "no $perf; build, or set PERF"
two_hosts 10.79.0 || die "$lacks"

# run ENCRYPT SIZE CALLS: appends "SIZE ENCRYPT shortest median", in us, to $out/times
run() {
	local r host=$a pids=()
	for r in 0 1; do
		TUTTI_ENCRYPT=$1 TUTTI_RANK=$r TUTTI_NRANKS=2 TUTTI_ROOT=10.79.0.1:29779 TUTTI_SECRET=$secret \
			inside "$host" timeout 300 "$perf" -b "$2" -e "$2" -n "$3" -w 3 -c 1 -I 1 --place out >"$out/$r" 2>"$out/err.$r" &
		pids+=($!)
		host=$b
	done
	for r in "${pids[@]}"; do wait "$r" || { cat "$out"/err.* >&2; die "TUTTI_ENCRYPT=$1, $2: failed"; }; done
	awk -v how="$1" '$3 == "float" { print $1, how, $10, $(NF - 4) }' "$out/0" >>"$out/times"
}
for ((round = 0; round < rounds; round++)); do
	for size in "${sizes[@]}"; do
		calls=$((2 ** 27 / $(numfmt --from=iec "$size")))
		calls=$((calls > 1000 ? 1000 : calls < 5 ? 5 : calls))
		run off "$size" $calls
		run auto "$size" $calls
	done
done

echo "processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); $(
	for flag in aes pclmulqdq vaes vpclmulqdq; do grep -qw -m 1 $flag /proc/cpuinfo && echo $flag || echo no $flag; done | paste -sd, |
		sed 's/,/, /g'); $(openssl version | sed 's/.*(Library: //' | cut -d' ' -f1,2); load $(cut -d' ' -f1 /proc/loadavg)"
echo "| bytes | shortest, plain us | encrypted us | difference us | plain / encrypted | median, plain us | encrypted us | plain / encrypted |"
echo "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
sort -k1,1n -k2,2 -k4,4n "$out/times" | awk '
	{ key = $1 " " $2; sizes[$1]; if (!(key in least) || $3 < least[key]) least[key] = $3; all[key, ++n[key]] = $4 }
	function median(key) { return all[key, int((n[key] + 1) / 2)] }
	END { for (s in sizes) { p = s " off"; e = s " auto"
		printf "| %d | %.1f | %.1f | %.1f | %.2f | %.1f | %.1f | %.2f |\n", s, least[p], least[e], least[e] - least[p],
			least[p] / least[e], median(p), median(e), median(p) / median(e) } }' | sort -t'|' -k2,2n
