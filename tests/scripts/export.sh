#!/bin/bash
# export.sh - files for other programs: parameters in the format safetensors, events for TensorBoard
#
# Parsers of the documented formats read them; in tier full also the packages from PyPI, if they are there. TAP on standard
# output.
set -u
. "${top_srcdir:-.}/tests/training"

command -v python3 >/dev/null || { echo "python3 is missing"; exit 77; }
cat >"$out/read_safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
length = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + length])
values = data[8 + length:]
assert data[8:9] == b"{" and length % 8 == 0
meta = head.pop("__metadata__")
assert all(isinstance(v, str) for v in meta.values())
end = 0
for name, t in head.items():
    begin, last = t["data_offsets"]
    count = 1
    for n in t["shape"]:
        count *= n
    assert t["dtype"] == "F32" and begin == end and last - begin == 4 * count, name
    end = last
assert end == len(values)
h = end                                       # tutti-train's hash of its parameters
for (word,) in struct.iter_unpack("<I", values):
    h = (h ^ word) * 0x9E3779B97F4A7C15 % 2 ** 64
    h ^= h >> 32
print("%016x" % h, meta["model"], meta["step"])
print(" ".join("%s:%s" % (n, "x".join(map(str, t["shape"]))) for n, t in head.items()))
END
cat >"$out/read_events" <<'END'
import glob, struct, sys
def crc(data):
    c = 0xffffffff
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) % 2 ** 32
def fields(m):
    while m:
        def varint():
            nonlocal m
            n = shift = 0
            while True:
                byte, m = m[0], m[1:]
                n |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return n
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, m[:size]
            m = m[size:]
