#!/bin/bash
# verbs.sh - the verbs transport on a fake libibverbs (tests/fakes/verbs), which is strict and fails on request
#
# The conformance suite with reordered and delayed completions, collectives, deaths, every kind of failure with its message,
# hosts without an HCA or without the library. soft_roce.sh tests RDMA devices of a real kernel. TAP on standard output.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
folder=$PWD/tests/fakes/verbs
perf=perf/allreduce_perf
shown=out
. "$(dirname "$0")/tap.sh"

# COMMAND... with the fake before any other libibverbs
with_fake() { LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TUTTI_TEST_VERBS=$tmp/verbs "$@" >"$tmp/out" 2>&1 </dev/null; }
suite() {  # DESCRIPTION SUITE FILTER VARIABLE=VALUE...
	if [ -x "tests/$2" ]; then
		with_fake timeout 100 env TUTTI_TEST_TRANSPORT=verbs "${@:4}" "tests/$2" --filter "$3" &&
			grep -qE 'Tested: *[1-9]' "$tmp/out"       # a filter that selects no test fails
		claim $? "$1" 40
	else
		skip "$1" "tests/$2 was not built"
	fi
}
# ranks 0 .. N-1 as processes without a launcher; env_0, env_1, ... are their variables
ranks() {  # N ARGUMENTS...
	local r pids=() status=0
	while (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done      # of an earlier, killed run
	for ((r = 0; r < $1; r++)); do
		local set="env_$r[@]"
		LD_LIBRARY_PATH=$folder TUTTI_TEST_VERBS=$tmp/verbs TUTTI_RANK=$r TUTTI_NRANKS=$1 TUTTI_ROOT=127.0.0.1:$port \
			TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 timeout 60 env "${!set}" $perf "${@:2}" >"$tmp/rank$r" 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || status=$((status + 1)); done
	cat "$tmp"/rank[0-9] >"$tmp/out"
	return $status
}
port=$((25000 + $$ % 1900))      # below the kernel's ephemeral ports, and outside the ranges of the other scripts

[ -e "$folder/libibverbs.so.1" ] || skip_all "the fake libibverbs was not built"

reordered='*/messages_*' calls=8 # an eighth of them; the longer tiers run all
[ "${TT_TIER:-default}" = default ] || reordered='*' calls=1

suite "conformance" conformance/test_transports '*' TUTTI_TEST_FEWER=8
suite "conformance with reordered and delayed completions" conformance/test_transports '*' TUTTI_TEST_FEWER=40 TUTTI_TEST_VERBS_MOOD=reorder,delay
suite "a steady state without registrations, choice of GIDs, declarations of the ABI" verbs/test_verbs '*'
suite "errors name the HCA's failure as their cause" unit/test_causes '*hca*'
suite "ports go down and come up again" verbs/test_verbs_ports '*'
suite "zero-copy messages, registrations" verbs/test_verbs_zcopy '*'
suite "zero-copy messages with reordered and delayed completions" verbs/test_verbs_zcopy "$reordered" TUTTI_TEST_VERBS_MOOD=reorder,delay
suite "wrong messages of a peer are refused" verbs/test_verbs_wrong '*'
suite "GPUDirect RDMA: an HCA reads and writes device memory" gpu/test_gpudirect '*'
suite "GPUDirect RDMA with reordered and delayed completions" gpu/test_gpudirect '*/@(copy_only|writes_of)_*' TUTTI_TEST_VERBS_MOOD=reorder,delay
suite "groups connect in any order, reordered completions" conformance/test_groups '*' TUTTI_TEST_FEWER=4 TUTTI_TEST_VERBS_MOOD=reorder,delay
suite "random calls of all algorithms, types and operations, reordered completions" conformance/test_collectives '*/random_calls_over_tcp*' TUTTI_TEST_FEWER=$calls TUTTI_TEST_VERBS_MOOD=reorder
suite "ranks are killed and stopped at any step of a plan" unit/test_faults '*/a_rank_killed_at_any*'

says() { grep -q "$1" "$tmp/out"; claim $? "$2"; }

# ---- choice of the transport ------------------------------------------------------------------------------------------------

env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug) env_1=(TUTTI_HOST_ID=a) env_2=(TUTTI_HOST_ID=b) env_3=(TUTTI_HOST_ID=b)
ranks 4 -b 64K -e 64K -n 2 -w 1 -c 1 --algo hierarchical
claim $? "four ranks on two hosts, hierarchical: the results are right"
says 'rank 0: rank 1 by shm' "ranks of one host use shm"
says 'rank 0: rank 2 by verbs' "ranks of different hosts use verbs, since the fake is not an emulated NIC"
says 'from GID 3 (10.77.0.1) to GID 3 (10.77.0.1), RoCE v2' \
	"the GID is RoCE v2 with an IPv4 address, and is logged at level debug"
