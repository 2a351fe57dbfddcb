#!/bin/bash
# compare.sh - what the verbs transport makes of a Soft-RoCE card, beside perftest and tcp; run inside the machine, in the build
# folder: tests/soft-roce/machine 'bash ../tests/soft-roce/compare.sh [ROUNDS]'. Two cards on one wire, a rank at each end.
#
# In every round each of the four is measured once, so that what else the host does meets all; the ratios are of one round.
set -u
rounds=${1:-3} port=23000
perf=perf/allreduce_perf
crew() {  # TRANSPORT ARGUMENTS...: rank 0's table
	local r pids=()
	port=$((port + 1))
	for r in 0 1; do
		TUTTI_HOST_ID=$r TUTTI_IB_HCA=$([ $r = 0 ] && echo =rxea || echo =rxeb) \
			TUTTI_SOCKET_IFNAME=$([ $r = 0 ] && echo =va || echo =vb) TUTTI_RANK=$r TUTTI_NRANKS=2 \
			TUTTI_ROOT=10.8.0.1:$port TUTTI_SECRET=compare timeout 100 $perf --transport "$1" --place out "${@:2}" \
			>/tmp/rank$r 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || { tail -n 3 /tmp/rank[01] >&2; exit 1; }; done
	awk '$1 ~ /^[0-9]+$/ { print $1, $6, $14 }' /tmp/rank0          # bytes, mean, median
}
gid() { rdma_gid=$(grep -l "$2" /sys/class/infiniband/"$1"/ports/1/gids/* | head -n 1); echo "${rdma_gid##*/}"; }
tool() {  # TOOL ARGUMENTS...: the client's output
	"$1" -d rxeb -x "$gid_b" -p $port "${@:2}" >/tmp/server 2>&1 &
	sleep 1
	"$1" -d rxea -x "$gid_a" -p $port "${@:2}" 127.0.0.1 2>/dev/null
	wait $!
	port=$((port + 1))
}
gid_a=$(gid rxea 0a08:0001) gid_b=$(gid rxeb 0a08:0002)
for ((i = 1; i <= rounds; i++)); do
	tool ib_write_lat -s 8 -n 1000 | awk -v i="$i" '$1 == 8 { print i, "ib_write_lat", 8, $5, $6 }'
	crew verbs -b 8 -e 512 -f 8 -n 300 -w 30 | sed "s/^/$i verbs /"
	crew tcp -b 8 -e 512 -f 8 -n 300 -w 30 | sed "s/^/$i tcp /"
	tool ib_write_bw -b -s 4194304 -n 20 | awk -v i="$i" '$1 == 4194304 { print i, "ib_write_bw -b, MiB/s", $1, $4 }'
	crew verbs -b 4M -e 4M -n 10 -w 2 | sed "s/^/$i verbs /"
	crew tcp -b 4M -e 4M -n 10 -w 2 | sed "s/^/$i tcp /"
done
