#!/bin/sh
# tools.sh - command lines and output of the benchmarks: help, refusals, right results, lines and columns, files
# Called by make check in the build folder. Messages are small; test_tools.c tests the pure functions.
. "$(dirname "$0")/tool_runs.sh"
tools="allreduce reduce broadcast allgather reduce_scatter alltoall gather scatter sendrecv"

# ---- help and wrong command lines -------------------------------------------------------------------------------------------

help_is_help() { run 0 "$1" --help && [ -s "$tmp/out" ] && [ ! -s "$tmp/err" ] && run 0 "$1" -h; }
for t in $tools; do point "${t}_perf --help prints to stdout and exits with 0" help_is_help perf/${t}_perf; done
point "tutti --help prints to stdout and exits with 0" help_is_help perf/tutti
version() {
	for t in tutti allreduce_perf; do
		run 0 perf/$t --version && grep -qE "^$t [0-9.]+$" "$tmp/out" || return 1
	done
}
point "--version prints the version" version

refuse_all() {
	while read -r word line; do
		# shellcheck disable=SC2086
		refused "$word" perf/allreduce_perf $line || { echo "allreduce_perf $line"; return 1; }
	done <<-END
		3X -b 3X
		-1 -b -1
		larger -b 64M -e 1M
		larger -b 64M
		foo -d foo
		nand -o nand
		integers -o band -d float
		CUDA -G 1
		CUDA -R 2
		--algo --algoo ring
		-x -x 1
		nosuch --algo nosuch
		pigeon --transport pigeon
		iters -n 0
		iters -n 1.5
		warmup -w -1
		stays -b 0 -e 8 -f 2
		-K -K 20 -n 20
		/nonexistent -J /nonexistent/x.json
		unexpected 17
		262144 --np 64 -t 64 -g 64
		needs -J
	END
}
point "a wrong option or value exits with 2 and one line that names it" refuse_all
point "a root beyond the ranks is refused" refused "-r 3" perf/allreduce_perf -r 3
too_large() { refused "GB are free" perf/allreduce_perf -b 900T -e 900T; }
point "a size that does not fit in memory is refused with an error" too_large
unknown_command() { refused "did you mean plan" perf/tutti plam; }
point "tutti suggests the command nearest to an unknown one" unknown_command
point "tutti help refuses a second argument" refused "x: unexpected argument" perf/tutti help plan x

