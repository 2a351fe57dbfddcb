#!/bin/bash
# gpu_tools.sh - the benchmarks and the trainer with --device cuda, on the fake CUDA driver (tests/fakes/cuda/)
#
# The script checks values, order, errors and output, and nothing of a GPU. Called by make check in the build folder.
set -u
. "${top_srcdir:-.}/tests/training"
fake=$PWD/tests/fakes/cuda
on() {   # COMMAND ...: runs COMMAND with the fake driver
	local LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
	"$@"
}

# perf TOOL ARGUMENT...: runs TOOL_perf; status in $status, stdout in $out/log, stderr in $out/err
perf() {
	local tool=$1
	shift
	on timeout -k 5 60 "perf/${tool}_perf" "$@" >"$out/log" 2>"$out/err" </dev/null
	status=$?
}
rows() { grep -v '^#' "$out/log"; }
right() {   # LEAST-ROWS
	[ "$status" = 0 ] && rows | awk -v least="$1" '{ checked += $9 == "0"; wrong += $9 + $13 }
		END { exit !(NR >= least && wrong == 0 && (checked == NR || in_place)) }' in_place="${2:-0}"
}
says() { grep -qE -- "$1" "$out/log"; }

# ---- the benchmarks ------------------------------------------------------------------------------------------------

few=(--device cuda:0 -b 40 -e 80K -f 45 -n 2)
for tool in allreduce reduce broadcast allgather reduce_scatter alltoall gather scatter sendrecv; do
	perf $tool --np 1 -t 3 "${few[@]}"
	claim "$tool: three threads on one GPU, the results are right" right 3
done
perf sendrecv --np 1 -t 4 --device cuda:0 -b 8 -e 64K -f 64 -n 5
claim "staging buffers that grow do not block other ranks" right 3
perf allreduce --np 3 "${few[@]}"
claim "allreduce: three processes on one GPU, the results are right" right 3
claim "the output names the ranks' device" says 'device  0 \[0000:00:00.0\] fake'
claim "the output has the bandwidth of copies" says '^# copies of .* GB/s read \+ written'
claim "the table has a column with the ratio to copies" says 'out_mem .*/copy'
perf allreduce --np 1 -t 2 "${few[@]}" -G 3
claim "a graph is captured once and replayed, ranks are threads" right 3
perf allreduce --np 2 "${few[@]}" -G 2 --buffers rotate -m 2
claim "a graph is captured once and replayed, ranks are processes with rotating inputs" right 3
perf allreduce --np 1 -g 2 "${few[@]}" -R 1 -u 3
claim "ranks of one thread, unaligned buffers: the results are right" right 3
perf allreduce --np 2 --device cuda:0 -b 1K -e 1K -n 1 -d all -o all --place in
claim "all types and operations, in place: the results are right" right 60 1
perf allreduce --np 2 "${few[@]}" -y 1
claim "blocking calls: the results are right" right 3
TUTTI_TEST_CUDA_DEVICES=2 perf allreduce --np 3 --device cuda -b 1K -e 1K
claim "--device cuda without a number distributes the ranks over the GPUs" eval 'right 1 && says "Rank  1 .*device  1 " && says "Rank  2 .*device  0 "'
claim "ranks that share no GPU have no ratio to copies" eval 'rows | awk "{ exit !(\$19 == \"N/A\") }"'
perf allreduce --np 2 "${few[@]}" -J "$out/j"
claim "JSON names device, copies and memory" eval 'grep -q "\"copy_bw\": *[0-9]" "$out/j" && grep -q "\"memory_bw\"" "$out/j"'
TUTTI_GPU=staged perf allreduce --np 2 "${few[@]}"
claim "without kernels the data are staged through the host: the results are right" right 3
TUTTI_TEST_CUDA_SPOIL=30 perf allreduce --np 1 -t 2 "${few[@]}"
claim "a wrong bit is counted and fails the run" eval '[ "$status" = 1 ] && grep -q "wrong, the first is" "$out/err" && says "FAILED"'
perf allreduce --np 2 --device cuda:7
claim "a device that does not exist is refused with one error" eval 'ended 2 "this host has 1 CUDA device" && one_line "$out/err"'
TUTTI_TEST_CUDA_FAIL=cuMemAlloc_v2:4:2 perf allreduce --np 1 "${few[@]}"
claim "a failed allocation of device memory is an error with the device" ended 1 'on device 0.*out of memory'
perf allreduce --np 1 "${few[@]}" -G 1 -z 1
claim "-G with -z is refused" ended 2 'cannot be captured'
perf allreduce --np 1 "${few[@]}" --buffers cold
claim "--buffers cold is refused for a GPU" ended 2 'cold'
perf allreduce --np 1 --device cuda:x
claim "an unknown device name is refused" ended 2 'unknown; one of: cpu cuda cuda:N'
gpus() { on timeout 60 perf/tutti info >"$out/log" 2>"$out/err" </dev/null; }
TUTTI_TEST_CUDA_DEVICES=2 gpus
claim "tutti info says which GPUs load the kernels" eval 'says "driver +CUDA 13.0, 2 devices" && says "device 1 +fake 1 .*9.0" &&
	[ "$(grep -c "its driver loads the GPU kernels" "$out/log")" = 2 ]'
TUTTI_TEST_CUDA_NO=age gpus
claim "tutti info names a driver that is too old for the kernels, and the version they need" eval 'says "driver +CUDA 11.8" &&
	says "no GPU kernels, .*need a driver of CUDA 13.0 or later, into one of CUDA 11.8: "'
