#!/bin/bash
# train_cost.sh - cost of bit-identical results for any number of ranks: time of a training step by --canonical mode
#
#   perf/train_cost.sh            in the build folder; ROUNDS=7 RANKS="1 2 8" STEPS=100 DATA=fashion
#
# Every round runs every mode once, so that noise of the machine affects all modes equally; medians over the rounds.
set -u
train=${TRAIN:-./trainer/tutti-train}
rounds=${ROUNDS:-7} ranks=${RANKS:-1 2 8} steps=${STEPS:-100} data=${DATA:-fashion}
modes=(off tree chain fixed64)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ -x "$train" ] || { echo "train_cost.sh: no $train; build, or set TRAIN" >&2; exit 1; }

for _ in $(seq "$rounds"); do
	for np in $ranks; do
		for mode in "${modes[@]}"; do
			timeout 600 "$train" --data "$data" --np "$np" --canonical "$mode" --steps "$steps" --eval-every 100000 |
				sed -n 's/.*"step_ms":\([0-9.]*\),.*/\1/p' >>"$out/$np.$mode"
		done
	done
done
median() { sort -n "$1" | awk '{ x[NR] = $1 } END { printf "%.1f", NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
echo "| P | off | tree | chain | fixed64 |"
echo "| ---: | ---: | ---: | ---: | ---: |"
for np in $ranks; do
	off=$(median "$out/$np.off")
	row="| $np | $off |"
	for mode in tree chain fixed64; do
		row="$row $(awk -v m="$(median "$out/$np.$mode")" -v o="$off" 'BEGIN { printf "%s (%+.0f %%)", m, 100 * (m / o - 1) }') |"
	done
	echo "$row"
done
