#!/bin/bash
# count.sh - instructions and packets of one 8-byte call in the machine: verbs, tcp, and ib_write_lat
#   cd build && ../tests/verbs/soft-roce/count.sh [CALLS] ["TOOL ..."]        boots the machine once, and once per tool; minutes
#
# The machine emulates its processors, so the cost of a call is a number of instructions, which is independent of other load
# of the host, unlike times. QEMU counts the instructions (count.c). Figures of a system call are the 10th, 50th and 90th
# percentile. write() rings the doorbell, and executes all work of the NIC, the link and the peer's NIC up to the
# acknowledgement. The mark is the second transmission of a packet on a link: that acknowledgement, sent right after the payload
# has reached the peer's memory.
set -u
here=$(dirname "$(readlink -f "$0")")
calls=${1:-3000}
names=(__x64_sys_write __x64_sys_sendto __x64_sys_recvfrom syscall_exit_to_user_mode native_queued_spin_lock_slowpath
	__pv_queued_spin_lock_slowpath __dev_queue_xmit)
if [ -e /tmp/machine/command ]; then
	. "$here/pair.sh"
	before=$(sent)
	case $2 in
	ib_write_lat) tool ib_write_lat -s 8 -n "$calls" >/dev/null ;;
	*) ranks "$2" -b 8 -e 8 -n "$calls" -w 0 >/dev/null ;;
	esac
	echo "# packets of one end: $(($(sent) - before)) in $calls"
	exit
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc -O2 -shared -fPIC -o "$tmp/count.so" "$here/count.c" || exit 1
export TT_VM_KERNEL="nokaslr"        # the same addresses of symbols in every boot
"$here/machine" "grep -wE '$(IFS='|'; echo "${names[*]}")' /proc/kallsyms | cut -d' ' -f1,3" >"$tmp/symbols" || exit
for name in "${names[@]}"; do
	at+=("$(awk -v name="$name" '{ sub(/.*[^0-9a-f ]/, "", $1) } $2 == name { print $1; exit }' "$tmp/symbols")")
done
for what in ${2:-ib_write_lat verbs tcp}; do
	echo "# $what (call 0: write, 1: sendto, 2: recvfrom)"
	TT_VM_QEMU="-plugin file=$tmp/count.so,out=$tmp/out,start=${at[0]},start=${at[1]},start=${at[2]},stop=${at[3]},lo=${at[4]},hi=${at[5]},mark=${at[6]}" \
		"$here/machine" "bash '$here/count.sh' $calls $what" | grep '^#'
	awk '$3 + 0 > 200' "$tmp/out"
done
