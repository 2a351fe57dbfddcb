#!/bin/sh
# tool_commands.sh - commands of tutti: info, plan, simulate, tune, version
# Called by make check in the build folder.
. "$(dirname "$0")/tool_runs.sh"

# ---- info -----------------------------------------------------------------------------------------------------------

info_tells() {
	run 0 perf/tutti info || return 1
	for word in OpenSSL "shm .*on this host" "tcp .*on this host" "self .*on this host" "verbs .*on this host" \
		"TUTTI_TIMEOUT_MS" "NUMA nodes" "cores" "reduce-to-one"; do
		grep -q "$word" "$tmp/out" || { echo "missing: $word"; return 1; }
	done
}
point "tutti info shows build, transports, host, environment, algorithms" info_tells
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
		run 0 perf/tutti info --plan 256 --np 4 --cores 2 --collective scatter --transport tcp &&
		grep -qE 'tree wins: [0-9]?\.[0-9]+ us slower than direct, .* calls overlap' "$tmp/out" &&
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
		4K --np 4 --tile-bytes 1
		16M --np 4 --tile-bytes 17M
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
done_testing