port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_HCAS=2) env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_HCAS=2)
ranks 2 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring
claim $? "two HCAs per host: the results are right"
says 'channel 0: fake0 port 1, from GID 3 (10.77.0.1) to GID 3 (10.77.0.1)' "channel 0 uses the first HCA"
says 'channel 1: fake1 port 1, from GID 3 (10.77.0.2) to GID 3 (10.77.0.2)' "channel 1 uses the second HCA"
port=$((port + 1)) perf=perf/sendrecv_perf
ranks 2 -b 64K -e 8M -f 4 -n 2 -w 1 -c 1
claim $? "messages of several tiles use both HCAs: the results are right"
says 'channel 8: fake0 port 1' "the first HCA carries one half of their tiles"
says 'channel 9: fake1 port 1' "the second HCA carries the other half"
perf=perf/allreduce_perf port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_HCAS=2 TUTTI_TEST_VERBS_WIRES=0,1)
env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_HCAS=2 TUTTI_TEST_VERBS_WIRES=0,2)
ranks 2 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring
claim $? "only the first HCAs reach each other: the results are right"
says 'host of rank 1 is not reached by verbs over fake1: .*\(retry counter\|no message arrived\)' "the probe finds that the second HCAs do not reach each other"
says 'channel 1: fake0 port 1' "both channels use the first HCA"
port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_TEST_VERBS_FORK=old TUTTI_TEST_VERBS_INLINE=96) env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_INLINE=0)
ranks 2 -b 8 -e 64K -f 8 -n 2 -w 1 -c 1 --transport verbs
claim $? "a kernel that needs ibv_fork_init, HCAs that take few inline bytes or none: the results are right"
for ib in 1 grh; do
	port=$((port + 1)) env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_IB=$ib) env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_IB=$ib)
	ranks 2 -b 64K -e 64K -n 2 -w 1 -c 1 && grep -q 'fake0 port 1, .*InfiniBand' "$tmp/out" && grep -q 'rank 1 by verbs' "$tmp/out"
	claim $? "InfiniBand link layer, partitions, ${ib/1/LIDs}: the results are right"
done
port=$((port + 1))
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_HCAS=0) env_1=(TUTTI_HOST_ID=b TUTTI_LOG=debug)
ranks 2 -b 64K -e 64K -n 2 -w 1 -c 1
claim $? "a host without an HCA falls back to tcp"
says 'rank 1: rank 0 by tcp' "its peer with an HCA falls back, too"

# An HCA that cannot begin: the ranks use tcp, and a warning names the call, and what to do.
cannot_begin() {  # CALL PATTERN
	port=$((port + 1)) env_0=(TUTTI_HOST_ID=a TUTTI_LOG=warn TUTTI_TEST_VERBS_FAIL="$1:-1:12") env_1=(TUTTI_HOST_ID=b)
	ranks 2 -b 64K -e 64K -n 2 -w 1 -c 1 && grep -qE "warn.*fake0.*$2.*Cannot allocate memory" "$tmp/rank0"
	claim $? "an HCA fails in $1: tcp carries the data, and a warning says so" 20
}
cannot_begin open_device 'cannot be opened'
cannot_begin query_device query_device
cannot_begin query_port query_port
cannot_begin alloc_pd 'protection domain \(ibv_alloc_pd\)'
cannot_begin create_comp_channel 'completion channel \(ibv_create_comp_channel\)'
cannot_begin reg_mr registering
cannot_begin create_cq 'completion queue'
cannot_begin create_qp 'queue pair for rank 1'
port=$((port + 1)) env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug TUTTI_TEST_VERBS_HCAS=2 TUTTI_TEST_VERBS_FAIL=alloc_pd:2:12)
env_1=(TUTTI_HOST_ID=b TUTTI_TEST_VERBS_HCAS=2)
ranks 2 -b 64K -e 64K -n 2 -w 1 -c 1 && grep -q 'rank 1 by verbs' "$tmp/rank0" &&
	[ "$(grep -c 'warn.*verbs does not use fake1: .*ibv_alloc_pd' "$tmp/rank0")" = 1 ]
