#!/bin/bash
# trace.sh - the flight recorder: files of TUTTI_TRACE, and `tutti trace`, with ranks that end, die and stop
# Called by make check in the build folder.
export LC_ALL=C
tmp=$(mktemp -d) || exit 99
jobs=()
trap 'kill "${jobs[@]}" 2>/dev/null; wait; rm -rf "$tmp"' EXIT
. "$(dirname "$0")/tap.sh"
unset TUTTI_LOG TUTTI_ALGO TUTTI_TRANSPORT TUTTI_TRACE

# job FOLDER RANKS ARGUMENTS...: allreduces of 1 KiB under the recorder
job() {
	local dir=$1 np=$2
	shift 2
	mkdir -p "$dir"
	TUTTI_TRACE=$dir timeout -k 5 60 perf/allreduce_perf --np "$np" -b 1K -e 1K -c 0 "$@" >"$tmp/job" 2>&1 </dev/null
}

# ---- a job that ends ----------------------------------------------------------------------------------------------------

recorded() {
	job "$tmp/$1" 3 --transport "$1" -n 100 -w 5 || { cat "$tmp/job"; return 1; }
	perf/tutti trace report "$tmp/$1" >"$tmp/report" && perf/tutti trace dump "$tmp/$1" >"$tmp/dump" &&
		has '^communicator [0-9a-f]{16}.*: 3 of 3 ranks, ended' "$tmp/report" &&
		[ "$(grep -c '^communicator.*, ended' "$tmp/dump")" -ge 3 ] &&
		has 'allreduce of 256 float32, sum, .*\) by '"$2" "$tmp/dump" && ! grep -E 'running|failed' "$tmp/dump"
}
point "three ranks record their allreduces by shared memory, with their way" recorded shm slots
point "three ranks record their allreduces by tcp, with their way" recorded tcp messages

private() { [ -z "$(find "$tmp/shm" -name '*.tutti' ! -perm 600)" ] && [ -n "$(find "$tmp/shm" -name '*.tutti' -size 512k)" ]; }
point "the files are 512 KiB, and their user's alone" private

ring() {
	job "$tmp/ring" 2 -n 9000 -w 1 || { cat "$tmp/job"; return 1; }
	perf/tutti trace dump "$tmp/ring" >"$tmp/dump" && has ': 8128 calls, ended' "$tmp/dump" &&
		awk '/^communicator/ { last = 0; next }
			match($0, /operation [0-9]+/) { now = substr($0, RSTART + 10, RLENGTH - 10); if (last && now != last + 1) exit bad = 1; last = now }
			END { exit bad }' "$tmp/dump"
}
point "a ring that is full has the latest calls, without a gap" ring

