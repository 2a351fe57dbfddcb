#!/bin/bash
# netns.sh - two network namespaces joined by a veth pair are two hosts, two ranks on each
#
# Only rank, nranks, root and secret are set. The payload between the hosts is exactly 2S bytes (hierarchical with a
# ring between hosts) and 3S bytes (flat ring in host order), S the message bytes; the interfaces' own counters agree
# within 5 % (headers, acknowledgements). TAP on standard output.
set -u
prog=${NET_BYTES:-./tests/support/net_bytes}
count=1048576 calls=8
bytes=$((count * 4 * calls))
. "${top_srcdir:-.}/perf/two_hosts.sh"
tmp=$(mktemp -d) shown='err.*'
. "$(dirname "$0")/tap.sh"
undo() { kill $a $b 2>/dev/null; rm -rf "$tmp"; }
trap undo EXIT

two_hosts 10.77.0 || skip_all "$lacks"

interface_bytes() { inside "$a" ip -s link show va | awk '/[RT]X:/ { getline; s += $1 } END { printf "%.0f", s }'; }

# run ALGO: runs four ranks; prints the payload bytes that all ranks sent by tcp, and the bytes of the interface
run() {
	local before after r host pids=()
	before=$(interface_bytes)
	for r in 0 1 2 3; do
		host=$a; [ $r -ge 2 ] && host=$b
		TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_ROOT=10.77.0.1:29777 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 \
			inside "$host" timeout 60 "$prog" "$1" $count $calls >"$tmp/$r" 2>"$tmp/err.$r" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || { echo 0 0; return; }; done
	after=$(interface_bytes)
	echo "$(cat "$tmp"/[0-3] | awk '{ s += $2 } END { printf "%.0f", s }') $((after - before))"
}

for algo in hierarchical:two-shot/ring ring hierarchical:ring/ring; do
	want=$((2 * bytes)); [ "$algo" = ring ] && want=$((3 * bytes))
	set -- $(run "$algo")
	[ "$1" = "$want" ]
	claim $? "$algo: $1 payload bytes between the hosts, want $want"
	[ "$2" -ge "$want" ] && [ $(($2 * 100)) -le $((want * 105)) ]
	claim $? "$algo: $2 bytes by the interface's counters, payload $want"
done
done_testing
