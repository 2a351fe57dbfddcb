#!/bin/bash
# hashes.sh - the file of --hashes: continued after deaths and by --resume, and compared by `tutti hashdiff`
#
# A file that was continued has the bytes of that of an undisturbed training. TAP on standard output.
set -u
. "${top_srcdir:-.}/tests/training"

net=(--data synth --model mlp:32 --global-batch 250 --eval-every 100000 --canonical tree --lr-schedule cosine --warmup 3 --steps 12)
parameters=25450
train() { run 90 "${net[@]}" "$@"; }
bytes() { echo $((24 + $1 * (16 + 7 * 8))); }    # STEPS: a header, and 7 hashes of each step
has() { [ "$(stat -c %s "$out/$1")" = "$(bytes "$2")" ]; }    # FILE STEPS
dies() { is died "${2-1}" && grep -q "^step $1  ${2-1} of " "$out/log"; }    # STEP [RANKS]: the survivors' first step, the dead
same() { [ "$status" = 0 ] && cmp "$out/$1" "$out/whole"; }
train --np 2 --hashes "$out/whole"

# ---- deaths ----------------------------------------------------------------------------------------------------------

train --np 2 --save "$out/ck" --save-every 7 --kill 1@9 --hashes "$out/rest"
head -c $(($(bytes 4) + 30)) "$out/rest" >"$out/cut"    # a part of step 5
cp "$out/cut" "$out/part"
cp "$out/rest" "$out/record"
train --np 3 --resume "$out/ck" --hashes "$out/rest"
claim "a resumed training continues the file, without steps that are taken twice" same rest
train --np 3 --hashes "$out/shrunk" --hash-values 3 --on-failure shrink --kill 0@5
claim "rank 0 dies at the beginning of step 5" dies 5
train --hashes "$out/valued" --hash-values 3
claim "... the next rank 0 continues the file" cmp "$out/shrunk" "$out/valued"
# The check of the replicas ends after all ranks have taken the step.
for step in 1 5; do
	train --np 3 --hashes "$out/shrunk" --on-failure shrink --check-replicas 1 --kill 0@$step.75
	claim "rank 0 dies between step $step and its record" dies $((step + 1))
	claim "... the next rank 0 writes the record" same shrunk
done
train --np 3 --hashes "$out/shrunk" --on-failure shrink --kill 0@12.75 --metrics "$out/csv"
claim "rank 0 dies between the last evaluation and its record: another rank writes the result" dies 13
claim "... the record" same shrunk
claim "... and the metrics" grep -qE "^12,.*,0\.[0-9]+,[0-9.]+$" "$out/csv"
train --np 3 --hashes "$out/shrunk" --on-failure shrink --kill 0@12.75,2@12.75
claim "rank 2 dies, too, which may break the wait for rank 0 while rank 0 is alive: rank 1 writes the result" dies 13 2
claim "... and the record" same shrunk
train --np 3 --hashes "$out/shrunk" --on-failure shrink --kill 2@12.75
claim "rank 2 dies alone at the end: rank 0 writes the record, and nobody goes on" eval 'is died 0 && same shrunk'
train --np 2 --save "$out/ck.7" --save-every 7 --kill 0@7.75 --hashes "$out/shrunk"
claim "rank 0 dies between the checkpoint of step 7 and the record of this step" eval '[ $status = 1 ] && has shrunk 6'
train --resume "$out/ck.7" --hashes "$out/shrunk"
claim "... the training that resumes writes the record" same shrunk
claim "... and reports nothing" [ ! -s "$out/err" ]
train --resume "$out/ck" --hashes "$out/cut"
claim "a record that a death has cut off is dropped" has cut 10
claim "... and missing records are reported" \
	grep -q "^tutti-train: --hashes $out/cut: the records end with step 4 and go on with step 7;" "$out/err"
head -c "$(($(bytes 0) + 30))" "$out/whole" >"$out/first"
train --resume "$out/ck" --hashes "$out/first"
claim "a file without a whole record is continued" has first 6
claim "... and the missing first records are reported" \
	grep -q "^tutti-train: --hashes $out/first: the records begin with step 7; those before are missing" "$out/err"