# a failed write must be an error
unwritten() {
	timeout -k 5 60 "$@" >/dev/full 2>"$tmp/err" </dev/null
	status=$?
	[ $status -eq 1 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qE "No space left|disk full" "$tmp/err" ||
		{ echo "$*: exit status $status"; return 1; }
}
full_disk() {
	for line in "tutti info" "tutti version" "tutti help" "tutti --help" "tutti plan --list" "tutti plan ring --np 3" \
		"tutti plan --verify ring --np 3" "allreduce_perf --help" "allreduce_perf --np 2 -b 8 -e 8 -n 1" \
		"sendrecv_perf -t 2 -b 8 -e 8 -n 1"; do
		# shellcheck disable=SC2086
		unwritten perf/$line || return 1
	done
	run 1 perf/allreduce_perf --np 2 -b 8 -e 8 -n 1 -J /dev/full &&
		grep -q "^allreduce_perf: -J /dev/full: No space left" "$tmp/err"
}
point "output to a full disk exits with 1 and an error" full_disk
closed() {
	perf/tutti info >&- 2>"$tmp/err"
	[ $? -eq 1 ] && grep -q "^tutti: standard output: Bad file descriptor" "$tmp/err" &&
		! perf/allreduce_perf --np 2 -b 8 -e 8 -n 1 <&- >&- 2>"$tmp/err" && [ "$(wc -l <"$tmp/err")" -eq 1 ]
}
point "closed standard descriptors are not reused for sockets" closed
# the reader closes the pipe early, and the caller ignores SIGPIPE
gone_reader() {
	(trap '' PIPE; timeout -k 5 60 "$@" 2>"$tmp/err"; echo $? >"$tmp/status") | head -n 3 >"$tmp/out"
	[ "$(cat "$tmp/status")" -eq 141 ] && [ "$(wc -l <"$tmp/out")" -eq 3 ] && [ ! -s "$tmp/err" ] ||
		{ echo "$*: exit status $(cat "$tmp/status")"; return 1; }
}
gone_readers() {
	gone_reader perf/tutti plan ring --np 32 --print json && gone_reader perf/allreduce_perf -b 8 -e 8 -n 1 -N 0 &&
		gone_reader perf/allreduce_perf --np 4 -b 8 -e 8 -n 1 -N 0
}
point "a closed pipe ends a tool and all its ranks without a message" gone_readers

# ---- right results -------------------------------------------------------------------------------------------------

for t in $tools; do
	point "${t}_perf: 3 ranks, odd sizes, all roots: the results are right" right perf/${t}_perf --np 3 -b 1 -e 70K -f 41 -n 3 -r all
	point "${t}_perf: 2 ranks over tcp, unaligned: the results are right" \
		right perf/${t}_perf --np 2 -b 12 -e 20K -f 29 -n 3 --transport tcp -u 1 -d half
done
# outputs of 8 MiB and more are written by streaming stores (lib/mem/copy.c): whole cache lines and unaligned ends
large() {
	tool=perf/$1_perf
	shift
	right env TUTTI_CMA=off "$tool" -b 20000004 -e 20000004 -n 2 -w 1 -u 1 --transport shm "$@"
}
for t in allreduce broadcast allgather alltoall sendrecv; do
	point "${t}_perf: 2 ranks, 20 MB, unaligned, by messages: the results are right" large $t --np 2
done
for t in allreduce allgather; do
	point "${t}_perf: 2 ranks, 20 MB, unaligned, by single copy: the results are right" large $t --np 2 -R 1
done
point "allreduce_perf: 5 ranks, 20 MB, unaligned: the results are right" large allreduce --np 5
point "all types and operations: the results are right" right perf/allreduce_perf --np 2 -b 1000 -e 1000 -d all -o all -n 2
point "--buffers same: the results are right" right perf/allreduce_perf --np 2 -b 1K -e 1M -f 1000 -n 3 --buffers same
point "--buffers cold, pinned ranks, registered buffers: the results are right" \
	right perf/allgather_perf --np 2 -b 1K -e 1M -f 1000 -n 3 --buffers cold --pin -R 1
point "grouped calls on a host stream: the results are right" right perf/allreduce_perf --np 2 -b 1K -e 1K -n 4 -m 3 -y 0
point "wait and barrier after every call: the results are right" right perf/reduce_perf --np 2 -b 1K -e 1K -n 4 -z 1
point "ranks as threads: the results are right" right perf/allreduce_perf -t 3 -b 1K -e 1K -n 3
point "ranks of one thread: the results are right" right perf/alltoall_perf -g 3 -b 1K -e 1K -n 3
point "ranks as threads of several processes: the results are right" right perf/allreduce_perf --np 2 -t 2 -b 1K -e 1K -n 3
point "one rank without a launcher: the results are right" right perf/allreduce_perf -b 1K -e 1K
ln -s "$PWD/perf/allreduce_perf" "$tmp/all_reduce_perf"
point "the tool runs under nccl-tests' name" right "$tmp/all_reduce_perf" --np 2 -b 1K -e 1K -n 3

every_algorithm() {
	run 0 perf/tutti info || return 1
	awk '/^algorithms/ { on = 1; next } on && /^  [a-z]/ { all = sub(/^ *allreduce /, "") } on && all { print $1 }' \
		"$tmp/out" | sort >"$tmp/known"
	right perf/allreduce_perf --np 4 -b 1K -e 1K -n 2 --algo all || return 1
	{ rows | awk '{ sub(/:.*/, "", $18); print $18 }'; sed -n 's/^# \([a-z-]*\) is not measured:.*/\1/p' "$tmp/out"; } |
		sort -u | diff "$tmp/known" -
}
point "--algo all has a row for every algorithm of the table" every_algorithm
point "--algo all is accepted for sends and receives, which have no algorithms" right perf/sendrecv_perf --np 2 -b 1K -e 1K -n 2 --algo all
only_in_place() {
	run 0 perf/allreduce_perf --np 2 -b 1K -e 1K -n 3 --place in &&
		rows | awk '$6 == "N/A" && $13 == 0 { good = 1 } END { exit !good }'
}
point "--place in measures in place only" only_in_place
no_check() {
	run 0 perf/allreduce_perf --np 2 -b 1K -e 1K -n 3 -c 0 && rows | awk '{ exit !($9 == "N/A" && $13 == "N/A") }'
}
point "-c 0 prints N/A instead of wrong values" no_check

# ---- output lines --------------------------------------------------------------------------------------------------------

lines_match() {
	run 0 perf/allreduce_perf --np 2 -b 8 -e 64 -f 2 -n 2 || return 1
	cat >"$tmp/want" <<-'END'
		^# tutti version [0-9.]* tutti-headers=[0-9]* tutti-library=[0-9]*$
		^# Collective test starting: allreduce_perf$
		^# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 1 iters: 2 agg iters: 1 validation: 1 graph: 0 unalign: 0$
		^# Using devices$
		^#  Rank  0 Group  0 Pid  *[0-9]* on  *[^ ]* device -1 \[host memory\] [^ ]
		^#  Rank  1 Group  0 Pid  *[0-9]* on  *[^ ]* device -1 \[host memory\] [^ ]
		^#                                                              out-of-place                       in-place          $
		^#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
		^#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
		^          64            16     float     sum      -1  
		^# Out of bounds values : 0 OK$
		^# Avg bus bandwidth    : [0-9.e+-]* $
		^# Bytes sent by shm    : [0-9]*$
		^# Collective test concluded: allreduce_perf$
	END
	while IFS= read -r line; do
		grep -q -- "$line" "$tmp/out" || { echo "missing: $line"; return 1; }
	done <"$tmp/want"
	[ "$(rows | wc -l)" -eq 4 ] && [ "$(rows | cut -c1-66 | uniq | wc -l)" -eq 4 ]
}
point "lines and columns are those of nccl-tests" lines_match

json_parses() {
	run 0 perf/allreduce_perf --np 2 -b 8 -e 64K -f 16 -n 3 -I 1 -J "$tmp/r.json" || return 1
	python3 - "$tmp/r.json" <<-'END' || return 1
		import json, sys
		d = json.load(open(sys.argv[1]))
		for key in ("version start_time args env nccl_version config results out_of_bounds average_bus_bandwidth "
		            "errors end_time").split():
		    assert key in d, key
		assert d["version"] == 3 and len(d["config"]["devices"]) == 2 and len(d["results"]) == 4
		for r in d["results"]:
		    assert {"size", "count", "type", "redop", "root", "out_of_place", "in_place", "algorithm"} <= set(r)
		    for place in (r["out_of_place"], r["in_place"]):
		        assert place["nwrong"] == 0 and place["time"] > 0 and len(place["times_us"]) == 3
		        assert place["p50"] <= place["p99"] and place["sent_bytes_shm"] > 0
	END
	[ "$(ls "$tmp"/r.json*)" = "$tmp/r.json" ]
}
if command -v python3 >/dev/null; then
	point "the JSON file has nccl-tests' keys, and no temporary file remains" json_parses
else skip "the JSON file has nccl-tests' keys" "no python3"; fi

# Rows take milliseconds: the kernel may cut the write of a row at a page, where the kill comes meanwhile.
killed_rows() {
	perf/allreduce_perf -b 1M -e 1M -N 0 -n 20 -J "$tmp/k.json" -F "$tmp/k.csv" >/dev/null 2>&1 &
	until [ "$(wc -l 2>/dev/null <"$tmp/k.csv")" -gt 4 ] 2>/dev/null; do sleep .05; done
	kill -KILL $!
	wait $! 2>/dev/null
	python3 - "$tmp/k.json" "$tmp/k.csv" <<-'END'
		import csv, json, sys
		d, rows = json.load(open(sys.argv[1])), list(csv.DictReader(open(sys.argv[2])))
		assert d["errors"] == ["the run has not ended"] and len(rows) >= 4
		for r, line in zip(d["results"], rows[::2]):
		    assert float(line["time_us"]) == r["out_of_place"]["time"] and line["wrong"] == "0" and line["place"] == "out"
	END
}
if command -v python3 >/dev/null; then point "the files have all rows of a run that is killed" killed_rows
else skip "the files have all rows of a run that is killed" "no python3"; fi
compared() {
	run 0 perf/allreduce_perf --np 2 -b 1K -e 4K -f 2 -n 3 -c 1 -J "$tmp/a.json" && cp "$tmp/a.json" "$tmp/b.json" &&
		run 0 perf/tutti report "$tmp/a.json" "$tmp/b.json" && [ "$(rows | wc -l)" -eq 6 ] && ! rows | grep -v ' 1\.000  ' &&
		grep -q 'geometric mean of 6 ratios: 1.000' "$tmp/out" && ! grep -q 'tutti_version' "$tmp/out" || return 1
	python3 - "$tmp" <<-'END' || return 1
		import json, sys
		d = json.load(open(sys.argv[1] + "/a.json"))
		d["tutti_version"] = "0.0.1"
		d["results"] = d["results"][1:]
		for r in d["results"]:
		    for place in ("out_of_place", "in_place"):
		        r[place]["time"] *= 2
		json.dump(d, open(sys.argv[1] + "/b.json", "w"))
	END
	run 0 perf/tutti report "$tmp/a.json" "$tmp/b.json" --limit 2.01 && grep -q 'geometric mean of 4 ratios: 2.000' "$tmp/out" &&
		grep -qE '^# tutti_version +[0-9.]+ -> 0.0.1$' "$tmp/out" && run 1 perf/tutti report "$tmp/a.json" "$tmp/b.json" --limit 1.9
}
incomparable() {
	head -c 300 "$tmp/a.json" >"$tmp/half.json"
	echo '{"results": []}' >"$tmp/none.json"
	while read -r word line; do
		# shellcheck disable=SC2086
		refused "$word" perf/tutti report $line || { echo "report $line: $(cat "$tmp/err")"; return 1; }
	done <<-END
		two $tmp/a.json
		two
		unexpected a b c
		nothing.json $tmp/a.json $tmp/nothing.json
		line $tmp/half.json $tmp/a.json
		common $tmp/a.json $tmp/none.json
		line /dev/null $tmp/a.json
	END
}
if command -v python3 >/dev/null; then
	point "tutti report compares two results files, and fails above --limit" compared
	point "tutti report refuses files that are none" incomparable
else skip "tutti report compares two results files" "no python3"; fi
page() { python3 "${top_srcdir:-..}/tests/scripts/html_results.py" "$tmp/page.html" "$@"; }
html_page() {
	run 0 perf/allreduce_perf --np 2 --algo all -b 8 -e 8K -f 32 -n 3 -c 1 --report "$tmp/page.html" -J "$tmp/page.json" && page "$tmp/page.json"
}
html_error() {
	! TUTTI_FAULT=kill@2:30 timeout 60 perf/allreduce_perf --np 3 -b 1K -e 1K -c 0 -n 1000 --report "$tmp/page.html" >/dev/null 2>&1 &&
		page && grep -q '<th class="t">error</th><td class="t">.*rank 2' "$tmp/page.html"
}
same_file() {
	local pair
	for pair in "-J $tmp/same -F $tmp/same" "-J $tmp/same --report $tmp/same"; do
		# shellcheck disable=SC2086
		refused "also the file of -J" perf/allreduce_perf -b 8 -e 8 $pair && [ ! -e "$tmp/same" ] || return 1
	done
	run 0 perf/allreduce_perf -b 8 -e 8 -J /dev/null -F /dev/null
}
point "one file for two kinds of results is refused" same_file
# the names in the legend are at most 7 pixels a character wide, and end within the picture
legend() {
	perf/tutti simulate --np 4096 --hosts 64 --bytes 8 --algo hierarchical:halving-doubling/recursive-doubling --svg "$tmp/l.svg" &&
		python3 - "$tmp/l.svg" <<-'END'
		import re, sys
		text = open(sys.argv[1]).read()
		name = "hierarchical:halving-doubling/recursive-doubling"
		width = float(re.search(r"width='([0-9.]+)'", text)[1])
		at = float(re.search(r"<text x='([0-9.]+)'[^>]*>" + name, text)[1])
		assert at + 7 * len(name) <= width, (at, width)
	END
}
if command -v python3 >/dev/null; then point "a plot is as wide as the names in its legend" legend; fi
html_refused() { refused "--report /nowhere/x.html" perf/allreduce_perf --np 2 --report /nowhere/x.html; }
if command -v python3 >/dev/null; then
	point "--report writes a page with the JSON file's figures and a plot of every series" html_page
	point "the page of a run that failed has its error" html_error
else
	skip "--report writes a page with the JSON file's figures and a plot of every series" "no python3"
	skip "the page of a run that failed has its error" "no python3"
fi
point "a report that cannot be written is refused before the run" html_refused
least_bandwidth() {
	NCCL_TESTS_MIN_BW=0.0000001 run 0 perf/allreduce_perf --np 2 -b 1K -e 1K -n 3 && grep -q "bandwidth .* OK" "$tmp/out" &&
		NCCL_TESTS_MIN_BW=1e9 run 1 perf/allreduce_perf --np 2 -b 1K -e 1K -n 3 && grep -q "bandwidth .* FAILED" "$tmp/out" &&
		refused NCCL_TESTS_MIN_BW=fast env NCCL_TESTS_MIN_BW=fast perf/allreduce_perf
}
point "a bandwidth below NCCL_TESTS_MIN_BW fails" least_bandwidth
groups_of_ranks() { # $1: variable, $2: its value, $3: processes, $4: ranks of rank 0's group
	run 0 env "$1=$2" perf/allreduce_perf --np "$3" -b 1K -e 1K -n 3 && [ "$(grep -c "Group  0 Pid" "$tmp/out")" -eq "$4" ]
}
splits() {
	groups_of_ranks NCCL_TESTS_SPLIT_MASK 0x1 3 2 && groups_of_ranks NCCL_TESTS_SPLIT "MOD 3" 3 1 &&
		groups_of_ranks NCCL_TESTS_SPLIT "DIV 2" 3 2 && groups_of_ranks NCCL_TESTS_SPLIT "&0x0" 3 3 &&
		refused "MOD 0" env NCCL_TESTS_SPLIT="MOD 0" perf/allreduce_perf &&
		refused "0xg" env NCCL_TESTS_SPLIT_MASK=0xg perf/allreduce_perf
}
point "NCCL_TESTS_SPLIT divides the ranks" splits
launched_twice() {
	local rank
	for rank in 0 1; do
		TUTTI_RANK=$rank TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:1 TUTTI_SECRET=s run 2 perf/allreduce_perf --np 2
		[ "$(grep -c "under a launcher" "$tmp/err")" -eq $((1 - rank)) ] && [ ! -s "$tmp/out" ] || return 1
		[ ! -e trainer/tutti-train ] && continue
		TUTTI_RANK=$rank TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:1 TUTTI_SECRET=s run 2 trainer/tutti-train --np 2 --data synth
		[ "$(grep -c "under a launcher" "$tmp/err")" -eq $((1 - rank)) ] && [ ! -s "$tmp/out" ] || return 1
	done
	run 0 perf/allreduce_perf -b 8 -e 8 -n 1 && grep -q "^# one rank: .*--np" "$tmp/out"
}
point "--np under a launcher is refused once; one rank says how to start more" launched_twice

# perf/compare without another library: its loop, its checks of every result, and its error message
compare_alone() {
	limit=180 run 1 "${top_srcdir:-..}/perf/compare" --build . --only nobody --collective all \
		--sizes 16,4K,256K --rounds 1 || return 1
	grep -q "nothing to compare" "$tmp/err" && ! grep -E "left out|wrong" "$tmp/err"
}
steps() {
	run 0 "${top_srcdir:-..}/perf/compare" --build . --only nobody --collective sendrecv --sizes 12,16 --offset 0,4 \
		--buffers same --rounds 1 || return 1
	[ "$(grep -cE '^sendrecv, shm, n = 2, .* (12|16) +[0-9.]+$' "$tmp/out")" -eq 3 ]
}
if command -v python3 >/dev/null; then
	point "perf/compare runs and checks every collective" compare_alone
	point "perf/compare compares sizes and addresses with the next power of two" steps
else skip "perf/compare runs and checks every collective" "no python3"; fi
done_testing
