#!/bin/bash
# strategies.sh - every strategy of tutti-train against its definition, on synthetic data: bits, bytes, staleness, deaths
#
# No claim is about time, except that no step is faster than its straggler. TAP on standard output. Tests of each
# system (tutti-strategies(7) names them; check_data.sh tests accuracy on Fashion-MNIST, crowds.sh many processes):
#
#   one                    test_model: finite differences; train.sh: the same bits twice, and on other processors
#   mirrored               train.sh: equal replicas, losses of one; here: bits of one, exact bytes, communication overlap
#   reduce-to-one, hierarchical-copy       here: the bits of the library's algorithm of that name, tested by its suites
#   libnccl.so.2           check_nccl.sh
#   several hosts          hosts.sh: bytes between hosts; train.sh: a killed rank ends all
#   ps-sync                here: bits of reduce-to-one, exact bytes of each server, the straggler's pace, a worker's death
#   ps-async               here: staleness, bounds over 10000 pushes (default: 2400), drops, replay, deaths of workers and of a server
#   spare (backup workers) here: exactly k, record of the first k, replay, deaths; crowds.sh: 18 of 20 with stragglers
#   downpour               race_downpour: computes while a fetch or a push is under way, no race; here: staleness, exact bytes, deaths
#   average                here: bits of both forms, 1/H of the bytes, the loss of mirrored
#   ps-strategy            here: balanced placement, devices push once, deaths of a device and of a worker
#   a2c, a3c               test_rollout: returns, loss; race_a3c: no race but relaxed atomics; here: bits; check_data.sh: 5 seeds
#   central                here: bits, bytes to and from devices, no optimizer on them
set -u
. "${top_srcdir:-.}/tests/training"

small=(--data synth --model mlp:32 --global-batch 250 --eval-every 100000)
parameters=25450
claim "every strategy fits into 300 lines" eval '! wc -l "${top_srcdir:-.}"/trainer/strategy/strategy_*.c | grep -v total | awk "\$1 >= 300" | grep .'
train() { run 90 "${small[@]}" "$@"; [ $status = 0 ]; }
same() { [ "$status" = 0 ] && [ "$(field hash)" = "$want" ]; }
hash_of() { train "$@"; want=$(field hash); }
number() { tail -n 1 "$out/log" | sed -n "s/.*\"$1\":\([0-9.]*\)[],}].*/\1/p"; }
equals() { [ "$status" = 0 ] && [ "$(number "$1")" = "$2" ]; }
at_least() { awk -v a="$(number "$1")" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }'; }
at_most() { awk -v a="$(number "$1")" -v b="$2" 'BEGIN { exit !(a != "" && a <= b) }'; }
near() { awk -v a="$(number "$1")" -v b="$2" -v d="$3" 'BEGIN { exit !(a >= b - d && a <= b + d) }'; }

# ---- the same bits for any number of ranks (R1-R4, R6, R7, R13) ------------------------------------------------------

sums="tree fixed64"
[ "${TT_TIER:-default}" = default ] || sums+=" chain"
for how in $sums; do
	leaf=(--canonical $how --steps 8)
	hash_of "${leaf[@]}" --strategy one
	claim "$how: one rank trains" [ -n "$want" ]
	for np in 2 3 8; do
		train "${leaf[@]}" --np $np
		claim "$how: mirrored on $np ranks has the bits of one" same
	done
	train "${leaf[@]}" --np 4 --transport tcp --algo ring --bucket-kb 16
	claim "$how: mirrored over tcp by a ring has the bits of one" same
	train "${leaf[@]}" --np 11 --transport shm --algo tree
	claim "$how: mirrored with more ranks than leaves has the bits of one" same
	train "${leaf[@]}" --np 3 --strategy reduce-to-one --bucket-kb 16
	claim "$how: reduce-to-one has the bits of one" same
	train "${leaf[@]}" --np 5 --strategy hierarchical-copy --bucket-kb 16
	claim "$how: hierarchical-copy in groups of 2 and 3 has the bits of one" same
	train "${leaf[@]}" --np 3 --strategy central --device sim
	claim "$how: central storage on devices with separate memory has the bits of one" same
	[ $how = fixed64 ] && continue
	train "${leaf[@]}" --np 3 --ps 2 --strategy ps-sync
	claim "$how: parameter servers give the bits of one" same
