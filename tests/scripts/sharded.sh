#!/bin/bash
# sharded.sh - --zero and AdamW: every rank keeps what the formula says, and all have the parameters of one device
#
# Uses synthetic data and small nets. TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"

net=(--data synth --model mlp:24,20,18 --global-batch 250 --leaf 8 --steps 6 --momentum 0.9 --canonical tree)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
run 120 "${net[@]}" --np 3 --steps 2 --save "$out/ck.mesh"

# ---- a sharded optimizer ---------------------------------------------------------------------------------------------

optimizer() { [ "$(field optimizer_floats)" = "$1" ]; }
within() { awk -v a="$(field "$1")" -v b="$2" -v more="$3" 'BEGIN { exit !(a >= b && a <= b + more) }'; }
parameters=19908
zero --np 4
claim "... and a rank has a quarter of the optimizer state" optimizer $(((parameters + 2 + 3) / 4))
run 120 "${net[@]}" --np 4 --canonical off --algo ring
loss=$(field loss)
run 120 "${net[@]}" --np 4 --canonical off --algo ring --zero 1
claim "--zero 1 without --canonical: the loss of mirrored" is loss "$loss"
padded=$(((parameters + 2 + 3) / 4 * 4))
claim "... and by a ring 2N(P-1)/P bytes a step, as mirrored" is bytes_sent $((6 * 2 * 4 * padded * 3 / 4))
zero --np 4 --mesh data=2,pipeline=2
run 120 "${net[@]}" --np 3 --zero 1 --steps 2 --save "$out/ck"
claim "its checkpoint is the file of mirrored" cmp "$out/ck" "$out/ck.mesh"
resumed --np 2 --zero 1
zero --np 3 --device sim
run 120 "${net[@]}" --strategy one --canonical fixed64
hash=$(field hash)
zero --np 3 --canonical fixed64

# ---- sharded gradients and parameters --------------------------------------------------------------------------------

# layers of 785x24, 25x20, 21x18 and 19x10 parameters; a rank of 4 has a quarter of each, rounded up
largest=18840 first=4710 rest=$((125 + 95 + 48))
net+=(--eval-every 100000 --check-replicas 0)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
floats() {   # PARAMETERS GRADIENTS STATE
	[ "$(field parameter_floats) $(field gradient_floats) $(field optimizer_floats)" = "$1 $2 $3" ]
}
for stage in 2 3; do
	sharded=(--zero $stage)
	for np in 1 3 4; do
		run 120 "${net[@]}" --np $np "${sharded[@]}"
		claim "--zero $stage on $np ranks: the hash of one device" is hash "$hash"
	done
	own=$((first + rest))
	[ $stage = 2 ] && kept=$parameters || kept=$((own + largest))
	claim "... and a rank keeps $kept parameters, the gradients of a layer, a quarter of the state" \
		floats $kept $((largest + 4)) $own
	run 120 "${net[@]}" --np 4 --canonical off --algo ring "${sharded[@]}"
	# 2: gradients and parameters once; 3: parameters twice but for the first layer, and once for the evaluation
	[ $stage = 2 ] && sent=$((6 * 2 * own)) || sent=$((6 * (2 * own + rest) + own))
	claim "... and sends as many bytes as the formula" within bytes_sent $((3 * 4 * sent)) $((6 * 24))
	run 120 "${net[@]}" --np 3 "${sharded[@]}" --save "$out/ck" --save-every 2 --kill 1@4
	claim "... its checkpoint is the file of mirrored" cmp "$out/ck" "$out/ck.mesh"
	cp "$out/ck.mesh" "$out/ck"
	resumed --np 2 "${sharded[@]}"
	wrong 'use --zero 1' --np 2 --mesh pipeline=2 "${sharded[@]}"
	wrong 'use tree or chain' --np 2 --canonical fixed64 "${sharded[@]}"
	wrong 'has memory of its own' --np 2 --device sim "${sharded[@]}"
done
wrong 'no rank has all parameters' --np 2 --zero 3 --hashes "$out/x"

# ---- AdamW -----------------------------------------------------------------------------------------------------------

net=(--data synth --model mlp:24,20,18 --global-batch 250 --leaf 8 --steps 6 --canonical tree --optimizer adamw --lr 0.002)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
layout 4 data=2,pipeline=2 1f1b 4 mirrored
zero --np 4 --mesh data=2,pipeline=2
run 120 "${net[@]}" --np 3 --zero 3
claim "--zero 3 --np 3: the hash of one device" is hash "$hash"
zero --np 3
claim "... and a rank has a third of both means" optimizer $((2 * (parameters + 2 + 1) / 3))
run 120 "${net[@]}" --np 3 --zero 1 --save "$out/ck" --save-every 3 --kill 2@5
resumed --np 4 --mesh data=2,pipeline=2
run 120 "${net[@]}" --np 4 --mesh data=2,pipeline=2 --steps 2 --save "$out/ck"
resumed --np 2 --zero 1
wrong 'written with --optimizer adamw' --optimizer sgd --resume "$out/ck"
wrong 'has no effect alone; add --optimizer sgd' --momentum 0.5
wrong 'has no effect with --strategy central' --strategy central
wrong 'one of: mirrored' --np 2 --zero 1 --strategy central

echo "1..$n"
exit $failed
