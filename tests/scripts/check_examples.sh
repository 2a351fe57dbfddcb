#!/bin/sh
# check_examples.sh - each program of examples/ is made and run by three ranks, and prints its lines
# Called by make check in the build folder; PYTHON names a python3 for the programs in Python.
[ -e .libs/libtutti.so.0 ] || { echo "no shared library in this build"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0
export TUTTI_NRANKS=3 TUTTI_SECRET=check-examples LD_LIBRARY_PATH="$PWD/.libs" TUTTI_LIBRARY="$PWD/.libs/libtutti.so.0"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
python=${PYTHON:-python3}

# example NAME LINES COMMAND...: the lines of all ranks, sorted
example() {
	name=$1 want=$2
	shift 2
	for port in 29617 30618 31619; do   # one port is free
		export TUTTI_ROOT=127.0.0.1:$port MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) WORLD_SIZE=3   # torchrun's, too
		for rank in 0 1 2; do
			TUTTI_RANK=$rank RANK=$rank timeout ${TT_TEST_SECONDS:-100} "$@" >"$tmp/out.$rank" 2>&1 &
		done
		wait
		grep -q 'is taken' "$tmp/out.0" || break
	done
	n=$((n + 1)) got=$(sort "$tmp"/out.? | grep -v "^\[LightGBM\] \[Info\]")
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

# the package as pip installs it, since torch finds its backend tutti by an entry point
cp -r "$top_srcdir/bindings/python" "$tmp/sources" && mkdir "$tmp/package" &&
	(cd "$tmp/sources" && "$python" -c 'import build_backend; build_backend.build_wheel(".")' && "$python" -m zipfile -e ./*-any.whl "$tmp/package")
# python_program NAME LINES PACKAGE CHECK
python_program() {
	if PYTHONPATH=$tmp/package "$python" -c "$4" 2>/dev/null; then
		example "$1" "$2" env PYTHONPATH="$tmp/package" "$python" -W ignore "$top_srcdir/examples/$1"
	else
		n=$((n + 1))
		echo "ok $n - $1 # SKIP $python has no $3"
	fi
}
python_program numpy_allreduce.py "sum 6.0\nsum 6.0\nsum 6.0" numpy "import numpy"
right="1.0 of the rows are right"
python_program trees.py "$right\n$right\n$right" LightGBM "import lightgbm"
weights="weights 1.00"
python_program ddp.py "$weights\n$weights\n$weights" "PyTorch 2.15 or newer" \
	'import torch; assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)'
echo 1..$n
