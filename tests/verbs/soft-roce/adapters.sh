# adapters.sh - creates the emulated NICs (Soft-RoCE) of the machine
# rxe0 is on its own interface and reaches itself. rxea and rxeb are on the ends of a veth pair (va, vb), in one
# namespace, because this kernel's rdma_rxe does not support namespaces. By default the kernel delivers packets between two
# local addresses without using an interface. Therefore two rules before the table of local addresses send packets of 10.8.0.1
# out of va and those of 10.8.0.2 out of vb, and the receiving interface accepts packets from a local address.
# One ip makes them all: under emulation a start of a program takes long.
ip -batch - <<'END'
link set lo up
link add eth9 type dummy
addr add 10.9.0.1/24 dev eth9
link set eth9 mtu 4500 up
link add va address 02:00:00:00:08:01 type veth peer name vb address 02:00:00:00:08:02
addr add 10.8.0.1/24 dev va
addr add 10.8.0.2/24 dev vb
link set va mtu 4500 up
link set vb mtu 4500 up
rule add pref 50 iif lo from 10.8.0.1 to 10.8.0.2 lookup 51
route add 10.8.0.2 dev va src 10.8.0.1 table 51
rule add pref 52 iif lo from 10.8.0.2 to 10.8.0.1 lookup 53
route add 10.8.0.1 dev vb src 10.8.0.2 table 53
rule add pref 60 lookup local
rule del pref 0
neigh replace 10.8.0.2 lladdr 02:00:00:00:08:02 dev va
neigh replace 10.8.0.1 lladdr 02:00:00:00:08:01 dev vb
END
for interface in all va vb; do
	echo 1 >/proc/sys/net/ipv4/conf/$interface/accept_local
	echo 0 >/proc/sys/net/ipv4/conf/$interface/rp_filter
done
for nic in rxe0:eth9 rxea:va rxeb:vb; do echo "link add ${nic%:*} type rxe netdev ${nic#*:}"; done | rdma -b -
