#!/bin/bash
# train.sh [matrix] - data-parallel training: losses as on one device, equal replicas, faults, wrong uses
#
# Uses synthetic data, so that no package is needed, and two ranks on Fashion-MNIST where the data set is installed. `train.sh
# matrix` instead trains on Fashion-MNIST with every algorithm, transport and number of ranks (tier full). TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"

# ---- Fashion-MNIST -----------------------------------------------------------------------------------------------

images=/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
fashion() {   # RANKS ALGORITHM TRANSPORT
	run 300 --np "$1" --algo "$2" --transport "$3" --data fashion --check-replicas 50 --metrics "$out/p.csv"
	claim "$1 ranks, $2, $3: accuracy $(field accuracy) after 5 epochs of Fashion-MNIST" reached 0.85
	claim "$1 ranks, $2, $3: the losses are those of one device" close "$out/one.csv" "$out/p.csv"
}
matrix() {
	local np algo transport
	for np in 1 2 3 4; do
		for algo in ring tree hierarchical reduce-to-one; do
			for transport in shm tcp; do fashion $np $algo $transport; done
		done
	done
}
if [ -r $images ]; then
	run 300 --data fashion --strategy one --steps 20 --metrics "$out/one.csv"
	[ "${1-}" != matrix ] || { matrix; echo "1..$n"; exit $failed; }
	fashion 2 auto auto
else
	n=$((n + 1))
	echo "ok $n - Fashion-MNIST # SKIP the package dataset-fashion-mnist is not installed"
	[ "${1-}" != matrix ] || { echo "1..$n"; exit 0; }
fi

# ---- one device --------------------------------------------------------------------------------------------------

small=(--data synth --model mlp:32 --global-batch 61 --steps 25)
run 60 "${small[@]}" --strategy one --metrics "$out/one.csv"
hash=$(field hash)
claim "one rank trains" ended 0
claim "the last line has the number of steps" is steps 25
claim "the metrics have a line for every step" [ "$(wc -l <"$out/one.csv")" = 26 ]
claim "the parameters have the same bits on every machine" is hash bd135dd3ca5682fd
run 60 "${small[@]}" --strategy one
claim "a second run gives the same bits" is hash "$hash"
for isa in scalar avx2 avx512; do
	TUTTI_ISA=$isa run 60 "${small[@]}" --strategy one
	if [ $status = 0 ]; then
		claim "$isa gives the same bits" is hash "$hash"
	else
		claim "$isa is refused with an error on a CPU without it" ended 2 TUTTI_ISA
	fi
done
run 60 "${small[@]}"
claim "mirrored on one rank gives the bits of one" is hash "$hash"

# ---- several ranks -----------------------------------------------------------------------------------------------

mirrored() {   # RANKS ALGORITHM TRANSPORT
	run 90 --np "$1" --algo "$2" --transport "$3" "${small[@]}" --check-replicas 1 --bucket-kb 8 --metrics "$out/p.csv"
	claim "$1 ranks, $2, $3: the replicas are equal after every step" ended 0
	claim "$1 ranks, $2, $3: the losses are those of one device" close "$out/one.csv" "$out/p.csv"
}
mirrored 2 auto auto
mirrored 2 ring tcp
mirrored 3 tree shm
mirrored 3 hierarchical tcp
mirrored 4 reduce-to-one shm
mirrored 4 ring shm
mirrored 5 auto auto

run 90 --np 4 --data synth --model mlp:8 --global-batch 3 --steps 6 --check-replicas 1
claim "more ranks than samples in a batch train" ended 0
run 90 --np 3 --data synth --model linear --global-batch 64 --steps 60 --bucket-kb 1
claim "linear learns synthetic data: accuracy $(field accuracy)" reached 0.6
run 90 --np 2 --device cpu-blas "${small[@]}" --metrics "$out/p.csv"
if [ $status = 2 ]; then
	claim "without OpenBLAS --device cpu-blas is refused with an error" ended 2 "OpenBLAS is not on this host"
else
	claim "OpenBLAS gives the losses of the built-in kernels" close "$out/one.csv" "$out/p.csv"
fi