assert crc(b"123456789") == ((0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8) % 2 ** 32
[path] = glob.glob(sys.argv[1] + "/events.out.tfevents.*")
data, first = open(path, "rb").read(), True
while data:
    size, check = struct.unpack("<QI", data[:12])
    event = data[12:12 + size]
    assert check == crc(data[:8]) and struct.unpack("<I", data[12 + size:16 + size])[0] == crc(event)
    data = data[16 + size:]
    f = dict(fields(event))
    if first:
        assert f[3] == b"brain.Event:2" and struct.unpack("<d", f[1])[0] > 1e9
        first = False
        continue
    value = dict(fields(dict(fields(f[5]))[1]))
    print(f[2], value[1].decode(), "%.6g" % struct.unpack("<f", value[2])[0])
END

# ---- safetensors -----------------------------------------------------------------------------------------------------

net=(--data synth --model mlp:24,20 --global-batch 250 --leaf 8 --steps 3 --canonical tree --shards 8)
run 60 "${net[@]}" --np 2 --export "$out/x"
hash=$(field hash)
python3 "$out/read_safetensors" "$out/x" >"$out/log" 2>"$out/err"
claim "the values of the file have the hash of the training" eval '[ "$(head -n 1 "$out/log")" = "$hash mlp:24,20 3" ]'
shapes="layers.0.dense.weight:784x24 layers.0.dense.bias:24 layers.1.dense.weight:24x20 layers.1.dense.bias:20"
shapes+=" layers.2.dense.weight:20x10 layers.2.dense.bias:10"
claim "its tensors have their names and shapes" eval '[ "$(tail -n 1 "$out/log")" = "$shapes" ]'
for layout in '--mesh data=2,tensor=2,pipeline=2 --np 8' '--zero 3 --np 3'; do
	run 60 "${net[@]}" --export "$out/y" $layout
	claim "$layout: the same file" cmp "$out/x" "$out/y"
done
cat "${top_srcdir:-.}"/docs/design/*.md >"$out/text"
run 60 --data "text:$out/text" --model gpt:1x16 --global-batch 8 --steps 1 --export "$out/y"
hash=$(field hash)
python3 "$out/read_safetensors" "$out/y" >"$out/log" 2>"$out/err"
claim "a transformer's file has its hash" eval '[ "$(head -n 1 "$out/log")" = "$hash gpt:1x16 1" ]'
wrong 'would be replaced by one' --export /dev/null
wrong 'give a file that can be written' --np 2 --export "$out/none/x"

# With --keep, the exports of the last checkpoints and of the best one stay
mkdir "$out/kept"
run 60 "${net[@]}" --np 2 --steps 8 --save "$out/kept/ck" --save-every 2 --keep 2 --export "$out/kept/x"
hash=$(field hash)
claim "--keep 2 keeps two exports and the best beside their checkpoints" \
	eval '[ "$(cd "$out/kept" && echo *)" = "ck ck-6 ck-8 ck-best ck-best.json x x-6 x-8 x-best" ]'
python3 "$out/read_safetensors" "$out/kept/x-8" >"$out/log" 2>"$out/err"
claim "... of which the last one has the hash of the training" eval '[ "$(head -n 1 "$out/log")" = "$hash mlp:24,20 8" ]'
run 60 "${net[@]}" --evaluate --resume "$out/kept/ck-6"
hash=$(field hash)
python3 "$out/read_safetensors" "$out/kept/x-6" >"$out/log" 2>"$out/err"
claim "... and the one before that of its checkpoint" eval '[ "$(head -n 1 "$out/log")" = "$hash mlp:24,20 6" ]'
run 60 "${net[@]}" --np 4 --mesh data=2,pipeline=2 --steps 8 --save "$out/kept/ck" --save-every 2 --export "$out/y"
claim "... from a mesh, too" cmp "$out/y" "$out/kept/x-8"

# The names of 120 tensors make the export greater than the checkpoint, so the disk may have space for the checkpoint only
kept() {   # SIZE: of a file at most, as of ulimit -f; with this rate each checkpoint is the best
	(ulimit -f "$1"; limit 60 "$prog" --data "text:${top_srcdir:-.}/README.md" --context 8 --model rnn:40x1 --global-batch 20 \
		--leaf 4 --lr 0.005 --canonical tree --np 2 --steps 8 --save "$out/full/ck" --save-every 2 --keep 2 --export "$out/full/x" \
		>"$out/log" 2>"$out/err" </dev/null)
	status=$?
}
mkdir "$out/full"
echo precious >"$out/full/x"
kept 8
claim "an export that cannot be written is an error at the end: status 1" \
	ended 1 'rank 0: --export .*x: cannot be written: File too large; the previous file is intact$'
claim "... --keep keeps the checkpoints without it" eval '[ "$(cd "$out/full" && echo *)" = "ck ck-6 ck-8 ck-best ck-best.json x" ]'
claim "... and the file that was there stays" [ "$(cat "$out/full/x")" = precious ]
rm -r "$out/full"
mkdir -p "$out/full/x-best"
kept unlimited
claim "an export that cannot be kept is an error at the end: status 1" ended 1 'rank 0: --keep: .*x-best cannot be another name of .*x: Is a directory$'
claim "... the others and the best checkpoint are kept" \
	eval 'grep -q "\"step\":8," "$out/full/ck-best.json" && [ "$(cd "$out/full" && echo *)" = "ck ck-6 ck-8 ck-best ck-best.json x x-6 x-8 x-best" ]'

# ---- TensorBoard -----------------------------------------------------------------------------------------------------

run 60 "${net[@]}" --np 2 --tensorboard "$out/events" --metrics "$out/csv" --eval-every 2
python3 "$out/read_events" "$out/events" >"$out/log" 2>"$out/err"
awk -F, 'NR > 1 { printf "%d train/loss %.6g\n", $1, $3; if ($5 != "") printf "%d test/accuracy %.6g\n", $1, $5 }' "$out/csv" >"$out/want"
claim "every record has its checksums, every loss and accuracy is that of --metrics" \
	eval 'grep -E "train/loss|test/accuracy" "$out/log" | diff - "$out/want" >>"$out/err"'
claim "... and each step has a rate" eval '[ "$(grep -c "train/rate 0.05$" "$out/log")" = 3 ]'
run 60 "${net[@]}" --np 2 --tensorboard "$out/csv"
claim "a directory that is a file: status 2" ended 2 'give a directory'

# ---- the programs themselves -----------------------------------------------------------------------------------------

if [ "${TT_TIER:-default}" = default ]; then
	n=$((n + 1)); echo "ok $n - the packages safetensors and tensorboard # SKIP tier full"
elif ! "${PYTHON:-python3}" -c 'import safetensors.numpy, tensorboard' 2>/dev/null; then
	n=$((n + 1)); echo "ok $n - the packages safetensors and tensorboard # SKIP not installed; tests/clients/environment installs them"
else
	"${PYTHON:-python3}" - "$out/x" "$out/events" >"$out/log" 2>"$out/err" <<'END'
import sys
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
t = load_file(sys.argv[1])
events = EventAccumulator(sys.argv[2])
events.Reload()
print(t["layers.0.dense.weight"].shape, len(t), [e.step for e in events.Scalars("train/loss")])
END
	claim "the packages safetensors and tensorboard read both" grep -qF '(784, 24) 6 [1, 2, 3]' "$out/log"
fi

echo "1..$n"
exit $failed
