#!/bin/sh
# tools.sh - command-line behavior of the benchmarks and tutti: exit statuses, lines and columns, launch, deaths, JSON
# Called by make check in the build folder. Messages are small; test_tools.c tests the pure functions.
tools="allreduce reduce broadcast allgather reduce_scatter alltoall gather scatter sendrecv"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
shown="why err out"
. "$(dirname "$0")/tap.sh"
unset TUTTI_LOG TUTTI_ALGO TUTTI_TRANSPORT

# run STATUS COMMAND...: stdout and stderr go to $tmp/out and $tmp/err; true if the command exits with STATUS
run() {
	want=$1
	shift
	timeout -k 5 "${limit:-60}" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	status=$?
	[ $status -eq "$want" ] || { echo "$*: exit status $status, not $want"; return 1; }
}
rows() { grep -v '^#' "$tmp/out"; }

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

# a wrong command line: status 2, one line on stderr with the wrong word, nothing on stdout
refused() {
	word=$1
	shift
	run 2 "$@" && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qF -- "$word" "$tmp/err"
}
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

# every row of the output has 18 columns and no wrong values
sound_rows() {
	rows | awk '
		NF != 18 { print "columns: " NF; bad = 1 }
		{ if ($9 != 0 && $9 != "N/A" || $13 != 0 && $13 != "N/A") { print "wrong: " $0; bad = 1 } }
		END { exit bad || NR == 0 }' && [ ! -s "$tmp/err" ]
}
right() { run 0 "$@" && sound_rows; }
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

# ---- joining by the environment -------------------------------------------------------------------------------------

free_port() { echo $((20000 + ($$ * 7 + n * 131) % 2000)); }
by_environment() {
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_SECRET=sesame TUTTI_NRANKS=2
	export TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	TUTTI_RANK=1 timeout 60 perf/allreduce_perf -b 1K -e 1K -n 3 "$@" >"$tmp/out1" 2>&1 </dev/null &
	TUTTI_RANK=0 right perf/allreduce_perf -b 1K -e 1K -n 3 "$@"
	good=$?
	wait $! && [ ! -s "$tmp/out1" ] && [ $good -eq 0 ]
	good=$?
	unset TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	return $good
}
point "ranks join by the environment" by_environment
point "threads of several processes join by the environment" by_environment -t 2
other_options() { # within a second, not at the deadline of a call that one rank alone makes
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_SECRET=sesame TUTTI_NRANKS=2
	export TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	TUTTI_RANK=1 timeout 60 perf/allreduce_perf -b 8 -e 128 -f 2 -n 5 >/dev/null 2>"$tmp/err1" </dev/null &
	TUTTI_RANK=0 refused "rank 0 has -e 64, rank 1 has 128" perf/allreduce_perf -b 8 -e 64 -f 2
	good=$?
	wait $!
	[ $? -eq 2 ] && grep -q "rank 0 has -e 64, rank 1 has 128" "$tmp/err1" && [ $good -eq 0 ]
	good=$?
	unset TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	return $good
}
point "ranks with different options are refused by the option and its values" other_options
other_threads() { # $1: threads of rank 1, $2: its status, $3: sentence of rank 0; the join of all threads would wait for threads that nobody starts
	TUTTI_SECRET=sesame TUTTI_NRANKS=2
	export TUTTI_SECRET TUTTI_NRANKS
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_RANK=1 timeout 20 perf/allreduce_perf -t "$1" -b 8 -e 8 >/dev/null 2>&1 </dev/null &
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_RANK=0 timeout 20 perf/allreduce_perf -t 2 -b 8 -e 8 >"$tmp/out" 2>"$tmp/err" </dev/null
	[ $? -eq 2 ] && grep -q "$3" "$tmp/err"
	good=$?
	wait $!
	[ $? -eq "$2" ] && [ $good -eq 0 ]
	good=$?
	unset TUTTI_SECRET TUTTI_NRANKS
	return $good
}
point "processes with different -t are refused" other_threads 3 2 "give all the same -t"
point "a process with -t and one without fail at once" other_threads 1 1 "rank 0 called broadcast"