damaged() {
	mkdir "$tmp/damaged" && cp "$tmp"/ring/*.0.tutti "$tmp/damaged" &&
		head -c 1000 /dev/urandom >"$tmp/damaged/short.tutti" && head -c 524288 /dev/urandom >"$tmp/damaged/noise.tutti" &&
		cat "$tmp"/ring/*.0.tutti | head -c 524288 >"$tmp/damaged/ranks.tutti" && # of 2^31 - 1 ranks
		printf '\377\377\377\177' | dd of="$tmp/damaged/ranks.tutti" bs=1 seek=28 conv=notrunc status=none &&
		mkfifo "$tmp/damaged/pipe.tutti" && timeout 20 perf/tutti trace report "$tmp/damaged" >"$tmp/report" 2>"$tmp/err" &&
		[ "$(wc -l <"$tmp/err")" = 4 ] && has 'ranks.tutti: not a whole file' "$tmp/err" &&
		has 'noise.tutti: not a whole file' "$tmp/err" && has '1 of 2 ranks' "$tmp/report"
}
point "files of noise, damaged files and pipes are skipped in words" damaged

# ---- JSON -----------------------------------------------------------------------------------------------------------------

merged() {
	perf/tutti trace merge "$tmp/tcp" -o "$tmp/merged.json" && python3 - "$tmp/merged.json" <<-'END'
		import json, sys
		events = json.load(open(sys.argv[1]))["traceEvents"]
		slices = {(e["pid"], e["tid"]): [] for e in events if e["ph"] == "X"}
		for e in events:
		    if e["ph"] == "X":
		        slices[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
		starts = {e["id"]: e for e in events if e["ph"] == "s"}
		ends = [e for e in events if e["ph"] == "f"]
		assert len(slices) >= 3 and ends and len(starts) == len(ends)
		for e in ends:
		    s = starts[e["id"]]
		    assert s["ts"] < e["ts"] and s["tid"] != e["tid"]
		    assert any(a == e["ts"] for a, b in slices[e["pid"], e["tid"]]), e
		    assert any(a == s["ts"] and e["ts"] <= b + 0.002 for a, b in slices[s["pid"], s["tid"]]), s
	END
}
torch_fields() {
	perf/tutti trace dump "$tmp/tcp" --json -o "$tmp/dump.json" && python3 - "$tmp/dump.json" <<-'END'
		import json, sys
		for rank in json.load(open(sys.argv[1])):
		    for e in rank["entries"]:
		        assert e["state"] == "completed" and e["retired"] and not e["is_p2p"], e
		        assert e["time_created_ns"] < e["time_discovered_completed_ns"], e
		        assert e["profiling_name"].startswith("tutti:"), e
		    sizes = [e["input_sizes"] for e in rank["entries"] if e["profiling_name"] == "tutti:allreduce"]
		    assert [[256]] in sizes or len(sizes) < 100, sizes
	END
}
if command -v python3 >/dev/null; then
	point "merge writes slices, and arrows from ranks that waited to the start of the last rank" merged
	point "dump --json has the fields of PyTorch's flight recorder" torch_fields
else
	skip "merge writes slices, and arrows from ranks that waited to the start of the last rank" "no python3"
	skip "dump --json has the fields of PyTorch's flight recorder" "no python3"
fi

# ---- ranks that die and stop ----------------------------------------------------------------------------------------------

killed() {
	! TUTTI_FAULT=kill@2:30 job "$tmp/killed" 3 -n 1000 || { echo "no rank died"; return 1; }
	perf/tutti trace report "$tmp/killed" >"$tmp/report" && has ': 3 of 3 ranks, failed' "$tmp/report" &&
		has 'error: rank [01]: .*rank 2' "$tmp/report" && perf/tutti trace dump "$tmp/killed" >"$tmp/dump" &&
		awk '/rank 2 of 3/ { mine = 1; next } /^communicator/ { mine = 0 } mine && /operation/ { calls++ } END { exit calls < 10 }' "$tmp/dump"
}
point "the records of a rank that was killed are there, and the error names it" killed

# The launcher ends its ranks when it is terminated, and the stopped one with them. A communicator's call by slots has two
# steps, before and after its posts: the odd step 31 is before a post, so the others await rank 1 in the call where it stops.
stopped() {
	mkdir "$tmp/stopped"
	TUTTI_FAULT=stop@1:31 TUTTI_TRACE=$tmp/stopped timeout -k 5 60 perf/allreduce_perf --np 3 -b 1K -e 1K -c 0 -n 1000000 \
		>"$tmp/job" 2>&1 </dev/null &
	jobs+=($!)
	while kill -0 "${jobs[0]}" 2>/dev/null; do
		if perf/tutti top "$tmp/stopped" --once >"$tmp/report" 2>/dev/null && grep -q 'rank 1 is awaited' "$tmp/report"; then
			has 'operation [0-9]+ \(.*began [0-9.]+ s ago and has not ended on rank' "$tmp/report" &&
				has 'rank 1 is awaited \(pid [0-9]+ on .*, stopped\)' "$tmp/report" || return 1
			perf/tutti top "$tmp/stopped" --once --json >"$tmp/top.json"
			return
		fi
		sleep 0.2
	done
	cat "$tmp/job" "$tmp/report"
	return 1
}
point "while a job runs, top names its stopped rank, which the others await" stopped
top_json() {
	python3 - "$tmp/top.json" <<-'END'
		import json, sys
		stuck = [c for c in json.load(open(sys.argv[1])) if c["operation"]]
		assert len(stuck) == 1 and stuck[0]["ranks"] == 3, stuck
		ranks = {r["rank"]: r["process"] for r in stuck[0]["not_started"] + stuck[0]["in_operation"]}
		assert ranks == {0: "runs", 1: "stopped", 2: "runs"}, stuck
		assert stuck[0]["awaited"] == 1 and stuck[0]["age_s"] > 0, stuck
	END
}
if command -v python3 >/dev/null; then
	point "top --json says which process is stopped, and who is awaited" top_json
else
	skip "top --json says which process is stopped, and who is awaited" "no python3"
fi

# ---- wrong usage -----------------------------------------------------------------------------------------------------------

no_folder() {
	local tool
	for tool in perf/allreduce_perf 'trainer/tutti-train --data synth --steps 1'; do
		# shellcheck disable=SC2086
		TUTTI_TRACE=$tmp/none timeout 60 $tool --np 2 >"$tmp/job" 2>&1 </dev/null
		[ $? = 2 ] && has "TUTTI_TRACE=$tmp/none: cannot make a file there: No such file or directory; name a folder" "$tmp/job" ||
			{ cat "$tmp/job"; return 1; }
	done
}
point "a folder that does not exist is wrong usage: status 2, and an error that names the variable and the folder" no_folder
# usage_of COMMAND: each line of the input is a status and arguments, which get one sentence of the command
usage_of() {
	local status line
	while read -r status line; do
		# shellcheck disable=SC2086
		timeout 20 perf/tutti "$1" $line >"$tmp/out" 2>"$tmp/err"
		[ $? = "$status" ] && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" = 1 ] && has "^tutti $1: " "$tmp/err" ||
			{ echo "$1 $line"; return 1; }
	done
}
point "a wrong command line of trace is one sentence with status 2; a folder without files has status 1" usage_of trace <<-END
	2
	2 reports $tmp/shm
	2 report
	2 report $tmp/shm --json
	2 dump $tmp/shm --output /nowhere/file
	2 report $tmp/none
	1 report /dev
END
helps() {
	perf/tutti trace report --help >"$tmp/out" 2>"$tmp/err" && [ ! -s "$tmp/err" ] && has '^usage: tutti trace' "$tmp/out" &&
		perf/tutti trace merge -h >"$tmp/out"
}
point "an action's --help is the command's" helps
point "so it is of top" usage_of top <<-END
	2
	2 $tmp/shm --interval 0
	2 $tmp/shm --once more
	2 $tmp/none
	1 /dev --once
END
done_testing
