#!/bin/bash
# fuzz_hours.sh [SECONDS [FUZZER...]] - each fuzzer runs until it has used SECONDS of processor time in all, 7,200 by default
#
# Called by tests/tiers in a build folder with --enable-fuzzers and AddressSanitizer. fuzz/NAME/ has what a fuzzer found (corpus),
# what made it fail (failure-*), and its ledger: a line for each run, processor seconds and executions. So an interrupted run
# goes on where it was, and later runs go on with the corpus. As many fuzzers side by side as there are processors. TAP.
#
# A corpus for the tree: fuzz_NAME -merge=1 ../tests/fuzz/seeds/fuzz_NAME fuzz/fuzz_NAME/corpus adds the inputs that reach more.
set -u
top=$(cd "${top_srcdir:-.}" && pwd)
want=${1:-7200} slice=${TT_FUZZ_SLICE:-120}
shift $(($# > 0))
[ $# -gt 0 ] || set -- $(cd "$top/tests/fuzz" && ls fuzz_*.c | sed 's/\.c$//' | grep -vE '^fuzz_(main|control)$')
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

used() { awk '{ seconds += $1; runs += $2 } END { printf "%d %d", seconds, runs }' "fuzz/$1/ledger"; }

# fuzz NAME: until the time is used; status 1: an input fails
fuzz() {
	local seeds=$top/tests/fuzz/seeds/$1 log=fuzz/$1/log status seconds runs
	mkdir -p "fuzz/$1/corpus"
	touch "fuzz/$1/ledger"
	[ -d "$seeds" ] || seeds=
	while read -r seconds runs < <(used "$1"; echo) && [ "$seconds" -lt "$want" ]; do
		TIMEFORMAT='%U %S'
		{ time "tests/fuzz/$1" -max_total_time="$slice" -print_final_stats=1 -artifact_prefix="fuzz/$1/failure-" \
			"fuzz/$1/corpus" $seeds >"$log" 2>&1; } 2>"fuzz/$1/times"
		status=$?
		awk -v runs="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" '{ print $1 + $2, runs + 0 }' \
			"fuzz/$1/times" >>"fuzz/$1/ledger"
		[ $status = 0 ] || return 1
	done
}

grep -q '^fuzz_main = $' Makefile || [ -n "${TT_FUZZ_ANY-}" ] || { echo "no libFuzzer: ../configure CC=clang --enable-fuzzers"; exit 77; }
echo "1..$#"
for name; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
	{ fuzz "$name"; echo $? >"fuzz/$name/status"; } &
done
wait
n=0 failed=0
for name; do
	read -r seconds runs < <(used "$name"; echo)
	if [ "$(cat "fuzz/$name/status")" = 0 ]; then
		echo "ok $((n += 1)) - $name: $seconds s of a processor, $runs executions, $(ls "fuzz/$name/corpus" | wc -l) inputs"
	else
		failed=1
		echo "not ok $((n += 1)) - $name: $(ls -t "fuzz/$name"/failure-* 2>/dev/null | head -n 1), after $seconds s of a processor"
		tail -n 30 "fuzz/$name/log" | sed 's/^/# /'
	fi
done
exit $failed
