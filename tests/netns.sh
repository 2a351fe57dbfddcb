#!/bin/bash
# netns.sh - two network namespaces joined by a veth pair are two hosts, two ranks on each
#
# No setting but rank, nranks, root and secret. Payload bytes between the hosts must be exactly 2S (hierarchical with a
# ring outside) and 3S (flat ring in host order), S the message bytes; the interfaces' own counters must agree
# within 5 % (headers, acknowledgements). TAP on standard output.
set -u
prog=${NET_BYTES:-./tests/net_bytes}
count=1048576 calls=8
bytes=$((count * 4 * calls))
out=$(mktemp -d)
a='' b=''

undo() { kill $a $b 2>/dev/null; rm -rf "$out"; }
trap undo EXIT
# A namespace lives as long as the process in it, so that nothing can be left behind; $1 is that process.
inside() { nsenter --net="/proc/$1/ns/net" "${@:2}"; }

echo 1..6
skip() { for i in 1 2 3 4 5 6; do echo "ok $i # SKIP $1"; done; exit 0; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "no ip command (package iproute2)"
unshare --net true 2>/dev/null || skip "this kernel or container makes no network namespaces"
unshare --net sleep 600 & a=$!
unshare --net sleep 600 & b=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do     # until both have left ours
	[ "$(readlink "/proc/$a/ns/net")" != "$(readlink /proc/$$/ns/net)" ] &&
		[ "$(readlink "/proc/$b/ns/net")" != "$(readlink /proc/$$/ns/net)" ] && break
	sleep .1
done
ip link add va netns "$a" type veth peer name vb netns "$b" || skip "no veth here"
inside "$a" ip addr add 10.77.0.1/24 dev va; inside "$a" ip link set va up; inside "$a" ip link set lo up
inside "$b" ip addr add 10.77.0.2/24 dev vb; inside "$b" ip link set vb up; inside "$b" ip link set lo up

interface_bytes() { inside "$a" ip -s link show va | awk '/[RT]X:/ { getline; s += $1 } END { printf "%.0f", s }'; }

# run ALGO: four ranks; prints payload bytes by tcp over all ranks, and of the interface
run() {
	local before after r host pids=()
	before=$(interface_bytes)
	for r in 0 1 2 3; do
		host=$a; [ $r -ge 2 ] && host=$b
		TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_ROOT=10.77.0.1:29777 TUTTI_SECRET=netns \
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
