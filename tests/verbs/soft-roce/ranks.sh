# ranks.sh - ranks on the machine's NICs (sourced by claims.sh and soak.sh, which set $tmp)
cp perf/allreduce_perf "$tmp/" 2>/dev/null || cp perf/.libs/allreduce_perf "$tmp/"     # copied once from the host
perf=$tmp/allreduce_perf
port=21000
# start N ARGUMENTS...: starts one process per rank; the first half uses rxea, the other half rxeb, as two hosts.
start() {
	local r half=$((($1 + 1) / 2))
	port=$((port + 1)) pids=()
	for ((r = 0; r < $1; r++)); do
		TUTTI_IB_HCA=$([ $r -lt $half ] && echo =rxea || echo =rxeb) TUTTI_HOST_ID=$([ $r -lt $half ] && echo a || echo b) \
			TUTTI_RANK=$r TUTTI_NRANKS=$1 TUTTI_ROOT=127.0.0.1:$port TUTTI_SECRET=roce \
			timeout 120 $perf "${@:2}" >"$tmp/rank$r" 2>&1 </dev/null &
		pids+=($!)
	done
}
# Waits for all ranks: the number of failures is in $failures, the output in $tmp/out.
finish() {
	local pid
	failures=0
	for pid in "${pids[@]}"; do wait "$pid" || failures=$((failures + 1)); done 2>/dev/null
	cat "$tmp"/rank[0-9] >"$tmp/out"
	rm -f "$tmp"/rank[0-9]
}
across() { start "$@"; finish; }
# number of queue pairs (or of another kind of RDMA resource) in the kernel
resources() { rdma resource show "${1:-qp}" | grep -c 'pid [0-9]'; }
# packets that both NICs sent; await waits until the ranks send many
sent() { cat /sys/class/infiniband/rxe[ab]/ports/1/hw_counters/sent_pkts | awk '{ n += $1 } END { print n }'; }
await() {
	local before=$(sent)
	for _ in $(seq 400); do [ $(($(sent) - before)) -gt 400 ] && return; sleep .1; done
}
# Kills rank N's process, not its timeout; without procps, which a minimal host may lack.
kill_rank() { kill -9 $(cat /proc/"${pids[$1]}"/task/*/children); wait "${pids[$1]}" 2>/dev/null; }
running() { cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^allreduce_perf$'; }
# All ranks ended with an error, and no rank by the deadline.
all_ended() { [ "$failures" = "$1" ] && ! grep -q 'timed out after' "$tmp/out"; }
