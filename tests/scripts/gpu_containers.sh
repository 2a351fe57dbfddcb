#!/bin/bash
# gpu_containers.sh - ranks with GPU memory in containers of one machine, on the fake CUDA driver
#
# Containers have process ids, System V IPC, /dev/shm and mounts of their own, and the host's network namespace
# (docker --network=host) or one of their own. In the former, kernels run, over memory that is shared by descriptor, since IPC
# handles are refused; in the latter, ranks are on two hosts, and the log names the remedy. TAP; called by make check.
set -u
. "${top_srcdir:-.}/perf/two_hosts.sh"
tmp=$(mktemp -d) shown='rank.*'
undo() { kill $a $b 2>/dev/null; rm -rf "$tmp"; }
trap undo EXIT
. "$(dirname "$0")/tap.sh"
[ -e tests/fakes/cuda/libcuda.so.1 ] || skip_all "no fake CUDA driver in this build"
two_hosts 10.79.0 || skip_all "$lacks"
contained=(unshare --pid --fork --kill-child --ipc --mount --mount-proc sh -c 'mount -t tmpfs none /dev/shm && exec "$@"' sh)
"${contained[@]}" true 2>/dev/null || skip_all "no namespaces of processes and mounts here"

# ranks HOST-OF-0 HOST-OF-1 VARIABLE=VALUE...: an allreduce of two ranks, each in a container on the network of a process
ranks() {
	local r host pids=() status=0
	for r in 0 1; do
		host=$1
		[ $r = 0 ] || host=$2
		inside "$host" env TUTTI_RANK=$r TUTTI_NRANKS=2 TUTTI_ROOT=$root:29781 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 \
			TUTTI_LOG=info LD_LIBRARY_PATH="$PWD/tests/fakes/cuda" "${@:3}" "${contained[@]}" \
			timeout 60 perf/allreduce_perf --device cuda -b 64 -e 64K -f 32 -n 2 -w 1 -c 1 >"$tmp/rank.$r" 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || status=1; done
	[ $status = 0 ] && grep -q 'Out of bounds values : 0 OK' "$tmp/rank.0"
}
says() { grep -qE -- "$1" "$tmp"/rank.*; }

root=127.0.0.1
ranks $a $a
claim $? "containers with one network and one GPU: the results are right"
says 'GPU kernels on device 0, ranks on 1, ordered by streams, IPC buffers shared by descriptor' &&
	says 'no IPC handles: .*open a peer.s device memory by IPC handle'
claim $? "their kernels run, over memory shared by descriptor"
ranks $a $a TUTTI_TEST_CUDA_DEVICES=2
claim $? "containers with one network and a GPU each: the results are right"
says 'GPU kernels on device 1, ranks on 2, which wait for each other, IPC buffers shared by descriptor'
claim $? "their kernels run and wait for each other"
root=10.79.0.1
ranks $a $b
claim $? "containers with a network each: the results are right"
says 'ranks 0 and 1 are on one machine in different network namespaces.*GPU memory through host memory.*--network=host' &&
	! says 'GPU kernels on device'
claim $? "the log names the ranks, what it costs, and the remedy"
ranks $a $b TUTTI_HOST_ID=vm
claim $? "the results are right with TUTTI_HOST_ID"
! says 'network namespaces'
claim $? "with TUTTI_HOST_ID the log assumes different machines"
done_testing
