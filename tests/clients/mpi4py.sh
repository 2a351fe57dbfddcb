#!/bin/bash
# mpi4py.sh - mpi4py's own tests of what libtutti-mpi takes, over Debian's Open MPI and PyPI's MPICH, without Tutti and with it
#
# TUTTI_TEST_MPI is the folder that tests/clients/environment made, with mpi4py and its sources. Left out: persistent collectives of
# Open MPI 4.1, which lacks them. Over MPICH, mpi4py calls the forms with large counts; over Open MPI those with
# int counts, since it sees that there are no others. Called by make check in the build folder. TAP.
set -u
[ -e "$PWD/.libs/libtutti-mpi-ompi.so" ] || { echo "shared libraries were not made"; exit 77; }
suite=${TUTTI_TEST_MPI:-}/mpi4py/test/main.py
[ -e "$suite" ] || { echo "TUTTI_TEST_MPI names no folder of tests/clients/environment"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0
claim() { n=$((n + 1)); if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; grep -aE '^(ERROR|FAIL)|libtutti|Signal' "$tmp/out" | tail -n 30 | sed 's/^/# /'; fi; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1

# run LIBRARY: the number of tests that each of two ranks ran and skipped, when all ended well; their lines may be mixed
run() {
	timeout -k 5 ${TT_TEST_SECONDS:-280} $launcher 2 env LD_PRELOAD="$1" LD_LIBRARY_PATH="$folder" MPI4PY_MPIABI=$abi TUTTI_MPI_STATS=1 \
		"$TUTTI_TEST_MPI/bin/python" "$suite" -q -i cco -i test_comm -i test_op -i p2p -i request -i attributes -i errhandler -i threads \
		$left_out >"$tmp/out" 2>&1 </dev/null &&
		[ "$(grep -ac '^OK' "$tmp/out")" = 2 ] && grep -aoE 'Ran [0-9]+ tests|skipped=[0-9]+' "$tmp/out" | sort -u
}
# each NAME LEAST: LEAST functions of MPI are taken. $launcher, $abi, $folder of the MPI library and $left_out are set.
each() {
	local alone over
	if ! command -v "${launcher%% *}" >/dev/null; then
		n=$((n + 1))
		echo "ok $n - $1 # SKIP no ${launcher%% *}"
		return
	fi
	alone=$(run "")
	claim $? "$1: the suite passes on 2 ranks without Tutti: $(echo $alone)"
	over=$(run "$PWD/.libs/libtutti-mpi-${abi/openmpi/ompi}.so") && [ "$over" = "$alone" ]
	claim $? "$1: over Tutti, as many tests run and none fails: $(echo $over)"
	[ "$(awk '/^libtutti-mpi: rank 0: MPI_/ && $5 > 0' "$tmp/out" | wc -l)" -ge "$2" ]
	claim $? "$1: Tutti took calls of the fourteen collectives, and of their other forms"
}
launcher="mpirun.openmpi -np" abi=openmpi folder='' left_out="-e cco_pr"
each "Open MPI" 28
launcher="$TUTTI_TEST_MPI/mpich/bin/mpiexec -n" abi=mpich folder=$TUTTI_TEST_MPI/mpich/lib left_out=''
each "MPICH of PyPI" 42
echo "1..$n"
