#!/bin/bash
# train_shaped.sh - training over a slow link: time to an accuracy, synchronous SGD (mirrored) and local SGD (average)
#
#   perf/train_shaped.sh [--svg FILE]         as root, after the build, in the source or build folder; FILE: plot of the accuracy
#   perf/train_shaped.sh --overlap            instead: share of communication hidden by overlap with computation
#   RATE=100mbit H=16 REACH=0.80 STEPS=480
#
# Two ranks in two network namespaces, joined by a veth pair whose directions are shaped by `tc tbf`. Times cover the steps
# only. Both strategies measure the accuracy every 32 steps, at steps that average anyway; this time is excluded.
set -u
built=.; [ -x trainer/tutti-train ] || built=build
train=${TRAIN:-$built/trainer/tutti-train}
rate=${RATE:-100mbit} h=${H:-16} reach=${REACH:-0.80} steps=${STEPS:-480}
svg= overlap=
[ "${1-}" = --svg ] && svg=$2
[ "${1-}" = --overlap ] && overlap=1 rate=${RATE:-800mbit} steps=${STEPS:-50}
. "$(dirname "$0")/two_hosts.sh"
out=$(mktemp -d)
trap 'kill $a $b 2>/dev/null; rm -rf "$out"' EXIT
die() { echo "train_shaped.sh: $1" >&2; exit 1; }

[ -x "$train" ] || die "no $train; build, or set TRAIN"
two_hosts 10.79.0 && shape "$rate" || die "$lacks"

run() {   # NAME ARGUMENT...: writes lines SECONDS ACCURACY to $out/NAME
	local name=$1 r host
	shift
	for r in 1 0; do
		host=$a; [ $r = 1 ] && host=$b
		TUTTI_RANK=$r TUTTI_NRANKS=2 TUTTI_ROOT=10.79.0.1:29779 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 inside "$host" timeout 600 \
			"$train" --steps "$steps" --eval-every 32 --jsonl "$out/$name.$r" "$@" >"$out/log.$r" 2>&1 &
	done
	wait $! || { cat "$out"/log.*; die "$name failed"; }
	awk -F'[:,}]' '{ for (i = 1; i < NF; i++) { if ($i ~ /"step_ms"/) t += $(i + 1); if ($i ~ /"accuracy"/) print t / 1000, $(i + 1) } }' \
		"$out/$name.0" >"$out/$name"
}
seconds() { awk -v least="$reach" '$2 >= least { print $1; exit }' "$out/$1"; }
total() { tail -n 1 "$out/$1"; }

# Gradients of 1.3 MB; computation of 30 ms per step, two thirds of it backward pass. Communication in buckets during the
# backward pass, and in one call after the backward pass.
field() { sed -n "s/.*\"$1\":\([0-9.]*\),.*/\1/p" "$out/log.0" | tail -n 1; }
exposed() {   # CANONICAL BUCKET_KB: writes "ms per step, ms per step in which rank 0 only waits" to $out/exposed
	run "$1" --model mlp:256,256,256 --canonical "$1" --bucket-kb "$2" --sim-compute-ms 30 --eval-every 100000
	awk -v s="$(field exposed_comm_share)" -v t="$(field step_ms)" 'BEGIN { printf "%.1f %.1f\n", t, s * t }' >"$out/exposed"
}
if [ -n "$overlap" ]; then
	echo "| 2 ranks, $rate between them | ms a step | exposed ms | in buckets of 128 KiB | exposed ms | hidden |"
	echo "| --- | ---: | ---: | ---: | ---: | ---: |"
	for how in off tree; do
		exposed $how 100000
		after=$(cat "$out/exposed")
		exposed $how 128
		echo "$how $after $(cat "$out/exposed")" |
			awk '{ printf "| %s | %s | %s | %s | %s | %.0f %% |\n", $1, $2, $3, $4, $5, 100 * (1 - $5 / $3) }'
	done
	exit
fi

run mirrored --strategy mirrored
run average --strategy average --H "$h"
echo "| 2 ranks, $rate between them | s to $reach | s, accuracy after $steps steps |"
echo "| --- | ---: | ---: |"
echo "| mirrored | $(seconds mirrored) | $(total mirrored) |"
echo "| average, H = $h | $(seconds average) | $(total average) |"
[ -z "$svg" ] || awk -v h="$h" -v rate="$rate" '
	FNR == 1 { f++ }
	{ x[f, ++n[f]] = $1; y[f, n[f]] = $2; if ($1 > most) most = $1 }
	END {
		print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" font-family=\"sans-serif\" font-size=\"13\">"
		print "<rect width=\"640\" height=\"360\" fill=\"white\"/><path d=\"M60 20V310H620\" fill=\"none\" stroke=\"black\"/>"
		for (v = 4; v <= 9; v++) printf "<text x=\"28\" y=\"%d\">0.%d</text><path d=\"M60 %d H620\" stroke=\"#ddd\"/>\n", 314 - (v - 4) * 56, v, 310 - (v - 4) * 56
		for (i = 1; i <= 2; i++) {
			printf "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"", i == 1 ? "#c33" : "#36c"
			for (k = 1; k <= n[i]; k++) printf "%.1f,%.1f ", 60 + 555 * x[i, k] / most, 310 - (y[i, k] - 0.4) * 560
			print "\"/>"
		}
		print "<text x=\"400\" y=\"250\" fill=\"#c33\">mirrored</text><text x=\"400\" y=\"270\" fill=\"#36c\">average, H = " h "</text>"
		printf "<text x=\"330\" y=\"345\">seconds</text><text x=\"590\" y=\"328\">%.0f</text><text x=\"58\" y=\"328\">0</text>\n", most
		print "<text x=\"70\" y=\"16\">test accuracy of Fashion-MNIST over a link of " rate "</text></svg>"
	}' "$out/mirrored" "$out/average" >"$svg"
