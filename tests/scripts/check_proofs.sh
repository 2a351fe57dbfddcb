#!/bin/sh
# check_proofs.sh - every algorithm of the table is proved for 1 to 64 ranks, in the number of plans that the README states
# Called by make check in the build folder.
perf/tutti plan --verify --np 1..64 >check_proofs.out 2>&1
status=$?
last=$(tail -n 1 check_proofs.out)
case $status,$last in
"0,"[1-9]*" passed, 0 failed") echo "ok 1 - plans for 1 to 64 ranks: $last" ;;
*)
	echo "not ok 1 - plans for 1 to 64 ranks: exit status $status, $last"
	grep -v ' 0 failed' check_proofs.out | head -n 40 | sed 's/^/# /' ;;
esac
rm -f check_proofs.out
stated=$(sed -n 's/^| `tutti plan --verify --np 1..64` | \([0-9]*\) proofs, .*/\1/p' "$top_srcdir/README.md")
[ "$stated" = "${last%% *}" ] && ok=ok || ok="not ok"
echo "$ok 2 - the README states the number of proofs, $stated: ${last%% *}"
echo 1..2