claim $? "the second of two HCAs fails: the first carries the data, and one warning names the second" 20

# ---- choice by cost ----------------------------------------------------------------------------------------------------

# The bytes that rank 0 sent: shm tcp verbs
sent() { awk '/Bytes sent by/ { n[$5] = $7 } END { print n["shm"] + 0, n["tcp"] + 0, n["verbs"] + 0 }' "$tmp/rank0"; }
carries() {  # DESCRIPTION CONDITION (on bytes: $1 shm, $2 tcp, $3 verbs) ARGUMENTS...
	port=$((port + 1))
	ranks "${np:-2}" "${@:3}" -n 2 -w 1 -c 1 && sent | awk "{ exit !($2) }"
	claim $? "$1"
}
good_for_small='soft.latency_ns 1000\nsoft.send_ns 500\nsoft.recv_ns 500\nsoft.link_gbps 0.1\nsoft.host_gbps 0.1\n'
printf "$good_for_small" >"$tmp/small.tuning"
printf 'verbs.latency_ns 1e6\n' >"$tmp/slow.tuning"
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug) env_1=(TUTTI_HOST_ID=b) env_2=(TUTTI_HOST_ID=a) env_3=(TUTTI_HOST_ID=b)
carries "an HCA carries all sizes" '$2 == 0 && $3 > 0' -b 8 -e 1M -f 64
env_0+=(TUTTI_TUNING="$tmp/slow.tuning")
carries "an HCA that is slow by the tuning table carries nothing" '$3 == 0 && $2 > 0' -b 8 -e 1M -f 64
soft=(TUTTI_TEST_VERBS_SOFT=1)
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug "${soft[@]}") env_1=(TUTTI_HOST_ID=b "${soft[@]}")
env_2=(TUTTI_HOST_ID=a "${soft[@]}") env_3=(TUTTI_HOST_ID=b "${soft[@]}")
carries "an emulated NIC carries nothing, since by the built-in costs tcp is always faster" '$3 == 0 && $2 > 0' -b 8 -e 1M -f 64
! grep -q 'channel 0:' "$tmp/rank0"
claim $? "an emulated NIC gets no queue pair, not even for a probe"
carries "--transport verbs makes an emulated NIC carry all sizes" '$2 == 0 && $3 > 0' -b 8 -e 1M -f 64 --transport verbs
env_0+=(TUTTI_TUNING="$tmp/small.tuning")
carries "an emulated NIC that is faster for small calls carries small calls" '$2 == 0 && $3 > 0' -b 8 -e 64 -f 8
carries "tcp carries the large calls" '$3 == 0 && $2 > 0' -b 1M -e 4M -f 4
carries "a named algorithm uses the faster transport for small calls" '$2 == 0 && $3 > 0' -b 8 -e 64 -f 8 --algo ring
carries "a named algorithm uses the faster transport for large calls" '$3 == 0 && $2 > 0' -b 1M -e 4M -f 4 --algo ring
np=4 carries "verbs and tcp alternate by size, and ranks of one host use shared memory" '$1 > 0 && $2 > 0 && $3 > 0' -b 8 -e 4M -f 64
np=4 carries "messages of different calls and communicators are not confused: all algorithms in turn" '$2 > 0 && $3 > 0' -b 8 -e 1M -f 64 --algo all
env_0+=(TUTTI_TEST_VERBS_FAULT=drop@1)
carries "an emulated NIC without a path to its peer carries nothing" '$3 == 0 && $2 > 0' -b 8 -e 1M -f 64
says 'host of rank 1 is not reached by verbs' "the log has the reason"

