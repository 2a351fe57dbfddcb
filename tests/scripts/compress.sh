#!/bin/bash
# compress.sh - --compress: the bytes of a step are those of the formula, the parameters of all ranks stay equal, and training works
#
# Uses synthetic data and a small net. TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"

net=(--data synth --model mlp:24 --np 3 --algo ring --transport tcp --steps 60 --check-replicas 10 --eval-every 100000)
parameters=$((785 * 24 + 25 * 10))
run 120 "${net[@]}"
plain=$(field bytes_sent)
learned() { [ "$status" = 0 ] && awk -v a="$(field accuracy)" 'BEGIN { exit !(a >= 0.9) }'; }
claim "without --compress: accuracy $(field accuracy)" learned
# sends SHARE: of the bytes without --compress, within a hundredth, for tails and padding
sends() { awk -v a="$(field bytes_sent)" -v b="$plain" -v s="$1" 'BEGIN { exit !(a >= (s - 0.005) * b && a <= (s + 0.01) * b) }'; }
compresses() {   # HOW BYTES SHARE
	run 120 "${net[@]}" --compress "$1"
	claim "--compress $1: accuracy $(field accuracy), equal parameters" learned
	claim "... a message has $2 bytes" is message_bytes "$2"
	claim "... and a rank sends $3 of the bytes" sends "$3"
}
share() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f\n", a / b }'; }
# an allreduce of 3 ranks sends 2 * 2/3 of its array, an allgather 2 messages
blocks=$(((parameters + 255) / 256))
k=$(((parameters + 99) / 100))
factors=$((4 * (784 + 24) + 24 + 4 * (24 + 10) + 10))
compresses fp16 $((2 * parameters)) 0.5
compresses bf16 $((2 * parameters)) 0.5
compresses int8 $((260 * blocks)) "$(share $((2 * 260 * blocks)) $((4 * parameters * 4 / 3)))"
compresses topk:0.01 $((8 * k)) "$(share $((2 * 8 * k)) $((4 * parameters * 4 / 3)))"
compresses powersgd:4 $((4 * factors)) "$(share "$factors" "$parameters")"

run 120 "${net[@]}" --np 2 --device sim --compress topk:0.01
claim "on a device with memory of its own: accuracy $(field accuracy)" learned

wrong 'no such compressor' --compress zip
wrong 'use --canonical off' --compress fp16 --canonical tree
wrong 'omit --zero' --compress fp16 --zero 1
wrong 'use one of: mirrored' --compress fp16 --strategy average
wrong 'omit --compress' --compress fp16 --on-failure shrink

echo "1..$n"
exit $failed
