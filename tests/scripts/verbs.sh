#!/bin/bash
# verbs.sh - the verbs transport on a stand-in for libibverbs (tests/fakes/verbs), which is strict and fails when told to
#
# The conformance suite in several moods, collectives, deaths, every way of failing and what is said then, hosts without a
# card or without the library. The real thing, with a kernel's device, is soft_roce.sh. TAP on standard output.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
folder=$PWD/tests/fakes/verbs
perf=perf/allreduce_perf
n=0
claim() { n=$((n + 1)); if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$tmp/out" | tail -n "${3:-12}"; fi; }
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }

# with the stand-in in front: COMMAND...
with_fake() { LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TUTTI_TEST_VERBS=$tmp/verbs "$@" >"$tmp/out" 2>&1 </dev/null; }
suite() {  # DESCRIPTION SUITE FILTER VARIABLE=VALUE...
	if [ -x "tests/$2" ]; then
		with_fake timeout 100 env TUTTI_TEST_TRANSPORT=verbs "${@:4}" "tests/$2" --filter "$3"
		claim $? "$1" 40
	else
		skip "$1" "tests/$2 was not made"
	fi
}
# ranks 0 .. N-1 as programs of their own; env_0, env_1, ... are their variables
crew() {  # N ARGUMENTS...
	local r pids=() status=0
	for ((r = 0; r < $1; r++)); do
		local set="env_$r[@]"
		LD_LIBRARY_PATH=$folder TUTTI_TEST_VERBS=$tmp/verbs TUTTI_RANK=$r TUTTI_NRANKS=$1 TUTTI_ROOT=127.0.0.1:$port \
			TUTTI_SECRET=verbs timeout 60 env "${!set}" $perf "${@:2}" >"$tmp/rank$r" 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || status=$((status + 1)); done
	cat "$tmp"/rank[0-9] >"$tmp/out"
	return $status
}
port=$((25000 + $$ % 1900))      # below those that the kernel gives to connections, and no other script's

[ -e "$folder/libibverbs.so.1" ] || { echo "1..0 # SKIP the stand-in was not made"; exit 0; }

suite "conformance" conformance/test_transports '*' TUTTI_TEST_FEWER=8
suite "conformance, completions in another order and late" conformance/test_transports '*' TUTTI_TEST_FEWER=40 TUTTI_TEST_VERBS_MOOD=reorder,delay
suite "steady state, GIDs, declarations" verbs/test_verbs '*'
suite "which cause is told" unit/test_causes '*card*'
suite "ports that go down, and come back" verbs/test_verbs_ports '*'
suite "messages past the rings, registrations" verbs/test_verbs_zcopy '*'
suite "the same, completions in another order and late" verbs/test_verbs_zcopy '*' TUTTI_TEST_VERBS_MOOD=reorder,delay
suite "peers that say what is not so" verbs/test_verbs_wrong '*'
suite "device memory that a card reads and writes" gpu/test_gpudirect '*'
suite "the same, completions in another order and late" gpu/test_gpudirect '*/@(copy_only|writes_of)*' TUTTI_TEST_VERBS_MOOD=reorder,delay
suite "random calls of all algorithms, types and operations" conformance/test_collectives '*/random_calls_over_tcp*' TUTTI_TEST_VERBS_MOOD=reorder
suite "ranks killed and stopped at steps of plans" unit/test_faults '*/a_rank_killed_at_any*'

says() { grep -q "$1" "$tmp/out"; claim $? "$2"; }

# ---- which transport ------------------------------------------------------------------------------------------------

env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug) env_1=(TUTTI_HOST_ID=a) env_2=(TUTTI_HOST_ID=b) env_3=(TUTTI_HOST_ID=b)
crew 4 -b 64K -e 64K -n 2 -w 1 -c 1 --algo hierarchical
claim $? "four ranks on two hosts, hierarchical, are right"
says 'rank 0: rank 1 by shm' "within a host by shm"
says 'rank 0: rank 2 by verbs' "between hosts by verbs, since the card counts as a real one"
says 'from GID 3 (10.77.0.1) to GID 3 (10.77.0.1), RoCE v2' \
	"the GID is RoCE v2 with an IPv4 address, and is told at level debug"
