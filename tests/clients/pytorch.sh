#!/bin/sh
# pytorch.sh - PyTorch and LightGBM over Tutti; tests/clients/environment installs both, and make check skips what is missing
# Called by make check in the build folder; PYTHON names a python3.
[ -e .libs/libtutti.so.0 ] || { echo "no shared library in this build"; exit 77; }
python=${PYTHON:-$(command -v python3)} || { echo "no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$top_srcdir/bindings/python" TUTTI_LIBRARY="$PWD/.libs/libtutti.so.0" OMP_NUM_THREADS=1
tests=$top_srcdir/tests/clients n=0
# run PROGRAM PACKAGE CHECK: the program's points, or one that is skipped
run() {
	if "$python" -c "$3" 2>/dev/null; then
		"$python" -W ignore "$tests/$1" | grep -v '^1\.\.'
	else
		echo "ok - $2 # SKIP $python has no $2"
	fi
}
{
	run test_pytorch.py "PyTorch 2.15 or newer" 'import torch; assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)'
	run test_lightgbm.py LightGBM 'import lightgbm'
} | awk '/^(not )?ok / { n++; sub(/ok [0-9]* *-? */, "ok " n " - ") } { print } END { print "1.." n }'
