#!/bin/bash
# compare.sh - compares the verbs transport on Soft-RoCE with perftest, tcp and Open MPI over UCX
#   cd build && ../tests/verbs/soft-roce/compare.sh [ROUNDS]         12 short rounds: 3 minutes on a quiet host, 10 at most
#
# Two NICs on one link, with a rank at each end (pair.sh). Outside of the machine the script starts the machine; inside, it
# measures. TT_MPI=1 in the environment adds Open MPI (mpi_turn.c), which did not start on Soft-RoCE (docs/results/soft-roce.md).
#
# Every round measures each tool once and briefly, so that other load of the host affects all tools. A tool's figure is the
# median of its calls; a ratio compares figures of one round. The last lines have each ratio's median over the rounds, the
# quartiles, and the ratio of the quietest figures (each tool's minimum over all rounds): load of the host only adds time.
set -u
here=$(dirname "$(readlink -f "$0")")
rounds=${1:-12}
if [ ! -e /tmp/machine/command ]; then
	rm -f mpi_turn
	[ -z "${TT_MPI:-}" ] || mpicc -O2 -o mpi_turn "$here/mpi_turn.c" || exit 1
	exec env TT_VM_SECONDS="${TT_VM_SECONDS:-600}" "$here/machine" "bash '$here/compare.sh' $rounds"
fi

big=4194304
. "$here/pair.sh"
alone() { timeout 60 /tmp/allreduce_perf --np 1 --place out -c 0 -b 8 -e 8 -n 1000 -w 100 2>/dev/null | awk '$1 == 8 { print 8, $6, $14 }'; }
mpi() {  # BYTES CALLS ...: a table like that of ranks
	[ -x mpi_turn ] || return
	timeout 90 mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 --mca pml ucx --mca btl self --mca osc ^ucx \
		-x UCX_TLS=rc_verbs,ud_verbs:aux,self -x UCX_IB_GID_INDEX=1 \
		bash -c 'UCX_NET_DEVICES=rxe$([ $OMPI_COMM_WORLD_RANK = 0 ] && echo a || echo b):1 exec ./mpi_turn "$@"' mpi_turn "$@" \
		2>/tmp/mpi.errors
	[ $? = 0 ] || sed 's/^/# Open MPI: /' /tmp/mpi.errors | head -n 12 >&2
}
for ((i = 1; i <= rounds; i++)); do
	echo round
	tool ib_write_lat -s 8 -n 400 | awk '$1 == 8 { print "lat", 8, $6, $5 }'
	alone | sed 's/^/call /'
	ranks verbs -b 8 -e 512 -f 8 -n 200 -w 30 | sed 's/^/verbs /'
	ranks tcp -b 8 -e 512 -f 8 -n 200 -w 30 | sed 's/^/tcp /'
	mpi 8 300 64 300 512 300 | sed 's/^/mpi /'
	[ $((i % 2)) = 1 ] || continue
	tool ib_write_bw -b -s $big -n 8 | awk '$1 == '$big' { print "bw", $1, 8e6 / $4, 8e6 / $4 }'
	ranks verbs -R 1 -b 4M -e 4M -n 5 -w 1 | sed 's/^/verbs /'
	ranks tcp -b 4M -e 4M -n 5 -w 1 | sed 's/^/tcp /'
	mpi $big 5 | sed 's/^/mpi /'
done 2>&1 | sed -u '/^#/!s/^/- /' | tee /tmp/table | grep --line-buffered '^#'
# columns: 2 name, 3 bytes, 4 mean or perftest's average, 5 median or typical, in us; bw: time of 4 MiB in both directions
awk -v big=$big '
function sort(list, n,   i, j, t) {
	for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
}
function least(what, bytes,   i, low) { for (i = 1; i <= r; i++) if (half[i, what, bytes] && (!low || half[i, what, bytes] < low)) low = half[i, what, bytes]; return low }
# (over - minus) / under, of each round, sorted; and of the minima over all rounds
function line(text, over, minus, under, bytes, wanted,   i, n, list, m) {
	for (i = 1; i <= r; i++)
		if (half[i, over, bytes] && half[i, under, bytes] && (minus == "" || half[i, minus, bytes]))
			list[++n] = (half[i, over, bytes] - (minus == "" ? 0 : half[i, minus, bytes])) / half[i, under, bytes]
	if (!n)
		return
	sort(list, n)
	m = (least(over, bytes) - (minus == "" ? 0 : least(minus, bytes))) / least(under, bytes)
	printf "%-56s %6.2f   quartiles %5.2f %5.2f   quietest %5.2f   %d rounds   wanted %s\n",
		text, list[int((n + 1) / 2)], list[int((n + 3) / 4)], list[int((3 * n + 2) / 4)], m, n, wanted
}
function figure(text, what, bytes,   i, n, list) {
	for (i = 1; i <= r; i++) if (half[i, what, bytes]) list[++n] = half[i, what, bytes]
	if (!n)
		return
	sort(list, n)
	printf "%-56s %9.1f us   quartiles %9.1f %9.1f   quietest %9.1f\n", text, list[int((n + 1) / 2)], list[int((n + 3) / 4)], list[int((3 * n + 2) / 4)], list[1]
}
/^#/ { next }
$2 == "round" { r++; next }
{ half[r, $2, $3] = $5; printf "round %d %-6s %8d B  mean %12.2f  median %12.2f\n", r, $2, $3, $4, $5 }
END {
	figure("8 B: ib_write_lat, one way", "lat", 8)
	figure("8 B: the tool\047s call cost (a call of one rank)", "call", 8)
	for (b = 8; b <= 512; b *= 8) { figure(b " B: verbs", "verbs", b); figure(b " B: tcp", "tcp", b) }
	figure("4 MiB: ib_write_bw -b, 4 MiB each way", "bw", big); figure("4 MiB: verbs", "verbs", big); figure("4 MiB: tcp", "tcp", big)
	line("4 MiB: 2S over time, of ib_write_bw -b", "bw", "", "verbs", big, ">= 0.70")
	line("8 B: a call less the tool\047s call cost, of ib_write_lat", "verbs", "call", "lat", 8, "<= 1.50")
	for (b = 8; b <= 512; b *= 8) line(b " B: tcp over verbs", "tcp", "", "verbs", b, ">= 2.00")
	line("4 MiB: tcp over verbs", "tcp", "", "verbs", big, "-")
	line("8 B: Open MPI over UCX verbs, over verbs", "mpi", "", "verbs", 8, "-")
	line("4 MiB: Open MPI over UCX verbs, over verbs", "mpi", "", "verbs", big, "-")
}' /tmp/table
