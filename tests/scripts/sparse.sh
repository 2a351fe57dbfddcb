#!/bin/bash
# sparse.sh - gradients of an embedding: sent as the rows that a batch touches, with the parameters of those sent as the whole
#
# All samples are one string of 16 different characters, so each node has 16 rows of the table, and bytes are exact. TAP on
# standard output.
set -u
. "${top_srcdir:-.}/tests/training"

yes abcdefghijklmno | head -n 600 >"$out/text"    # 16 characters a line
net=(--data "text:$out/text" --context 16 --model embed:2000x8 --global-batch 20 --leaf 4 --steps 4 --eval-every 100000)
number() { sed -n "s/^model .*: \([0-9]*\) parameters.*/\1/p" "$out/log"; }
run 60 "${net[@]}" --strategy one --canonical tree
hash=$(field hash)
whole=$(number) rest=$(($(number) - 2000 * 8)) rows=$((1 + 16 * (1 + 8)))
claim "a model of one table and few other parameters" [ "$rest" -gt 0 -a "$rest" -lt 2000 ]

# ---- sums over all ranks ---------------------------------------------------------------------------------------------

run 60 "${net[@]}" --np 2 --canonical tree --transport tcp
claim "mirrored on 2 ranks: the hash of one device" is hash "$hash"
dense=$(((rest + 2 + 1) / 2 * 2))
claim "... and rank 0 sends the rows of its node, their number, and of the rest a half twice" \
	is bytes_sent $((4 * 4 * (rows + 2 + dense)))
run 60 "${net[@]}" --np 2 --canonical tree --transport tcp --model embed:20000x8
claim "... as many bytes with a table of ten times the rows" is bytes_sent $((4 * 4 * (rows + 2 + dense)))
run 60 "${net[@]}" --np 3 --canonical tree --zero 1
claim "--zero 1, which sends the whole: the hash of one device" is hash "$hash"
for how in "--np 3" "--np 7 --bucket-kb 1" "--np 3 --device sim" "--np 4 --mesh data=2,pipeline=2 --micro 2" \
	"--np 3 --on-failure shrink --kill 1@2"; do
	run 60 "${net[@]}" $how --canonical tree
	claim "$how: the hash of one device" is hash "$hash"
done
run 60 "${net[@]}" --np 3 --strategy reduce-to-one
hash_off=$(field hash)
run 60 "${net[@]}" --np 3 --algo reduce-to-one
claim "without --canonical rows are summed in rank order" is hash "$hash_off"
run 60 "${net[@]}" --np 2 --transport tcp --algo ring --context 128 --global-batch 20
claim "a batch that may touch all rows: the whole is sent" is bytes_sent $((4 * 4 * (whole + 2)))

# ---- parameter servers -----------------------------------------------------------------------------------------------

run 60 "${net[@]}" --np 3 --ps 2 --strategy ps-sync
claim "ps-sync: the bits of reduce-to-one" is hash "$hash_off"
messages=$((4 * 3 * 4 * (rows + 1 + rest))) numbers=$((4 * 3 * 4 * 16))    # of 3 shares of 4 steps, to or from 2 servers
claim "... and a push has the touched rows, a number of them for each server; a pull the numbers of rows" \
	is server_bytes_in $((messages + numbers))
claim "... which the answer has" is server_bytes_out $messages
for how in ps-async ps-strategy; do
	run 60 "${net[@]}" --np 3 --ps 2 --strategy $how
	claim "$how pushes the touched rows" is server_bytes_in $((messages + numbers))
	claim "... and pulls those that a share touches" is server_bytes_out $messages
done
run 60 "${net[@]}" --np 3 --ps 2 --strategy ps-async --model embed:20000x8
claim "... as many bytes with a table of ten times the rows" is server_bytes_out $messages
run 60 "${net[@]}" --np 3 --ps 2 --strategy ps-strategy --devices 3
claim "three devices of a worker pull the rows of all" is server_bytes_out $((messages / 3))
run 60 "${net[@]}" --np 1 --ps 2 --strategy downpour --n-push 1 --n-fetch 1
claim "downpour pushes the touched rows" is server_bytes_in $((messages / 3))
claim "... and fetches those that have changed: none before the first push" \
	is server_bytes_out $((messages / 3 - 4 * 16 * (1 + 8)))
run 60 "${net[@]}" --np 3 --ps 2 --strategy ps-sync --canonical tree
claim "ps-sync over leaves: the hash of one device" is hash "$hash"
# A text whose batches touch different rows: a row that no push touches moves by its momentum.
seq 1 3 9000 | tr -d '\n' >"$out/text"
varied() {   # TRAINING HASH-OF...: the first is on servers
	run 60 "${net[@]}" "${@:2}"
	hash=$(field hash)
	run 60 "${net[@]}" $1
	claim "$1: the hash of ${*:2}" is hash "$hash"
}
varied "--np 3 --ps 2 --strategy ps-sync --eval-every 3" --np 3 --strategy reduce-to-one
varied "--np 3 --ps 2 --strategy ps-sync --canonical tree --device sim" --canonical tree
varied "--ps 3 --strategy ps-async --np 1" --strategy one
varied "--ps 3 --strategy ps-strategy --np 1 --momentum 0" --strategy one --momentum 0
varied "--np 3 --canonical tree --bucket-kb 1" --canonical tree --np 3 --device sim
varied "--np 3 --canonical tree --optimizer adamw --lr 0.01" --canonical tree --np 3 --zero 1 --optimizer adamw --lr 0.01
run 60 "${net[@]}" --np 2 --ps 1 --strategy ps-sync --canonical tree --steps 2 --save "$out/ck"
varied "--np 3 --ps 2 --strategy ps-sync --canonical tree --resume $out/ck" --canonical tree
# Positions lie behind the table of rows, so gradients of such a model are whole: a batch touches fewer rows than there are.
few="--data text:$top_srcdir/README.md --model gpt:1x8 --np 2 --global-batch 2 --context 32 --steps 4"
varied "$few" $few --strategy reduce-to-one
# ---- memory: parameters and momentum are whole tables, a gradient has the touched rows -----------------------------------------

command -v python3 >/dev/null && for how in "--strategy one" "--np 3"; do
	memory() {   # ROWS: KiB that the process takes at most
		limit 60 python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$prog" "${net[@]}" --model "embed:${1}x64" $how --canonical tree
	}
	less=$(memory 20000) more=$(memory 220000) table=$((200000 * 64 * 4 / 1024))
	claim "$how: 200000 further rows of $table KiB take $((more - less)) KiB, less than 2.5 times as much" \
		[ "$less" -gt 0 -a $((more - less)) -gt "$table" -a $((more - less)) -lt $((table * 5 / 2)) ]
done
run 60 "${net[@]}" --strategy one --model embed:20000x8
claim "... so does the figure in the result, and --mem-cap" \
	is rank_bytes $((4 * (3 * $(number) - 20000 * 8 + 20 * 16 * 8 + 2)))

run 60 "${net[@]}" --np 2 --model embed:3000
claim "a shape that is none is refused" ended 2 'not ROWSxWIDTH'

echo "1..$n"
exit $failed
