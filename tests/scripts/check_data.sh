#!/bin/bash
# check_data.sh - accuracy of the strategies on Fashion-MNIST, and equal bits (tier full; some minutes)
#
# `TRAIN=build/trainer/tutti-train tests/scripts/check_data.sh` from the root of the sources. TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"

# ---- the advice of --advise -------------------------------------------------------------------------------------------

predicted() { awk -v m="$(field measured_ms)" -v p="$(field predicted_ms)" 'BEGIN { exit !(p > 0.8 * m && p < 1.2 * m) }'; }
settles 1800 'is advice 6 && predicted' --advise --np 6 --data synth --model mlp:64 --sim-compute-ms 600
claim "--advise, 600 ms of computing: $(field advice) ranks of 6" is advice 6
claim "... predicted $(field predicted_ms) ms of $(field checked) ranks, measured $(field measured_ms): within 20 %" predicted

layouts=(--advise --mesh any --canonical tree --shards 4 --data synth --model mlp:64,64,64)
checks() { sed -n 's/^check: .* take \(.*\) ms, predicted \(.*\)$/\1 \2/p' "$out/log"; }
in_range() { [ "$(checks | wc -l)" = 2 ] && checks | awk '!($2 > 0.8 * $1 && $2 < 1.2 * $1) { exit 1 }'; }
settles 1800 'is advice 8 && in_range' "${layouts[@]}" --np 8 --micro 4 --sim-compute-ms 600
claim "--advise --mesh any, 600 ms of computing: $(field mesh), 8 ranks" is advice 8
claim "... measured and predicted ms of two other layouts: $(checks | tr '\n' ' '): within 20 %" in_range

# ---- CartPole: 300,000 frames, 5 seeds ---------------------------------------------------------------------------------

median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }
for strategy in a2c a3c; do
	returns=()
	for seed in 1 2 3 4 5; do
		run 600 --np 2 --strategy $strategy --model mlp:64 --lr 0.005 --lr-schedule linear --global-batch 40 --seed $seed
		returns+=("$(field mean_return)")
	done
	solved() { awk -v m="$(median "${returns[@]}")" 'BEGIN { exit !(m >= 475) }'; }
	claim "$strategy: mean returns of 100 episodes ${returns[*]}, the median is at least 475" solved
done

[ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] ||
	{ echo "the package dataset-fashion-mnist is not installed"; exit 77; }

learn() {   # LEAST ARGUMENT...
	local least=$1
	shift
	run 900 --data fashion "$@"
	claim "$*: accuracy $(field accuracy), at least $least" reached "$least"
}
within() { awk -v a="$(field accuracy)" -v b="$2" -v d="$1" 'BEGIN { exit !(a >= b - d) }'; }    # POINTS OF

# ---- mlp, 5 epochs -----------------------------------------------------------------------------------------------

learn 0.85 --np 2
sync=$(field accuracy)
learn 0.85 --np 2 --strategy ps-sync
learn 0.85 --np 2 --strategy central
learn 0.85 --np 2 --strategy average
learn 0.85 --np 2 --strategy average --H 8
claim "local SGD of 8 steps is within 1 point of mirrored" within 0.01 "$sync"
learn 0.83 --np 4 --ps 1 --strategy downpour --n-fetch 5 --n-push 5 --adagrad --lr 0.01
learn 0.83 --np 4 --ps 2 --strategy ps-async --ssp 4
claim "ps-async is within 2 points of mirrored" within 0.02 "$sync"
for how in fp16 bf16 int8 topk:0.01 topk:0.001 powersgd:4; do
	learn 0.85 --np 2 --compress $how
	claim "--compress $how is within 1 point of mirrored" within 0.01 "$sync"
done

# ---- one hash ----------------------------------------------------------------------------------------------------

one() {   # ARGUMENT...: sets $want to the hash; same ARGUMENT... compares a run's hash with $want
	run 300 --data fashion --canonical tree "$@"
	want=$(field hash)
}
same() { run 300 --data fashion --canonical tree "$@"; claim "$*: the bits of one rank" is hash "$want"; }
one --steps 100
for np in 2 3 4 8; do same --steps 100 --np $np --transport shm; done
same --steps 100 --np 3 --transport tcp
algorithms=(ring tree recursive-doubling halving-doubling reduce-to-one hierarchical hierarchical-copy one-shot two-shot)
for algo in "${algorithms[@]}"; do same --steps 100 --np 4 --algo $algo; done
same --steps 100 --np 4 --ps 2 --strategy ps-sync
same --steps 100 --np 4 --strategy central
same --steps 100 --np 4 --strategy reduce-to-one
one --steps 200
same --steps 200 --np 4 --kill 2@137 --on-failure shrink
twenty=(--model cnn --steps 20 --eval-every 100000)
one "${twenty[@]}"
for np in 2 3 4 8; do same "${twenty[@]}" --np $np; done
same "${twenty[@]}" --np 3 --transport tcp
same "${twenty[@]}" --np 3 --ps 2 --strategy ps-sync
same "${twenty[@]}" --np 3 --strategy central --device sim
for algo in "${algorithms[@]}"; do same "${twenty[@]}" --np 4 --algo $algo; done
one "${twenty[@]}" --canonical fixed64    # fixed64 sums by an allreduce with the given algorithm
for algo in "${algorithms[@]}"; do same "${twenty[@]}" --canonical fixed64 --np 4 --algo $algo; done

# ---- cnn, 3 epochs -----------------------------------------------------------------------------------------------

cnn=(--model cnn --global-batch 128 --epochs 3 --np 2)
learn 0.87 "${cnn[@]}" --canonical tree
want=$(field hash)
learn 0.87 "${cnn[@]}" --canonical tree --strategy ps-sync
claim "ps-sync has the bits of mirrored" is hash "$want"
learn 0.87 "${cnn[@]}" --canonical tree --strategy central
claim "central has the bits of mirrored" is hash "$want"
learn 0.87 "${cnn[@]}" --strategy average

echo "1..$n"
exit $failed
