# two_hosts.sh - two network namespaces joined by a veth pair are two hosts (sourced by shaped.sh, train_shaped.sh, netns.sh)
#
# A namespace lives as long as the process in it, so that nothing can be left behind: host $a is one, host $b another; the
# script that sources this ends both when it ends.
a='' b='' lacks=''
inside() { nsenter --net="/proc/$1/ns/net" "${@:2}"; }
outside() { [ "$(readlink "/proc/$1/ns/net")" = "$(readlink /proc/$$/ns/net)" ]; }
device() { inside "$1" ip addr add "$3/24" dev "$2" && inside "$1" ip link set "$2" up && inside "$1" ip link set lo up; }

# two_hosts NET: host $a is NET.1 on device va, host $b NET.2 on vb; else status 1, and $lacks says why
two_hosts() {
	lacks="network namespaces need root"
	[ "$(id -u)" = 0 ] || return 1
	lacks="no ip command (package iproute2)"
	command -v ip >/dev/null || return 1
	lacks="this kernel or container makes no network namespaces"
	unshare --net true 2>/dev/null || return 1
	unshare --net sleep 3600 & a=$!
	unshare --net sleep 3600 & b=$!
	while outside "$a" || outside "$b"; do sleep .1; done
	lacks="no veth here"
	ip link add va netns "$a" type veth peer name vb netns "$b" && device "$a" va "$1.1" && device "$b" vb "$1.2"
}

# shape RATE: of each direction
shape() {
	lacks="no tbf here"
	inside "$a" tc qdisc add dev va root tbf rate "$1" burst 128kb latency 50ms &&
		inside "$b" tc qdisc add dev vb root tbf rate "$1" burst 128kb latency 50ms
}
