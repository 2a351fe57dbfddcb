#!/bin/bash
# run_output.sh - what a training shows and keeps: progress, checkpoints that stay, the timeline, the report; TAP on standard output
# browser.sh looks at the report in Chromium.
set -u
top=${top_srcdir:-.}
. "$top/tests/training"
command -v python3 >/dev/null || { echo "python3 is missing"; exit 77; }
net=(--data synth --model mlp:24,20 --global-batch 250 --leaf 8 --canonical tree)
steps_in() {   # FILE: the steps of a timeline, in order
	limit 60 python3 -c 'import json, sys
print(*sorted({e["args"]["step"] for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"}))' "$1"
}

# ---- progress --------------------------------------------------------------------------------------------------------

run 60 "${net[@]}" --np 2 --steps 6 --eval-every 3 --progress 1e-9
line='^step [1245] of 6  epoch 1 of 1  loss [0-9.]*  rate 0\.05  [0-9]* samples/s  [0-9]* s, [0-9]* s left$'
claim "a pipe gets lines of progress: loss, rate, samples/s, time so far and left" eval '[ "$(grep -cE "$line" "$out/log")" = 4 ]'
claim "... and the result as the last line" is steps 6
run 60 "${net[@]}" --np 2 --steps 6 --progress 0
claim "--progress 0: none" eval '! grep -q " left$" "$out/log"'

# ---- checkpoints that stay -------------------------------------------------------------------------------------------

hashes() { for file in "$@"; do run 60 "${net[@]}" --evaluate --resume "$out/$file"; echo "$file $(field steps) $(field hash)"; done; }
mkdir "$out/ck"
touch "$out/ck/a-12x" "$out/ck/a-" "$out/ck/b-1"
run 60 "${net[@]}" --np 2 --steps 9 --save "$out/ck/a" --save-every 2 --keep 3 --metrics "$out/m.csv"
hash=$(field hash)
files="a a- a-12x a-6 a-8 a-9 a-best a-best.json b-1"
claim "--keep 3 keeps the last three checkpoints and the best" eval '[ "$(cd "$out/ck" && echo *)" = "$files" ]'
best=$(awk -F, 'NR > 1 && $6 != "" && (least == "" || $6 + 0 < least) { least = $6 + 0; step = $1 } END { print step }' "$out/m.csv")
claim "the best has the smallest loss on the test set: step $best" grep -q "^{\"step\":$best," "$out/ck/a-best.json"
claim "each has its step" eval '[ "$(hashes ck/a-6 ck/a-8 | cut -d" " -f2 | xargs)" = "6 8" ]'
claim "... the last the parameters of the training" eval '[ "$(hashes ck/a-9)" = "ck/a-9 9 $hash" ]'
run 60 "${net[@]}" --np 2 --steps 14 --save "$out/ck/a" --save-every 2 --keep 3 --resume "$out/ck/a" --lr 1e-9 --momentum 0
claim "a resumed training goes on with them" eval '[ "$(cd "$out/ck" && echo a-1?)" = "a-10 a-12 a-14" ]'
echo '{"step":3,"loss":0.001,"accuracy":1.0}' >"$out/ck/a-best.json"
run 60 "${net[@]}" --np 2 --steps 16 --save "$out/ck/a" --save-every 2 --keep 3 --resume "$out/ck/a"
claim "... and with their best" grep -q '^{"step":3,' "$out/ck/a-best.json"
wrong 'add --save-every' --np 2 --steps 2 --save "$out/ck/a" --keep 2

# A launcher restarts a job by its command
for layout in "--np 2" "--np 4 --mesh data=2,pipeline=2"; do
	restarted=(--steps 9 --save "$out/ck/again" --save-every 2 --resume "$out/ck/again" --metrics "$out/again.csv")
	restarted+=(--eval-every 2 --timeline "$out/again.json")
	rm -f "$out/ck/again"
	run 60 "${net[@]}" $layout "${restarted[@]}" --kill 1@6
	claim "$layout, --resume of the file of --save: begins without a checkpoint, and is killed" \
		eval '[ "$status" = 1 ] && [ -s "$out/ck/again" ] && ! grep -q "^resumed" "$out/log"'
	run 60 "${net[@]}" $layout "${restarted[@]}"
	claim "... and goes on by the same command, to the hash of an uninterrupted training" \
		eval 'is hash "$hash" && grep -q "^resumed   after step 4" "$out/log"'
	claim "... with the lines of all steps, of which step 5 may have been taken twice" \
		grep -qxE "step 1 2 3 4 5( 5)? 6 7 8 9" <<<"$(cut -d, -f1 "$out/again.csv" | xargs)"
	claim "... and a timeline of all steps" [ "$(steps_in "$out/again.json")" = "1 2 3 4 5 6 7 8 9" ]
	run 60 "${net[@]}" $layout "${restarted[@]}"
	claim "... and after the last step measures and succeeds" eval '[ "$status" = 0 ] && is hash "$hash" && is steps 9'
	claim "... with a line of the measurement alone" grep -qxE "9,1,,,[0-9.]+,[0-9.]+" <<<"$(tail -n 1 "$out/again.csv")"
done
wrong 'has done 9 of the 8 requested steps' --np 2 --steps 8 --resume "$out/ck/again"
served=(--data synth --model mlp:24,20 --global-batch 250 --np 2 --ps 1 --strategy ps-async --steps 9)
served+=(--save "$out/ck/served" --resume "$out/ck/served")
run 60 "${served[@]}"
ends=$(field hash)
run 60 "${served[@]}"
claim "a training with a server, too, measures after the last step and succeeds" eval '[ "$status" = 0 ] && is steps 9 && is hash "$ends"'
rm "$out/ck/again"
run 60 "${net[@]}" --np 2 --mesh pipeline=2 --steps 9 --save "$out/ck/again" --resume "$out/ck/again" --on-failure shrink --kill 1@3
claim "a mesh without a checkpoint and without a whole replica begins again, to the same hash" eval '[ "$status" = 0 ] && is hash "$hash"'
claim "... in words" grep -q 'continues from the beginning' "$out/log"
run 60 "${net[@]}" --np 2 --steps 4 --save "$out/ck/again"
run 60 "${net[@]}" --np 2 --mesh pipeline=2 --steps 9 --save "$out/ck/again" --resume "$out/ck/again" --on-failure shrink --kill 1@6
claim "... with a checkpoint of an earlier training goes on from that" \
	eval '[ "$status" = 0 ] && is hash "$hash" && [ "$(grep -c "^resumed   after step 4" "$out/log")" = 2 ]'
wrong 'none: No such file or directory; give a file of --save' --np 2 --steps 2 --resume "$out/none" --save "$out/ck/other"
wrong 'again.none: No such file or directory' --np 2 --resume "$out/again.none" --save "$out/again.none" --evaluate

# ---- the timeline ----------------------------------------------------------------------------------------------------

cat >"$out/check_timeline" <<'END'
"""The trace-event format: rows have names, spans of a row nest, each arrow has two ends, in spans of two ranks."""
import collections, json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names, spans, arrows = {}, collections.defaultdict(list), collections.defaultdict(dict)
for e in events:
    if e["ph"] == "M":
        names[e["pid"], e.get("tid"), e["name"]] = list(e["args"].values())[0]
    elif e["ph"] == "X":
        spans[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"]))
        assert e["dur"] > 0 and e["args"]["step"] >= 1
    else:
        assert e["ph"] in "sf" and e["ph"] not in arrows[e["id"]], e
        arrows[e["id"]][e["ph"]] = e
for (pid, tid), row in spans.items():
    assert (pid, tid, "thread_name") in names and (pid, None, "process_name") in names
    around = []
    for begin, last, name in sorted(row, key=lambda span: (span[0], -span[1])):
        while around and around[-1] <= begin + 0.002:     # times have three digits
            around.pop()
        assert not around or name == "arrived" and last <= around[-1] + 0.002, (pid, tid, name, begin, around)
        around.append(last)

def innermost(e):
    return max((b, n) for b, l, n in spans[e["pid"], e["tid"]] if b - 0.002 <= e["ts"] <= l + 0.002)

for ends in arrows.values():
    s, f = ends["s"], ends["f"]
    assert s["pid"] != f["pid"] and s["ts"] <= f["ts"] and f["bp"] == "e" and s["name"] == f["name"] and s["cat"] == f["cat"]
    for e, kind in ((s, "send"), (f, "receive")):
        assert any(b - 0.002 <= e["ts"] <= l + 0.002 and n.startswith(kind) for b, l, n in spans[e["pid"], e["tid"]]), e
    assert innermost(s)[0] < innermost(f)[0], (s, f)      # Perfetto's order of the ends of an arrow
print(len({pid for pid, _ in spans}), len(arrows), "; ".join(names[pid, None, "process_name"].split(" on ")[0] for pid in (0, 1)))
END
run 60 "${net[@]}" --np 2 --steps 3 --timeline "$out/t.json"
timeline() { python3 "$out/check_timeline" "$out/t.json" >"$out/log" 2>"$out/err" && grep -qx "$1" "$out/log"; }
claim "a timeline names its ranks and rows, and spans do not overlap" timeline "2 0 rank 0; rank 1"
# 3 steps, 2 replicas, 4 micro-batches, an output and a gradient each
run 60 "${net[@]}" --np 4 --mesh data=2,pipeline=2 --micro 4 --steps 3 --timeline "$out/t.json"
claim "that of a mesh has an arrow for each of 48 messages" timeline \
	"4 48 rank 0: replica 0, stage 0, tensor rank 0; rank 1: replica 0, stage 1, tensor rank 0"
run 60 "${net[@]}" --np 3 --mesh pipeline=3 --schedule zero-bubble --micro 5 --steps 2 --timeline "$out/t.json"
claim "zero-bubble: 40 messages" timeline "3 40 rank 0: replica 0, stage 0, tensor rank 0; rank 1: replica 0, stage 1, tensor rank 0"

# Killed after an evaluation, and resumed from a checkpoint before it: step 5 is taken twice, 10 steps of 8 messages
again=(--np 4 --mesh data=2,pipeline=2 --steps 9 --save "$out/ck/twice" --save-every 4 --eval-every 5 --timeline "$out/t.json")
rm "$out/t.json"
run 60 "${net[@]}" "${again[@]}" --kill 1@7   # in step 6 rank 0 has written the timeline
run 60 "${net[@]}" "${again[@]}" --resume "$out/ck/twice"
claim "a resumed training adds to the timeline, with arrows of its own" timeline \
	"4 80 rank 0: replica 0, stage 0, tensor rank 0; rank 1: replica 0, stage 1, tensor rank 0"
echo precious >"$out/t.json"
run 60 "${net[@]}" "${again[@]}" --steps 10 --resume "$out/ck/twice"
claim "... not to a file that is no timeline: status 1" ended 1 'timeline .* does not end as a timeline; move it away$'
claim "... which is reported at once" grep -q 'the training goes on' "$out/err"
claim "... and stays as it was" [ "$(cat "$out/t.json")" = precious ]

# ---- idle slots: the timeline's computations in their measured order, each in a slot, as soon as its input is there -----------

cat >"$out/count_slots" <<'END'
"""Prints "idle slots of all slots of a stage" of each step: a schedule's bubble without the clock."""
import collections, json, sys
steps = collections.defaultdict(lambda: collections.defaultdict(list))
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if e["ph"] == "X" and e["tid"] == 0 and "chunk" in e["args"]:
        a = e["args"]
        steps[a["step"]][e["pid"]].append((e["ts"], e["name"], a["chunk"], a["micro"]))
for lists in steps.values():
    chunks = 1 + max(chunk for work in lists.values() for _, _, chunk, _ in work)
    lists = {rank: [what for _, *what in sorted(work)] for rank, work in lists.items()}
    now, ended, left = dict.fromkeys(lists, 0), {}, dict(lists)
    while any(left.values()):
        before = dict(left)
        for rank, work in left.items():
            while work:
                name, chunk, micro = work[0]
                needs = {"forward": ("forward", chunk - 1, micro), "backward-input": ("backward-input", chunk + 1, micro),
                         "backward-weights": ("backward-input", chunk, micro), "backward": ("backward", chunk + 1, micro)}[name]
                if 0 <= needs[1] < chunks and needs not in ended:
                    break
                now[rank] = max(now[rank], ended.get(needs, 0)) + (2 if name == "backward" else 1)
                ended[name, chunk, micro] = now[rank]
                work = left[rank] = work[1:]
        assert left != before, "an input is missing"
    span = max(now.values())
    print({span - sum(2 if what[0] == "backward" else 1 for what in work) for work in lists.values()}, "of", span)
END
sed 's/^/the words of a text /' "$top/tests/training" >"$out/text"
cat >"$out/count_overlaps" <<'END'
"""Prints for each step whether forward passes of different ranks overlap."""
import collections, json, sys
steps = collections.defaultdict(list)
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if e["ph"] == "X" and e["tid"] == 0 and e["name"] == "forward":
        steps[e["args"]["step"]].append((e["ts"], e["ts"] + e["dur"], e["pid"]))
for spans in steps.values():
    print(any(a < d and c < b for a, b, p in spans for c, d, q in spans if p != q))
END
recurrent=(--data "text:$out/text" --context 32 --model rnn:3x8 --global-batch 8 --leaf 4 --steps 3 --canonical tree)
for parts in 16 32; do   # 2(L-1) of 3T+2(L-1): forward, backward of inputs and of weights
	run 60 "${recurrent[@]}" --np 3 --mesh pipeline=3 --schedule wavefront --micro $parts --timeline "$out/t.json"
	claim "wavefront of $parts parts on 3 stages: each is idle for 4 of $((3 * parts + 4)) slots" \
		[ "$(limit 60 python3 "$out/count_slots" "$out/t.json" | uniq -c | xargs)" = "3 {4} of $((3 * parts + 4))" ]
done

# bubble SCHEDULE STAGES FORMULA: the idle slots of the formula for 8 micro-batches, of all slots
bubble() {
	run 60 --data synth --model mlp:24,20,18 --global-batch 256 --leaf 8 --steps 3 --canonical tree --np "$2" --mesh "pipeline=$2" \
		--schedule "$1" --micro 8 --timeline "$out/t.json"
	claim "$1 on $2 stages: each is idle for $3 slots" [ "$(limit 60 python3 "$out/count_slots" "$out/t.json" | uniq -c | xargs)" = "3 {${3%% *}} of ${3##* }" ]
	run 60 schedule "$1" --stages "$2" --micro 8
	claim "... a bubble of $(sed -n 's/.*bubble \([0-9.]*\).*/\1/p' "$out/log"), as \"schedule\" says" \
		awk -v idle="${3%% *}" -v all="${3##* }" '/bubble/ { b = $4 + 0 } END { d = b - idle / all; exit !(d < 1e-4 && d > -1e-4) }' "$out/log"
}
bubble gpipe 2 "3 of 27"            # 3 (S-1) of 3 M + 3 (S-1)
bubble gpipe 4 "9 of 33"
bubble 1f1b 2 "3 of 27"
bubble 1f1b 4 "9 of 33"
bubble interleaved:2 2 "3 of 51"    # of twice as many computations
bubble zero-bubble 2 "1 of 25"      # (S-1) of 3 M + S-1
bubble zero-bubble 4 "3 of 27"

# A computation sleeps, so that ranks that can overlap do
for parts in 1 16; do
	run 60 "${recurrent[@]}" --np 3 --mesh pipeline=3 --schedule wavefront --micro $parts --sim-compute-ms 40 --timeline "$out/t.json"
	claim "wavefront of $parts parts: stages compute forward at the same time, of 1 part one after the other" \
		[ "$(limit 60 python3 "$out/count_overlaps" "$out/t.json" | uniq -c | xargs)" = "3 $([ $parts = 1 ] && echo False || echo True)" ]
done

# ---- the report ------------------------------------------------------------------------------------------------------

run 60 "${net[@]}" --np 3 --steps 12 --eval-every 4 --report "$out/r.html" --sim-compute-ms 2 --slow 1:20
has() { grep -qE -- "$1" "$out/r.html"; }
claim "the report has three plots, and the times of the ranks" eval '[ "$(grep -c "<svg" "$out/r.html")" = 4 ] && has ">rank 2<"'
claim "... names the straggler" has "Rank 1 on .* computes [0-9.]* times as long as the median rank"
claim "... has the bytes and the hash of the result" eval 'has ">$(field bytes_sent)<" && has "$(field hash)"'
claim "... refers to no other file" eval '! has "(src|href)="'
run 60 "${net[@]}" --np 4 --mesh data=2,pipeline=2 --schedule gpipe --micro 4 --steps 3 --report "$out/r.html"
claim "that of a mesh draws the layout and the schedule" eval '[ "$(grep -c "<svg" "$out/r.html")" = 6 ] && has "replica 1, tensor 0" && has "gpipe: 2 stages"'
wrong 'give a file that can be written' --np 2 --steps 2 --report "$out/none/r.html"

# ---- a full disk, and a death: what was written before stays -------------------------------------------------------------------

steps_of() { python3 -c 'import json, sys; print(max(e["args"].get("step", 0) for e in json.load(open(sys.argv[1]))["traceEvents"] if "args" in e))' "$1"; }
pages=(--eval-every 5 --timeline "$out/t.json" --report "$out/r.html")
rm "$out/t.json" "$out/r.html"
(ulimit -f 64; limit 60 "$prog" "${net[@]}" --np 2 --steps 200 "${pages[@]}" >"$out/log" 2>&1 </dev/null)
status=$?
: >"$out/err"
said() { sed -n "/--$1 .*: cannot be written: File too large; the training goes on/,\$p" "$out/log" | grep -q '^step 200 '; }
claim "a timeline that the disk has no space for is reported during the training" said timeline
claim "... has its steps up to an evaluation: $(steps_of "$out/t.json")" \
	[ $(($(steps_of "$out/t.json") % 5)) = 0 ] && [ "$(steps_of "$out/t.json")" -ge 5 ]
claim "... is an error at the end" ended 1
claim "... and keeps neither the result nor the report away" eval 'grep -q "^{.*\"steps\":200," "$out/log" && has "<td>hash<"'
rm "$out/t.json" "$out/r.html"
(ulimit -f 1; limit 60 "$prog" "${net[@]}" --np 2 --steps 10 "${pages[@]}" >"$out/log" 2>&1 </dev/null)
claim "a report that the disk has no space for is reported before the first step" \
	eval 'sed -n "/--report .*the training goes on/,\$p" "$out/log" | grep -q "^step 5 " && [ "$(ls "$out"/r.html* 2>&1 | grep -vc "No such")" = 0 ]'
run 60 "${net[@]}" --np 2 --steps 30 --kill 1@18 "${pages[@]}"
claim "the timeline of a training that a death has ended has the steps up to the last evaluation" eval '[ "$status" = 1 ] && [ "$(steps_of "$out/t.json")" = 15 ]'
claim "... and so has the report" eval 'has "<td>steps</td><td class=.n.>15<" && ! has "<td>hash<"'
claim "... with the bytes so far" has "<td>sent</td><td class=.n.>[1-9]"
run 60 "${net[@]}" --np 2 --steps 30 --kill 1@2 "${pages[@]}"
claim "the report of a training that has not been evaluated has no figures of an evaluation, and names no straggler" \
	eval 'has "<td>steps</td><td class=.n.>0<" && ! has "on the test set<|a second|[Ss]traggler[: ]"'
run 60 "${net[@]}" --np 3 --steps 20 --kill 0@8 --on-failure shrink "${pages[@]}"
claim "without rank 0 another one goes on with both" eval '[ "$(steps_of "$out/t.json")" = 20 ] && has "<td>hash<" && has ">rank 2<"'
run 60 --data synth --model mlp:24,20 --global-batch 250 --np 3 --ps 2 --strategy downpour --steps 60 --kill 0@40 "${pages[@]}"
claim "... also where servers hand out the work: the timeline has the steps from the first to the last" \
	grep -qE '^(0 )?1 2 3 4 5 .* 60$' <<<"$(steps_in "$out/t.json")"
run 60 "${net[@]}" --np 4 --mesh data=2,pipeline=2 --steps 20 --on-failure shrink --kill 1@14 --save "$out/ck/mesh" "${pages[@]}"
claim "... also in a mesh, without the steps that were in no evaluation" \
	grep -qE '^1 2 3 4 5 6 7 8 9 10 14 .* 20$' <<<"$(steps_in "$out/t.json")"

# A checkpoint that the disk has no space for: the training goes on, and is an error at the end
unsaved() {   # ARGUMENT...
	echo precious >"$out/ck/full"
	rm -f "$out/m.csv"
	(ulimit -f 64; limit 60 "$prog" "${net[@]}" --steps 6 --save "$out/ck/full" --metrics "$out/m.csv" "$@" >"$out/log" 2>"$out/err" </dev/null)
	status=$?
	claim "$*: a checkpoint that cannot be written is an error: status 1" ended 1 'save .*full: cannot be written: File too large; the previous file is intact$'
	claim "... after the result and all lines of --metrics" eval 'is steps 6 && grep -qE "^6,.*,0\.[0-9]+,[0-9.]+$" "$out/m.csv"'
	claim "... and what was there stays" eval '[ "$(cat "$out/ck/full")" = precious ] && [ "$(ls "$out/ck" | grep -c full)" = 1 ]'
}
unsaved --np 2
unsaved --np 2 --save-every 2
claim "... which is reported at once, too" [ "$(grep -c 'the training goes on' "$out/err")" = 2 ]
unsaved --np 2 --on-failure shrink
unsaved --np 4 --mesh data=2,pipeline=2 --on-failure shrink
for file in metrics timeline; do
	run 60 "${net[@]}" --np 2 --mesh pipeline=2 --on-failure shrink --steps 6 --save "$out/ck/again" --$file /dev/full
	claim "an error of the file of --$file is no death of a rank, after which a mesh would go on" \
		eval 'ended 1 "$file /dev/full: .*No space left" && ! grep -q "ranks died" "$out/log"'
done

mkfifo "$out/pipe"
limit 60 cat "$out/pipe" >"$out/t.json" &
run 60 "${net[@]}" --np 3 --steps 20 --kill 0@8 --on-failure shrink --eval-every 5 --timeline "$out/pipe"
: <>"$out/pipe"   # the end of a pipe that nobody has written
wait $!
claim "a pipe gets the spans of the survivors at the end, of all steps" \
	eval '[ "$status" = 0 ] && [ "$(steps_in "$out/t.json")" = "$(seq -s " " 20)" ]'

echo "1..$n"
exit $failed
