#!/bin/bash
# train_servers.sh - when do the parameters saturate the servers' links? updates a second by workers and servers
#
#   perf/train_servers.sh [--svg FILE]         as root, after the build, in the build folder; FILE: plot of the table
#   RATE=100mbit COMPUTE=20 STEPS=16 WORKERS='1 2 4 8' SERVERS='1 2 4' MODEL=mlp:64 PUSH=4
#
# Each server is a host of its own: a network namespace whose link is shaped by `tc tbf` in both directions. The workers are
# ranks of one more host with a fast link, which compute COMPUTE ms for a share (simulated) and send ps-async's push and pull
# for each; downpour pushes and fetches every PUSH shares. Synthetic data, so accuracy does not matter.
set -u
train=${TRAIN:-./trainer/tutti-train}
rate=${RATE:-100mbit} compute=${COMPUTE:-20} steps=${STEPS:-16} model=${MODEL:-mlp:64} push=${PUSH:-4}
read -ra workers <<<"${WORKERS:-1 2 4 8}"
read -ra servers <<<"${SERVERS:-1 2 4}"
svg=
[ "${1-}" = --svg ] && svg=$2
. "$(dirname "$0")/two_hosts.sh"
out=$(mktemp -d)
hosts=()
trap 'kill $a $b "${hosts[@]}" 2>/dev/null; rm -rf "$out"' EXIT
die() { echo "train_servers.sh: $1" >&2; exit 1; }
[ -x "$train" ] || die "no $train; build, or set TRAIN"

# Host $a has the workers and the switch; server s is host ${hosts[s]}, 10.81.0.(s + 10).
two_hosts 10.82.0 || die "$lacks"
inside "$a" ip link add br0 type bridge && device "$a" br0 10.81.0.1 || die "no bridge here"
for ((s = 0; s < ${servers[-1]}; s++)); do
	$with_script unshare --net sleep infinity & hosts[s]=$!
	while outside "${hosts[s]}"; do sleep .1; done
	ip link add eth0 netns "${hosts[s]}" type veth peer name "port$s" netns "$a" &&
		inside "$a" ip link set "port$s" master br0 up && device "${hosts[s]}" eth0 "10.81.0.$((s + 10))" &&
		inside "${hosts[s]}" tc qdisc add dev eth0 root tbf rate "$rate" burst 128kb latency 200ms &&
		inside "$a" tc qdisc add dev "port$s" root tbf rate "$rate" burst 128kb latency 200ms || die "no shaped link here"
done

# run WORKERS SERVERS ARGUMENT...: prints the shares a second of the whole job
run() {
	local w=$1 s=$2 r host
	shift 2
	for ((r = w + s - 1; r >= 0; r--)); do
		host=$a
		[ "$r" -lt "$w" ] || host=${hosts[r - w]}
		TUTTI_RANK=$r TUTTI_NRANKS=$((w + s)) TUTTI_ROOT=10.81.0.1:29781 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 \
			inside "$host" timeout 100 "$train" --data synth --model "$model" --global-batch $((8 * w)) --ps "$s" \
			--steps "$steps" --sim-compute-ms "$compute" --eval-every 100000 --progress 0 "$@" \
			>"$out/log.$r" 2>&1 &
	done
	wait $! || { cat "$out"/log.*; die "$w workers and $s servers failed"; }
	tail -n 1 "$out/log.0" | sed -n 's/.*"samples_per_s":\([0-9]*\).*/\1/p' | awk '{ printf "%.1f", $1 / 8 }'
}

ways=("--strategy ps-async" "--strategy ps-async --stagger" "--strategy downpour --n-push $push --n-fetch $push"
	"--strategy downpour --n-push $push --n-fetch $push --stagger")
names=(ps-async "ps-async, staggered" downpour "downpour, staggered")
echo "| shares/s, $model, $rate a server, $compute ms a share | servers |$(printf ' %s workers |' "${workers[@]}")"
echo "| --- | ---: |$(printf ' ---: |%.0s' "${workers[@]}")"
for i in 0 1 2 3; do
	for s in "${servers[@]}"; do
		line="| ${names[i]} | $s |"
		for w in "${workers[@]}"; do line+=" $(run "$w" "$s" ${ways[i]}) |"; done
		echo "$line" | tee -a "$out/table"
	done
done
# A line for each row of the table but staggered ps-async: a color by number of servers, dashed for downpour, dotted for
# staggered downpour.
[ -z "$svg" ] || awk -F' *[|] *' -v workers="${workers[*]}" -v title="$model, $rate a server, $compute ms a share" '
	{ name[NR] = $2; s[NR] = $3; for (i = 4; i < NF; i++) { y[NR, i - 3] = $i; if ($i > most) most = $i } }
	END {
		n = split(workers, w, " "); split("#c33 #36c #292 #a4a", color, " ")
		print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" font-family=\"sans-serif\" font-size=\"13\">"
		print "<rect width=\"640\" height=\"360\" fill=\"white\"/><path d=\"M60 24V310H480\" fill=\"none\" stroke=\"black\"/>"
		for (i = 1; i <= n; i++) printf "<text x=\"%.0f\" y=\"328\">%d</text>\n", 56 + 415 * w[i] / w[n], w[i]
		for (v = 0; v <= most; v += 50) printf "<text x=\"28\" y=\"%.0f\">%d</text>\n", 314 - v / most * 280, v
		for (r = 1; r <= NR; r++) {
			if (!(s[r] in of)) { of[s[r]] = ++colors; printf "<text x=\"490\" y=\"%d\" fill=\"%s\">%d server%s</text>\n", 20 + 20 * colors, color[colors], s[r], (s[r] > 1 ? "s" : "") }
			dash = name[r] ~ /stagger/ ? "2 4" : "none"
			if (name[r] == "downpour") dash = "9 4"
			if (name[r] ~ /ps-async, /) continue
			printf "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" stroke-dasharray=\"%s\" points=\"", color[of[s[r]]], dash
			for (i = 1; i <= n; i++) printf "%.1f,%.1f ", 60 + 415 * w[i] / w[n], 310 - y[r, i] / most * 280
			print "\"/>"
		}
		print "<text x=\"490\" y=\"120\">ps-async: solid</text><text x=\"490\" y=\"140\">downpour: dashed</text>"
		print "<text x=\"490\" y=\"160\">staggered: dotted</text>"
		print "<text x=\"240\" y=\"348\">workers</text><text x=\"60\" y=\"16\">shares a second: " title "</text></svg>"
	}' "$out/table" >"$svg"
