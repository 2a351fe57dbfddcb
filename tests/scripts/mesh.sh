#!/bin/bash
# mesh.sh - models that are cut: every layout of the mesh and every schedule gives the parameters of one device
#
# Uses synthetic data and small nets. TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"

# ---- one hash --------------------------------------------------------------------------------------------------------

net=(--data synth --model mlp:24,20,18 --global-batch 250 --leaf 8 --steps 4 --canonical tree)
run 120 --strategy one "${net[@]}"
hash=$(field hash) loss=$(field loss)
layout 1 pipeline=1 gpipe 4 one
layout 2 pipeline=2 gpipe 4 one
layout 4 pipeline=4 1f1b 8 one
layout 4 data=2,pipeline=2 1f1b 3 mirrored
claim "... and its loss on the test set" is loss "$loss"
layout 3 pipeline=3 zero-bubble 7 mirrored
layout 4 data=2,pipeline=2 interleaved:2 5 reduce-to-one
layout 6 data=3,pipeline=2 1f1b 32 hierarchical-copy
layout 2 pipeline=2 zero-bubble 2 central
net+=(--canonical chain)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
layout 4 data=2,pipeline=2 1f1b 4 mirrored
net=(--data synth --model cnn --global-batch 48 --leaf 8 --steps 2 --canonical tree)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
layout 3 pipeline=3 1f1b 4 mirrored
layout 4 data=2,pipeline=2 zero-bubble 3 mirrored

# ---- products that tensor ranks divide -------------------------------------------------------------------------------

cut=(--data synth --model mlp:24,20,18 --global-batch 256 --leaf 8 --canonical tree --shards 8 --eval-every 100000)
net=("${cut[@]}" --steps 4)
run 120 --strategy one "${net[@]}"
hash=$(field hash) loss=$(field loss)
layout 4 tensor=4 1f1b 1 one
claim "... and its loss on the test set" is loss "$loss"
# of 784x24 and 20x18 a rank has a quarter of the columns, of 24x20 and 18x10 a quarter of the rows
claim "... and a rank has a quarter of what is cut" is rank_parameters $((785 * 6 + 6 * 20 + 20 + 21 * 4 + 4 * 10 + 10))
sent=$(field tensor_sent)
run 120 --np 4 --mesh tensor=4 "${cut[@]}" --steps 2
# forward the outputs of both row products, 20 and 10, backward the inputs of the second column product, 20
sends() { [ $((sent - $(field tensor_sent))) -ge "$1" ] && [ $((sent - $(field tensor_sent))) -le $(($1 + 64)) ]; }
claim "... and sends 2(T-1)/T of the sums a step" sends $((2 * 2 * 3 * (20 + 10 + 20) * 256 * 4 / 4))
layout 8 data=2,tensor=2,pipeline=2 zero-bubble 3 mirrored

# planes of convolutions: of the second a rank has the weights for its planes of the first

net=(--data synth --model cnn --global-batch 48 --leaf 8 --canonical tree --shards 8 --eval-every 100000)
run 120 --strategy one "${net[@]}" --steps 3
hash=$(field hash)
run 120 --np 4 --mesh data=2,tensor=2 "${net[@]}" --steps 3
claim "cnn on data=2,tensor=2: the hash of one device" is hash "$hash"
run 120 --np 4 --mesh tensor=4 "${net[@]}" --steps 3
claim "cnn on tensor=4: the hash of one device" is hash "$hash"
claim "... and a rank has a quarter of what is cut" is rank_parameters $((2 * 26 + 16 * (2 * 25 + 1) + 785 * 10))
sent=$(field tensor_sent)
run 120 --np 4 --mesh tensor=4 "${net[@]}" --steps 2
claim "... and sends 2(T-1)/T of the second convolution's planes a step" sends $((2 * 3 * 16 * 14 * 14 * 48 * 4 / 4))
wrong 'no convolutions of some planes' "${net[@]}" --device sim

# ---- a model that is larger than a rank ------------------------------------------------------------------------------

net=("${cut[@]}" --steps 4)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
wrong 'need 0.228 MiB on a rank' --mem-cap 0.1 --strategy one
run 120 --np 4 --mesh tensor=4 "${net[@]}" --mem-cap 0.1
claim "with tensor ranks the model fits, and has the hash of one device" is hash "$hash"
wrong 'need .* MiB on a rank' --np 4 --mem-cap 0.2
run 120 --np 4 --zero 3 "${net[@]}" --mem-cap 0.2
claim "with --zero 3 it fits, too" is hash "$hash"

# ---- memory ----------------------------------------------------------------------------------------------------------

keeps() { [ "$(list activations)" = "$1" ]; }
net=(--data synth --model mlp:24,20,18 --global-batch 256 --leaf 8 --steps 1 --canonical tree)
run 120 --np 3 --mesh pipeline=3 --micro 32 "${net[@]}"
claim "1f1b keeps the activations of 3, 2 and 1 of 32 micro-batches" keeps 3,2,1
run 120 --np 3 --mesh pipeline=3 --micro 32 --schedule gpipe "${net[@]}"
claim "gpipe keeps those of all 32" keeps 32,32,32