# Two ranks without a launcher; only rank 1 gets the arguments. $status, log and err are those of rank 0.
port=$((22000 + $$ % 1000))
joined() {
	port=$(free_port $((port + 1)))
	local join=(env TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:$port TUTTI_SECRET=train "${top_srcdir:-.}/tests/limit" 60)
	TUTTI_RANK=1 "${join[@]}" "$prog" "${small[@]}" "$@" >"$out/log.1" 2>"$out/err.1" </dev/null &
	TUTTI_RANK=0 "${join[@]}" "$prog" "${small[@]}" >"$out/log" 2>"$out/err" </dev/null
	status=$?
	wait $!
	status1=$?
}
joined
claim "ranks without a launcher join by the environment" ended 0
claim "ranks without a launcher have the right number of ranks" is np 2
joined --seed 2
claim "different seeds are refused" ended 2 'seed: .* the value is 1 on rank 0'
claim "both ranks with different seeds fail" [ $status1 = 2 ]
joined --strategy ps-sync
claim "different strategies are refused, of which one alone has a server" ended 2 'strategy: .* the value is mirrored on rank 0'
images=("${small[@]}")
small=(--data text:"$out/text.0" --model rnn:1x8 --context 8 --global-batch 8 --steps 2)
seq 100 299 >"$out/text.0"
seq 299 -1 100 >"$out/text.1"
joined --data text:"$out/text.1"
claim "different texts of one length are refused" ended 2 'data: .*of hash'
small=("${images[@]}")
run 60 "${small[@]}" --save "$out/same" --export "$out/same"
claim "one file for two kinds of output is refused" ended 2 '--export .*same: also the file of --save'
for what in timeline report; do
	run 60 "${small[@]}" --$what "$out/none/file"
	claim "--$what: a file that cannot be written is refused" ended 2 "--$what .*none/file: No such file"
	run 60 "${small[@]}" --$what "$out/none/file" --np 2
	claim "... before ranks are started" ended 2 "--$what .*none/file: No such file"
done
run 60 "${small[@]}" --np 1 --ps 1 --strategy ps-async --record "$out/none/file"
claim "--record: a file that cannot be written is refused, by one sentence" eval 'ended 2 "--record .*file.0: No" && one_line "$out/err"'
run 60 "${small[@]}" --schedule 1f1b
claim "a schedule without a pipeline is refused" ended 2 '--schedule: has no effect alone; add --mesh'
run 60 "${small[@]}" --save "$out/cut" --steps 1
head -c 100 "$out/cut" >"$out/cut.100"
run 60 "${small[@]}" --resume "$out/cut.100"
claim "a checkpoint that was cut off is named so" ended 2 'ends after 100 bytes; the file is truncated'

# ---- faults ------------------------------------------------------------------------------------------------------

TUTTI_TEST_FLIP=1@6 run 60 --np 3 "${small[@]}" --check-replicas 2
claim "a changed bit in one replica is found; the error names step and rank" ended 1 'step 6: the parameters of rank 1 differ'
run 60 --np 2 "${small[@]}" --steps 5 --kill 1@6
claim "a death beyond the last step is refused" ended 2 'rank 1 never begins step 6; the steps are 1 to 5'
run 60 --np 2 --data synth --model mlp:32 --lr 1000 --steps 100
claim "a training that diverges ends with an error" ended 1 'diverged.*--lr'

start() {   # ARGUMENT...: starts a training in the background, with the processes $launcher and $ranks; the script's limit ends it
	: >"$out/log"                    # an earlier training's log has epochs, too
	"$prog" "$@" >"$out/log" 2>"$out/err" </dev/null &
	launcher=$!
	until grep -q '^epoch' "$out/log" || [ ! -d "/proc/$launcher" ]; do sleep 0.1; done
	read -r -a ranks <<<"$(cat "/proc/$launcher/task/$launcher/children")"
	sleep 0.3
}
gone() { local p; for p in "$@"; do [ ! -d "/proc/$p" ] || return 1; done; }

