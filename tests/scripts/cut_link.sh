#!/bin/bash
# cut_link.sh - the link between two hosts fails while four ranks run allreduces over tcp
#
# Two network namespaces joined by a veth pair are the hosts, with two ranks on each. The link fails silently, as behind a
# switch that lost its tables: frames go to a MAC address that no interface has. All ranks end soon, with an error
# that names an unreachable rank and the reason. Longer tiers also set an interface down, and let the kernel give up a
# connection before the deadline. TAP on standard output.
set -u
perf=$PWD/perf/allreduce_perf
. "${top_srcdir:-.}/perf/two_hosts.sh"
tmp=$(mktemp -d) shown='*'
undo() { kill $a $b 2>/dev/null; rm -rf "$tmp"; }
trap undo EXIT
. "$(dirname "$0")/tap.sh"
two_hosts 10.78.0 || skip_all "$lacks"

bytes() { inside "$a" ip -s link show va | awk '/TX:/ { getline; print $1 }'; }
carries() { local from; from=$(bytes); for _ in {1..100}; do [ $(($(bytes) - from)) -gt 4000000 ] && return; sleep .05; done; return 1; }

# cut DESCRIPTION SECONDS PATTERN COMMAND...: COMMAND breaks the link under ranks with that time-out; PATTERN is the reason
cut() {
	local r host pids=() since bad=0
	for r in 0 1 2 3; do
		host=$a; [ $r -ge 2 ] && host=$b
		TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_ROOT=10.78.0.1:29778 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 TUTTI_HOST_ID=$host \
			inside "$host" timeout 30 "$perf" -b 1M -e 1M -n 1000000 -w 1 -c 0 -T "$2" >"$tmp/$r" 2>&1 </dev/null &
		pids+=($!)
	done
	carries
	claim $? "$1: data flow between the hosts before the failure"
	since=$(date +%s%N)
	"${@:4}"
	for r in "${pids[@]}"; do wait "$r"; [ $? = 1 ] || bad=1; done
	echo "# all ended $((($(date +%s%N) - since) / 1000000)) ms after the failure"
	for r in 0 1; do grep -qE "^rank $r: .*rank [23]$3" "$tmp/$r" || bad=1; done
	for r in 2 3; do grep -qE "^rank $r: .*rank [01]$3" "$tmp/$r" || bad=1; done
	claim $bad "$1: every rank names a rank of the other host that does not answer, and the reason"
}
silence() {
	inside "$a" ip neigh replace 10.78.0.2 lladdr 02:00:00:00:00:99 dev va nud permanent
	inside "$b" ip neigh replace 10.78.0.1 lladdr 02:00:00:00:00:99 dev vb nud permanent
}
mend() { inside "$a" ip neigh del 10.78.0.2 dev va; inside "$b" ip neigh del 10.78.0.1 dev vb; }
cut "a silent failure" 2 '( is not answering)?: its host has acknowledged nothing for [0-9.]+ s: the network, or that host, is down' silence
mend
# Ranks that are in no call: the limit of each is 90 s.
pids=() bad=0
rm -f "$tmp"/*
for r in 0 1 2 3; do
	host=$a; [ $r -ge 2 ] && host=$b
	TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_ROOT=10.78.0.1:29779 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 TUTTI_HOST_ID=$host \
		inside "$host" timeout 120 "$PWD/tests/support/idle" >"$tmp/$r" 2>&1 </dev/null &
	pids+=($!)
done
for _ in {1..600}; do [ "$(cat "$tmp"/* | grep -c joined)" = 4 ] && break; sleep .1; done
since=$(date +%s%N)
silence
for r in "${pids[@]}"; do wait "$r"; [ $? = 1 ] || bad=1; done
echo "# all ended $((($(date +%s%N) - since) / 1000000)) ms after the failure"
for r in 0 1; do grep -qE "rank [23] is cut off: .*Connection timed out" "$tmp/$r" || bad=1; done
for r in 2 3; do grep -qE "rank [01] is cut off: .*Connection timed out" "$tmp/$r" || bad=1; done
claim $bad "idle ranks: every rank names a rank of the host that vanished"
if [ "${TT_TIER:-default}" != default ]; then
	mend
	for host in "$a" "$b"; do inside "$host" sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_retries2'; done
	cut "the kernel gives up first" 20 '( is cut off: .*| \(channel [0-9]+\): )Connection timed out' silence
	mend
	for host in "$a" "$b"; do inside "$host" sh -c 'echo 15 >/proc/sys/net/ipv4/tcp_retries2'; done
	cut "an interface is set down" 1 '(( is not answering)?: interface v[ab], by which it is reached, is down| \(channel [0-9]+\): Network is unreachable)' \
		inside "$b" ip link set vb down
fi
done_testing
