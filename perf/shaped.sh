#!/bin/bash
# shaped.sh - allreduce over a rate-limited link: two network namespaces are two hosts, joined by a shaped veth pair
#
#   perf/shaped.sh [RANKS_A_SIDE...]          default: 1 2; as root, after the build, from the folder of the build
#   RATE=1gbit SIZES="4M 16M 64M" ALGO=auto   what `tc` and allreduce_perf take
#   TUTTI=./perf/tutti                        predicts, too; empty: does not
#   CC=                                       congestion control in both namespaces; empty: the system's
#
# Each direction of the link is shaped by `tc tbf`. Whatever the ranks a side, hosts exchange 2S bytes of payload for a
# message of S bytes (each its reduced half and the other's result), S in each direction: so the algorithm bandwidth, S over
# time, compares directly with the rate of one direction. Packets' heads leave 0.956 of the rate for payload.
set -u
perf=${PERF:-./perf/allreduce_perf} tutti=${TUTTI-./perf/tutti}
rate=${RATE:-1gbit} sizes=${SIZES:-4M 16M 64M} algo=${ALGO:-auto}
. "$(dirname "$0")/two_hosts.sh"
out=$(mktemp -d)
undo() { kill $a $b 2>/dev/null; rm -rf "$out"; }
trap undo EXIT
die() { echo "shaped.sh: $1" >&2; exit 1; }

[ -x "$perf" ] || die "no $perf; build, or set PERF"
two_hosts 10.78.0 && shape "$rate" || die "$lacks"
for host in $a $b; do
	[ -z "${CC:-}" ] || inside "$host" sysctl -q -w net.ipv4.tcp_congestion_control=$CC
done

# line_rate: bytes per second of RATE
line_rate() { echo "$rate" | awk '{ u = /gbit/ ? 1e9 : /mbit/ ? 1e6 : 1; printf "%.0f", ($1 + 0) * u / 8 }'; }

# calls_of SIZE: 1 GiB in all, which takes 9 s at 1gbit: congestion control wants seconds to find its rate
calls_of() { echo $((2 ** 30 / $(numfmt --from=iec "$1"))); }

# everywhere RANKS_A_SIDE COMMAND...: on every rank; what rank 0 says is in $out/0 then
everywhere() {
	local n=$((2 * $1)) r host pids=()
	for ((r = 0; r < n; r++)); do
		host=$a; [ "$r" -ge "$1" ] && host=$b
		TUTTI_RANK=$r TUTTI_NRANKS=$n TUTTI_ROOT=10.78.0.1:29778 TUTTI_SECRET=shaped \
			inside "$host" timeout 300 "${@:2}" >"$out/$r" 2>"$out/err.$r" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || { cat "$out"/err.* >&2; die "$n ranks: ${*:2}: failed"; }; done
}

# run RANKS_A_SIDE SIZE CALLS: a line of the table
run() {
	everywhere "$1" "$perf" -b "$2" -e "$2" -n "$3" -w 5 -c 1 --algo "$algo" --place out
	awk -v a="$1" -v line="$(line_rate)" '$3 == "float" { printf "| %d | %s | %.2f | %.1f | %.3f | %s |\n",
		a, $1, $6 / 1000, $1 / $6, $1 / $6 * 1e6 / line, $NF }' "$out/0"
}

# predict RANKS_A_SIDE: every algorithm, as the model has it for a link of this rate and as it is
predict() {
	line_rate | awk '{ g = $1 * 0.956 / 1e9; print "hosts.link_gbps", g; print "hosts.host_gbps", g }' >"$out/links"
	everywhere "$1" "$tutti" tune --check --links "$out/links" -b 4K -e 4M -f 32 --repeats 3
	cat "$out/0"
}

echo "| ranks a side | bytes | ms | algbw MB/s | of line rate | algorithm |"
echo "| ---: | ---: | ---: | ---: | ---: | --- |"
for side in "${@:-1 2}"; do
	for s in $side; do
		for size in $sizes; do run "$s" "$size" $(calls_of "$size"); done
	done
done
[ -x "$tutti" ] || exit 0
for side in "${@:-1 2}"; do
	for s in $side; do
		printf '\n%d ranks a side, predicted and measured\n\n```\n' "$s"
		predict "$s"
		echo '```'
	done
done