# ---- checkpoints -----------------------------------------------------------------------------------------------------

net=(--data synth --model mlp:24,20,18 --global-batch 250 --leaf 8 --steps 6 --momentum 0.9 --canonical tree)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
run 120 --np 4 --mesh data=2,pipeline=2 "${net[@]}" --save "$out/ck" --save-every 2 --kill 1@4
claim "a training on data=2,pipeline=2 is killed in step 4" ended 1
cp "$out/ck" "$out/ck.mesh"
resumed --np 3 --mesh pipeline=3 --schedule zero-bubble
resumed --np 4 --mesh data=2,pipeline=2 --strategy central --schedule interleaved:2
resumed --strategy one
run 120 --np 3 "${net[@]}" --steps 2 --save "$out/ck"
claim "the checkpoint of 3 ranks without a mesh is the same file" cmp "$out/ck" "$out/ck.mesh"
resumed --np 6 --mesh data=3,pipeline=2

# the grand test: data x tensor x pipeline, killed, goes on on other layouts
net=("${cut[@]}" --steps 6)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
run 120 --np 8 --mesh data=2,tensor=2,pipeline=2 "${net[@]}" --save "$out/ck" --save-every 2 --kill 5@4
claim "a training on data=2,tensor=2,pipeline=2 is killed in step 4" ended 1
cp "$out/ck" "$out/ck.killed"
for layout in '--strategy one' '--np 3' '--np 8 --mesh tensor=4,pipeline=2' '--np 8 --mesh data=2,tensor=2,pipeline=2 --zero 1'; do
	cp "$out/ck.killed" "$out/ck"
	resumed $layout
done

# ---- deaths: the ranks that are left form a mesh ----------------------------------------------------------------------

