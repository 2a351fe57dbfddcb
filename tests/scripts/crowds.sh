#!/bin/bash
# crowds.sh - trainings of 32, 64 and 128 processes with stragglers and deaths (tier soak)
#
# `TRAIN=build/trainer/tutti-train tests/scripts/crowds.sh` from the root of the sources. TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"
number() { tail -n 1 "$out/log" | sed -n "s/.*\"$1\":\([0-9.]*\)[],}].*/\1/p"; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a <= b) }'; }

for np in 32 64 128; do
	crowd=(--data synth --model linear --global-batch 512 --np $np --steps 20 --eval-every 100000)
	for strategy in mirrored spare "downpour --ps 2 --adagrad --lr 0.01"; do
		(ulimit -n 1024; ulimit -d 262144; exec timeout -k 5 600 "$prog" "${crowd[@]}" --strategy $strategy) >"$out/log" 2>"$out/err"
		status=$?
		claim "$np processes, $strategy, 1024 descriptors and 256 MiB of data each: accuracy $(field accuracy)" reached 0.8
	done
	run 600 "${crowd[@]}" --strategy spare --kill 5@7,9@11
	claim "$np processes, spare: two workers die, the others complete" is died 2
done

# 18 of 20 workers: a straggler's gradients are counted in the record of the first 18 of each step; times are printed only
twenty=(--data synth --model mlp:16 --global-batch 320 --np 20 --strategy spare --sim-compute-ms 200 --steps 30 --eval-every 100000)
twenty+=(--record "$out/who")
run 600 "${twenty[@]}" --k 18
quiet=$(number step_ms) accuracy=$(number accuracy)
within() { awk -v a="$(number accuracy)" -v b="$accuracy" 'BEGIN { exit !(a >= b - 0.01) }'; }
# steps in which each straggler was in time
stragglers() { awk '!/^#/ { for (i = 2; i <= NF; i++) n[$i]++ } END { print n[5] + 0, n[11] + 0 }' "$out/who"; }
every_step_has() { [ "$(grep -c "^$1 " "$out/who")" = "$2" ]; }
run 600 "${twenty[@]}" --k 18 --slow 5:10,11:10   # at the end, all wait for the step of 2000 ms that a straggler is in
claim "18 of 20 with two stragglers: every step has 18 gradients; $(number step_ms) ms a step, without stragglers $quiet" \
	every_step_has 18 30
claim "... and does not wait for stragglers, which are in $(stragglers) of 30, of a fair share at most half" \
	eval 'stragglers | awk "{ exit !(\$1 <= 13 && \$2 <= 13) }"'
claim "accuracy $(number accuracy) is within a point of $accuracy" within
run 600 "${twenty[@]}" --k 20 --slow 5:10,11:10 --steps 6
claim "20 of 20: every step has both stragglers" eval 'every_step_has 20 6 && [ "$(stragglers)" = "6 6" ]'
claim "... whose computing takes 2000 ms; $(number step_ms) ms a step" at_most 2000 "$(number step_ms)"

run 600 "${twenty[@]}" --k 18 --kill 5@7,11@9
claim "18 of 20, two workers die: $(number step_ms) ms a step, the others complete" is died 2
claim "accuracy $(number accuracy) is within a point of $accuracy" within

# asynchronous: the others take what a straggler of four does not
async=(--data synth --model mlp:16 --global-batch 320 --np 4 --ps 2 --strategy ps-async --lr 0.02 --sim-compute-ms 100
	--steps 90 --eval-every 100000 --record "$out/order")
run 600 "${async[@]}"
quiet=$(number step_ms)
pushes() { grep -c "^3 $1\$" "$out/order.0"; }
run 600 "${async[@]}" --slow 3:10
claim "ps-async with a straggler: it computes $(pushes 3) of 360 shares, at most half of a fair one; $(number step_ms) ms a step, without $quiet" \
	[ "$(pushes 3)" -le 45 ]
claim "... and the others $(pushes 0), $(pushes 1) and $(pushes 2): all 360" \
	[ $(($(pushes 0) + $(pushes 1) + $(pushes 2) + $(pushes 3))) = 360 ]

echo "1..$n"
exit $failed
