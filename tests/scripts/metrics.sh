#!/bin/bash
# metrics.sh - TUTTI_METRICS: files for Prometheus of ranks that run, end, die, and cannot write
# Called by make check in the build folder.
export LC_ALL=C
tmp=$(mktemp -d) || exit 99
jobs=()
trap 'kill "${jobs[@]}" 2>/dev/null; wait; rm -rf "$tmp"' EXIT
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
unset TUTTI_LOG TUTTI_ALGO TUTTI_TRANSPORT TUTTI_TRACE TUTTI_METRICS

# job FOLDER RANKS ARGUMENTS...: allreduces of 1 KiB with metrics
job() {
	local dir=$1 np=$2
	shift 2
	mkdir -p "$dir"
	TUTTI_METRICS=$dir timeout -k 5 60 perf/allreduce_perf --np "$np" -b 1K -e 1K -c 0 "$@" >"$tmp/job" 2>&1 </dev/null
}
parse() { python3 "$here/prometheus_text.py" "$@"; }
files() { find "$1" -type f | wc -l; }

# A job runs until its files have been seen; `files` are copies, so that they do not change while they are read.
running() {
	local i
	mkdir "$tmp/run" "$tmp/seen"
	TUTTI_METRICS=$tmp/run timeout -k 5 60 tests/support/steady 1024 processes 2 >/dev/null 2>&1 </dev/null &
	jobs+=($!)
	for ((i = 0; i < 150; i++)); do
		sleep 0.2
		rm -f "$tmp"/seen/*
		cp "$tmp"/run/*.prom "$tmp/seen" 2>/dev/null && grep -hq 'seconds_count.*collective="allreduce"' "$tmp"/seen/*.0.prom &&
			grep -hq 'seconds_count.*collective="allreduce"' "$tmp"/seen/*.1.prom && break
	done
	kill "${jobs[0]}"
	wait "${jobs[0]}"
	parse "$tmp"/seen/*.prom -- 'tutti_communicator_ranks{rank=0}=2' 'tutti_communicator_ranks{rank=1}=2' \
		'tutti_communicator_info{version='"$(perf/tutti version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)"'}=1' \
		'tutti_communicator_failed=0' 'tutti_call_bytes_total{collective=allreduce,rank=1}=>1024' \
		'tutti_call_duration_seconds_count{collective=allreduce,rank=0}=>1'
}
if command -v python3 >/dev/null; then
	point "the files of a job that runs are one scrape of Prometheus' format, with every rank's calls" running
else
	skip "the files of a job that runs are one scrape of Prometheus' format, with every rank's calls" "no python3"
fi
lint() { for f in "$tmp"/seen/*.prom; do promtool check metrics <"$f" || return 1; done; }
if command -v promtool >/dev/null && [ -d "$tmp/seen" ]; then
	point "promtool has no complaint" lint
else
	skip "promtool has no complaint" "no promtool"
fi

ended() {
	local run
	for run in shm tcp; do
		job "$tmp/$run" 3 --transport $run -n 100 && [ "$(files "$tmp/$run")" = 0 ] || { cat "$tmp/job"; ls "$tmp/$run"; return 1; }
	done
}
point "the files of a job that ended are removed" ended

killed() {
	! TUTTI_FAULT=kill@2:30 job "$tmp/killed" 3 -n 1000 || { echo "no rank died"; return 1; }
	has '^tutti_communicator_failed\{.*rank="0"\} 1$' <(cat "$tmp"/killed/*.0.prom) &&
		has '^tutti_communicator_failed\{.*rank="1"\} 1$' <(cat "$tmp"/killed/*.1.prom) &&
		[ -z "$(find "$tmp/killed" -name '*.new')" ]
}
point "after a death, the files of the other ranks stay and say that their communicator failed" killed

both() {
	TUTTI_TRACE=$tmp/both job "$tmp/both" 2 -n 100 && [ "$(find "$tmp/both" -name '*.prom' | wc -l)" = 0 ] &&
		perf/tutti trace report "$tmp/both" >"$tmp/report" && has '2 of 2 ranks, ended' "$tmp/report" &&
		[ -z "$(find "$tmp/shm" -name '*.tutti')" ]
}
point "a flight recorder and metrics go together, and metrics alone write no recorder's file" both

no_folder() {
	local tool
	for tool in perf/allreduce_perf 'trainer/tutti-train --data synth --steps 1'; do
		# shellcheck disable=SC2086
		TUTTI_METRICS=$tmp/none timeout 60 $tool --np 2 >"$tmp/job" 2>&1 </dev/null
		[ $? = 2 ] && has "TUTTI_METRICS=$tmp/none: cannot make a file there: No such file or directory; name a folder" "$tmp/job" ||
			{ cat "$tmp/job"; return 1; }
	done
}
point "a folder that does not exist is wrong usage: status 2, and an error that names the variable and the folder" no_folder
done_testing