port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_CARDS=2) env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_CARDS=2)
crew 2 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring
claim $? "two cards a host are right"
says 'channel 0: standin0 port 1, from GID 3 (10.77.0.1) to GID 3 (10.77.0.1)' "channel 0 runs over the first"
says 'channel 1: standin1 port 1, from GID 3 (10.77.0.2) to GID 3 (10.77.0.2)' "channel 1 over the second"
port=$((port + 1)) perf=perf/sendrecv_perf
crew 2 -b 64K -e 8M -f 4 -n 2 -w 1 -c 1
claim $? "messages of several tiles go over both: right"
says 'channel 8: standin0 port 1' "one half of their tiles over the first"
says 'channel 9: standin1 port 1' "one over the second"
perf=perf/allreduce_perf port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_CARDS=2 TUTTI_TEST_VERBS_WIRES=0,1)
env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_CARDS=2 TUTTI_TEST_VERBS_WIRES=0,2)
crew 2 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring
claim $? "where only the first cards reach each other: right"
says 'host of rank 1 is not reached by verbs over standin1: .*\(retry counter\|no message arrived\)' "the second is found out by the trial"
says 'channel 1: standin0 port 1' "and both channels run over the first"
port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_TEST_VERBS_FORK=old TUTTI_TEST_VERBS_INLINE=96) env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_INLINE=0)
crew 2 -b 8 -e 64K -f 8 -n 2 -w 1 -c 1 --transport verbs
claim $? "a kernel under which forks must be prepared for, cards that take few bytes inline, or none"
for ib in 1 grh; do
	port=$((port + 1)) env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_IB=$ib) env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_IB=$ib)
	crew 2 -b 64K -e 64K -n 2 -w 1 -c 1 && grep -q 'standin0 port 1, .*InfiniBand' "$tmp/out" && grep -q 'rank 1 by verbs' "$tmp/out"
	claim $? "InfiniBand's link layer, partitions, ${ib/1/LIDs}: right"
done
port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_CARDS=0) env_1=(TUTTI_HOST_ID=b TUTTI_LOG=debug)
crew 2 -b 64K -e 64K -n 2 -w 1 -c 1
claim $? "a host without a card falls back to tcp"
says 'rank 1: rank 0 by tcp' "so does its peer that has one"

# ---- by the costs ----------------------------------------------------------------------------------------------------

# The first rank's figures of what was sent: shm tcp verbs
went() { awk '/Bytes sent by/ { n[$5] = $7 } END { print n["shm"] + 0, n["tcp"] + 0, n["verbs"] + 0 }' "$tmp/rank0"; }
by() {  # DESCRIPTION CONDITION (of $1 shm, $2 tcp, $3 verbs) ARGUMENTS...
	port=$((port + 1))
	crew "${ranks:-2}" "${@:3}" -n 2 -w 1 -c 1 && went | awk "{ exit !($2) }"
	claim $? "$1"
}
good_for_small='soft.latency_ns 1000\nsoft.send_ns 500\nsoft.recv_ns 500\nsoft.link_gbps 0.1\nsoft.host_gbps 0.1\n'
printf "$good_for_small" >"$tmp/small.tuning"
printf 'verbs.latency_ns 1e6\n' >"$tmp/slow.tuning"
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug) env_1=(TUTTI_HOST_ID=b) env_2=(TUTTI_HOST_ID=a) env_3=(TUTTI_HOST_ID=b)
by "a real card carries all sizes" '$2 == 0 && $3 > 0' -b 8 -e 1M -f 64
env_0+=(TUTTI_TUNING="$tmp/slow.tuning")
by "but not where the table has a slow one" '$3 == 0 && $2 > 0' -b 8 -e 1M -f 64
soft=(TUTTI_TEST_VERBS_SOFT=1)
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug "${soft[@]}") env_1=(TUTTI_HOST_ID=b "${soft[@]}")
env_2=(TUTTI_HOST_ID=a "${soft[@]}") env_3=(TUTTI_HOST_ID=b "${soft[@]}")
by "a software card carries nothing, since by the built-in costs it is never quicker" '$3 == 0 && $2 > 0' -b 8 -e 1M -f 64
! grep -q 'channel 0:' "$tmp/rank0"
claim $? "and makes no queue pair, not even for a trial"
by "asked for by name it carries all" '$2 == 0 && $3 > 0' -b 8 -e 1M -f 64 --transport verbs
env_0+=(TUTTI_TUNING="$tmp/small.tuning")
by "where it is quicker for small calls it carries small ones" '$2 == 0 && $3 > 0' -b 8 -e 64 -f 8
by "and tcp the large ones" '$3 == 0 && $2 > 0' -b 1M -e 4M -f 4
by "an algorithm that was named goes the quicker way, too" '$2 == 0 && $3 > 0' -b 8 -e 64 -f 8 --algo ring
by "large ones as well" '$3 == 0 && $2 > 0' -b 1M -e 4M -f 4 --algo ring
ranks=4 by "both in turn, and shared memory within hosts" '$1 > 0 && $2 > 0 && $3 > 0' -b 8 -e 4M -f 64
ranks=4 by "messages of other communicators' calls do not meet: all algorithms in turn" '$2 > 0 && $3 > 0' -b 8 -e 1M -f 64 --algo all
env_0+=(TUTTI_TEST_VERBS_FAULT=drop@1)
by "a software card that leads nowhere carries nothing" '$3 == 0 && $2 > 0' -b 8 -e 1M -f 64
says 'host of rank 1 is not reached by verbs' "and it is said why"

