# two_hosts.sh - two network namespaces joined by a veth pair, as two hosts (sourced by shaped.sh, train_shaped.sh, netns.sh)
#
# A namespace lives as long as its process: process $a is the first host, process $b the second. The sourcing script kills
# both processes at its end, and the kernel kills them when the script itself is killed, so no namespace remains.
a='' b='' lacks='' with_script=''
inside() { nsenter --net="/proc/$1/ns/net" "${@:2}"; }
outside() { [ "$(readlink "/proc/$1/ns/net")" = "$(readlink /proc/$$/ns/net)" ]; }
device() { inside "$1" ip addr add "$3/24" dev "$2" && inside "$1" ip link set "$2" up && inside "$1" ip link set lo up; }

# two_hosts NET: creates host $a (NET.1 on device va) and host $b (NET.2 on device vb). Status 1: not possible here, $lacks
# has the reason
two_hosts() {
	lacks="network namespaces need root"
	[ "$(id -u)" = 0 ] || return 1
	lacks="no ip command (package iproute2)"
	command -v ip >/dev/null || return 1
	lacks="this kernel or container does not allow network namespaces"
	unshare --net true 2>/dev/null || return 1
	setpriv --pdeathsig KILL true 2>/dev/null && with_script='setpriv --pdeathsig KILL'
	$with_script unshare --net sleep infinity & a=$!
	$with_script unshare --net sleep infinity & b=$!
	while outside "$a" || outside "$b"; do sleep .1; done
	lacks="veth devices are not available"
	ip link add va netns "$a" type veth peer name vb netns "$b" && device "$a" va "$1.1" && device "$b" vb "$1.2"
}

# shape RATE: limits each direction of the link to RATE
shape() {
	lacks="the queueing discipline tbf is not available"
	inside "$a" tc qdisc add dev va root tbf rate "$1" burst 128kb latency 50ms &&
		inside "$b" tc qdisc add dev vb root tbf rate "$1" burst 128kb latency 50ms
}