names_missing() {
	root_port=$(free_port) pids=
	for way in 127.0.0.1:$root_port file:$tmp/nobody; do # ranks without a rank 0
		TUTTI_ROOT=$way TUTTI_SECRET=s TUTTI_NRANKS=3 TUTTI_RANK=1 perf/allreduce_perf -T 7 \
			>/dev/null 2>"$tmp/err${way%%:*}" & pids="$pids $!"
	done
	TUTTI_ROOT=127.0.0.1:$((root_port + 1)) TUTTI_SECRET=s TUTTI_NRANKS=3 TUTTI_RANK=0 run 1 perf/allreduce_perf -T 7 || return 1
	for pid in $pids; do wait "$pid" && return 1; done
	grep -q "waiting for ranks 1, 2 of 3" "$tmp/err" && grep -q "^rank 0: init: .*1.*2" "$tmp/err" &&
		grep -q "rank 1: waiting for rank 0; tried 127.0.0.1:$root_port (Connection refused)" "$tmp/err127.0.0.1" &&
		grep -q "rank 1: waiting for rank 0: .*$tmp/nobody" "$tmp/errfile" || { cat "$tmp"/err?*; return 1; }
}
point "missing ranks are named during the init and at the deadline, rank 0 too" names_missing
taken() {
	root_port=$(free_port)
	TUTTI_ROOT=127.0.0.1:$root_port TUTTI_SECRET=s TUTTI_NRANKS=2 TUTTI_RANK=0 perf/allreduce_perf -T 20 >/dev/null 2>&1 &
	until cat /proc/net/tcp /proc/net/tcp6 | grep -q ":$(printf %04X "$root_port") [0-9A-F]*:0000 0A" || ! kill -0 $!; do
		sleep .05
	done
	TUTTI_ROOT=127.0.0.1:$root_port TUTTI_SECRET=s TUTTI_NRANKS=2 TUTTI_RANK=0 run 1 perf/allreduce_perf -T 20 &&
		grep -q "port $root_port of TUTTI_ROOT .*is taken.*choose another port" "$tmp/err"
	rc=$?
	kill $!
	return $rc
}
point "a TUTTI_ROOT port that is taken is named" taken
# $1: commands that set up the network of a namespace
without_lo() {
	limit=30 run 1 unshare -rn sh -c "$1 TUTTI_TIMEOUT_MS=60000 exec perf/allreduce_perf --np 2 -b 8 -e 8 -n 1" &&
		grep -q "^rank 1: init: .*loopback.*ip link set lo up" "$tmp/err"
}
no_lo() {
	without_lo '' && without_lo 'ip link add b0 type bridge && ip link set b0 up && ip addr add 10.1.0.1/24 dev b0 &&'
}
if unshare -rn ip link add b0 type bridge 2>/dev/null; then
	point "a network namespace without loopback is an immediate error" no_lo
else
	skip "a network namespace without loopback is an immediate error" "needs unshare -rn and ip"
fi
# the kernel allows names of 64 bytes, and control characters
odd_host_name() {
	run 0 unshare -ru sh -c 'printf "h\001%062d" 0 >/proc/sys/kernel/hostname; [ "$(hostname | wc -c)" -eq 65 ] &&
		exec perf/allreduce_perf --np 2 -b 8 -e 8 -n 1'
}
if unshare -ru true 2>/dev/null; then
	point "ranks of a host whose name is long and has control characters join" odd_host_name
else
	skip "ranks of a host whose name is long and has control characters join" "needs unshare -ru"
