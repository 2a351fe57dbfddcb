#!/bin/bash
# grow.sh - ranks that join a running training at a checkpoint: the hash of one device
#
# Further ranks wait first, then the training starts, so no claim depends on time. TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"

net=(--data synth --model mlp:24,20,18 --global-batch 250 --leaf 8 --steps 12 --canonical tree --eval-every 100000)
run 120 --strategy one "${net[@]}"
hash=$(field hash)
net+=(--save "$out/ck" --save-every 4)
dir=$out/dir
mkdir "$dir"

waiting() { until [ "$(find "$dir" -name '*.waits' | wc -l)" = "$1" ]; do sleep 0.1; done; }
# joiners N ARGUMENT...: N ranks wait in $dir; joined STATUS: how they ended
joiners() {
	local n=$1
	shift
	limit 120 "$prog" "${net[@]}" --np "$n" --join "$dir" "$@" >"$out/joined" 2>"$out/joined.err" </dev/null &
	waiting "$n"
}
joined() { wait -n; [ $? = "$1" ]; }
grows() { run 120 "${net[@]}" --grow "$dir" "$@"; }
nobody_waits() { [ -z "$(ls "$dir")" ]; }
from() { [ "$(sed -n 's/^resumed   after step //p' "$out/log")" = "$1" ]; }

joiners 2
grows --np 2
claim "two ranks join a training of two: the hash of one device" is hash "$hash"
claim "... on four ranks" is np 4
claim "... from the first checkpoint on" from 4
claim "... and end with the training" joined 0
claim "... no file remains" nobody_waits

joiners 3 --mesh pipeline=2
grows --np 2 --mesh pipeline=2
claim "two of three ranks become a second replica of a pipeline: the hash of one device" is hash "$hash"
claim "... that is, data=2" grep -q '^mesh  *data=2,tensor=1,pipeline=2' "$out/log"
claim "... the third ends with an error" joined 1
claim "... in words" grep -q 'the training has ended' "$out/joined.err"
claim "... no file remains" nobody_waits

mkfifo "$out/pipe"
limit 120 cat "$out/pipe" >"$out/t.json" &
reader=$!
joiners 1 --timeline "$out/pipe" --report /dev/full
grows --np 2 --timeline "$out/pipe" --report /dev/full
: <>"$out/pipe"   # the end of a pipe that nobody has written
claim "a page that cannot be written does not end a training that grows: the hash of one device" is hash "$hash"
claim "... on three ranks" is np 3
claim "... and is an error at the end" ended 1 'report /dev/full: cannot be written: No space left'
wait $reader   # first, since joined waits for any
joined 0
claim "... a pipe gets one timeline, of all steps" eval '[ "$(grep -c traceEvents "$out/t.json")" = 1 ] &&
	[ "$(grep -o "\"step\":[0-9]*" "$out/t.json" | cut -d: -f2 | sort -nu | xargs)" = "$(seq -s " " 12)" ]'

# The names of 120 tensors make the export greater than the checkpoint, so the disk has space for the checkpoint only
many=(--data "text:${top_srcdir:-.}/README.md" --context 8 --model rnn:40x1 --global-batch 20 --leaf 4)
run 120 --strategy one "${net[@]}" "${many[@]}"
want=$(field hash)
joiners 1 "${many[@]}" --export "$out/x"
size=$(ulimit -S -f)
ulimit -S -f 8
grows --np 2 "${many[@]}" --export "$out/x"
ulimit -S -f "$size"
claim "an export that cannot be written does not end a training that grows: the hash of one device" is hash "$want"
claim "... on three ranks" is np 3
claim "... and is an error at the end" ended 1 'rank 0: --export .*x: cannot be written: File too large'
joined 0

joiners 1 --strategy reduce-to-one --on-failure shrink
grows --np 2 --strategy reduce-to-one --on-failure shrink --kill 1@7
claim "a rank joins, and another dies: the hash of one device" is hash "$hash"
joined 0

joiners 1
kill -9 "$(sed -n 's/.*-\([0-9]*\)\.waits$/\1/p' <<<"$(ls "$dir")")"
joined 1
grows --np 2
claim "a rank that died while it waited does not count" is np 2
claim "... and its file is removed" nobody_waits

joiners 1
grows --np 2 --kill 0@2
claim "a training is killed while a rank waits: the rank ends" joined 1
claim "... in words" grep -q 'the training has ended' "$out/joined.err"
claim "... its file stays, unlocked" [ "$(ls "$dir")" = training ]
joiners 1
grows --np 2
claim "a rank that finds it waits for the next training, and joins: the hash of one device" is hash "$hash"
claim "... on three ranks" is np 3
joined 0

# A lock without a rank behind it
flock "$dir/nobody-1.waits" sleep 60 &
waiting 1
TUTTI_TIMEOUT_MS=1500 grows --np 2
claim "a rank that waits and does not join: the others go on, with the hash of one device" is hash "$hash"
claim "... and say so" grep -q 'grow: 1 rank did not join: .*the training goes on' "$out/err"
kill $!

echo precious >"$out/file"
ln -s "$out/file" "$dir/training"
run 60 --np 2 "${net[@]}" --grow "$dir"
claim "a link in the place of the training's file is not followed: status 2" ended 2 'training cannot be locked'
claim "... nor the file behind it changed" [ "$(cat "$out/file")" = precious ]
rm "$dir/training"

wrong() { local sentence=$1; shift; run 60 "$@"; claim "$*: status 2" ended 2 "$sentence"; }
wrong 'add --save FILE --save-every N' --np 2 --steps 2 --grow "$dir"
wrong 'add --save FILE --save-every N' --np 2 --steps 2 --join "$dir"
wrong 'give one of them' --np 2 "${net[@]}" --grow "$dir" --join "$dir"
wrong 'has servers; use a strategy' --np 2 "${net[@]}" --canonical off --strategy ps-async --grow "$dir"
chmod 777 "$dir"
wrong 'that no other user can write' "${net[@]}" --join "$dir"
wrong 'that no other user can write' --np 2 "${net[@]}" --grow "$dir"
claim "... by one sentence" one_line "$out/err"
wrong 'nowhere: No such file or directory; make a directory' --np 2 "${net[@]}" --grow /nowhere
claim "... by one sentence" one_line "$out/err"
wrong "directory of the training's --grow" "${net[@]}" --join /nowhere

echo "1..$n"
exit $failed
