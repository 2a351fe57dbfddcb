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
out=$(mktemp -d)
undo() { kill $a $b 2>/dev/null; rm -rf "$out"; }
trap undo EXIT

echo 1..6
skip() { for i in 1 2 3 4 5 6; do echo "ok $i # SKIP $1"; done; exit 0; }
two_hosts 10.77.0 || skip "$lacks"

interface_bytes() { inside "$a" ip -s link show va | awk '/[RT]X:/ { getline; s += $1 } END { printf "%.0f", s }'; }

# run ALGO: runs four ranks; prints the payload bytes that all ranks sent by tcp, and the bytes of the interface
run() {
	local before after r host pids=()
	before=$(interface_bytes)
	for r in 0 1 2 3; do
		host=$a; [ $r -ge 2 ] && host=$b
		TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_ROOT=10.77.0.1:29777 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 \
			inside "$host" timeout 60 "$prog" "$1" $count $calls >"$out/$r" 2>"$out/err.$r" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || { sed 's/^/# /' "$out"/err.*; echo "0 0"; return; }; done
	after=$(interface_bytes)
	echo "$(cat "$out"/[0-3] | awk '{ s += $2 } END { printf "%.0f", s }') $((after - before))"
}

n=0
claim() { n=$((n + 1)); if [ "$1" = 1 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi; }

for algo in hierarchical:two-shot/ring ring hierarchical:ring/ring; do
	want=$((2 * bytes)); [ "$algo" = ring ] && want=$((3 * bytes))
	set -- $(run "$algo" | tail -n 1)
	claim $(($1 == want)) "$algo: $1 payload bytes between the hosts, want $want"
	claim $(($2 >= want && $2 * 100 <= want * 105)) "$algo: $2 bytes by the interface's counters, payload $want"
done