start --np 3 --data synth --epochs 1000
kill -9 "${ranks[1]-}"
wait $launcher
status=$?
claim "a killed rank ends the training; the other ranks name it" ended 1 'rank [02]: .*rank 1'
claim "no process is left" gone "$launcher" "${ranks[@]}"

TUTTI_TIMEOUT_MS=1500 start --np 2 --data synth --model linear --epochs 1000 --progress 0 --on-failure shrink
kill -STOP "${ranks[1]-}"
epochs=$(grep -c '^step' "$out/log")
until [ "$(grep -c '^step' "$out/log")" -gt $((epochs + 1)) ] || [ ! -d "/proc/$launcher" ]; do sleep 0.1; done
kill -INT "$launcher"
kill -9 "${ranks[1]-}"
wait $launcher
share() { local s; s=$(field exposed_comm_share) && [ -n "$s" ] && awk -v s="$s" 'BEGIN { exit !(s <= 1) }'; }
claim "the wait of a step that failed is no part of the training: exposed share $(field exposed_comm_share)" share

start --np 2 --data synth --epochs 1000
kill -INT "$launcher"
wait $launcher
status=$?
claim "an interrupted training prints its latest result" grep -q '^{"accuracy"' "$out/log"
claim "an interrupted training ends with the signal's status" ended 130
claim "an interrupted training prints no error" [ ! -s "$out/err" ]

# ---- wrong uses --------------------------------------------------------------------------------------------------

wrong() {   # SENTENCE ARGUMENT...
	local sentence=$1
	shift
	run 30 "$@"
	claim "$*: status 2" ended 2 "$sentence"
	claim "$*: one sentence" one_line "$out/err"
}
wrong 'strategy one.*--np 1' --np 2 --strategy one --data synth
wrong 'no such strategy' --np 2 --strategy horovod --data synth
wrong 'no such model' --model resnet --data synth
wrong 'list of widths' --np 2 --model mlp:0 --data synth
wrong 'no such data' --data cifar
wrong 'no such device' --device abacus --data synth
wrong 'at most that' --np 2 --global-batch 1000000 --data synth
wrong 'No such file' --np 2 --metrics /nowhere/x.csv --data synth
wrong 'bogus' --np 2 --algo bogus --data synth
wrong 'pigeon' --np 2 --transport pigeon --data synth
wrong 'np' --np 0
wrong 'lr' --lr fast
wrong 'momentum' --momentum 1
wrong 'unknown option' --learning-rate 1
wrong 'unexpected argument' --data synth extra
run 30 --data fashion --data-dir /nowhere
claim "--data fashion without its files names the package" ended 2 dataset-fashion-mnist
run 30 --data text:/nowhere --model rnn:1x8
claim "a text that does not exist is wrong usage" ended 2 'data text:/nowhere: No such file'
run 60 --np 2 "${small[@]}" --metrics /dev/full
claim "metrics that cannot be written are reported when it happens" ended 1 '--metrics /dev/full: step 1 cannot be written: No space left'
claim "... and end with status 1 and an error" ended 1 'rank 0: --metrics /dev/full: .*No space left'
few=(--data synth --model linear --global-batch 64 --metrics "$out/lines.csv")
run 60 "${few[@]}" --steps 2 --save "$out/two" && run 60 "${few[@]}" --steps 4 --resume "$out/two"
claim "--metrics with --resume appends" [ "$(cut -d, -f1 "$out/lines.csv" | xargs)" = "step 1 2 3 4" ]
for line in "--help" "--np 2 ${small[*]}" "${small[*]}"; do
	limit 60 "$prog" $line >/dev/full 2>"$out/err" </dev/null
	status=$?
	claim "$line > /dev/full: status 1" ended 1 'standard output: No space left'
	claim "$line > /dev/full: one sentence" one_line "$out/err"
done
# ---- schedules -----------------------------------------------------------------------------------------------------