rebuilt() {   # MESH STEP ARGUMENT...: continues on MESH after STEP, 0: from the beginning
	local mesh=$1 step=$2
	shift 2
	rm -f "$out/ck"
	run 120 "${net[@]}" --on-failure shrink --save "$out/ck" "$@"
	claim "$*: the others continue on $mesh, with the hash of an undisturbed training" is hash "$hash"
	claim "... from step $step" eval 'grep -q "ranks died; --mesh $mesh continues" "$out/log" &&
		[ "$(sed -n "s/^resumed   after step //p" "$out/log")" = "${step#0}" ]'
}
rebuilt data=1,tensor=2,pipeline=2 3 --np 8 --mesh data=2,tensor=2,pipeline=2 --kill 5@4
rebuilt data=1,tensor=1,pipeline=2 3 --np 4 --mesh data=2,pipeline=2 --kill 0@4
rebuilt data=2,tensor=1,pipeline=2 3 --np 6 --mesh data=3,pipeline=2 --kill 1@4 --strategy reduce-to-one
rebuilt data=1,tensor=1,pipeline=2 0 --np 4 --mesh data=2,pipeline=2 --kill 1@4 --strategy central
rebuilt data=1,tensor=1,pipeline=2 4 --np 3 --mesh pipeline=3 --kill 1@6 --save-every 2
rebuilt data=1,tensor=2,pipeline=1 4 --np 4 --mesh tensor=4 --kill 2@6,3@6 --save-every 2
rebuilt data=1,tensor=1,pipeline=1 0 --np 2 --mesh pipeline=2 --kill 0@3
rebuilt data=1,tensor=1,pipeline=2 6 --np 4 --mesh data=2,pipeline=2 --kill 1@6.5
wrong 'add --save FILE' --np 2 --mesh pipeline=2 --on-failure shrink
wrong 'written with --model mlp:24,20,18 --shards 8' --resume "$out/ck" --shards 4
wrong 'add --shards 8' --np 2 --mesh tensor=2 --shards 1
wrong '3 tensor ranks cannot divide' --np 3 --mesh tensor=3
wrong 'add --shards 16' --np 16 --mesh tensor=16
wrong 'use 1, 2, 4' --shards 6
wrong 'no layer that tensor ranks can divide' --np 2 --mesh tensor=2 --model linear
wrong 'too narrow for 4 tensor ranks' --np 4 --mesh tensor=4 --model mlp:3

# ---- a transformer on the text of the documents ----------------------------------------------------------------------

echo short >"$out/short"
cat "${top_srcdir:-.}"/{README,HACKING}.md "${top_srcdir:-.}"/docs/design/*.md >"$out/text"
net=(--data "text:$out/text" --context 16 --model gpt:1x16 --global-batch 20 --leaf 4 --steps 4 --optimizer adamw)
net+=(--lr 0.003 --canonical tree --eval-every 100000)
run 120 --strategy one "${net[@]}"
hash=$(field hash) loss=$(field loss)
layout 4 pipeline=4 zero-bubble 3 one
layout 4 data=2,pipeline=2 interleaved:2 2 mirrored
claim "... and its loss on the test set" is loss "$loss"
run 120 "${net[@]}" --np 3 --zero 3
claim "--zero 3 --np 3: the hash of one device" is hash "$hash"
zero --np 3
net+=(--shards 8)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
layout 8 data=2,tensor=2,pipeline=2 1f1b 3 mirrored
run 120 "${net[@]}" --np 2 --device sim
claim "a device with memory of its own: the hash of cpu" is hash "$hash"
run 120 "${net[@]}" --np 3 --steps 2 --save "$out/ck"
resumed --np 4 --mesh data=2,pipeline=2
run 120 --np 2 "${net[@]}" --canonical off --context 8 --global-batch 32 --steps 200
learned() { awk -v loss="$(field loss)" 'BEGIN { exit !(loss > 0 && loss < 3.1) }'; }
claim "200 steps predict better than the frequencies of characters, whose entropy is above 3.1" learned
wrong 'has 8 heads' --shards 16
wrong 'is for text' --data synth
wrong 'is for images' --model mlp:8
wrong 'not BLOCKSxWIDTH' --model gpt:2x12
wrong 'use a longer text' --context 4096 --data "text:$out/short"

# ---- a recurrent network --------------------------------------------------------------------------------------------

net=(--data "text:$out/text" --context 12 --model rnn:3x8 --global-batch 20 --leaf 4 --steps 4 --canonical tree --lr 0.5)
net+=(--eval-every 100000)
run 120 --strategy one "${net[@]}" --metrics "$out/one.csv"
hash=$(field hash) loss=$(field loss)
losses() { cut -d, -f3,6 "$out/one.csv" >"$out/one.losses" && cut -d, -f3,6 "$1" | cmp - "$out/one.losses"; }
run 120 --np 3 --mesh pipeline=3 --schedule wavefront --micro 4 "${net[@]}" --metrics "$out/mesh.csv"
claim "pipeline=3, wavefront, 4 parts of a sequence: the hash of one device" is hash "$hash"
claim "... its loss in every step" losses "$out/mesh.csv"
claim "... and as many activations as proved" proved
layout 4 data=2,pipeline=2 wavefront 5 mirrored
claim "... and its loss on the test set" is loss "$loss"
layout 5 pipeline=5 wavefront 12 one
layout 3 pipeline=3 1f1b 2 one
zero --np 3
run 120 "${net[@]}" --np 2 --device sim
claim "a device with memory of its own: the hash of cpu" is hash "$hash"
run 120 --np 3 --mesh pipeline=3 --schedule wavefront "${net[@]}" --save "$out/ck" --save-every 2 --kill 1@4   # in step 3 rank 0 may still save
resumed --np 4 --mesh data=2,pipeline=2 --schedule wavefront --micro 6
resumed --strategy one
run 120 --np 2 "${net[@]}" --canonical off --context 16 --model rnn:1x32 --global-batch 32 --steps 100 --optimizer adamw --lr 0.02
claim "100 steps predict better than the frequencies of characters, whose entropy is above 3.1" learned
gru=(--canonical off --context 16 --model rnn:gru:1x32 --global-batch 32 --steps 100 --optimizer adamw --lr 0.02)
run 120 --np 2 "${net[@]}" "${gru[@]}"
claim "... and GRU cells do" learned
wrong 'a sequence into as many parts' --np 2 --mesh pipeline=2 --schedule wavefront --micro 13
wrong 'no layer that tensor ranks can divide' --np 2 --mesh tensor=2 --shards 2
wrong 'not LAYERSxWIDTH' --model rnn:3
wrong 'not LAYERSxWIDTH' --model rnn:gru:

# GRU cells

net+=(--model rnn:gru:3x8)
run 120 --strategy one "${net[@]}"
hash=$(field hash) loss=$(field loss)
layout 3 pipeline=3 wavefront 4 one
claim "... and its loss on the test set" is loss "$loss"
layout 4 data=2,pipeline=2 wavefront 5 mirrored
run 120 "${net[@]}" --np 2 --device sim
claim "GRU cells on a device with memory of its own: the hash of cpu" is hash "$hash"

# ---- wrong uses ------------------------------------------------------------------------------------------------------

net=(--data synth --model mlp:24,20,18 --global-batch 250 --leaf 8 --steps 6 --canonical tree)
wrong 'not a layout' --np 2 --mesh pipes=2
wrong 'as many ranks as the mesh has' --np 3 --mesh data=2,pipeline=2
wrong 'too few for 5 chunks' --np 5 --mesh pipeline=5
wrong 'for recurrent models' --np 2 --mesh pipeline=2 --schedule wavefront
wrong 'no such schedule' --np 2 --mesh pipeline=2 --schedule 2f2b
wrong '--hashes is not for models that are cut' --np 2 --mesh pipeline=2 --hashes "$out/x"
wrong 'add --canonical tree' --np 2 --mesh pipeline=2 --canonical off
wrong 'has no effect alone; add --mesh' --np 2 --micro 4
wrong 'a batch of 250 samples has 32 of --leaf 8; use at most 32' --np 2 --mesh pipeline=2 --micro 33
wrong 'use mirrored' --np 2 --mesh pipeline=2 --strategy average --canonical off

echo "1..$n"
exit $failed