train --np 4 --transport tcp --on-failure shrink --kill 0@12.75 --hashes /dev/full
claim "the next rank 0 cannot write the record: it reports the error of this write" \
	grep -q "^tutti-train: --hashes /dev/full: step 12 cannot be written: No space left on device;" "$out/err"
claim "... once" [ "$(grep -c "step 12 cannot be written" "$out/err")" = 1 ]
claim "... and the training fails at its end" ended 1 "^tutti-train: .*/dev/full: the file is incomplete: No space left on device"

# ---- files that stay -------------------------------------------------------------------------------------------------

train --np 2 --evaluate --resume "$out/ck" --hashes "$out/record"
claim "--evaluate takes no step, so it refuses --hashes" ended 2 '^tutti-train: --hashes: records steps'
claim "... by one sentence" one_line "$out/err"
claim "... and the file stays" eval 'has record 8 && cmp -n "$(bytes 8)" "$out/record" "$out/whole"'
echo precious >"$out/text"
train --resume "$out/ck" --hashes "$out/text"
claim "a file of another kind is refused, and stays" \
	eval 'ended 2 "text: no file of hashes of $parameters parameters" && [ "$(cat "$out/text")" = precious ]'

# ---- hashdiff --------------------------------------------------------------------------------------------------------

# hashdiff STATUS LINE A B: the last line of the output is LINE
hashdiff() {
	./perf/tutti hashdiff "$out/$3" "$out/$4" >"$out/log" 2>"$out/err"
	status=$?
	[ $status = "$1" ] && grep -qx "$2" <<<"$(cat "$out/log" "$out/err" | tail -n 1)"
}
missing() { grep -qx "missing   $1 in $out/$2" "$out/log"; }
train --steps 3 --np 2 --hashes "$out/a" --hash-values 1
train --steps 3 --np 2 --hashes "$out/b" --hash-values 1 --canonical chain
claim "the first difference is in a step with values: status 1" hashdiff 1 "element .* ulp apart" a b
claim "... hashdiff names the step" grep -q '^step  *1 is the first' "$out/log"
claim "equal files do not differ" hashdiff 0 "no step differs; 3 were compared" a a
claim "steps of both files are compared" hashdiff 0 "no step differs; 10 were compared" cut whole
claim "... missing ones are named" missing "steps 5 to 6" cut
{ head -c "$(bytes 0)" "$out/whole"; tail -c $((5 * 72)) "$out/whole"; } >"$out/late"
claim "the first steps are missing" hashdiff 0 "no step differs; 5 were compared" whole late
claim "... and named" missing "steps 1 to 7" late
{ head -c "$(bytes 2)" "$out/whole"; tail -c $((9 * 72)) "$out/whole"; } >"$out/hole"
claim "a single step is missing" hashdiff 0 "no step differs; 11 were compared" hole whole
claim "... and named" missing "step 3" hole
head -c "$(bytes 3)" "$out/whole" >"$out/early"
claim "the last steps are missing" hashdiff 0 "no step differs; 3 were compared; $out/whole has more steps" early whole
claim "no step is in both: status 2" hashdiff 2 "tutti hashdiff: .*early and .*late have no step in common; .*" early late
{ cat "$out/early"; tail -c 72 "$out/early"; tail -c 72 "$out/whole"; } >"$out/twice"
claim "a step comes twice: status 2" hashdiff 2 "tutti hashdiff: step 3 of .*twice does not match step 4 of .*whole; .*" twice whole
claim "a record is cut off in its hashes: status 2" hashdiff 2 "tutti hashdiff: .* ends in the middle of the record after step 4; .*" part whole
head -c $(($(bytes 2) + 8)) "$out/whole" >"$out/part"
claim "... in its head" hashdiff 2 "tutti hashdiff: .* ends in the middle of the record after step 2; .*" whole part

echo "1..$n"
exit $failed