# Both ranks end with an error that has these words, in calls that go by verbs and by tcp in turn.
either() {  # DESCRIPTION WORDS VARIABLE... (of rank 0)
	port=$((port + 1))
	env_0=(TUTTI_HOST_ID=a "${soft[@]}" TUTTI_TUNING="$tmp/small.tuning" "${@:3}") env_1=(TUTTI_HOST_ID=b "${soft[@]}")
	crew 2 -b 8 -e 1M -f 131072 -n 20 -w 5 -N 4 --algo recursive-doubling
	[ $? = 2 ] && grep -qE "$2" "$tmp/rank1" && ! grep -qE 'timed out|flush' "$tmp/out"
	claim $? "two ways: $1" 20
}
for step in 30 90; do either "a rank killed at step $step is named" 'allreduce: .*rank 0 died' TUTTI_FAULT=kill@0:$step; done
for fault in drop port-down device-gone; do
	words='retry counter exceeded' && [ $fault = drop ] || words='port 1 is down|failed or was removed'
	either "$fault is told by its cause" "$words" TUTTI_TEST_VERBS_FAULT=$fault@12
done

# ---- past the rings -------------------------------------------------------------------------------------------------

port=$((port + 1))
env_0=(TUTTI_LOG=debug) env_1=(TT_NOTHING=)
crew 2 --transport verbs -R 1 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring --place out
claim $? "registered buffers are right"
# 8 tiles; each is sent twice, and what is received once is reduced, the second time the result
awk '/rank 0: verbs:/ { for (i = 1; i < NF; i++) { if ($(i + 1) == "work") w = $i; if ($(i + 1) == "messages") m = $i; if ($(i + 1) == "received") r = $i }
     good += m > 0 && m % 16 == 0 && r == m / 2 && w == m + r } END { exit good != 1 }' "$tmp/rank0"
claim $? "all is sent from the caller's memory, all results land there: one work request a message, and one that says where"
port=$((port + 1))
env_0=(TUTTI_LOG=info TUTTI_TEST_VERBS_FAULT=much-memory@4000000) env_1=(TT_NOTHING=)
crew 2 --transport verbs -R 1 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring
claim $? "a buffer that cannot be registered: right"
says 'registering [0-9]* bytes: .*; messages from there are copied' "and it is told why it is slow"

# device memory: the stand-in for CUDA, too
for r in 0 1; do eval "env_$r=(TUTTI_HOST_ID=$r TUTTI_LOG=debug LD_LIBRARY_PATH=$PWD/tests/fakes/cuda:$folder)"; done
for tool in sendrecv allgather; do
	port=$((port + 1)) perf=perf/${tool}_perf
	crew 2 --transport verbs --device cuda:0 -R 1 -b 3M -e 3M -n 2 -w 1 -c 1 && grep -q '[1-9] of them of device memory' "$tmp/out"
	claim $? "$tool of registered device memory: right, and a card knows it"
done
perf=perf/allreduce_perf port=$((port + 1))
env_1+=(TUTTI_TEST_CUDA_NO=dmabuf)
crew 2 --transport verbs --device cuda:0 -R 1 -b 3M -e 3M -n 2 -w 1 -c 1
claim $? "allreduce of it is staged, and right"

