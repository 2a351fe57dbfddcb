#!/bin/sh
# check_plan.sh - plans printed by `tutti plan` give the result of their collective, by an independent checker (check_plan.py)
#
# All algorithms with 1 to 9 ranks, as written and as executed, up to three roots, on one host and on hosts of different sizes.
# Called by make check in the build folder.
plan=${TUTTI_PLAN:-perf/tutti plan}
n=0
point() {   # STATUS DESCRIPTION: one TAP point; $tmp/log has the reason of a failure
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$tmp/log"; fi
}
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
if ! command -v python3 >/dev/null; then
	echo "no python3"
	exit 77
fi

# Prints the plans of one algorithm for many calls.
print_all() {   # COLLECTIVE ALGORITHM FORMAT
	for np in 1 2 3 4 5 6 7 8 9; do
		case $1 in
		reduce | broadcast | gather | scatter) roots="0 $((np - 1)) $((np / 2))" ;;
		*) roots=0 ;;
		esac
		hosts=1
		[ "$np" -lt 3 ] || hosts="1 2 1,$((np - 2)),1"
		for root in $(printf '%s\n' $roots | sort -u); do
			for h in $hosts; do
				$plan "$2" --collective "$1" --np "$np" --root "$root" --hosts "$h" --print "$3"
				$plan "$2" --collective "$1" --np "$np" --root "$root" --hosts "$h" --print "$3" --plain
			done
		done
	done
}

$plan --list >"$tmp/list" 2>"$tmp/log"
point $? "tutti plan --list exits with 0"
[ "$(wc -l <"$tmp/list")" -ge 20 ]
point $? "tutti plan --list has the algorithms of all collectives"
while read -r collective algorithm help; do
	print_all "$collective" "$algorithm" json 2>"$tmp/errors" | python3 "$top_srcdir/tests/scripts/check_plan.py" >"$tmp/log" 2>&1
	[ $? -eq 0 ] && [ ! -s "$tmp/errors" ]
	status=$?
	summary=$(tail -n 1 "$tmp/log")
	cat "$tmp/errors" >>"$tmp/log"
	point $status "$collective by $algorithm: $summary"
done <"$tmp/list"

# The checker must find errors.
$plan ring --np 4 --print json | sed '0,/"wire": 0/s//"wire": 2/; 0,/"from": \[0\]/s//"from": [2]/' >"$tmp/wrong"
! python3 "$top_srcdir/tests/scripts/check_plan.py" "$tmp/wrong" >"$tmp/log" 2>&1
point $? "a redirected receive is found"
$plan ring --np 4 --plain --print json |
	sed '0,/{"buf": "in", "block": 1}/s//{"buf": "in", "block": 2}/' >"$tmp/wrong"
! python3 "$top_srcdir/tests/scripts/check_plan.py" "$tmp/wrong" >"$tmp/log" 2>&1
point $? "a wrong block is found"

# GOAL: labels are defined before their use, and each send has a receive.
: >"$tmp/log"
while read -r collective algorithm help; do
	$plan "$algorithm" --collective "$collective" --np 6 --hosts 3,2,1 --print goal 2>>"$tmp/log" | awk -v name="$algorithm" '
		$1 == "rank" { rank = $2; split("", defined) }
		$1 ~ /:$/ { defined[substr($1, 1, length($1) - 1)] }
		$2 == "send" { wire[rank " " $5 " " $7 " " $3]++; sends++ }
		$2 == "recv" { wire[$5 " " rank " " $7 " " $3]-- }
		$2 ~ /requires$/ && !($1 in defined && $3 in defined) { print name ", rank " rank ": " $0 }
		END { for (w in wire) if (wire[w]) print name ", unmatched: " w; if (!sends) print name " sends nothing" }' >>"$tmp/log"
done <"$tmp/list"
[ ! -s "$tmp/log" ]
point $? "GOAL of all algorithms is well formed"

# Wrong uses: exit status 2, one line on stderr, nothing on stdout.
while read -r arguments; do
	$plan $arguments >"$tmp/out" 2>"$tmp/log"
	[ $? -eq 2 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] && [ ! -s "$tmp/out" ]
	point $? "refused: tutti plan $arguments"
done <<END

ring
ring --np 0
ring --np 1025
ring --np 4x
ring --np 99999999999999999999
ring --np 1..4
ring tree --np 4
rung --np 4
ring:tree --np 4
ring --np 4 --collective alltoall
ring --np 4 --collective all
ring --np 4 --print xml
ring --np 4 --rank 4
ring --np 4 --rank -1
ring --np 4 --root 4
ring --np 4 --root 1
ring --np 4 --hosts 0
ring --np 4 --hosts 5
ring --np 4 --hosts 2,3
ring --np 4 --hosts 2,,2
ring --np 4 --plain --fused
ring --np 4 --frobnicate
ring --np
--verify
--verify --np 4..1
--verify --np 1..2000
--verify --np 1,,2
--verify --np 4 --rank 0
--verify rung --np 4
--verify ring --np 4 --collective alltoall
END
echo "1..$n"