run 60 schedule 1f1b --stages 2 --micro 3 --svg "$out/1f1b.svg"
claim "a schedule is drawn over time" grep -q '^stage 1  | .  F0 B0 B0 F1 B1 B1 F2 B2 B2' "$out/log"
claim "... with its bubble and its activations" grep -Pzq 'time 12, bubble 0.2500 .*\n.*keeps: 2 1\n' "$out/log"
claim "... and as SVG" grep -q '<title>backward of chunk 1, micro-batch 2: 8 to 10</title>' "$out/1f1b.svg"
wrong 'no such schedule' schedule 2f2b
wrong 'no schedule' schedule --stages 2
run 60 schedule gpipe --svg /nowhere/x
claim "a drawing that cannot be written: status 1" ended 1 '--svg /nowhere/x: No such file'
size=$(ulimit -S -f)
ulimit -S -f 1
run 60 schedule 1f1b --stages 2 --micro 6 --svg "$out/half.svg"
ulimit -S -f "$size"
claim "a drawing that does not fit into its disk: status 1" ended 1 '--svg .*/half.svg: File too large'
claim "... and no half of it stays" [ -z "$(find "$out" -name 'half.svg*')" ]
run 30 --help
claim "--help prints the options" grep -q -- --global-batch "$out/log"

# ---- how many ranks ---------------------------------------------------------------------------------------------------

settles 900 'is advice 1' --advise --np 2 --data synth --model mlp:8 --global-batch 4
claim "--advise for a small model: one device" is advice 1
layouts=(--advise --mesh any --canonical tree --shards 2 --data synth --model mlp:8)
settles 900 'is advice 1' "${layouts[@]}" --np 4 --global-batch 4
claim "--advise --mesh any for a small model: one device" is advice 1
claim "... of layouts it lists those of up to 2 stages and 2 tensor ranks, since the model has 2 layers" \
	[ "$(sed -n 's/^ *data=\([0-9]\),pipeline=\([0-9]\),tensor=\([0-9]\) .*/\1\2\3/p' "$out/log" | tr '\n' ' ')" = \
	"111 211 411 112 212 121 221 122 " ]
claim "... and checks the fit with two of them" [ "$(grep -c '^check: data=' "$out/log")" = 2 ]
claim "... and says which ranks belong on one host: those of a tensor group first, then stages" \
	[ "$(sed -n 's/^\(ranks of a tensor group\|stages\|replicas\) .*, here [0-9.]* ms.*/\1/p' "$out/log" | xargs)" = "ranks of a tensor group stages replicas" ]
run 60 "${layouts[@]}" --np 2 --mesh data=2
claim "--advise of one mesh: status 2" ended 2 'but --mesh any'
within_a_fifth() { awk -v a="$(field measured_ms)" -v b="$(field predicted_ms)" 'BEGIN { exit !(a > 0 && b > 0.8 * a && b < 1.2 * a) }'; }
several() { grep -Eq '^use [34] ranks' "$out/log"; }
settles 900 'several && within_a_fifth' --advise --np 4 --data synth --model mlp:8 --sim-compute-ms 600
claim "--advise where a batch takes 600 ms: several ranks" several
claim "... with a check of the fit" is checked 3
claim "... which predicts $(field predicted_ms) ms of 3 ranks, which it did not measure, and measures $(field measured_ms): within 20 %" \
	within_a_fifth
"$prog" --advise --np 2 --data synth --model mlp:8 --steps 12 --sim-compute-ms 20011 >"$out/log" 2>"$out/err" </dev/null &
advise=$!
# The process of a training that the process $advise has started
training() {
	local id
	for id in $(awk -v parent=$advise '$4 == parent { print $1 }' /proc/[0-9]*/stat 2>/dev/null); do
		grep -aq eval-every "/proc/$id/cmdline" && echo "$id" && return
	done
	false
}
# Within 100 s
soon() { for ((i = 0; i < 1000; i++)); do "$@" && return; sleep 0.1; done; false; }
soon training >"$out/training"
trained=$(cat "$out/training")
kill $advise
wait $advise
claim "--advise dies of SIGTERM" [ $? = 143 ]
gone() { [ -n "$trained" ] && ! grep -aq eval-every "/proc/$trained/cmdline" 2>/dev/null; }   # that of a zombie is empty
claim "the training of an --advise that was killed ends with it" soon gone
run 60 --advise --data synth
claim "--advise without --np: status 2" ended 2 'add --np 4'

echo "1..$n"
exit $failed