# a card on both, but: what leads where is found out by a message each way
apart() {  # DESCRIPTION WORDS VARIABLE... (of host a)
	port=$((port + 1))
	env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug "${@:3}") env_1=(TUTTI_HOST_ID=b TUTTI_LOG=debug TUTTI_IB_GID_INDEX=3)
	crew 2 -b 64K -e 64K -n 2 -w 1 -c 1 && grep -q 'rank 0: rank 1 by tcp' "$tmp/out" && grep -q 'rank 1: rank 0 by tcp' "$tmp/out" &&
		grep -qE "$2" "$tmp/rank0" && [ "$(grep -c 'is not reached by verbs' "$tmp/rank0")" -le 1 ]
	claim $? "$1: by tcp, found out once, and said in a line"
}
apart "a firewall between the hosts" 'host of rank 1 is not reached by verbs: .*retry counter exceeded' TUTTI_TEST_VERBS_FAULT=drop@1
apart "GIDs of another subnet" 'rank 0: rank 1 by tcp' TUTTI_IB_GID_INDEX=0
env_0=(TUTTI_HOST_ID=a TUTTI_TEST_VERBS_FAULT=drop@1) env_1=(TUTTI_HOST_ID=b) port=$((port + 1))
crew 2 --transport verbs -b 64K -e 64K -n 2 -w 1 -c 1
[ $? = 2 ] && grep -q 'init: transport verbs: the host of rank 1 is not reached: .*retry counter exceeded' "$tmp/rank0"
claim $? "who asks for verbs by name and is not reached gets an error at the join"
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug) env_1=(TUTTI_HOST_ID=b) port=$((port + 1))
crew 2 -b 64K -e 64K -n 2 -w 1 -c 1 && [ "$(grep -c 'verbs: 1 work requests' "$tmp/rank0")" = 1 ]
claim $? "communicators of the same hosts are not tried again"

# ---- failing in words -----------------------------------------------------------------------------------------------

# Both ranks end with an error that has these words, before the deadline, and none says that work was flushed.
fails() {  # DESCRIPTION WORDS VARIABLE... (of rank 0)
	local status
	port=$((port + 1))
	env_0=("${@:3}") env_1=(TT_NOTHING=)
	crew 2 --transport verbs -b 1K -e 64K -f 2 -n 50 -w 5 --algo recursive-doubling
	status=$?
	[ $status = 2 ] && grep -qE "$2" "$tmp/rank0" && grep -qE "$2" "$tmp/rank1" && ! grep -qi flush "$tmp/out"
	claim $? "$1" 20
}
fault() { fails "$1: $2" "$2" TUTTI_TEST_VERBS_FAULT="$1@40"; }
fault drop 'standin0 port 1 GID 3 \(10.77.0.1\) queue pair .* to rank 1.s standin0 .*retry counter exceeded.*did not answer'
fault remote-access 'memory may not be written'
fault local-protection 'not registered'
fault rnr 'had no receive ready'
fault flush 'queue pair was stopped, and the HCA did not say why'
fault port-down 'standin0 port 1 is down'
fault device-gone 'standin0 failed or was removed'
fails "the last message of a call is lost, and its rank has gone on elsewhere" \
	'are lost: that rank.s HCA did not answer|retry counter exceeded' TUTTI_TEST_VERBS_FAULT=drop@58
fails "no memory to lock" 'registering [0-9]+ bytes' TUTTI_TEST_VERBS_FAULT=memory@1
fails "a GID that is not there" 'no GID with index 9 .TUTTI_IB_GID_INDEX.' TUTTI_IB_GID_INDEX=9
fails "a card that is not there" 'TUTTI_IB_HCA=mlx5 names none of 1' TUTTI_IB_HCA=mlx5
fails "no card" 'transport verbs cannot be used on this host: no InfiniBand or RoCE device' TUTTI_TEST_VERBS_CARDS=0

mkdir "$tmp/none" && : >"$tmp/none/libibverbs.so.1"
LD_LIBRARY_PATH=$tmp/none timeout 60 $perf --np 2 --transport verbs -b 8 -e 8 >"$tmp/out" 2>&1 </dev/null
[ $? != 0 ] && grep -q 'transport verbs cannot be used on this host: no libibverbs.so.1' "$tmp/out"
claim $? "without libibverbs: --transport verbs says so"
LD_LIBRARY_PATH=$tmp/none timeout 60 $perf --np 2 -b 8 -e 8 -c 1 >"$tmp/out" 2>&1 </dev/null
claim $? "without libibverbs: everything else works"

for np in 2 3 4; do
	with_fake timeout 60 $perf --np $np --transport verbs --algo all -b 4 -e 1M -f 64 -n 1 -w 0 -c 1
	claim $? "$np ranks, all algorithms"
done
with_fake timeout 60 perf/sendrecv_perf --np 3 --transport verbs -b 64K -e 64K -n 1 -w 0 -c 1
claim $? "3 ranks send to the next, all at once"
with_fake timeout 60 $perf --np 3 --transport verbs --algo all -R 1 -b 64K -e 4M -f 64 -n 1 -w 0 -c 1
claim $? "3 ranks, all algorithms, registered buffers"
echo "1..$n"
