#!/bin/bash
# mpi4py.sh - mpi4py's own tests of what libtutti-mpi takes, over Debian's Open MPI, without Tutti and with it
#
# TUTTI_TEST_MPI is the folder that tests/clients/environment made, with mpi4py and its sources. Left out: persistent collectives,
# which Open MPI 4.1 lacks. Called by make check in the build folder. TAP.
set -u
library=$PWD/.libs/libtutti-mpi-ompi.so
[ -e "$library" ] || { echo "no $library, since shared libraries were not made"; exit 77; }
command -v mpirun.openmpi >/dev/null || { echo "no mpirun.openmpi"; exit 77; }
suite=${TUTTI_TEST_MPI:-}/mpi4py/test/main.py
[ -e "$suite" ] || { echo "TUTTI_TEST_MPI names no folder of tests/clients/environment"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0
claim() { n=$((n + 1)); if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; grep -aE '^(ERROR|FAIL)|libtutti|Signal' "$tmp/out" | tail -n 30 | sed 's/^/# /'; fi; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1

# run RANKS VARIABLE...: the number of tests that each rank ran and skipped, when all ended well
run() {
	local ranks=$1
	shift
	timeout -k 5 ${TT_TEST_SECONDS:-280} mpirun.openmpi -np "$ranks" env "$@" TUTTI_MPI_STATS=1 "$TUTTI_TEST_MPI/bin/python" "$suite" -q \
		-i cco -i test_comm -i test_op -i p2p -i request -i attributes -i errhandler -i threads -e cco_pr \
		>"$tmp/out" 2>&1 </dev/null &&
		[ "$(grep -ac '^OK' "$tmp/out")" = "$ranks" ] && grep -aE '^OK' "$tmp/out" | sort -u && grep -aoE '^Ran [0-9]+ tests' "$tmp/out" | sort -u
}
alone=$(run 2 LD_PRELOAD=)
claim $? "the suite passes on 2 ranks of Open MPI alone: $(echo $alone)"
over=$(run 2 LD_PRELOAD="$library") && [ "$over" = "$alone" ]
claim $? "over Tutti, as many tests run and none fails: $(echo $over)"
[ "$(awk '/^libtutti-mpi: rank 0: MPI_/ && $5 > 0' "$tmp/out" | wc -l)" -ge 28 ]
claim $? "Tutti took calls of the fourteen collectives, and of their forms that only start"
echo "1..$n"