fi
# every rank says so in one sentence, whichever call needed the descriptor, or the job succeeds
few_files() {
	for limit_n in 14 16 20; do
		# in a new shell, which needs no descriptors of its own
		run 0 sh -c "ulimit -n $limit_n; exec perf/allreduce_perf --np 4 --transport tcp -b 8 -e 8 -n 1" && continue
		for r in 0 1 2 3; do
			[ "$(grep -c "^rank $r: .*ulimit -n" "$tmp/err")" -eq 1 ] ||
				{ echo "ulimit -n $limit_n: rank $r"; return 1; }
		done
	done
}
point "with few descriptors all ranks name the limit" few_files
# open_secret MODE REFUSALS: a rank without a peer reads a secret file with that mode
open_secret() {
	(umask 077 && echo mine >"$tmp/secret") && chmod "$1" "$tmp/secret" || return 1
	TUTTI_RANK=1 TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:1 TUTTI_SECRET_FILE=$tmp/secret \
		run $((1 + $2)) perf/allreduce_perf -T .2 || return 1
	[ "$(grep -c "secret: mode $1 lets other users" "$tmp/err")" -eq "$2" ]
}
open_secrets() { open_secret 600 0 && open_secret 400 0 && open_secret 644 1 && open_secret 602 1 && open_secret 660 1; }
point "a secret file that other users can read or write is refused" open_secrets
joined() {
	TUTTI_LOG=info TUTTI_ENCRYPT=on run 0 perf/allreduce_perf --np 3 --transport tcp -b 8 -e 8 -n 1 &&
		grep -q "info: rank 2 of 3.*: host $(hostname); 3 ranks here, 1 host; .*; ranks 0, 1 by tcp, encrypted" "$tmp/err" &&
		grep -q "info: rank 0: host $(hostname) has ranks 0 to 2" "$tmp/err" &&
		grep -q "info: rank 0: no transport shm: another transport was requested" "$tmp/err" &&
		grep -q "info: rank 0: TUTTI_ENCRYPT is set to on" "$tmp/err" && ! grep -q TUTTI_SECRET "$tmp/err" &&
		algorithm=$(perf/tutti info --plan 8 --np 3 --transport tcp | sed -n 's/^\* \([^ ]*\) .*/\1/p') &&
		grep -q "info: rank 0: allreduce: $algorithm to .*, then " "$tmp/err"
}
point "TUTTI_LOG=info says ranks, hosts, transports, variables and algorithms at the join" joined
logged_errors() {
	TUTTI_LOG=info TUTTI_FAULT=exit@1:5 run 1 perf/allreduce_perf --np 2 -b 8 -e 8 -n 100
	[ "$(grep -c "^tutti [0-9]* info: rank 0: the communicator is broken: rank 1 died" "$tmp/err")" -eq 2 ] &&
		grep -q "^tutti [0-9]* info: rank 0: operation .*: rank 1 died" "$tmp/err"
}
point "TUTTI_LOG=info logs the sentence of each error, and the break of each communicator" logged_errors
# under a launcher that carries a secret of its own, too
no_secret() {
	torch="RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29400"
	refused "TUTTI_SECRET_FILE=$tmp/none: No such file" env $torch TUTTI_SECRET_FILE="$tmp/none" perf/allreduce_perf -T .2 &&
		refused "TUTTI_SECRET_FILE=$tmp/none: No such file" env TUTTI_SECRET_FILE="$tmp/none" perf/allreduce_perf &&
		refused "unset one" env $torch TUTTI_SECRET=a TUTTI_SECRET_FILE="$tmp/none" perf/allreduce_perf -T .2
}
point "a missing TUTTI_SECRET_FILE, or a second secret, is refused under every launcher" no_secret
half_set() {
	refused TUTTI_NRANKS env TUTTI_RANK=1 perf/allreduce_perf &&
		refused TUTTI_NRANKS env TUTTI_RANK=1 perf/allreduce_perf -t 2
}
point "half an environment exits with 2" half_set

# ---- deaths and signals ---------------------------------------------------------------------------------------------

