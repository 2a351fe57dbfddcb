#!/bin/bash
# user_model.sh - the program of examples/train_sine.c, which has a model of its own, by every strategy; TAP on standard output
set -u
[ -e .libs/libtutti-train.so ] || { echo "no libtutti-train.so in this build"; exit 77; }
TRAIN=$(mktemp) || exit 99
${CC:-cc} "${top_srcdir:-.}/examples/train_sine.c" -I"${top_srcdir:-.}/lib" -I"${top_srcdir:-.}/trainer" -L.libs -ltutti-train -lm -o "$TRAIN" || exit 1
export LD_LIBRARY_PATH=$PWD/.libs
. "${top_srcdir:-.}/tests/training"
trap 'rm -rf "$out" "$TRAIN"' EXIT

train() { run 90 --steps 150 --eval-every 1000 "$@"; [ $status = 0 ]; }
learned() { [ "$status" = 0 ] && awk -v loss="$(field loss)" 'BEGIN { exit !(loss != "" && loss < 0.05) }'; }   # 0.5: the loss of y = 0
same() { [ "$status" = 0 ] && [ "$(field hash)" = "$want" ]; }

claim "the example has at most 80 lines" [ "$(wc -l <"${top_srcdir:-.}/examples/train_sine.c")" -le 80 ]
train --strategy one --canonical tree --leaf 16 --save "$out/ck" --export "$out/weights" --metrics "$out/m.csv"
want=$(field hash)
claim "one device learns the sine" learned
claim "the result names the model, and the program has the parameters" eval 'is model sine && grep -q "^the first neuron has weight" "$out/log"'
claim "the export has the names of its tensors" grep -q '"layers.0.out.weight":{"dtype":"F32","shape":\[16,1\]' "$out/weights"
for how in "3 mirrored" "5 mirrored --zero 1" "2 reduce-to-one" "5 hierarchical-copy" "3 central" "2 ps-sync --ps 2"; do
	set -- $how
	train --np "$1" --strategy "${@:2}" --canonical tree --leaf 16
	claim "$how: the bits of one device" same
done
for how in "2 average --H 4" "2 ps-async --ssp 3 --momentum 0" "4 ps-strategy --devices 2 --momentum 0" "2 downpour --n-fetch 1 --n-push 1 --momentum 0" "3 spare --k 2" "2 mirrored --compress int8"; do
	set -- $how
	train --np "$1" --strategy "${@:2}"
	claim "$how learns the sine" learned
done
train --np 2 --canonical tree --leaf 16 --kill 1@100 --on-failure shrink
claim "a death does not change the bits" same
train --np 2 --canonical tree --leaf 16 --steps 80 --save "$out/ck"
train --np 3 --canonical tree --leaf 16 --resume "$out/ck"
claim "a resumed training has the bits of one without interruption" same
for option in "--model cnn" "--mesh data=1" "--zero 2"; do
	run 30 $option
	claim "$option: refused" ended 2 "is for the models of tutti-train; sine is a program's own"
done
run 30 --strategy a3c
claim "a strategy that plays is refused" ended 2 "--strategy a2c and a3c"
run 30 --steps 20 --lr 1000
claim "a loss that is not finite ends the training" ended 1 "the training diverged"
echo 1..$n
exit $failed
