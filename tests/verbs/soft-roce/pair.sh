# pair.sh - two ranks, or client and server of a perftest tool, at the two ends of a link; sourced by compare.sh and count.sh in
# the machine, in the build folder
#
# Ranks of one network namespace use loopback; therefore tcp has a second veth pair of the same kind, into another namespace.
cp perf/allreduce_perf /tmp/
ip netns add far && ip link add wa type veth peer name wb netns far || exit 1
for end in "wa 1" "-n far wb 2"; do
	read -r device number <<<"${end#-n far }"
	ip ${end%w*} addr add "10.8.1.$number/24" dev "$device" && ip ${end%w*} link set "$device" mtu 4500 up || exit 1
done

port=23000
sent() { cat /sys/class/net/[vw]a/statistics/tx_packets | awk '{ n += $1 } END { print n }'; }
ranks() {  # TRANSPORT ARGUMENTS...: prints rank 0's table: bytes, mean, median
	local r pids=() network=10.8.0 wire=v before=$(sent)
	[ "$1" = verbs ] || network=10.8.1 wire=w
	port=$((port + 1))
	for r in 0 1; do
		local end=$([ $r = 0 ] && echo a || echo b) at=()
		[ $wire$r = w1 ] && at=(ip netns exec far)
		TUTTI_HOST_ID=$r TUTTI_IB_HCA==rxe$end TUTTI_SOCKET_IFNAME=$wire$end TUTTI_RANK=$r TUTTI_NRANKS=2 \
			TUTTI_ROOT=$network.1:$port TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 timeout 100 "${at[@]}" /tmp/allreduce_perf --transport "$1" \
			--place out -c 0 "${@:2}" >/tmp/rank$r 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || tail -n 3 /tmp/rank[01] >&2; done
	[ $(($(sent) - before)) -gt 20 ] || echo "# $1 did not use the link" >&2
	awk '$1 ~ /^[0-9]+$/ { print $1, $6, $14 }' /tmp/rank0
}
gid() { rdma_gid=$(grep -l "$2" /sys/class/infiniband/"$1"/ports/1/gids/* | head -n 1); echo "${rdma_gid##*/}"; }
gid_a=$(gid rxea 0a08:0001) gid_b=$(gid rxeb 0a08:0002)
tool() {  # TOOL ARGUMENTS...: prints the client's output
	timeout 60 "$1" -d rxeb -x "$gid_b" -p $port "${@:2}" >/tmp/server 2>&1 &
	for _ in $(seq 100); do
		grep -qi ":$(printf %04X $port) .* 0A " /proc/net/tcp /proc/net/tcp6 && break
		sleep .1
	done
	timeout 60 "$1" -d rxea -x "$gid_a" -p $port "${@:2}" 127.0.0.1 2>/dev/null
	wait $!
	port=$((port + 1))
}
