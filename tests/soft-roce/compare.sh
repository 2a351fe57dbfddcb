#!/bin/bash
# compare.sh - what the verbs transport makes of Soft-RoCE cards, beside perftest, tcp and Open MPI over UCX
#   cd build && ../tests/soft-roce/compare.sh [ROUNDS]         a minute each on a quiet host, 6 minutes at most
#
# Two cards on one wire, a rank at each end. Outside of the machine it starts the machine; inside it measures. TT_MPI=1 in the
# environment adds Open MPI (mpi_turn.c), which did not start on Soft-RoCE (perf/results/soft-roce.md). In every round each tool
# is measured once, so that what else the host does meets all; ratios are of one round, and the last lines are their medians
# beside what is wanted.
set -u
here=$(dirname "$(readlink -f "$0")")
rounds=${1:-3}
if [ ! -e /tmp/machine/command ]; then
	rm -f mpi_turn
	[ -z "${TT_MPI:-}" ] || mpicc -O2 -o mpi_turn "$here/mpi_turn.c" || exit 1
	exec env TT_VM_SECONDS="${TT_VM_SECONDS:-360}" "$here/machine" "bash '$here/compare.sh' $rounds"
fi

port=23000
cp perf/allreduce_perf /tmp/
crew() {  # TRANSPORT ARGUMENTS...: rank 0's table: bytes, mean, median
	local r pids=()
	port=$((port + 1))
	for r in 0 1; do
		TUTTI_HOST_ID=$r TUTTI_IB_HCA=$([ $r = 0 ] && echo =rxea || echo =rxeb) \
			TUTTI_SOCKET_IFNAME=$([ $r = 0 ] && echo =va || echo =vb) TUTTI_RANK=$r TUTTI_NRANKS=2 \
			TUTTI_ROOT=10.8.0.1:$port TUTTI_SECRET=compare timeout 100 /tmp/allreduce_perf --transport "$1" --place out \
			-c 0 "${@:2}" >/tmp/rank$r 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || tail -n 3 /tmp/rank[01] >&2; done
	awk '$1 ~ /^[0-9]+$/ { print $1, $6, $14 }' /tmp/rank0
}
alone() { timeout 60 /tmp/allreduce_perf --np 1 --place out -c 0 -b 8 -e 8 -n 2000 -w 100 2>/dev/null | awk '$1 == 8 { print 8, $6, $14 }'; }
mpi() {  # BYTES CALLS ...: the same table
	[ -x mpi_turn ] || return
	timeout 90 mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 --mca pml ucx --mca btl self --mca osc ^ucx \
		-x UCX_TLS=rc_verbs,ud_verbs:aux,self -x UCX_IB_GID_INDEX=1 \
		bash -c 'UCX_NET_DEVICES=rxe$([ $OMPI_COMM_WORLD_RANK = 0 ] && echo a || echo b):1 exec ./mpi_turn "$@"' mpi_turn "$@" \
		2>/tmp/mpi.errors
	[ $? = 0 ] || sed 's/^/# Open MPI: /' /tmp/mpi.errors | head -n 12 >&2
}
gid() { rdma_gid=$(grep -l "$2" /sys/class/infiniband/"$1"/ports/1/gids/* | head -n 1); echo "${rdma_gid##*/}"; }
tool() {  # TOOL ARGUMENTS...: the client's output
	"$1" -d rxeb -x "$gid_b" -p $port "${@:2}" >/tmp/server 2>&1 &
	for _ in $(seq 100); do
		grep -qi ":$(printf %04X $port) .* 0A " /proc/net/tcp /proc/net/tcp6 && break
		sleep .1
	done
	"$1" -d rxea -x "$gid_a" -p $port "${@:2}" 127.0.0.1 2>/dev/null
	wait $!
	port=$((port + 1))
}
gid_a=$(gid rxea 0a08:0001) gid_b=$(gid rxeb 0a08:0002)
for ((i = 1; i <= rounds; i++)); do
	tool ib_write_lat -s 8 -n 1000 | awk '$1 == 8 { print "lat", 8, $6, $5 }'
	alone | sed 's/^/call /'
	crew verbs -b 8 -e 512 -f 8 -n 300 -w 30 | sed 's/^/verbs /'
	crew tcp -b 8 -e 512 -f 8 -n 300 -w 30 | sed 's/^/tcp /'
	mpi 8 300 64 300 512 300 | sed 's/^/mpi /'
	tool ib_write_bw -b -s 4194304 -n 20 | awk '$1 == 4194304 { print "bw", $1, $4, $4 }'
	crew verbs -R 1 -b 4M -e 4M -n 10 -w 2 | sed 's/^/verbs /'
	crew tcp -b 4M -e 4M -n 10 -w 2 | sed 's/^/tcp /'
	mpi 4194304 10 | sed 's/^/mpi /'
done 2>&1 | sed -u '/^#/!s/^/- /' | tee /tmp/table | grep --line-buffered '^#'
# what: 2 name, 3 bytes, 4 mean or perftest's average, 5 median or typical; a round begins with lat
awk '
function middle(list, n,   i, j, t) {
	for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
	return n ? list[int((n + 1) / 2)] : 0
}
function all(list, n,   i, text) { for (i = 1; i <= n; i++) text = text sprintf(" %.2f", list[i]); return text }
function line(what, list, n, wanted,   text) { text = all(list, n); if (n) printf "%-62s %6.2f  wanted %-8s rounds:%s\n", what, middle(list, n), wanted, text }
/^#/ { next }
$2 == "lat" { r++ }
{ mean[r, $2, $3] = $4; half[r, $2, $3] = $5; printf "round %d %-6s %8d B  mean %12.2f  median %12.2f\n", r, $2, $3, $4, $5 }
END {
	for (i = 1; i <= r; i++) {
		big = 4194304
		if (mean[i, "bw", big] && half[i, "verbs", big]) bw[++nbw] = 2 * 4 / (half[i, "verbs", big] / 1e6) / mean[i, "bw", big]
		if (half[i, "lat", 8] && half[i, "verbs", 8]) lat[++nlat] = (half[i, "verbs", 8] - half[i, "call", 8]) / half[i, "lat", 8]
		for (b = 8; b <= 512; b *= 8) if (half[i, "verbs", b] && half[i, "tcp", b]) {
			x = half[i, "tcp", b] / half[i, "verbs", b]
			if (b == 8) { t8[++n8] = x } else if (b == 64) { t64[++n64] = x } else t512[++n512] = x
		}
		if (half[i, "mpi", 8] && half[i, "verbs", 8]) m8[++nm8] = half[i, "mpi", 8] / half[i, "verbs", 8]
		if (half[i, "mpi", big] && half[i, "verbs", big]) mbig[++nmbig] = half[i, "mpi", big] / half[i, "verbs", big]
		if (half[i, "tcp", big] && half[i, "verbs", big]) tbig[++ntbig] = half[i, "tcp", big] / half[i, "verbs", big]
	}
	line("4 MiB: 2S over time, of ib_write_bw -b", bw, nbw, ">= 0.70")
	line("8 B: a call less the call of one rank, of ib_write_lat", lat, nlat, "<= 1.50")
	line("8 B: tcp over verbs", t8, n8, ">= 2.00")
	line("64 B: tcp over verbs", t64, n64, ">= 2.00")
	line("512 B: tcp over verbs", t512, n512, ">= 2.00")
	line("4 MiB: tcp over verbs", tbig, ntbig, "-")
	line("8 B: Open MPI over UCX verbs, over verbs", m8, nm8, "-")
	line("4 MiB: Open MPI over UCX verbs, over verbs", mbig, nmbig, "-")
}' /tmp/table
