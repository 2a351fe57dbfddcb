#!/bin/bash
# hosts.sh - ranks of several hosts find each other; a host is a network namespace with its own name and /etc/hosts
#
# Open MPI's mpirun starts ranks on 2 and 4 hosts through an rsh agent that enters a namespace; other ranks get torchrun's or
# Kubernetes' variables from this script. Cases: decoy interfaces, IPv6 only, a host name that resolves to 127.0.1.1, a firewall,
# a rank that never starts, a rank of another job. Only the time-out is set for the ranks. TAP on standard output.
set -u
top=$(cd "${top_srcdir:-.}" && pwd)
perf=$PWD/perf/allreduce_perf
tmp=$(mktemp -d)
hosts=() shown='out*'
of_all=0f1e2d3c4b5a69788796a5b4c3d2e1f0 of_another=1f1e2d3c4b5a69788796a5b4c3d2e1f0
undo() { kill "${hosts[@]}" 2>/dev/null; rm -rf "$tmp"; }
trap undo EXIT
. "$(dirname "$0")/tap.sh"

[ "$(id -u)" = 0 ] || skip_all "network namespaces need root"
command -v ip >/dev/null || skip_all "no ip command (package iproute2)"
unshare --net --uts --mount true 2>/dev/null || skip_all "this kernel or container does not allow namespaces"

# A namespace lives as long as its process, which the kernel kills when this script is killed, so no namespace remains.
with_script=''
setpriv --pdeathsig KILL true 2>/dev/null && with_script='setpriv --pdeathsig KILL'
inside() { nsenter --net="/proc/${hosts[$1]}/ns/net" --uts="/proc/${hosts[$1]}/ns/uts" --mount="/proc/${hosts[$1]}/ns/mnt" "${@:2}"; }

# Host k of 0..4: h$k; host 0 is the switch. 10.88.0.k and fd88::k on eth0.
for k in 0 1 2 3 4; do
	$with_script unshare --net --uts --mount sh -c "hostname h$k; touch '$tmp/ready$k'; exec sleep 600" &
	hosts[k]=$!
done
for _ in {1..300}; do [ -e "$tmp/ready0" ] && [ -e "$tmp/ready1" ] && [ -e "$tmp/ready2" ] && [ -e "$tmp/ready3" ] &&
	[ -e "$tmp/ready4" ] && break; sleep .1; done
inside 0 ip link add br0 type bridge 2>/dev/null && inside 0 ip link set br0 up || skip_all "no bridge here"
for k in 1 2 3 4; do
	ip link add eth0 netns "${hosts[$k]}" type veth peer name "port$k" netns "${hosts[0]}" || skip_all "no veth here"
	inside 0 ip link set "port$k" master br0 up
	inside "$k" ip link set lo up
	inside "$k" ip addr add "10.88.0.$k/24" dev eth0
	inside "$k" ip addr add "fd88::$k/64" dev eth0 nodad
	inside "$k" ip link set eth0 up
	cat >"$tmp/hosts$k" <<-END
		127.0.0.1 localhost
		127.0.1.1 h$k
	END
	for other in 1 2 3 4; do [ $other = $k ] || echo "10.88.0.$other h$other" >>"$tmp/hosts$k"; done
	inside "$k" mount --bind "$tmp/hosts$k" /etc/hosts
done

# ranks NRANKS RANKS-PER-HOST ARGUMENTS: starts ranks with torchrun's variables, MASTER_ADDR from $master and further variables
# from $env; rank $absent is not started. The output goes to $tmp/out.RANK. Status: 1 if any rank failed.
ranks() {
	local size=$1 each=$2 r status=0 pids=()
	shift 2
	rm -f "$tmp"/out*
	for ((r = 0; r < size; r++)); do
		[ "$r" != "${absent:-none}" ] || continue
		inside $((r / each + 1)) env ${env:-} RANK=$r WORLD_SIZE=$size LOCAL_RANK=$((r % each)) LOCAL_WORLD_SIZE=$each \
			GROUP_RANK=$((r / each)) MASTER_ADDR="$master" MASTER_PORT=29600 TUTTI_LOG=debug \
			timeout 60 "$perf" "$@" >"$tmp/out.$r" 2>&1 </dev/null &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || status=1; done
	return $status
}
said() { grep -qE "$2" "$tmp/out.$1"; }
few=(-b 64K -e 64K -n 2 -w 1 -c 1)
right() { grep -q 'Out of bounds values : 0 OK' "$tmp"/out*; }

