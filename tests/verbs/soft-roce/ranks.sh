# ranks.sh - ranks on the machine's cards, for claims.sh and soak.sh (sourced there; $tmp is theirs)
cp perf/allreduce_perf "$tmp/" 2>/dev/null || cp perf/.libs/allreduce_perf "$tmp/"     # once from the host
perf=$tmp/allreduce_perf
port=21000
# One rank a program; the first half on card rxea, the others on rxeb, as two hosts: start N ARGUMENTS...
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
# Wait for all: how many failed is in failures, what they said in $tmp/out.
finish() {
	local pid
	failures=0
	for pid in "${pids[@]}"; do wait "$pid" || failures=$((failures + 1)); done 2>/dev/null
	cat "$tmp"/rank[0-9] >"$tmp/out"
	rm -f "$tmp"/rank[0-9]
}
across() { start "$@"; finish; }
# what the kernel still holds of queue pairs (and of registrations)
held() { rdma resource show "${1:-qp}" | grep -c 'pid [0-9]'; }
# until the cards have much to do
sent() { cat /sys/class/infiniband/rxe[ab]/ports/1/hw_counters/sent_pkts | awk '{ n += $1 } END { print n }'; }
await() {
	local before=$(sent)
	for _ in $(seq 400); do [ $(($(sent) - before)) -gt 400 ] && return; sleep .1; done
}
# Kill rank N's program, not the timeout around it; without procps, which a bare host may lack.
kill_rank() { kill -9 $(cat /proc/"${pids[$1]}"/task/*/children); wait "${pids[$1]}" 2>/dev/null; }
running() { cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^allreduce_perf$'; }
# All ended with an error, and none because of the deadline.
all_ended() { [ "$failures" = "$1" ] && ! grep -q 'timed out after' "$tmp/out"; }
