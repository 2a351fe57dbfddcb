#!/bin/bash
# shaped.sh - allreduce over a rate-limited link: two network namespaces act as hosts, joined by a shaped veth pair
#
#   perf/shaped.sh [RANKS_PER_HOST...]        default: 1 2; as root, after the build, in the source or build folder
#   RATE=1gbit SIZES="4M 16M 64M" ALGO=auto   arguments of `tc` and allreduce_perf
#   TUTTI=build/perf/tutti                    program for predictions; empty: no predictions
#   CC=                                       congestion control in both namespaces; empty: the system's default
#
# `tc tbf` shapes each direction of the link. For any number of ranks per host, the hosts exchange 2S bytes of payload for a
# message of S bytes, S in each direction (each host sends its reduced half and the result of the other half). So the
# algorithm bandwidth, S divided by time, is comparable with the rate of one direction. Packet headers leave 0.956 of the
# rate for payload.
set -u
built=.; [ -x perf/allreduce_perf ] || built=build
perf=${PERF:-$built/perf/allreduce_perf} tutti=${TUTTI-$built/perf/tutti}
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

# calls_of SIZE: number of calls for 1 GiB in total (9 s at 1gbit), since congestion control needs seconds to converge
calls_of() { echo $((2 ** 30 / $(numfmt --from=iec "$1"))); }

# everywhere RANKS_PER_HOST COMMAND...: runs the command on every rank; the output of rank 0 goes to $out/0
everywhere() {
	local n=$((2 * $1)) r host pids=()
	for ((r = 0; r < n; r++)); do
		host=$a; [ "$r" -ge "$1" ] && host=$b
		TUTTI_RANK=$r TUTTI_NRANKS=$n TUTTI_ROOT=10.78.0.1:29778 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 \
			inside "$host" timeout 300 "${@:2}" >"$out/$r" 2>"$out/err.$r" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || { cat "$out"/err.* >&2; die "$n ranks: ${*:2}: failed"; }; done
}

# run RANKS_PER_HOST SIZE CALLS: prints a row of the table
run() {
	everywhere "$1" "$perf" -b "$2" -e "$2" -n "$3" -w 5 -c 1 --algo "$algo" --place out
	awk -v a="$1" -v line="$(line_rate)" '$3 == "float" { printf "| %d | %s | %.2f | %.1f | %.3f | %s |\n",
		a, $1, $6 / 1000, $1 / $6, $1 / $6 * 1e6 / line, $NF }' "$out/0"
}

# predict RANKS_PER_HOST: prints predicted (model with a link of this rate) and measured times of every algorithm
predict() {
	line_rate | awk '{ g = $1 * 0.956 / 1e9; print "hosts.link_gbps", g; print "hosts.host_gbps", g }' >"$out/links"
	everywhere "$1" "$tutti" tune --check --costs "$out/links" -b 4K -e 4M -f 32 --repeats 3
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
