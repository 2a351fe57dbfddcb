# adapters.sh - creates the emulated NICs (Soft-RoCE) of the machine
# rxe0 is on its own interface and reaches itself. rxea and rxeb are on the ends of a veth pair (va, vb), in one
# namespace, because this kernel's rdma_rxe does not support namespaces. By default the kernel delivers packets between two
# local addresses without using an interface. Therefore two rules before the table of local addresses send packets of 10.8.0.1
# out of va and those of 10.8.0.2 out of vb, and the receiving interface accepts packets from a local address.
ip link set lo up
ip link add eth9 type dummy && ip addr add 10.9.0.1/24 dev eth9 && ip link set eth9 mtu 4500 up
ip link add va type veth peer name vb
ip addr add 10.8.0.1/24 dev va && ip addr add 10.8.0.2/24 dev vb
ip link set va mtu 4500 up && ip link set vb mtu 4500 up
for interface in all va vb; do
	echo 1 >/proc/sys/net/ipv4/conf/$interface/accept_local
	echo 0 >/proc/sys/net/ipv4/conf/$interface/rp_filter
done
ip rule add pref 50 iif lo from 10.8.0.1 to 10.8.0.2 lookup 51 && ip route add 10.8.0.2 dev va src 10.8.0.1 table 51
ip rule add pref 52 iif lo from 10.8.0.2 to 10.8.0.1 lookup 53 && ip route add 10.8.0.1 dev vb src 10.8.0.2 table 53
ip rule add pref 60 lookup local && ip rule del pref 0
ip neigh replace 10.8.0.2 lladdr "$(cat /sys/class/net/vb/address)" dev va
ip neigh replace 10.8.0.1 lladdr "$(cat /sys/class/net/va/address)" dev vb
rdma link add rxe0 type rxe netdev eth9
rdma link add rxea type rxe netdev va
rdma link add rxeb type rxe netdev vb