# ---- mpirun ----------------------------------------------------------------------------------------------------------
mpirun=$(command -v mpirun.openmpi)
cat >"$tmp/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done        # ssh's options
host=\${1#h}; shift
set -- \$(echo "${hosts[@]}" | cut -d' ' -f\$((host + 1))) "\$*"
exec nsenter --net=/proc/\$1/ns/net --uts=/proc/\$1/ns/uts --mount=/proc/\$1/ns/mnt sh -c "\$2"
END
chmod +x "$tmp/agent"
# mpi NRANKS HOSTS ARGUMENTS
mpi() {
	rm -f "$tmp"/out*
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TUTTI_LOG=debug \
		inside 1 timeout 60 "$mpirun" --mca plm_rsh_agent "$tmp/agent" --mca oob_tcp_if_include eth0 \
		--mca btl ^openib -x TUTTI_LOG --host "$2" -np "$1" "$perf" "${@:3}" >"$tmp/out" 2>&1 </dev/null
}
mixed() { grep -qE 'Bytes sent by shm *: [1-9]' "$tmp/out" && grep -qE 'Bytes sent by tcp *: [1-9]' "$tmp/out"; }
two="mpirun, two hosts with two ranks each" four="mpirun, four hosts with two ranks each"
decoys="the same with decoys: docker0 with one address everywhere, and a subnet that is common but reaches nobody"
if [ -n "$mpirun" ]; then
	mpi 4 h1:2,h2:2 -b 64K -e 4M -f 64 -n 2 -w 1 -c 1 && right && mixed && grep -q 'launch pmix, rank 3 of 4' "$tmp/out"
	claim $? "$two: right, shm inside, tcp between"
	grep -qE ' hierarchical' "$tmp/out"
	claim $? "$two: auto takes hierarchical where it is faster"
	mpi 8 h1:2,h2:2,h3:2,h4:2 "${few[@]}" && right && mixed
	claim $? "$four"
else
	for what in "$two" "auto takes hierarchical" "$four"; do skip "$what" "no mpirun of Open MPI (package openmpi-bin)"; done
fi
hydra=$(command -v mpiexec.hydra) what="Hydra, two hosts with two ranks each"
if [ -n "$hydra" ]; then
	rm -f "$tmp"/out*
	TUTTI_LOG=debug inside 1 timeout 60 "$hydra" -launcher ssh -launcher-exec "$tmp/agent" -iface eth0 \
		-hosts h1,h2 -ppn 2 -n 4 "$perf" "${few[@]}" >"$tmp/out" 2>&1 </dev/null && right && mixed &&
		grep -q 'launch pmi, rank 3 of 4' "$tmp/out"
	claim $? "$what"
else
	skip "$what" "no mpiexec.hydra (package mpich)"
fi
for k in 1 2 3 4; do
	for bridge in docker0:172.17.0.1/16 "apart:10.1.0.$k/24"; do
		inside $k ip link add "${bridge%%:*}" type bridge
		inside $k ip addr add "${bridge#*:}" dev "${bridge%%:*}"
		inside $k ip link set "${bridge%%:*}" up
	done
done
if [ -n "$mpirun" ]; then
	mpi 4 h1:2,h2:2 "${few[@]}" && right && mixed
	claim $? "$decoys"
else
	skip "$decoys" "no mpirun"
fi

# ---- torchrun's variables ------------------------------------------------------------------------------------------------
master=h1 env="TUTTI_SECRET=$of_all"
ranks 4 2 "${few[@]}" && right && said 2 'launch torchrun, rank 2 of 4, local 0 of 2, root 10.88.0.1:29601 via eth0'
claim $? "torchrun over two hosts, each of which resolves its own name to 127.0.1.1"
inside 2 hostname h1
master=10.88.0.1
ranks 4 2 "${few[@]}" && right && grep -qE 'Bytes sent by tcp *: [1-9]' "$tmp/out.0"
claim $? "two hosts, or containers, with the same name"
inside 2 hostname h2
master=h1 env="TUTTI_SECRET=$of_all TUTTI_SOCKET_IFNAME==eth0"
ranks 4 2 "${few[@]}" && right
claim $? "TUTTI_SOCKET_IFNAME selects the interface"
env="TUTTI_SECRET=$of_all TUTTI_SOCKET_IFNAME=apart"
! ranks 4 2 "${few[@]}" -T 3 && said 0 'rank 2|rank 3|rank 0' &&
	grep -qE 'tried .*10\.1\.0\.[12]:[0-9]+ \((No route to host|no answer)\)' "$tmp"/out.*
claim $? "TUTTI_SOCKET_IFNAME with an interface that reaches no host: the error has the address and the reason"
env=''
! ranks 2 1 "${few[@]}" && said 1 'on several hosts and carries no secret.*TUTTI_SECRET'
claim $? "without a secret, ranks on several hosts are refused with an error"
master=h2 env="TUTTI_SECRET=$of_all TUTTI_TIMEOUT_MS=1500"
! ranks 4 2 "${few[@]}" -T 2 && said 2 'h2, the host of rank 0, is 127.0.1.1 here.*rank 0 is on another'
claim $? "a loopback address is never used for a rank of another host"
master=h1 env="TUTTI_SECRET=$of_all"
absent=3 ranks 4 2 "${few[@]}" -T 2
said 0 'rank 3 did not join' && said 1 'rank 3 did not join' && said 2 'rank 3 did not join'
claim $? "every other rank names a rank that never starts"

# A rank with another secret connects to the port while the job waits for its last rank.
inside 3 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 MASTER_ADDR=h1 \
	MASTER_PORT=29600 TORCHELASTIC_RESTART_COUNT=1 TUTTI_SECRET=$of_another timeout 30 "$perf" "${few[@]}" -T 5 >"$tmp/stranger" 2>&1 </dev/null & strangers=($!)
inside 4 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 MASTER_ADDR=h1 \
	MASTER_PORT=29600 TORCHELASTIC_RESTART_COUNT=0 TUTTI_SECRET=$of_all timeout 30 "$perf" "${few[@]}" >"$tmp/stale" 2>&1 </dev/null & strangers+=($!)
env="TUTTI_SECRET=$of_all TORCHELASTIC_RESTART_COUNT=1"
rm -f "$tmp"/out*
inside 1 env $env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=0 MASTER_ADDR=h1 MASTER_PORT=29600 \
	timeout 60 "$perf" "${few[@]}" >"$tmp/out.0" 2>&1 </dev/null & first=$!
wait "${strangers[@]}"                   # both have been refused
inside 2 env $env RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 MASTER_ADDR=h1 MASTER_PORT=29600 \
	timeout 30 "$perf" "${few[@]}" >"$tmp/out.1" 2>&1 </dev/null && wait $first && right
claim $? "a rank of another job and one of an earlier attempt do not disturb the job"
grep -q 'a different secret' "$tmp/stranger"; claim $? "the rank of another job is refused and gets the reason"
grep -q "later attempt of this job" "$tmp/stale" && grep -q 'rank 1 of attempt 0 was refused: this is attempt 1' "$tmp/out.0"
claim $? "rank 0 names the refused rank of an earlier attempt"

# ---- Kubernetes' variables: pods job-0 to job-3 of the service svc ---------------------------------------------------------
for k in 1 2 3 4; do
	inside $k hostname "job-$((k - 1))"
	for other in 1 2 3 4; do
		echo "10.88.0.$other job-$((other - 1)).svc.default.svc.cluster.local job-$((other - 1))" >>"$tmp/hosts$k"
	done
done
rm -f "$tmp"/out*
pids=()
for k in 1 2 3 4; do
	inside $k env JOB_COMPLETION_INDEX=$((k - 1)) TUTTI_NRANKS=4 TUTTI_SECRET=$of_all TUTTI_LOG=debug \
		timeout 60 "$perf" "${few[@]}" >"$tmp/out.$((k - 1))" 2>&1 </dev/null & pids+=($!)
done
wait "${pids[@]}" && right && said 3 'launch kubernetes, rank 3 of 4, root 10.88.0.1:29500 via eth0'
claim $? "the pods of an indexed Job find rank 0 by its name"
for k in 1 2 3 4; do inside $k hostname h$k; done

# ---- firewall -----------------------------------------------------------------------------------------------------------
if command -v nft >/dev/null && inside 1 nft list ruleset >/dev/null 2>&1; then
	for k in 1 2; do
		inside $k nft 'add table inet f; add chain inet f in { type filter hook input priority 0; }
			add rule inet f in iif "lo" accept
			add rule inet f in ct state established accept
			add rule inet f in tcp dport != 50000-50019 drop' 2>/dev/null ||
		inside $k nft 'add table inet f; add chain inet f in { type filter hook input priority 0; }
			add rule inet f in iif "lo" accept
			add rule inet f in tcp flags & (syn|ack) == syn tcp dport != 50000-50019 drop'
	done
	env="TUTTI_SECRET=$of_all TUTTI_PORT_RANGE=50000-50019"
	ranks 4 2 "${few[@]}" && right; claim $? "a firewall that allows TUTTI_PORT_RANGE"
	env="TUTTI_SECRET=$of_all TUTTI_PORT_RANGE=51000-51001"
	! ranks 2 1 "${few[@]}" -T 3 && said 1 'rank 1 \(on h2\).*10.88.0.1:51000 \(no answer\)' && said 0 'rank 1 did not join'
	claim $? "a firewall that blocks TUTTI_PORT_RANGE: both ranks report it, with the addresses tried"
	for k in 1 2; do inside $k nft flush ruleset; done
else
	skip "a firewall that allows TUTTI_PORT_RANGE" "no nftables"
	skip "a firewall that blocks TUTTI_PORT_RANGE" "no nftables"
fi

# ---- IPv6 only ------------------------------------------------------------------------------------------------------------
for k in 1 2; do inside $k ip -4 addr flush dev eth0; inside $k ip link del docker0; inside $k ip link del apart; done
master=fd88::1 env="TUTTI_SECRET=$of_all"
ranks 4 2 "${few[@]}" && right && said 3 'root \[fd88::1\]:29601 via eth0'; claim $? "hosts with IPv6 only"
done_testing
