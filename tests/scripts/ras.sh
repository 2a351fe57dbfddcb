#!/bin/bash
# ras.sh - TUTTI_RAS: NCCL's RAS protocol, asked by clients that parse as NCCL's do; ranks that run, stop and leave; strangers
# Called by make check in the build folder.
export LC_ALL=C
tmp=$(mktemp -d) || exit 99
jobs=()
trap 'kill -CONT "${stopped[@]}" 2>/dev/null; kill "${jobs[@]}" 2>/dev/null; wait; rm -rf "$tmp"' EXIT
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
unset TUTTI_LOG TUTTI_ALGO TUTTI_TRANSPORT TUTTI_TRACE TUTTI_METRICS TUTTI_RAS NCCL_RAS_ENABLE NCCL_RAS_ADDR
command -v python3 >/dev/null || { echo "no python3"; exit 77; }

address=localhost:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
client() { timeout -k 5 120 python3 "$here/ras_client.py" "$address" "$@"; }
# job RANKS [TRANSPORT]: allreduces of 1 KiB without end, in the background
job() {
	TUTTI_RAS=$address TUTTI_TIMEOUT_MS=100000 timeout -k 5 300 tests/support/steady 1024 processes "$@" >"$tmp/job" 2>&1 </dev/null &
	jobs+=($!)
}
end_job() { kill "${jobs[-1]}" && { wait "${jobs[-1]}"; true; }; }

job 3
starts() { client status ranks=3 counted=AllReduce || { cat "$tmp/job"; return 1; }; }
point "a client that awaits each answer reads the counts of all ranks" starts
point "a client that sends all at once and waits 1 s reads them too" client pipelined ranks=3 counted=AllReduce
in_words() {
	client text >"$tmp/text" && has '^    0 +1 +1 +3 +3 +3   RUNNING  (OK|MISMATCH)$' "$tmp/text" &&
		client text VERBOSE STATUS >"$tmp/text" && [ "$(grep '^  Rank [0-2] -- process [0-9]* on node .*, running' "$tmp/text" | cut -d, -f1 | sort -u | wc -l)" = 3 ]
}
point "the report in words has a row for a communicator, and a line for each rank if it is verbose" in_words
point "unknown commands, values and lines that are too long are refused" client wrong
point "strangers that flood keep no client out" client flood ranks=3
point "a client without a command is sent away" client idle

# A process of the job by its rank
pid_of() { client status ranks=3 | grep -oE '"rank": '"$1"', "host": "[^"]*", "pid": [0-9]+' | head -n 1 | grep -oE '[0-9]+$'; }
stop_one() {
	stopped=("$(pid_of 1)")
	kill -STOP "${stopped[0]}" || return 1
	client status unresponsive=1 ranks=2 && client pipelined unresponsive=1 || return 1
	for ((i = 0; i < 20; i++)); do client text >"$tmp/text" 2>/dev/null && break; done # the stopped process may take the connection
	has "^  Rank 1 -- process ${stopped[0]} on node .*, unresponsive" "$tmp/text" || return 1
	kill -CONT "${stopped[0]}"
	client status ranks=3
}
point "a stopped rank is named until it goes on" stop_one
end_job

bare() {
	job 2 tcp
	client status ranks=2 || return 1
	end_job
	! client text
}
point "the service ends with its job" bare

refused() {
	for value in 0.0.0.0:28028 node7:28028 localhost localhost:0 127.0.0.1:65536 localhost:28028x; do
		! TUTTI_RAS=$value timeout 60 perf/allreduce_perf --np 2 -b 8 -e 8 >"$tmp/job" 2>&1 </dev/null &&
			has "TUTTI_RAS is '$value'; allowed is localhost:port" "$tmp/job" || return 1
	done
}
point "an address that other hosts reach, or that is none, is an error that says which are allowed" refused

taken() {
	python3 -c 'import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); sys.stdin.read()' \
		>"$tmp/port" < <(sleep 120) &
	jobs+=($!)
	while [ ! -s "$tmp/port" ]; do sleep 0.05; done
	TUTTI_LOG=warn TUTTI_RAS=127.0.0.1:$(cat "$tmp/port") timeout 60 perf/allreduce_perf --np 2 -t 2 -b 8 -e 8 >"$tmp/job" 2>&1 </dev/null &&
		[ "$(grep -cE 'TUTTI_RAS: 127.0.0.1:[0-9]+: Address already in use; no RAS client' "$tmp/job")" = 2 ] ||
		{ cat "$tmp/job"; return 1; }
}
point "a job whose address is taken goes on, with a warning of each process" taken

# A program of NCCL's, with the given variables, in the background
nccl_job() {
	env LD_LIBRARY_PATH="$PWD/.libs" "$@" timeout -k 5 300 tests/nccl/nccl_perf -p 3 -b 1K -e 1K -c 0 -w 0 -n 100000000 >"$tmp/job" 2>&1 </dev/null &
	jobs+=($!)
}
nccl() {
	nccl_job NCCL_RAS_ENABLE=1 NCCL_RAS_ADDR="$address" NCCL_DEBUG=INFO
	client status ranks=3 counted=AllReduce && has "RAS clients are answered at $address" "$tmp/job" || { cat "$tmp/job"; return 1; }
	end_job
}
nccl_off() {
	NCCL_DEBUG=INFO NCCL_RAS_ENABLE=0 NCCL_RAS_ADDR=$address LD_LIBRARY_PATH=$PWD/.libs timeout 60 tests/nccl/nccl_perf -p 2 -b 1K -e 1K \
		>"$tmp/job" 2>&1 && ! has 'RAS clients are answered' "$tmp/job"
}
if [ -e .libs/libnccl.so.2 ]; then
	point "a program of NCCL's answers at NCCL_RAS_ADDR with NCCL_RAS_ENABLE=1" nccl
	point "NCCL_RAS_ENABLE=0 makes no service" nccl_off
else
	skip "a program of NCCL's answers at NCCL_RAS_ADDR with NCCL_RAS_ENABLE=1" "no shared library in this build"
	skip "NCCL_RAS_ENABLE=0 makes no service" "no shared library in this build"
fi
done_testing
