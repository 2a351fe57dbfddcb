#!/bin/bash
# claims.sh - tests of the verbs transport on Soft-RoCE; run inside the machine, in the build folder. TAP on standard output.
set -u
tmp=$(mktemp -d)
. "$(dirname "$(readlink -f "$0")")/ranks.sh"
tier=${TT_TIER:-default}
n=0
# each claim is preceded by a comment with the seconds since the machine's start
claim() { echo "# $(cut -d. -f1 /proc/uptime) s"; n=$((n + 1)); if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$tmp/out" | tail -n 15; fi; }
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
alone() { TUTTI_IB_HCA=rxe0 timeout 200 "$@" >"$tmp/out" 2>&1 </dev/null; }       # on the NIC that reaches itself
suite() {  # DESCRIPTION SUITE FILTER VARIABLE=VALUE...
	[ -x "tests/$2" ] || { skip "$1" "tests/$2 was not built"; return; }
	alone env TUTTI_TEST_TRANSPORT=verbs "${@:4}" "tests/$2" -j1 --filter "$3"
	local status=$?
	[ $status != 0 ] || grep -qE 'Tested: *[1-9]' "$tmp/out" || status=1        # a filter that selects no test fails
	claim $status "$1"
}

says() { grep -qE "$1" "$tmp/out"; claim $? "$2"; }

# ---- one NIC -------------------------------------------------------------------------------------------------------

fewer=250; [ "$tier" = default ] || fewer=4
suite "conformance" conformance/test_transports '*/@(messages_of|random|another|close_leaves|messages_sent|a_writer)*' TUTTI_TEST_FEWER=$fewer
if [ "$tier" != default ]; then
	suite "conformance, all tests" conformance/test_transports '*' TUTTI_TEST_FEWER=20
	suite "a steady state without registrations" verbs/test_verbs '*steady*'
	suite "random calls of all algorithms, types and operations" conformance/test_collectives '*/random_calls_over_tcp*' \
		TUTTI_TEST_FEWER=4
fi
# BITS has the hashes of tcp and shm outside of the machine, by native instructions, for 2, 3 ... ranks. The runs are concurrent.
np=1 pids=()
for wanted in ${BITS:-}; do
	np=$((np + 1))
	TUTTI_IB_HCA=rxe0 timeout 200 tests/support/bits verbs $np >"$tmp/bits$np" 2>&1 </dev/null &
	pids+=($!)
done
np=1
for wanted in ${BITS:-}; do
	np=$((np + 1))
	wait "${pids[np - 2]}" && [ "$(cat "$tmp/bits$np")" = "$wanted" ]
	status=$?
	cp "$tmp/bits$np" "$tmp/out"
	claim $status "$np ranks, every algorithm and type: the bits are those of tcp and shm"
done
if [ "$tier" != default ]; then
	for np in 2 3 4; do
		alone $perf --np $np --transport verbs --algo all -b 4 -e 256K -f 256 -n 1 -w 0 -c 1
		claim $? "$np ranks, all algorithms: the results are right"
	done
fi

# ---- two NICs as two hosts -----------------------------------------------------------------------------------------

export TUTTI_LOG=debug
across 3 --transport auto --algo hierarchical -b 4 -e 64K -f 128 -n 2 -w 1 -c 1
claim $failures "without --transport verbs Soft-RoCE carries nothing: by the built-in costs tcp is always faster"
says 'rank 0: rank 2 by tcp' "tcp carries the messages instead"
if [ "$tier" != default ]; then
	across 2 --transport verbs -b 4 -e 1M -f 64 -n 2 -w 1 -c 1
	claim $failures "between two NICs: the results are right"
	tc qdisc add dev va root netem loss 100%
	across 2 --transport verbs -b 4 -e 1M -f 64 -n 2 -w 1 -c 1
	[ "$failures" = 2 ] && grep -q 'init: transport verbs: the host of rank [01] is not reached' "$tmp/out"
	claim $? "a peer without a path is an error of the init"
	tc qdisc del dev va root
fi
tc qdisc add dev va root netem delay 2ms loss 1%
tc qdisc add dev vb root netem delay 2ms loss 1%
across 2 --transport verbs -b 64 -e 64K -f 32 -n 10 -w 1 -c 1
claim $failures "between two NICs with 2 ms of delay and 1 % of loss on both sides: the results are right"
says 'rxea port 1, from GID [0-9]+ \(10.8.0.1\) to GID [0-9]+ \(10.8.0.2\), RoCE v2' "the GIDs are those of the link's subnet"
tc qdisc del dev va root; tc qdisc del dev vb root
unset TUTTI_LOG

# ---- failures -------------------------------------------------------------------------------------------------------

start 3 --transport verbs -b 64K -e 64K -n 100000 -w 1
await
kill_rank 1
finish
all_ended 3 && [ "$(grep -c '^rank [02].*rank 1' "$tmp/out")" -ge 2 ]
claim $? "kill -9 of a rank: all others end and name that rank"

if [ "$tier" != default ]; then
	start 2 --transport verbs -b 64K -e 64K -n 100000 -w 1
	await
	ip link set vb down
	finish
	all_ended 2
	claim $? "a NIC's link goes down under load: both ranks end"
	says 'rxe[ab] port 1 is down' "the error names the port"
	ip link set vb up
fi

# This kernel's rdma_rxe delays the removal of a NIC until the last user is gone, but first reports the port down if the
# interface below is removed.
start 2 --transport verbs -b 64K -e 64K -n 100000 -w 1
await
timeout 100 ip link del va &
removal=$!
finish
all_ended 2 && grep -qE 'rxe[ab] port 1 is down|rxe[ab] failed or was removed' "$tmp/out"
claim $? "NICs are removed under load: both ranks end and report it"
wait $removal
[ "$(rdma link | grep -cE 'rxe[ab]')" = 0 ]
claim $? "after that the NICs are removed"
claim "$(resources)" "no queue pair remains"
echo "1..$n"
