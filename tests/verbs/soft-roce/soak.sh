#!/bin/bash
# soak.sh - long tests of the verbs transport under packet loss and under deaths; run inside the machine, in the build folder:
#   TT_VM_SECONDS=3600 tests/verbs/soft-roce/machine 'bash ../tests/verbs/soft-roce/soak.sh loss [SEED]'
#   TT_VM_SECONDS=3600 tests/verbs/soft-roce/machine 'bash ../tests/verbs/soft-roce/soak.sh deaths [SCENES] [SEED]'
#
# loss: 1,001 allreduces, 91 sizes for each loss rate of 0.0, 0.1 ... 1.0 % between the two NICs: the results are right, or the
# error says that the retries ran out. deaths: in each of 50 scenes a rank is killed, a link goes down, or a NIC is removed at a
# random moment: all other ranks get an error that is no time-out, and no resource remains. TAP; the last comment has the counts.
set -u
tmp=$(mktemp -d)
here=$(dirname "$(readlink -f "$0")")
. "$here/ranks.sh"
n=0 bad=0
claim() {
	n=$((n + 1))
	[ "$1" = 0 ] && { echo "ok $n - $2"; return; }
	bad=$((bad + 1))
	echo "not ok $n - $2"
	grep -v '^# ' "$tmp/out" | tail -n 8 | sed 's/^/# /'
}
since() { cut -d. -f1 /proc/uptime; }

loss() {
	local tenth low step right=0 gave_up=0 calls=0
	RANDOM=${1:-1}
	for tenth in 0 1 2 3 4 5 6 7 8 9 10; do
		low=$((4 + RANDOM % 64 * 4)) step=$((4 * (50 + RANDOM % 160)))
		for end in va vb; do tc qdisc replace dev $end root netem loss $((tenth / 10)).$((tenth % 10))% limit 10000; done
		across 2 --transport verbs -b $low -e $((low + 90 * step)) -i $step -n 1 -w 0 -c 1 --place out
		if [ $failures = 0 ]; then
			right=$((right + 1))
			calls=$((calls + $(grep -cE '^ +[0-9]+ +[0-9]+ +float' "$tmp/out")))
		elif [ $failures = 2 ] && grep -q 'retry counter exceeded' "$tmp/out" && ! grep -q 'timed out after' "$tmp/out"; then
			gave_up=$((gave_up + 1)) failures=0
		fi
		claim $failures "loss 0.$tenth of 1 %, 91 sizes from $low to $((low + 90 * step)) bytes, by second $(since)"
	done
	echo "# $calls sizes were right, with a checked and a timed call per size; $gave_up of 11 runs ended because retries ran out"
}

# Number of resources that remain after a scene: queue pairs, registrations, processes, names in shared memory.
leftovers() { echo $(($(resources qp) + $(resources mr) + $(running) + $(ls /dev/shm | wc -l))); }
settle() { for _ in $(seq 100); do [ "$(leftovers)" = 0 ] && return; sleep .1; done; }

deaths() {
	local i np what victim kill=0 downs=0 removal=0 named=0
	RANDOM=${2:-1}
	for ((i = 1; i <= ${1:-50}; i++)); do
		np=$((2 + RANDOM % 2)) victim=$((RANDOM % np))
		what=$((RANDOM % 10))
		start $np --transport verbs -b 4K -e 64K -f 4 -n 100000 -w 1
		await
		sleep .$((RANDOM % 10))
		case $what in
		[0-6]) what="rank $victim of $np killed" kill=$((kill + 1)); kill_rank $victim ;;
		7|8) what="link down, $np ranks" downs=$((downs + 1)); ip link set vb down ;;
		9) what="NIC removed, rank $victim of $np killed" removal=$((removal + 1))
			timeout 110 rdma link delete rxeb & removing=$!
			sleep .2; kill_rank $victim ;;
		esac
		finish
		all_ended $np && case $what in
		link*) grep -qE 'rxe[ab] port 1 is down' "$tmp/out" ;;
		*) [ "$(grep -c "^rank [^$victim]: .*rank $victim" "$tmp/out")" -ge $((np - 1)) ] ;;
		esac
		claim $? "scene $i, $what, by second $(since)"
		case $what in
		link*) ip link set vb up ;;
		NIC*) wait $removing || claim 1 "the NIC is removed"
			rdma link add rxeb type rxe netdev vb ;;
		esac
		settle
		[ "$(leftovers)" = 0 ] && continue
		n=$((n + 1)) bad=$((bad + 1))
		echo "not ok $n - scene $i leaves no resources: $(resources qp) queue pairs, $(resources mr) registrations," \
			"$(running) processes, $(ls /dev/shm | wc -l) names in /dev/shm"
	done
	echo "# $kill ranks killed, $downs links down, $removal NICs removed"
}

case "${1:-}" in
loss|deaths) "$@" ;;
*) sed -n '3,4p' "$0" >&2; exit 2 ;;
esac
echo "1..$n"
[ $bad = 0 ]