# endless NP OPTIONS: starts an endless run in the background, which the kernel kills when this script is killed; its ranks' pids
# are in $pids
with_script=''
setpriv --pdeathsig KILL true 2>/dev/null && with_script='setpriv --pdeathsig KILL'
endless() {
	: >"$tmp/out"   # no rows of an earlier job
	setsid $with_script perf/allreduce_perf -b 64K -e 64K -N 0 -n 5 --np "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
	parent=$!
	for _ in $(seq 200); do
		[ "$(grep -vc '^#' "$tmp/out")" -gt 0 ] && break
		sleep .1
	done
	pids=$(sed -n 's/^#  Rank .* Pid *\([0-9]*\) .*/\1/p' "$tmp/out")
	[ "$(echo "$pids" | wc -w)" -eq "$1" ] || { echo "no ranks started"; kill -9 $parent $pids; return 1; }
	for pid in $pids; do
		[ "$(parent_of "$pid")" = $parent ] || { echo "$pid is no child"; kill -9 $parent $pids; return 1; }
	done
}
parent_of() { sed 's/.*) . //; s/ .*//' "/proc/$1/stat"; }
ended() { state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null); [ "${state:-Z}" = Z ]; }
# the launcher ends within 30 s with status $1
ends() {
	for _ in $(seq 300); do ended $parent && break; sleep .1; done
	ended $parent || { echo "the launcher did not end within 30 s"; kill -9 $parent; }
	wait $parent
	status=$?
	[ $status -eq "$1" ] || { echo "exit status $status, not $1"; return 1; }
}
# all ranks end within 30 s
gone() {
	for _ in $(seq 300); do
		left=
		for pid in $pids; do ended "$pid" || left=$pid; done
		[ -z "$left" ] && return 0
		sleep .1
	done
	echo "process $left is still running"
	return 1
}
# names of shared memory and files, without the folders of suites that run at the same time
segments() { ls /dev/shm /tmp 2>/dev/null | grep tutti | grep -vE '^tutti-[a-z]*-.{6}$' | sort; }
# no name beside those in $before; other runs may remove theirs
no_segments() { segments >"$tmp/segments"; [ -z "$(printf '%s\n' "$before" | comm -13 - "$tmp/segments")" ]; }
killed_rank() {
	before=$(segments)
	endless 3 || return 1
	kill -9 "$(echo $pids | cut -d' ' -f2)"
	ends 1 && gone && grep -q "rank 1: .*signal 9" "$tmp/err" &&
		grep -q "^rank 0: .*rank 1" "$tmp/err" && [ "$(grep -c "^rank 0: " "$tmp/err")" -eq 1 ] &&
		no_segments
}
point "the launcher and the other ranks name a killed rank, and no files remain" killed_rank
terminated() {
	endless 3 || return 1
	kill -TERM $parent
	ends 143 && gone
}
point "TERM ends all ranks" terminated
orphaned() {
	endless 2 || return 1
	kill -9 $parent
	ends 137 && gone
}
point "ranks do not outlive their launcher" orphaned
stopped() {
	before=$(segments)
	endless 2 -T 2 || return 1
	kill -STOP "$(echo $pids | cut -d' ' -f2)"
	ends 1 && gone && grep -q "^rank 0: .*rank 1" "$tmp/err" && no_segments
}
point "a stopped rank is named at the deadline and killed" stopped

# ---- tutti ----------------------------------------------------------------------------------------------------------