timeout 60 perf/allreduce_perf --np 2 --device cuda >"$out/log" 2>"$out/err" </dev/null
status=$?
claim "without CUDA --device cuda is refused with one error" eval 'ended 2 "no CUDA on this host" && one_line "$out/err"'

# ---- the trainer ---------------------------------------------------------------------------------------------------

parameters=25450
small=(--data synth --model mlp:32 --global-batch 61 --steps 20 --eval-every 100000)
train() { on run 60 "${small[@]}" "$@"; }
same() { [ "$status" = 0 ] && [ "$(field hash)" = "$want" ]; }
equals() { [ "$status" = 0 ] && [ "$(tail -n 1 "$out/log" | sed -n "s/.*\"$1\":\([0-9]*\)[],}].*/\1/p")" = "$2" ]; }

run 60 "${small[@]}" --strategy one --metrics "$out/one.csv"
for np in 1 4; do
	train --np $np --device cuda:0 --check-replicas 1 --bucket-kb 8 --metrics "$out/p.csv"
	claim "mlp on a GPU, $np ranks: the replicas are equal after every step" ended 0
	claim "mlp on a GPU, $np ranks: the losses are those of the CPU" close "$out/one.csv" "$out/p.csv"
done
# Per step: the stop flag goes to the device, loss and stop flag come back. Once: the first parameters go; the last parameters
# come back for the hash and for the last line, and so do the outputs of the 4000 test samples.
for strategy in "mirrored 0" "reduce-to-one 0" "average 40 --H 2" "average 40 --H 2 --average supervisor" \
	"average 40 --H 2 --average easgd" "average 40 --H 2 --average diloco" "hierarchical-copy 2036160" \
	"mirrored 1018080 --canonical tree"; do
	read -r name sent how <<<"$strategy"
	# shellcheck disable=SC2086
	run 60 "${small[@]}" --np 2 --strategy $name $how
	loss=$(field loss)
	# shellcheck disable=SC2086
	train --np 2 --device cuda --check-replicas 0 --strategy $name $how
	claim "$name $how: no gradients and no parameters pass through the host" \
		eval 'equals bytes_to_device $((4 * parameters + 4 * 20)) &&
			equals bytes_from_device $((2 * 4 * parameters + 8 * 20 + 4000 / 2 * 10 * 4))'
	claim "$name $how: the bytes in messages are as documented" eval 'equals bytes_sent $sent && equals bytes_read 0'
	claim "$name $how: the loss is that of the CPU" is loss "$loss"
done
run 60 "${small[@]}" --model linear --strategy one --metrics "$out/one.csv"
train --np 2 --device cuda --model linear --metrics "$out/p.csv"
claim "linear on a GPU: the losses are those of the CPU" close "$out/one.csv" "$out/p.csv"

few=(--steps 4 --global-batch 250 --lr 0.02)
for how in tree fixed64; do
	run 60 "${small[@]}" "${few[@]}" --canonical $how --strategy one
	want=$(field hash)
	for strategy in "one" "mirrored --np 3" "reduce-to-one --np 3" "hierarchical-copy --np 4" "central --np 2"; do
		[ $how = tree ] || [ "$strategy" = "mirrored --np 3" ] || continue
		# shellcheck disable=SC2086
		train "${few[@]}" --device cuda --canonical $how --strategy $strategy
		claim "$how: $strategy on a GPU has the bits of one rank on the CPU" same
	done
done
train "${few[@]}" --device cuda --canonical tree --strategy ps-sync --np 2 --ps 1
claim "tree: ps-sync on a GPU trains" [ "$status" = 0 ]
for strategy in "reduce-to-one --np 2" "average --np 2 --H 2" "ps-async --np 2 --ps 1" "ps-strategy --np 2 --ps 1 --devices 2" \
	"downpour --np 2 --ps 1" "spare --np 3 --k 2"; do
	# shellcheck disable=SC2086
	train "${few[@]}" --device cuda:0 --strategy $strategy
	claim "$strategy trains on a GPU" is device cuda
done
for strategy in mirrored reduce-to-one hierarchical-copy central "average --H 2 --average diloco" "mirrored --canonical tree"; do
	# shellcheck disable=SC2086
	train --device cuda --np 3 --strategy $strategy --kill 1@9 --on-failure shrink
	claim "$strategy: a rank dies, the others continue" eval 'ended 0 && equals died 1'
done
TUTTI_TEST_CUDA_FAIL=cuLaunchKernel:70:700 train --device cuda
claim "a failed kernel launch ends the training with an error" ended 1 'device cuda: .*700'
train --np 2 --device cuda:3
claim "the trainer refuses a device that does not exist with one error" eval 'ended 2 "this host has 1 CUDA device" && one_line "$out/err"'
run 60 "${small[@]}" --device cuda --np 2
claim "the trainer refuses --device cuda without CUDA with one error" eval 'ended 2 "no CUDA on this host" && one_line "$out/err"'

# Two ranks without a launcher: each takes the GPU of its local rank.
port=$(free_port $((23000 + $$ % 1000)))
for r in 1 0; do
	TUTTI_TEST_CUDA_DEVICES=2 TUTTI_RANK=$r TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:$port TUTTI_SECRET=s on timeout 60 "$prog" \
		"${small[@]}" --device cuda >"$out/log.$r" 2>"$out/err" </dev/null &
done
wait $!
status=$?
wait
mv "$out/log.0" "$out/log"
claim "ranks without a launcher train on GPUs" ended 0

echo "1..$n"
exit $failed