done
# Another kind of device (R18): the same strategies, models and schedules, without a line for it.
names_no_device() {
	! grep -nE 'train_device_(cpu|sim|cuda)|trainer/device/(device_(cpu|sim|cuda)|cu|gemm|train_kernels)' \
		"${1:-${top_srcdir:-.}/trainer}"/{strategy,schedules,model}/*.[ch]
}
claim "no strategy, schedule or model names a device" names_no_device
mkdir -p "$out/tree/strategy" "$out/tree/schedules" "$out/tree/model"
echo '#include "trainer/device/device_cuda.h"' | tee "$out/tree/schedules/x.c" "$out/tree/strategy/x.c" >"$out/tree/model/x.c"
claim "... and one that does is found" eval '! names_no_device "$out/tree" >/dev/null 2>&1'
hash_of --canonical tree --steps 8 --strategy one
for how in mirrored reduce-to-one hierarchical-copy; do
	train --canonical tree --steps 8 --np 3 --strategy $how --device sim
	claim "$how on a device with separate memory has the bits of one on cpu" same
done
# Memory of the library is a memfd: no step may allocate.
memory() { strace -f -qq -e trace=memfd_create -o "$out/calls" "$prog" "${small[@]}" "$@" >/dev/null 2>&1; wc -l <"$out/calls"; }
if command -v strace >/dev/null && strace true 2>/dev/null; then
	for how in tree chain fixed64; do
		claim "$how: a step of mirrored on one rank allocates no memory of the library" \
			[ "$(memory --canonical $how --steps 2)" = "$(memory --canonical $how --steps 12)" ]
	done
fi
hash_of --canonical tree --steps 3 --model cnn --global-batch 96 --leaf 16 --strategy one
train --canonical tree --steps 3 --model cnn --global-batch 96 --leaf 16 --np 3
claim "cnn on 3 ranks has the bits of one" same
hash_of --canonical tree --steps 4 --leaf 7
train --canonical tree --steps 4 --leaf 7 --np 4
claim "leaves that do not divide the batch: the bits do not depend on the number of ranks" same
TUTTI_ISA=scalar train --canonical tree --steps 4 --leaf 7 --np 3
claim "without vector instructions the bits are the same" same
train --canonical tree --steps 4 --leaf 8
claim "another leaf size gives other bits" [ "$(field hash)" != "$want" ]

# ---- a rank reads the samples of its rows only -------------------------------------------------------------------

large=(--data synth --model mlp:32 --global-batch 5000 --leaf 50 --canonical tree --steps 6)    # of two epochs
run 90 "${large[@]}"
want=$(field hash)
claim "one process has 24000 images of 785 bytes" equals data_bytes $((24000 * 785))
run 90 "${large[@]}" --np 2 --shard-data
claim "--shard-data: two ranks have the bits of one" same
claim "... and each half the images" equals data_bytes $((12000 * 785))
run 90 "${large[@]}" --np 2 --ps 1 --strategy ps-async --canonical off --shard-data
claim "--shard-data: refused where servers hand out samples" ended 2 'hands out samples'

# ---- checkpoints -------------------------------------------------------------------------------------------------

keep=(--canonical tree --lr-schedule cosine --warmup 3)
hash_of "${keep[@]}" --steps 12 --np 2
train "${keep[@]}" --steps 12 --np 2 --save "$out/ck" --save-every 7 --kill 1@9
claim "a training in which a rank dies fails" [ $status = 1 ]
train "${keep[@]}" --steps 12 --np 3 --resume "$out/ck"
claim "its checkpoint resumes on another number of ranks, with the bits of an undisturbed training" same
train "${keep[@]}" --steps 12 --np 2 --ps 3 --strategy ps-sync --resume "$out/ck"
claim "its checkpoint resumes on parameter servers, with the same bits" same
train "${keep[@]}" --steps 12 --np 2 --strategy central --resume "$out/ck"
claim "its checkpoint resumes in central storage, with the same bits" same
claim "no temporary file remains" [ "$(ls "$out"/ck* | wc -l)" = 1 ]
dd if=/dev/zero of="$out/ck" bs=1 seek=5000 count=8 conv=notrunc 2>/dev/null
train "${keep[@]}" --steps 12 --resume "$out/ck"
claim "a damaged checkpoint is refused" ended 2 damaged
echo precious >"$out/text"
train --steps 12 --resume "$out/text"
claim "a file that is no checkpoint is refused" ended 2 'no checkpoint'
# A backward pass of 270 ms leaves a busy machine time for the sums of 7 buckets.
for how in off tree; do
	train --steps 3 --np 2 --timeline "$out/t.json" --bucket-kb 16 --canonical $how --sim-compute-ms 400
	claim "$how: communication overlaps with the backward pass, in a span for each of several buckets" \
		[ "$(grep -c '"hidden communication".*"pid":0' "$out/t.json")" -gt 3 ]
done
train --steps 3 --np 2 --timeline "$out/t.json" --jsonl "$out/j"
claim "a timeline has spans of both ranks" eval 'grep -q "exposed.*\"pid\":0" "$out/t.json" && grep -q "compute.*\"pid\":1" "$out/t.json"'
ln "$out/t.json" "$out/before.json" && cp "$out/t.json" "$out/copy.json"
train --steps 2 --np 2 --timeline "$out/t.json"
claim "the next timeline replaces the file as a whole" eval 'cmp "$out/before.json" "$out/copy.json" && ! cmp -s "$out/t.json" "$out/copy.json" && ! ls "$out"/t.json.*'
claim "JSON lines have a line for every step" [ "$(wc -l <"$out/j")" = 3 ]

# ---- in rank order, without leaves (R2, R3, R4, R7, R13) -------------------------------------------------------------

off=(--np 3 --steps 6)
hash_of "${off[@]}" --strategy reduce-to-one
train "${off[@]}" --algo reduce-to-one
claim "reduce-to-one has the bits of the library's algorithm" same
train "${off[@]}" --device sim --algo reduce-to-one
claim "mirrored on sim has the bits of cpu" same
train "${off[@]}" --strategy central
claim "central storage has the bits of reduce-to-one" same
train "${off[@]}" --ps 2 --strategy ps-sync
claim "ps-sync has the bits of reduce-to-one" same
half=$((6 * 3 * 4 * parameters / 2))
claim "each server of ps-sync receives and sends exactly workers x shard per step" \
	[ "$(grep -c "^server [01] .* $half bytes in, $half out" "$out/log")" = 2 ]
hash_of --np 4 --steps 6 --algo hierarchical-copy --bucket-kb 1000
train --np 4 --steps 6 --strategy hierarchical-copy
claim "hierarchical-copy has the bits of the library's algorithm" same
# The difference is 4 steps. Loss and stop flag come with the gradients; the stop flag goes to the device.
train --np 2 --steps 6 --strategy central --device sim
to=$(number bytes_to_device) from=$(number bytes_from_device)
train --np 2 --steps 10 --strategy central --device sim
claim "central storage: a step copies exactly the parameters to a device and the gradients from it" \
	[ $(($(number bytes_to_device) - to)),$(($(number bytes_from_device) - from)) = $((16 * (parameters + 1))),$((16 * (parameters + 2))) ]
train --np 4 --steps 10 --algo ring --transport tcp --model mlp:28    # gradients of whole cache lines per rank
claim "mirrored by a ring sends 2N(P-1)/P bytes a step, exactly" equals bytes_sent $((10 * 2 * 4 * 22272 * 3 / 4))
train --np 3 --steps 6 --ps 2 --strategy ps-sync --sim-compute-ms 4 --slow 1:10
claim "a synchronous step is no faster than the straggler" at_least step_ms 38

# Three ranks without a launcher: the last rank is the server.
port=$(free_port $((24000 + $$ % 1000)))
hash_of --steps 8 --np 2 --strategy reduce-to-one
for r in 2 1 0; do
	TUTTI_RANK=$r TUTTI_NRANKS=3 TUTTI_ROOT=127.0.0.1:$port TUTTI_SECRET=serve "${top_srcdir:-.}/tests/limit" 60 "$prog" "${small[@]}" \
		--steps 8 --strategy ps-sync --ps 1 >"$out/log.$r" 2>"$out/err" </dev/null &
done
wait $!
status=$?
wait
mv "$out/log.0" "$out/log"
claim "the last of the ranks without a launcher is the server" same
claim "the server prints nothing" [ ! -s "$out/log.2" ]

# ---- averages (R11) ----------------------------------------------------------------------------------------------

hash_of --np 3 --steps 12 --strategy average --H 4 --algo reduce-to-one
train --np 3 --steps 12 --strategy average --H 4 --average supervisor
claim "the supervisor's average has the bits of the allreduce's" same
hash_of --np 2 --steps 20
loss=$(number loss)
train --np 2 --steps 20 --strategy average
claim "average with H = 1 has the loss of mirrored" near loss "$loss" 0.00001
train --np 2 --steps 20 --strategy average --transport tcp --algo ring
each=$(number bytes_sent)
train --np 2 --steps 20 --strategy average --transport tcp --algo ring --H 5
claim "H = 5 sends a fifth of H = 1's bytes" equals bytes_sent $((each / 5))
for how in easgd diloco; do
	train --np 2 --steps 80 --strategy average --H 4 --average $how
	claim "$how learns: accuracy $(field accuracy)" reached 0.85
done
for how in allreduce supervisor easgd diloco; do
	looked=(--np 2 --steps 14 --strategy average --H 4 --average $how)
	hash_of "${looked[@]}"
	train "${looked[@]}" --eval-every 3
	claim "$how: evaluations do not change the training" same
done
for how in allreduce easgd diloco; do
	resumed=(--np 3 --strategy average --H 4 --average $how)
	hash_of "${resumed[@]}" --steps 12
	train "${resumed[@]}" --steps 6 --save "$out/ck"
	train "${resumed[@]}" --steps 12 --resume "$out/ck"
	claim "$how: a training resumed between two averages has the bits of one without interruption" same
done
train "${resumed[@]}" --np 2 --steps 12 --resume "$out/ck"
claim "diloco resumes on another number of ranks" ended 0
hash_of --np 1 --steps 14 --strategy downpour --n-fetch 1
train --np 1 --steps 14 --strategy downpour --n-fetch 1 --eval-every 3
claim "downpour: evaluations do not change the training" same
elastic=(--np 24 --model mlp:8 --strategy average --average easgd --H 2)
train "${elastic[@]}" --steps 80
claim "easgd learns on 24 ranks: accuracy $(field accuracy)" reached 0.6
train "${elastic[@]}" --steps 2 --alpha 0.0833
claim "an --alpha below 2 / ranks trains" ended 0
train --model mlp:32,32,32 --lr 100 --steps 2
claim "a finite loss beyond all measure ends the training" ended 1 'step 2: the loss is .*e\+07, the training diverged'

# ---- asynchronous servers (R8, R10, R12) ---------------------------------------------------------------------

async=(--np 4 --ps 2 --strategy ps-async --lr 0.02)
# Mean staleness of all pushes, from records of arrivals: lines "TAG WORKER"; tag 3 is a push, tag 4 a pull.
staleness() {
	awk 'FNR == 1 { version = 0; next } $1 == 4 { at[$2] = version } $1 == 3 { sum += version++ - at[$2]; n++ }
		END { print n == 480 ? sum / n : "-1" }' "$@"
}
train "${async[@]}" --steps 60 --jitter 1 --sim-compute-ms 1 --record "$out/log-of"
claim "ps-async learns: accuracy $(field accuracy)" reached 0.85
claim "every push was applied" equals applied 480
want=$(field hash)
train "${async[@]}" --steps 60 --replay "$out/log-of"
claim "a replay of its record of arrivals gives the same bits" same
claim "staleness $(number staleness_mean) is the number of pushes between a pull and its push in the record" \
	near staleness_mean "$(staleness "$out"/log-of.[01])" 0.001
steps=600
[ "${TT_TIER:-default}" = default ] || steps=2500
train --model linear --global-batch 16 --np 4 --strategy ps-async --ssp 3 --jitter 20 --sim-compute-ms 0.02 --steps $steps \
	--lr 0.005
claim "--ssp 3: in $((4 * steps)) pushes with jitter no worker is more than 4 ahead" at_most clock_gap_max 4
claim "all $((4 * steps)) pushes are counted" equals pushes $((4 * steps))
train "${async[@]}" --steps 40 --slow 2:10 --sim-compute-ms 3 --ssp 2
claim "--ssp 2: no worker is more than 3 pushes ahead" at_most clock_gap_max 3
train "${async[@]}" --steps 40 --slow 2:10 --sim-compute-ms 3
claim "without --ssp the others do not wait for a straggler" at_least clock_gap_max 10
# With half of a fair share at a tenth of the speed the straggler takes half of ps-sync's time, so updates a second double.
train --np 4 --strategy ps-async --lr 0.02 --steps 40 --slow 2:10 --sim-compute-ms 3 --record "$out/beside"
claim "a straggler of four workers computes less than half of a fair share of the 160" \
	[ "$(grep -c '^3 2$' "$out/beside.0")" -lt 20 ]
claim "beside a straggler no share of a batch is left out" equals pushes 160
warm=(--np 3 --lr 0.02 --steps 10 --warm-start 4 --sim-compute-ms 1)
train "${warm[@]}" --strategy ps-async --ssp 1 --record "$out/warm"
pushes() { awk '$1 == 3 { print $2 }' "$out/warm.0"; }   # TRAIN_PS_PUSH
claim "warm start: worker 0 alone takes 4 steps, 12 shares of 30" eval '[ "$(pushes | head -n 12 | sort -u)" = 0 ] && equals pushes 30'
claim "... and then the others work, too" [ "$(pushes | sort -u | xargs)" = "0 1 2" ]
train "${warm[@]}" --strategy ps-async --eval-every 3 --record "$out/warm"
claim "... also if it is interrupted by an evaluation" eval '[ "$(pushes | head -n 12 | sort -u)" = 0 ] && equals pushes 30'
train "${warm[@]}" --strategy ps-async --kill 0@2 --record "$out/warm"
claim "... and if the worker dies, the next one goes on" eval 'equals died 1 && [ "$(pushes | head -n 12 | sort -u | xargs)" = "0 1" ]'
train "${warm[@]}" --strategy downpour
claim "... downpour has it, too" equals steps 10
# 1 %: the ranks begin at slightly different times
train --np 2 --strategy ps-async --lr 0.02 --steps 20 --slow 1:10 --sim-compute-ms 4
claim "ps-async: samples_per_s is at most that of both workers' simulated computing" at_most samples_per_s $((125 * 275 * 101 / 100))
train --np 2 --strategy average --H 100 --steps 20 --slow 1:10 --sim-compute-ms 4
claim "average: samples_per_s is at most that of the straggler's simulated computing" at_most samples_per_s $((250 * 25 * 101 / 100))
train "${async[@]}" --steps 40 --stale-drop 1 --jitter 2 --sim-compute-ms 1
claim "--stale-drop: every push is applied or dropped" [ $(($(number applied) + $(number dropped))) = 320 ]
claim "--stale-drop drops pushes" at_least dropped 1
# Each fetch and each push is beside the gradient of the next step: parameters of one update before
each=(--np 1 --steps 12 --strategy downpour --n-fetch 1 --n-push 1)
hash_of "${each[@]}"
train "${each[@]}" --ps 2 --jitter 3 --sim-compute-ms 2 --timeline "$out/t.json"
claim "downpour of one worker, fetching and pushing each step, has the same bits with slow computing and two servers" same
claim "... each gradient but the first is one update stale" grep -q '"staleness":\[2,22\]' "$out/log"
claim "... a worker sends its gradients" equals bytes_sent $((12 * 4 * parameters))
claim "... and the timeline has fetches and pushes beside computing" [ "$(grep -c '"hidden communication"' "$out/t.json")" -ge 20 ]
train --np 1 --ps 2 --steps 30 --strategy downpour --n-fetch 3 --n-push 6 --lr 0.02 --adagrad
claim "downpour pushes every n-push steps" equals server_bytes_in $((5 * 4 * parameters))
claim "downpour fetches every n-fetch steps" equals server_bytes_out $((10 * 4 * parameters))
alone=(--np 2 --ps 2 --steps 4 --warm-start 4 --strategy downpour --n-push 4 --n-fetch 4)    # one worker takes all 8 shares
train "${alone[@]}"
claim "8 shares, a push every 4: 2 pushes to each of 2 servers" equals pushes 4
train "${alone[@]}" --stagger
claim "--stagger: of two workers, the first begins in the middle of a period, and pushes after 2, 6 and 8 shares" equals pushes 6
train --np 4 --ps 2 --steps 30 --strategy downpour --n-fetch 3 --n-push 6 --lr 0.02 --adagrad
claim "4 workers of downpour push once in 6 of 120 steps, and each what is left at the end" \
	eval '[ $(number pushes) -ge 40 ] && [ $(number pushes) -le 48 ]'
train --np 4 --ps 2 --steps 40 --strategy ps-strategy --devices 2 --lr 0.02
claim "ps-strategy, 2 workers of 2 devices, learns: accuracy $(field accuracy)" reached 0.8
claim "the devices of a worker push once together" equals pushes 160
train --np 1 --ps 2 --steps 2 --strategy ps-strategy --model cnn --global-batch 64
claim "the placement of the cnn on two servers is balanced to a factor of 1.2" awk '/^server [01]  .*bytes of/ { a[$2] = $3 }
	END { exit !(a[0] > 0 && a[0] <= 1.2 * a[1] && a[1] <= 1.2 * a[0]) }' "$out/log"

# ---- backup workers: the first k of n (R9) ---------------------------------------------------------------------------------------

hash_of --np 4 --steps 8 --strategy reduce-to-one
train --np 4 --steps 8 --strategy spare --k 4
claim "spare with k = n has the bits of reduce-to-one" same
spare=(--np 5 --k 4 --steps 30 --strategy spare)
train "${spare[@]}" --slow 2:40 --sim-compute-ms 8 --record "$out/who"
claim "spare, 4 of 5, learns with a straggler: accuracy $(field accuracy)" reached 0.8
claim "every step has exactly 4 gradients" [ "$(grep -c '^4 ' "$out/who")" = 30 ]
claim "the record has the first 4 workers of every step" awk '!/^#/ { for (i = 2; i <= NF; i++) n++ } END { exit !(n == 120) }' "$out/who"
claim "first-k counts sum to 120, and the straggler has the smallest" awk -F'[][]' '/in_first_k/ { n = split($2, c, ",")
	for (i = 1; i <= n; i++) { sum += c[i]; if (i != 3 && c[i] <= c[3]) more = 1 } } END { exit !(n == 5 && sum == 120 && !more) }' "$out/log"
want=$(field hash)
train "${spare[@]}" --replay "$out/who"
claim "a replay of the record gives the same bits" same
{ echo '# 3 workers, 12 steps'; printf '2 0 1\n%.0s' {1..8}; printf '2 0 2\n%.0s' {1..4}; } >"$out/by-hand"
by_hand=(--np 3 --k 2 --steps 12 --strategy spare --replay "$out/by-hand")
hash_of "${by_hand[@]}"
train "${by_hand[@]}" --slow 2:10 --sim-compute-ms 3
claim "a rank that skipped steps finds its line of the record" same
train "${spare[@]}" --k 5 --kill 3@10 --sim-compute-ms 3     # with k = 4 worker 3 may skip step 10
claim "spare: a worker dies, the others complete" equals died 1
train --np 3 --k 2 --steps 150 --strategy spare --slow 0:400 --sim-compute-ms 1
claim "spare: rank 0 misses more results than are kept, and takes the state of another rank" at_least steps 150
train --np 4 --k 1 --steps 60 --strategy spare --slow 2:60 --sim-compute-ms 3
claim "a rank that is far behind continues from the newest step" ended 0
train --np 3 --steps 4 --strategy spare --sim-compute-ms 4 --slow 1:10 --k 3
claim "with k = n a step waits for the straggler" at_least step_ms 38

# ---- deaths ------------------------------------------------------------------------------------------------------

hash_of --canonical tree --steps 200 --strategy one
train --canonical tree --steps 200 --np 4 --kill 2@137 --on-failure shrink
claim "a rank is killed at step 137: the others complete with the bits of an undisturbed training" same
claim "the last line counts the dead rank" equals died 1
train --canonical tree --steps 200 --np 4 --kill 0@50,3@51 --on-failure shrink --transport tcp --metrics "$out/p.csv"
claim "rank 0 dies, and another rank a step later: the others complete with the same bits" same
claim "the new rank 0 continues the metrics" [ "$(cut -d, -f1 "$out/p.csv" | sort -un | wc -l)" = 201 ]
hash_of --canonical tree --steps 12 --strategy one
for how in "reduce-to-one --kill 0@7" "hierarchical-copy --kill 1@5,2@6" "central --kill 1@5"; do
	train --canonical tree --steps 12 --np 3 --on-failure shrink --strategy $how
	claim "$how: the others complete with the bits of one" same
done
train --steps 12 --np 3 --on-failure shrink --strategy central --kill 0@5
claim "central storage ends with an error when its rank 0 dies" ended 1 'rank 0, whose host kept the parameters, died'
for how in supervisor diloco; do
	train --np 3 --steps 40 --strategy average --H 4 --average $how --kill 0@17,1@22 --on-failure shrink
	claim "average, $how: the only survivor of three completes" equals died 2
done
# A step is counted once, whether a death cuts off the step or the evaluation after it.
for kill in 0@12.5 1@6.5,2@12.5; do
	train --canonical tree --steps 12 --np 3 --on-failure shrink --kill $kill --eval-every 6
	claim "deaths in evaluations, $kill: the others complete with the bits of one" same
	claim "... and evaluate" [ "$(grep -c '^step .* accuracy' "$out/log")" = 2 ]
done
train --np 3 --steps 12 --kill 1@12.5
claim "a death in the last evaluation ends the training" ended 1 'rank 1 died.*with --on-failure shrink the others continue'
train "${async[@]}" --steps 12 --kill 1@6.5,2@12.5 --eval-every 6
claim "ps-async: a worker dies in an evaluation, another in the last one: the others complete" equals died 2
train --canonical tree --steps 12 --np 2 --save "$out/ck"
train --canonical tree --np 3 --evaluate --resume "$out/ck"
claim "--evaluate measures a checkpoint on another number of ranks" same
claim "... without a step" equals bytes_sent 0
train --canonical tree --np 2 --evaluate --resume "$out/ck" --ps 1 --strategy ps-sync
claim "... and on parameter servers" same
train "${spare[@]}" --k 5 --kill 0@9,2@12 --sim-compute-ms 1 --on-failure shrink    # no worker skips a step
claim "spare continues without rank 0, which summed the gradients" equals died 2
train --steps 30 --np 3 --kill 1@9
claim "without --on-failure shrink a death ends the training" ended 1 'rank [02]: .*rank 1'
train "${async[@]}" --steps 60 --kill 1@10,3@20 --sim-compute-ms 2
claim "two of four workers of ps-async die: the others complete" equals died 2
claim "the surviving workers of ps-async learn: accuracy $(field accuracy)" reached 0.7
train "${async[@]}" --steps 40 --kill 0@10,1@12 --sim-compute-ms 5 --metrics "$out/p.csv" --jsonl "$out/j"
claim "two workers die, worker 0 first: another one continues the metrics, before the evaluation" \
	eval '[ "$(grep -c "^step" "$out/p.csv")" = 1 ] && awk -F, "\$5 == \"\" && \$1 > 12 { n++ } END { exit !n }" "$out/p.csv"'
claim "... whose evaluation is of the last epoch" eval 'grep -q "^step 40  epoch 1 of 1 " "$out/log"'
claim "... which is its last line, also of the JSON lines" \
	eval 'grep -qE "^40,.*,0\.[0-9]+,[0-9.]+$" <<<"$(tail -n 1 "$out/p.csv")" && grep -q "^{\"step\":40,.*accuracy" <<<"$(tail -n 1 "$out/j")"'
train "${async[@]}" --steps 12 --kill 0@12.5 --metrics "$out/p.csv"
claim "... also if worker 0 dies in the evaluation" grep -qE "^12,.*,0\.[0-9]+,[0-9.]+$" <<<"$(tail -n 1 "$out/p.csv")"
train --np 4 --ps 2 --steps 60 --strategy downpour --lr 0.01 --adagrad --kill 1@20 --sim-compute-ms 1
claim "a worker of downpour dies: the others complete" equals died 1
train --np 3 --ps 2 --steps 6 --strategy downpour --kill 0@1,1@1,2@1
claim "all workers of downpour die at once before the first push: the servers end with an error" ended 1 'all workers \(3\) died'
devices=(--np 4 --ps 2 --steps 60 --strategy ps-strategy --devices 2 --lr 0.02 --sim-compute-ms 1)
train "${devices[@]}" --kill 2@20
claim "a device of ps-strategy dies: its worker continues" equals died 1
# early, since the other worker takes the steps that are left: one that has taken them all ends the training
train "${devices[@]}" --steps 400 --kill 0@5,1@5
claim "a worker of ps-strategy dies with all its devices: the other worker completes" equals died 2
train "${async[@]}" --steps 30 --kill 5@90 --save "$out/sv" --save-every 10
claim "a dead server ends the training with an error that points to --resume" ended 1 'server 1 \(rank 5\) died, .*--resume'
train --np 3 --ps 3 --strategy ps-async --lr 0.02 --steps 30 --resume "$out/sv"
claim "other servers continue from the checkpoint" ended 0
train --np 3 --steps 30 --strategy ps-sync --kill 1@9
claim "ps-sync ends with an error when a worker dies" ended 1 'worker 1 died'

# ---- actor-critic (R14) ------------------------------------------------------------------------------------------

# Two workers of a3c give another result each time: 165 to 490 in 40 trainings.
play() { run 90 --model mlp:16 --lr 0.01 --steps 500 --global-batch 40 --lr-schedule linear "$@"; }
play --strategy a2c --steps 1
before=$(number mean_return)
play --strategy a2c
want=$(field hash)
claim "a2c on one worker: the mean return grows from $before to $(number mean_return)" at_least mean_return 150
play --strategy a3c
claim "a3c on one worker has the bits of a2c" same
TUTTI_ISA=scalar play --strategy a3c
claim "... and without vector instructions" same
play --strategy a2c --np 2
want=$(field hash)
claim "a2c on two workers: $(number mean_return)" at_least mean_return 150
play --strategy a2c --np 2 --eval-every 100 --transport tcp
claim "... has the same bits again, evaluated more often" same
play --strategy a3c --np 2 --eval-every 100
claim "a3c on two workers: $(number mean_return)" at_least mean_return 60
claim "... took all steps" equals steps 500
play --strategy a3c --np 2 --steps 250 --save "$out/ck"
play --strategy a3c --np 3 --steps 500 --resume "$out/ck"
claim "a3c resumes on three workers: $(number mean_return)" at_least mean_return 60
play --strategy a2c --np 3 --kill 1@9 --on-failure shrink
claim "a2c: a worker dies, the others continue: $(number mean_return)" at_least mean_return 150
play --strategy a3c --np 3 --kill 1@9
claim "a3c ends when a worker dies" ended 1 'died'

# ---- wrong uses --------------------------------------------------------------------------------------------------

wrong() { local sentence=$1; shift; train "$@"; claim "$*: status 2" ended 2 "$sentence"; }
wrong 'does not sum gradients' --np 2 --strategy average --canonical tree
wrong 'sums floats' --np 2 --strategy ps-sync --canonical fixed64
wrong 'servers wait for every worker; use mirrored' --np 2 --strategy ps-sync --on-failure shrink
wrong 'always continues without dead workers' --np 2 --strategy downpour --on-failure shrink
wrong 'two groups' --strategy hierarchical-copy
wrong 'RANK:FACTOR' --np 2 --slow 3
wrong 'RANK@STEP' --np 2 --kill 3:1
wrong 'ranks 0 to 1' --np 2 --slow 2:10
wrong 'ranks are 0 to 2' --np 2 --strategy ps-sync --kill 3@1
wrong 'at most that' --np 2 --strategy spare --k 3
wrong 'whole workers' --np 3 --ps 1 --strategy ps-strategy --devices 2
wrong 'out of range' --steps 0
wrong 'No such file' --steps 2 --resume /nowhere/ck
wrong 'add --resume' --evaluate
wrong '--ps must have the value' --np 2 --ps 3 --strategy ps-async --steps 2 --replay "$out/log-of"
wrong '4 workers and 60 steps were recorded' --np 2 --ps 2 --strategy ps-async --steps 60 --replay "$out/log-of"
wrong '4 workers and 60 steps were recorded' --np 4 --ps 2 --strategy ps-async --steps 61 --replay "$out/log-of"
wrong 'were recorded' --np 2 --strategy spare --steps 30 --replay "$out/who"
wrong 'has no effect with --strategy ps-sync' --np 2 --strategy ps-sync --ssp 2
wrong 'easgd diverges on 24 ranks unless alpha is below 0.0833333' "${elastic[@]}" --steps 2 --alpha 0.1
wrong 'learns from images or text' --data cartpole
wrong 'learns from an environment' --strategy a3c
wrong 'cannot play; use --device cpu' --strategy a2c --data cartpole --device sim
wrong 'add --average easgd' --np 2 --strategy average --alpha 0.2
wrong 'save /nowhere/ck: .* give a file that can be written' --steps 2 --save /nowhere/ck
mkfifo "$out/fifo"
wrong 'fifo: that is no file' --steps 2 --save "$out/fifo"
wrong 'timeline /nowhere/t: .* give a file that can be written' --np 2 --steps 2 --timeline /nowhere/t

echo "1..$n"
exit $failed