# Calls alternate between verbs and tcp; both ranks end with an error that matches PATTERN.
either() {  # DESCRIPTION PATTERN VARIABLE... (of rank 0)
	port=$((port + 1))
	env_0=(TUTTI_HOST_ID=a "${soft[@]}" TUTTI_TUNING="$tmp/small.tuning" "${@:3}") env_1=(TUTTI_HOST_ID=b "${soft[@]}")
	ranks 2 -b 8 -e 1M -f 131072 -n 20 -w 5 -N 4 --algo recursive-doubling
	[ $? = 2 ] && grep -qE "$2" "$tmp/rank1" && ! grep -qE 'timed out|flush' "$tmp/out"
	claim $? "calls alternate between verbs and tcp: $1" 20
}
for step in 30 90; do either "an error names the rank killed at step $step" 'allreduce: .*rank 0 died' TUTTI_FAULT=kill@0:$step; done
for fault in drop port-down device-gone; do
	words='retry counter exceeded' && [ $fault = drop ] || words='port 1 is down|failed or was removed'
	either "the error after $fault names the cause" "$words" TUTTI_TEST_VERBS_FAULT=$fault@12
done

# ---- zero copy -------------------------------------------------------------------------------------------------

port=$((port + 1))
env_0=(TUTTI_LOG=debug) env_1=(TT_NOTHING=)
ranks 2 --transport verbs -R 1 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring --place out
claim $? "registered buffers: the results are right"
# 8 tiles, each sent twice: the first receiver reduces the tile, the second receives the result
awk '/rank 0: verbs:/ { for (i = 1; i < NF; i++) { if ($(i + 1) == "work") w = $i; if ($(i + 1) == "messages") m = $i; if ($(i + 1) == "received") r = $i }
     good += m > 0 && m % 16 == 0 && r == m / 2 && w == m + r } END { exit good != 1 }' "$tmp/rank0"
claim $? "all messages leave from the caller's memory, all results arrive there: one work request per message, and one per RTR"
port=$((port + 1))
env_0=(TUTTI_LOG=info TUTTI_TEST_VERBS_FAULT=much-memory@4000000) env_1=(TT_NOTHING=)
ranks 2 --transport verbs -R 1 -b 4M -e 4M -n 2 -w 1 -c 1 --algo ring
claim $? "a buffer that cannot be registered: the results are right"
says 'registering [0-9]* bytes: .*; messages from there are copied' "the log says why messages are copied"

# device memory: with the fake CUDA driver, too
for r in 0 1; do eval "env_$r=(TUTTI_HOST_ID=$r TUTTI_LOG=debug LD_LIBRARY_PATH=$PWD/tests/fakes/cuda:$folder)"; done
for tool in sendrecv allgather; do
	port=$((port + 1)) perf=perf/${tool}_perf
	ranks 2 --transport verbs --device cuda:0 -R 1 -b 3M -e 3M -n 2 -w 1 -c 1 && grep -q '[1-9] of them of device memory' "$tmp/out"
	claim $? "$tool of registered device memory: the results are right, and the HCA has the memory registered"
done
perf=perf/allreduce_perf port=$((port + 1))
env_1+=(TUTTI_TEST_CUDA_NO=dmabuf)
ranks 2 --transport verbs --device cuda:0 -R 1 -b 3M -e 3M -n 2 -w 1 -c 1
claim $? "allreduce of device memory without dma-buf is staged through the host: the results are right"

# Both hosts have an HCA, but a probe message each way shows that no path connects them.
apart() {  # DESCRIPTION PATTERN VARIABLE... (of host a)
	port=$((port + 1))
	env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug "${@:3}") env_1=(TUTTI_HOST_ID=b TUTTI_LOG=debug TUTTI_IB_GID_INDEX=3)
	ranks 2 -b 64K -e 64K -n 2 -w 1 -c 1 && grep -q 'rank 0: rank 1 by tcp' "$tmp/out" && grep -q 'rank 1: rank 0 by tcp' "$tmp/out" &&
		grep -qE "$2" "$tmp/rank0" && [ "$(grep -c 'is not reached by verbs' "$tmp/rank0")" -le 1 ]
	claim $? "$1: tcp is used, probed once, logged in one line"
}
apart "a firewall between the hosts" 'host of rank 1 is not reached by verbs: .*retry counter exceeded' TUTTI_TEST_VERBS_FAULT=drop@1
apart "GIDs of different subnets" 'rank 0: rank 1 by tcp' TUTTI_IB_GID_INDEX=0
env_0=(TUTTI_HOST_ID=a TUTTI_TEST_VERBS_FAULT=drop@1) env_1=(TUTTI_HOST_ID=b) port=$((port + 1))
ranks 2 --transport verbs -b 64K -e 64K -n 2 -w 1 -c 1
[ $? = 2 ] && grep -q 'init: transport verbs: the host of rank 1 is not reached: .*retry counter exceeded' "$tmp/rank0"
claim $? "--transport verbs without a path is an error of the init"
env_0=(TUTTI_HOST_ID=a TUTTI_LOG=debug) env_1=(TUTTI_HOST_ID=b) port=$((port + 1))
ranks 2 -b 64K -e 64K -n 2 -w 1 -c 1 && [ "$(grep -c 'verbs: 1 work requests' "$tmp/rank0")" = 1 ]
claim $? "further communicators of the same hosts are not probed again"