info_tells() {
	run 0 perf/tutti info || return 1
	for word in OpenSSL "shm .*on this host" "tcp .*on this host" "self .*on this host" "verbs .*on this host" \
		"TUTTI_TIMEOUT_MS" "NUMA nodes" "cores" "reduce-to-one"; do
		grep -q "$word" "$tmp/out" || { echo "missing: $word"; return 1; }
	done
}
point "tutti info shows build, transports, host, environment, algorithms" info_tells
# makes each of two cores a package, by a folder mounted over /sys/devices/system
two_packages() {
	cpus=$(taskset -cp $$ | sed 's/.*: //; s/[-,]/ /g')
	for cpu in ${cpus% *} ${cpus#* }; do
		topology=$tmp/sys/cpu/cpu$cpu/topology
		mkdir -p "$topology"
		echo "$cpu" | tee "$topology/package_cpus_list" >"$topology/thread_siblings_list"
	done
}
grouped() {
	run 0 unshare -rm sh -c "mount --bind $tmp/sys /sys/devices/system && TUTTI_LOG=debug \"\$@\"" - "$@"
}
divided_host() {
	grouped perf/allreduce_perf --np 5 --pin -b 4K -e 64K -f 16 -n 2 --algo hierarchical &&
		rows | awk '$9 + $13 { exit 1 }' || return 1
	groups=$(grep -o 'rank [0-4]: in group [01] of 2' "$tmp/err" | sort -u | tr -dc '0-9\n' | tr '\n' ' ')
	[ "$groups" = "002 112 202 312 402 " ] ||
		{ echo "groups: $(grep -o 'in group.*' "$tmp/err")"; return 1; }
}
unbound_ranks() {
	grouped perf/allreduce_perf --np 5 -b 4K -e 4K -n 2 --algo hierarchical && ! grep -q "in group" "$tmp/err"
}
if [ "$(nproc)" -eq 2 ] && unshare -rm true 2>/dev/null; then
	two_packages
	point "ranks bound to two packages form two groups; hierarchical: the results are right" divided_host
	point "unbound ranks form no groups" unbound_ranks
else
	skip "ranks bound to two packages form two groups" "needs two processors and unshare -rm"
fi
no_devices() { run 0 unshare -rm sh -c 'mount -t tmpfs none /dev && exec perf/allreduce_perf --np 2 -b 8 -e 8 -n 1'; }
if unshare -rm true 2>/dev/null; then
	point "ranks need no file of /dev" no_devices
else
	skip "ranks need no file of /dev" "needs unshare -rm"
fi
wrong_variable() { TUTTI_TIMEOUT_MS=soon run 0 perf/tutti info && grep -q "wrong now: .*TUTTI_TIMEOUT_MS" "$tmp/out"; }
point "tutti info names a variable with a wrong value" wrong_variable
named_algorithm() {
	TUTTI_ALGO=ring run 0 perf/tutti info --plan 64K --np 4 && grep -q '^TUTTI_ALGO=ring is set' "$tmp/out" &&
		run 0 perf/tutti info --plan 64K --np 4 && ! grep -q TUTTI_ALGO "$tmp/out"
}
point "tutti info --plan says that TUTTI_ALGO names another algorithm" named_algorithm
no_call() { refused "--plan is missing" perf/tutti info --np 4 && refused "--plan is missing" perf/tutti info --plan 0; }
point "tutti info refuses options of a call without its size" no_call

# ---- the model ----------------------------------------------------------------------------------------------------

explained() {
	run 0 perf/tutti info --plan 64K --np 4 && [ "$(grep -c '^\*' "$tmp/out")" -eq 1 ] &&
		grep -q '^[* ] one-shot  *[0-9]' "$tmp/out" &&
		grep -qE 'wins: |as quick as|the only one' "$tmp/out" &&
		run 0 perf/tutti info --plan 8 --np 32 --cores 32 --collective allgather &&
		grep -qE 'direct wins: [0-9]?\.[0-9]+ us slower than .* fewer links' "$tmp/out" &&
		run 0 perf/tutti info --plan 1K --np 4 --hosts 4 --nics soft &&
		grep -q '^one-shot wins: .* us faster than one-shot by soft,' "$tmp/out"
}
point "tutti info --plan shows the candidates and the reason for the choice" explained
plan_page() { python3 "${top_srcdir:-..}/tests/scripts/plan_page.py" "$@"; }
plan_drawn() {
	while read -r name np rows options; do
		for format in svg html; do
			# shellcheck disable=SC2086
			run 0 perf/tutti plan "$name" --np "$np" $options --print $format && cp "$tmp/out" "$tmp/plan.$format" &&
				plan_page "$tmp/plan.$format" "$np" "$rows" || { echo "$name $np $format"; return 1; }
		done
	done <<-END
		ring 4 7
		ring 8 15
		halving-doubling 8 11
		hierarchical 6 10 --hosts 2
		tree 7 8
	END
}
plan_undrawn() {
	while read -r word line; do
		# shellcheck disable=SC2086
		refused "$word" perf/tutti plan $line || { echo "plan $line: $(cat "$tmp/err")"; return 1; }
	done <<-END
		all ring --np 4 --rank 1 --print svg
		33 ring --np 33 --print html
		svg, ring --np 4 --print gif
	END
}
if command -v python3 >/dev/null; then point "tutti plan draws plans, and pages that step through them" plan_drawn
else skip "tutti plan draws plans, and pages that step through them" "no python3"; fi
point "tutti plan refuses pictures of one rank, and of too many" plan_undrawn

simulated() {
	run 0 perf/tutti simulate --np 12 --hosts 4,5,3 --bytes 3M --algo hierarchical --print json || return 1
	python3 - "$tmp/out" <<-'END'
		import json, sys
		d = json.load(open(sys.argv[1]))
		a, = d["algorithms"]
		assert d["complete"] and d["hosts"] == 3 and a["algorithm"] == "hierarchical:two-shot/ring"
		assert abs(sum(a["time_us_by_part"].values()) - a["time_us"]) < 1e-3
		assert a["links_complete"] and sum(l["bytes"] for l in a["links"] if l["class"] == "hosts") == a["hosts"]["bytes"]
		assert 2 * 2 * d["bytes"] == a["hosts"]["bytes"]
		assert a["simulation_max_rss_kib"] > 0 and a["tiles_walked"] == a["tiles"]
	END
}
if command -v python3 >/dev/null; then point "tutti simulate --print json is consistent" simulated; fi
many_cores() {
	local epyc="--np 64 --cores 64 --costs ${top_srcdir:-..}/examples/epyc-7763.tuning"
	run 0 perf/tutti info --plan 64K $epyc --groups 8 && grep -q '^\* hierarchical:two-shot' "$tmp/out" &&
		run 0 perf/tutti info --plan 64K $epyc && ! grep -q hierarchical: "$tmp/out" &&
		run 0 perf/tutti simulate $epyc --groups 8 --bytes 64K --algo ring --print json &&
		grep -A2 '"groups"' "$tmp/out" | grep -q '"messages": 1008,*$' &&
		refused "--groups 9" perf/tutti simulate --np 8 --groups 9
}
point "tutti simulate divides the ranks of a host into locality groups" many_cores
links_on_request() {
	run 0 perf/tutti simulate --np 3 --bytes 3K --algo ring && ! grep -e '->' "$tmp/out" &&
		run 0 perf/tutti simulate --np 3 --bytes 3K --algo ring --links && [ "$(grep -c '^  [0-2] -> [0-2] shm 4096$' "$tmp/out")" = 3 ]
}
point "tutti simulate prints its links only with --links" links_on_request

# A model of GPUs promises at least 330 GB/s at 256 MiB and at most 12 us at 8 KiB to 8 processes, and 0.85 of a copy's rate to
# 4 threads that share a GPU.
gpus_simulated() {
	run 0 perf/tutti simulate --np 8 --gpu h100 --bytes 256M &&
		awk '$1 == 268435456 { found = $(NF - 2) >= 330 && $(NF - 2) < 450 } END { exit !found }' "$tmp/out" &&
		run 0 perf/tutti simulate --np 8 --gpu h200 --bytes 8K &&
		awk '$1 == 8192 { found = $(NF - 3) > 2 && $(NF - 3) < 12 } END { exit !found }' "$tmp/out" &&
		run 0 perf/tutti simulate --np 4 --gpu h200 --bytes 256M &&
		awk '/that share/ { found = $(NF - 4) >= 0.85 && $(NF - 4) <= 1 } END { exit !found }' "$tmp/out"
}
point "tutti simulate --gpu predicts allreduces by GPU kernels" gpus_simulated
no_simulation() {
	while read -r word line; do
		# shellcheck disable=SC2086
		refused "$word" perf/tutti simulate $line || { echo "simulate $line: $(cat "$tmp/err")"; return 1; }
	done <<-END
		--np --bytes 8
		rings --np 4 --algo rings
		--hosts --np 4 --hosts 3,3
		--hosts --np 4 --hosts 5
		--hosts --np 4 --hosts 2,x
		auto --np 4 --hosts 2 --transport shm
		nothing --np 4 --collective nothing
		tune --np 4 --costs /nonexistent/file
		root --np 4 --root 4
		h100 --np 4 --gpu tape
		2 --np 9 --gpu h100
		--links --np 4 --svg $tmp/s.svg --links
		--print --np 4 --svg $tmp/s.svg --print json
		4 --np 4 --svg $tmp/s.svg --bytes 4
	END
}
point "tutti simulate refuses wrong command lines with one error" no_simulation
# The last point of a line is the time that the table has for its algorithm, and no algorithm of the table is missing.
drawn() {
	local name us
	run 0 perf/tutti simulate --np 8 --hosts 2 --bytes 64K --svg "$tmp/s.svg" && [ ! -s "$tmp/out" ] &&
		run 0 perf/tutti simulate --np 8 --hosts 2 --bytes 64K --print json && cp "$tmp/out" "$tmp/s.json" &&
		run 0 perf/tutti simulate --np 8 --hosts 2 --bytes 64K --algo ring --svg "$tmp/ring.svg" && python3 - "$tmp" <<-'END'
		import json, re, sys, xml.etree.ElementTree as xml
		def last(path):
		    text = "".join(t.text + "\n" for t in xml.parse(path).iter("{http://www.w3.org/2000/svg}title") if t.text)
		    return {n: float(y) for n, y in re.findall(r"^(.*): 64K, ([0-9.e+]+)$", text, re.M)}
		lines = last(sys.argv[1] + "/s.svg")
		table = {a["algorithm"]: a["time_us"] for a in json.load(open(sys.argv[1] + "/s.json"))["algorithms"]}
		assert set(lines) == set(table) and len(lines) > 5, (lines, table)
		assert all(abs(lines[n] - table[n]) < 1e-3 * table[n] for n in table), (lines, table)
		assert set(last(sys.argv[1] + "/ring.svg")) == {"ring"}
	END
}
if command -v python3 >/dev/null; then point "tutti simulate --svg draws the times of all algorithms" drawn; fi
interrupted() {
	perf/tutti simulate --np 4096 --fold no --bytes 1G --tile-bytes 4K --tiles 1000000 --algo ring >"$tmp/out" 2>"$tmp/err" &
	simulation=$!
	sleep 1
	kill -INT $simulation
	kill -TERM $simulation
	wait $simulation
	[ $? -gt 128 ]
}
point "a signal ends a simulation" interrupted
# Walks rank 0 of one host, which all others are like: some messages for each rank, not for each pair
many_ranks_simulated() {
	(limit=900 && run 0 perf/tutti simulate --np 65534 --algo hierarchical) &&
		messages=$(sed -n 's/^# simulated \([0-9]*\) messages.*/\1/p' "$tmp/out") &&
		[ "${messages:-0}" -gt 0 ] && [ "$messages" -le $((5 * 65534)) ]
}
[ "${TT_TIER:-default}" = default ] || point "tutti simulate --np 65534 walks some messages for each rank" many_ranks_simulated
# "(us)" of the head ends in the column of the time
long_name() {
	run 0 perf/tutti simulate --np 16 --hosts 4 --algo hierarchical:halving-doubling/recursive-doubling &&
		awk '/\(us\)/ && !end { end = index($0, "(us)") + 3 }
			$1 ~ /^hierarchical/ { rows++; bad += substr($0, 1, end) !~ /[0-9]$/ || substr($0, end + 1, 1) != " " }
			END { exit rows != 1 || bad }' "$tmp/out"
}
point "the columns of tutti simulate hold a long name" long_name
tuned() {
	run 0 perf/tutti tune --np 2 -b 64K -e 512K -f 8 --repeats 1 -o "$tmp/table" &&
		grep -q '^# .*machine: ' "$tmp/table" &&
		grep -q '^# noise: two measurements of a call differ by a factor of [0-9.]*' "$tmp/out" &&
		grep -qE '^# (choices that this table changes|this table changes no choice)' "$tmp/out" &&
		grep -q 'auto / best' "$tmp/out" && run 0 perf/tutti simulate --np 2 --costs "$tmp/table" &&
		TUTTI_TUNING=$tmp/table run 0 perf/allreduce_perf --np 2 -b 4K -e 4K -n 2 -c 1 &&
		run 0 perf/tutti tune --print --costs "$tmp/table" && grep '^[a-z]' "$tmp/table" >"$tmp/a" &&
		grep '^[a-z]' "$tmp/out" >"$tmp/b" && cmp "$tmp/a" "$tmp/b"
}
point "tutti tune writes a table that the library and the other commands read" tuned
no_output() {
	refused --print perf/tutti tune --print -o "$tmp/none" &&
		refused --check perf/tutti tune --np 2 --check -o "$tmp/none" &&
		refused "/nonexistent/" perf/tutti tune --np 2 -o /nonexistent/table
}
point "tutti tune refuses -o for commands that write no table, and a file that cannot be written" no_output
no_table() {
	echo "shm.widow 8" >"$tmp/table"
	TUTTI_TUNING=$tmp/table run 2 perf/allreduce_perf --np 2 -b 8 -e 8 &&
		grep -q "line 1: unknown constant \"shm.widow\"" "$tmp/err" || return 1
	# also a rank that learns it from rank 0
	export TUTTI_NRANKS=2 TUTTI_ROOT=file:$tmp/root
	(TUTTI_TUNING=$tmp/table TUTTI_RANK=0 exec perf/allreduce_perf) >/dev/null 2>&1 &
	TUTTI_RANK=1 run 2 perf/allreduce_perf
	rc=$?
	unset TUTTI_NRANKS TUTTI_ROOT
	wait $!
	[ $? -eq 2 ] && [ $rc -eq 0 ]
}
point "a wrong tuning table is an error with the line number, and status 2 on every rank" no_table
version_is() { run 0 perf/tutti version && grep -q '^tutti [0-9]*\.[0-9]*\.[0-9]*$' "$tmp/out"; }
point "tutti version prints the version" version_is
wrong_setting() {
	TUTTI_ALGO=nosuch run 2 perf/allreduce_perf --np 2 -b 8 -e 8 && grep -q "^rank 0: .*nosuch" "$tmp/err" &&
		TUTTI_TIMEOUT_MS=soon refused TUTTI_TIMEOUT_MS perf/allreduce_perf --np 2 -b 8 -e 8
}
point "a wrong TUTTI_ variable exits with 2" wrong_setting
setting() { TUTTI_ALGO=tree right perf/allreduce_perf --np 2 -b 8K -e 8K -n 2 && rows | grep -q ' tree$'; }
point "TUTTI_ALGO selects the algorithm in the absence of --algo" setting
done_testing
