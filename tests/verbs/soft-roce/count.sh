#!/bin/bash
# count.sh - instructions and packets of one 8-byte call in the machine: verbs, tcp, and ib_write_lat
#   cd build && ../tests/verbs/soft-roce/count.sh [CALLS] ["WHAT ..."]        a boot of the machine for each, and one; minutes
#
# The machine emulates its processors, so what a call costs is how many instructions it takes; and unlike times, these do not
# change with what else the host does. QEMU counts them (count.c). A system call's figures are those of 10, 50 and 90 of 100:
# write() is what rings a card's doorbell here, and does all that the card, the wire and the peer's card do, up to the
# acknowledgement; the mark is the second time that a packet is handed to a wire, which is when that acknowledgement leaves,
# right after the payload has reached the peer's memory.
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
	*) crew "$2" -b 8 -e 8 -n "$calls" -w 0 >/dev/null ;;
	esac
	echo "# packets of one end: $(($(sent) - before)) in $calls"
	exit
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc -O2 -shared -fPIC -o "$tmp/count.so" "$here/count.c" || exit 1
export TT_VM_KERNEL="nokaslr"        # symbols lie alike in every boot
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