# ---- error messages -----------------------------------------------------------------------------------------------

# Both ranks end before the deadline with an error that matches PATTERN, and no error mentions flushed work.
fails() {  # DESCRIPTION PATTERN VARIABLE... (of rank 0)
	local status
	port=$((port + 1))
	env_0=("${@:3}") env_1=(TT_NOTHING=)
	ranks 2 --transport verbs -b 1K -e 64K -f 2 -n 50 -w 5 --algo recursive-doubling
	status=$?
	[ $status = 2 ] && grep -qE "$2" "$tmp/rank0" && grep -qE "$2" "$tmp/rank1" && ! grep -qi flush "$tmp/out"
	claim $? "$1" 20
}
fault() { fails "$1: $2" "$2" TUTTI_TEST_VERBS_FAULT="$1@40"; }
fault drop 'fake0 port 1 GID 3 \(10.77.0.1\) queue pair .* to rank 1.s fake0 .*retry counter exceeded.*did not answer'
fault remote-access 'memory may not be written'
fault local-protection 'not registered'
fault rnr 'had no receive ready'
fault flush 'queue pair was stopped, and the HCA did not say why'
fault port-down 'fake0 port 1 is down'
fault device-gone 'fake0 failed or was removed'
fails "the last message of a call is lost after its sender went on" \
	'(is|are) lost: that rank.s HCA did not answer|retry counter exceeded' TUTTI_TEST_VERBS_FAULT=drop@58
fails "memory that cannot be locked" 'registering [0-9]+ bytes' TUTTI_TEST_VERBS_FAULT=memory@1
fails "a GID index that does not exist" 'no GID with index 9 .TUTTI_IB_GID_INDEX.' TUTTI_IB_GID_INDEX=9
fails "an HCA that does not exist" 'TUTTI_IB_HCA=mlx5 names none of 1' TUTTI_IB_HCA=mlx5
fails "no HCA" 'transport verbs cannot be used on this host: no InfiniBand or RoCE device' TUTTI_TEST_VERBS_HCAS=0

mkdir "$tmp/none" && : >"$tmp/none/libibverbs.so.1"
LD_LIBRARY_PATH=$tmp/none timeout 60 $perf --np 2 --transport verbs -b 8 -e 8 >"$tmp/out" 2>&1 </dev/null
[ $? != 0 ] && grep -q 'transport verbs cannot be used on this host: no libibverbs.so.1' "$tmp/out"
claim $? "without libibverbs --transport verbs is an error that says so"
LD_LIBRARY_PATH=$tmp/none timeout 60 $perf --np 2 -b 8 -e 8 -c 1 >"$tmp/out" 2>&1 </dev/null
claim $? "without libibverbs other transports work"

for np in 2 3 4; do
	with_fake timeout 60 $perf --np $np --transport verbs --algo all -b 4 -e 1M -f 64 -n 1 -w 0 -c 1
	claim $? "$np ranks, all algorithms: the results are right"
done
with_fake timeout 60 perf/sendrecv_perf --np 3 --transport verbs -b 64K -e 64K -n 1 -w 0 -c 1
claim $? "3 ranks send to the next rank, all at once: the results are right"
with_fake timeout 60 $perf --np 3 --transport verbs --algo all -R 1 -b 64K -e 4M -f 64 -n 1 -w 0 -c 1
claim $? "3 ranks, all algorithms, registered buffers: the results are right"
done_testing
