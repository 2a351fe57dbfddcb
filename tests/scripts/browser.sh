#!/bin/bash
# browser.sh - the HTML that the tools write, in headless Chromium: no script error, nothing missing, plots are there
# Called by `./setup check full` in the build folder; skipped where there is no chromium.
export LC_ALL=C
command -v chromium >/dev/null || { echo "no chromium (package chromium)"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
. "$(cd "$(dirname "$0")" && pwd)/tap.sh"

pictures="onload = () => { for (const i of document.images) if (!i.naturalWidth) console.error('Error: no picture ' + i.src); }"
# dom PAGE [STATEMENT]: the page after its scripts and the statement have run, in $tmp/dom; fails if the console has an error or
# a picture is missing
dom() {
	local copy=${1%.html}.copy.html
	sed "s|</body>|<script>${2-}</script><script>$pictures</script></body>|" "$1" >"$copy" && [ -s "$copy" ] || return 1
	timeout -k 5 120 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" --enable-logging=stderr --v=0 \
		--virtual-time-budget=5000 --dump-dom "file://$copy" >"$tmp/dom" 2>"$tmp/console" || { cat "$tmp/console"; return 1; }
	! grep -E 'CONSOLE.*Error' "$tmp/console" && [ -s "$tmp/dom" ]
}

perf/tutti plan ring --np 8 --print html >"$tmp/plan.html"
at_first() { dom "$tmp/plan.html" && has 'step 0 of 15' "$tmp/dom" && has '<svg' "$tmp/dom"; }
point "the page of a plan begins before its first step" at_first
at_last() {
	dom "$tmp/plan.html" "for (let i = 0; i < 20; i++) document.getElementById('next').click()" && has 'step 15 of 15' "$tmp/dom" &&
		[ "$(grep -oE '<td[^>]*data-block="[^"]*"[^>]*>all<' "$tmp/dom" | wc -l)" = 64 ]
}
point "after its last step each block of each rank has the inputs of all ranks" at_last
by_key() {
	dom "$tmp/plan.html" "for (const key of ['ArrowRight', 'ArrowRight', 'ArrowLeft']) document.onkeydown({ key })" &&
		has 'step 1 of 15' "$tmp/dom"
}
point "the keys right and left step" by_key

perf/allreduce_perf --np 2 --algo all -b 8 -e 64K -f 32 -n 3 --report "$tmp/report.html" >/dev/null
report() { dom "$tmp/report.html" && [ "$(grep -o '<svg' "$tmp/dom" | wc -l)" = 2 ] && has '<polyline|<path' "$tmp/dom"; }
point "the report of a benchmark has two plots with lines" report

if [ -x trainer/tutti-train ]; then
	trainer/tutti-train --data synth --model mlp:24,20 --leaf 8 --canonical tree --np 4 --mesh data=2,pipeline=2 --micro 4 --steps 8 \
		--eval-every 2 --report "$tmp/training.html" >/dev/null
	training() {
		dom "$tmp/training.html" "for (const s of document.querySelectorAll('svg')) if (s.clientHeight < 50) console.error('Error: not drawn')" &&
			[ "$(grep -o '<svg' "$tmp/dom" | wc -l)" = 6 ] && [ "$(grep -o '<polyline' "$tmp/dom" | wc -l)" -ge 4 ] && has 'No straggler' "$tmp/dom"
	}
	point "the report of a training has three plots with lines, times, the mesh and the schedule" training
else
	skip "the report of a training" "no zlib"
fi

if command -v cmark-gfm >/dev/null && command -v mandoc >/dev/null; then
	PYTHONDONTWRITEBYTECODE=1 python3 "$top_srcdir/docs/make_html.py" "$tmp/html" >/dev/null
	documents() {
		for page in "$tmp"/html/{index,hacking,news}.html "$tmp"/html/*a-call*.html; do
			dom "$page" || { echo "$page"; return 1; }
		done
	}
	point "pages of the documents miss no file" documents
else
	skip "pages of the documents miss no file" "no cmark-gfm or mandoc"
fi

defects() {
	! dom "$tmp/plan.html" "nothing.at.all()" && has 'nothing is not defined' "$tmp/console" || return 1
	! dom "$tmp/plan.html" "document.body.append(Object.assign(new Image(), { src: 'none.png' }))" && has 'no picture .*none.png' "$tmp/console"
}
point "a planted script error and a missing picture are seen" defects
done_testing
