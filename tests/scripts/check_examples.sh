#!/bin/sh
# check_examples.sh - each program of examples/ is made and run by three ranks, and prints its lines
# Called by make check in the build folder.
[ -e .libs/libtutti.so.0 ] || { echo "no shared library in this build"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0
export TUTTI_NRANKS=3 TUTTI_SECRET=check-examples LD_LIBRARY_PATH="$PWD/.libs" TUTTI_LIBRARY="$PWD/.libs/libtutti.so.0"
export PYTHONPATH="$top_srcdir/bindings/python" PYTHONDONTWRITEBYTECODE=1

# example NAME LINES COMMAND...: the lines of all ranks, sorted
example() {
	name=$1 want=$2
	shift 2
	for port in 29617 30618 31619; do   # one port is free
		export TUTTI_ROOT=127.0.0.1:$port
		for rank in 1 2; do
			TUTTI_RANK=$rank timeout 30 "$@" >"$tmp/out.$rank" 2>&1 &
		done
		TUTTI_RANK=0 timeout 30 "$@" >"$tmp/out.0" 2>&1
		wait
		grep -q 'is taken' "$tmp/out.0" || break
	done
	n=$((n + 1)) got=$(sort "$tmp"/out.?)
	if [ "$got" = "$(printf "$want")" ]; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		echo "$got" | sed 's/^/# /'
	fi
}
program() {
	${CC:-cc} "$top_srcdir/examples/$1.c" -I"$top_srcdir/lib" -L.libs -ltutti -o "$tmp/$1"
	example "$1.c" "$2" "$tmp/$1"
}
here="3 ranks are here"
program allreduce "$here\n$here\n$here"
program groups "rank 0 has a message of rank 2\nrank 1 has a message of rank 0\nrank 2 has a message of rank 1"
program even_odd "rank 0: the ranks of this half add to 2\nrank 1: the ranks of this half add to 1\nrank 2: the ranks of this half add to 2"
program stream "$here\n$here\n$here"
in="3 of 3 ranks are in the sum"
program quorum "$in\n$in\n$in"
if python3 -c 'import numpy' 2>/dev/null; then
	example numpy_allreduce.py "sum 6.0\nsum 6.0\nsum 6.0" python3 "$top_srcdir/examples/numpy_allreduce.py"
else
	n=$((n + 1))
	echo "ok $n - numpy_allreduce.py # SKIP python3 has no numpy"
fi
echo 1..$n
