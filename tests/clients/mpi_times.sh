#!/bin/bash
# mpi_times.sh [-n RANKS] [-r ROUNDS] [-m NAME] - times of MPI's collectives and of ExaML, with Tutti's divided by the MPI's own
#
# Runs in the build folder, as mpi.sh does: each MPI library that is there, without and with the preloaded library in turn,
# ROUNDS times (5). A time is the least of the rounds; a ratio below 1: Tutti is faster. NAME, a pattern of the shell, chooses
# libraries, or ExaML. Called by users, and its results are in docs/results/clients.md.
set -u
ranks=2 rounds=5 chosen='*'
while getopts m:n:r: option; do
	case $option in m) chosen=$OPTARG ;; n) ranks=$OPTARG ;; r) rounds=$OPTARG ;; *) sed -n '2,6s/^# //p' "$0"; exit 2 ;; esac
done
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
tests=$(cd "$(dirname "$0")" && pwd)
top_srcdir=${top_srcdir:-$tests/../..}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# A rank a core, where there are as many: Open MPI and Intel MPI bind ranks by themselves
bind="-bind-to core"
[ "$ranks" -le "$(nproc)" ] || bind="" PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export PRTE_MCA_rmaps_default_mapping_policy

# The lines CALL BYTES US of the files $1 (MPI's own) and $2 (Tutti's), several rounds each, as a table with ratios of the
# least times, and their geometric mean
table() {
	awk -v name="$3" '
		NF != 3 { next }
		{ key = $1 " " $2; if (!(key in seen)) { seen[key] = 1; order[++n] = key } }
		FILENAME == ARGV[1] { if (!(key in own) || $3 < own[key]) own[key] = $3; next }
		{ if (!(key in tutti) || $3 < tutti[key]) tutti[key] = $3 }
		END {
			for (i = 1; i <= n; i++) {
				split(order[i], w, " "); o = own[order[i]]; t = tutti[order[i]]
				printf "%-24s %-22s %8d %10.2f %10.2f %6.2f\n", name, w[1], w[2], o, t, t / o
				sum += log(t / o)
			}
			if (n) printf "%-24s %-22s %8s %10s %10s %6.2f\n", name, "geometric mean", "", "", "", exp(sum / n)
		}' "$1" "$2"
}

# each NAME DEFINE SHARED-LIBRARY INTERPOSER LAUNCHER [PREFIX]: as in mpi.sh
each() {
	local name=$1 define=$2 mpi=$3 library=$PWD/.libs/libtutti-mpi-$4.so launcher=$5 prefix=${6-} round
	[[ $name == $chosen ]] || return
	command -v "${launcher%% *}" >/dev/null || { echo "$name: no ${launcher%% *}"; return; }
	${CC:-cc} -std=gnu17 -O2 -D_GNU_SOURCE -D"$define" -I"$top_srcdir" -I"$tests" "$tests"/mpi_program*.c -o "$tmp/program" \
		${prefix:+-L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -Wl,-rpath-link,"$prefix/lib/mpich:$prefix/lib"} -lpthread -l:"$mpi" || return
	: >"$tmp/own" >"$tmp/tutti"
	for round in $(seq "$rounds"); do
		$launcher "$ranks" "$tmp/program" times 1000 </dev/null 2>"$tmp/log" | grep -v right >>"$tmp/own"
		$launcher "$ranks" env LD_PRELOAD="$library" "$tmp/program" times 1000 </dev/null 2>"$tmp/log" | grep -v right >>"$tmp/tutti"
	done
	table "$tmp/own" "$tmp/tutti" "$name"
}

# The median of a column of seconds
median() { cut -d' ' -f"$1" seconds | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

# ExaML, 1.36 million calls, over shared memory and over tcp only
examl() {
	local program=/usr/lib/examl/bin/examl-sse3 library=$PWD/.libs/libtutti-mpi-ompi.so btl transport round own began
	[[ ExaML == $chosen ]] || return
	[ -x $program ] || { echo "ExaML: no $program"; return; }
	python3 "$tests/alignment.py" 64 200 "$tmp" && cd "$tmp" && parse-examl -s x.phy -m DNA -n x >log || return
	for transport in shm tcp; do
		[ $transport = shm ] && btl=self,vader || btl=self,tcp
		: >ratios
		for round in $(seq "$rounds"); do
			began=$(date +%s%N)
			mpirun.openmpi --mca btl $btl -np "$ranks" $program -s x.binary -t start.tree -m GAMMA -n "$transport.own.$round" >log 2>&1 </dev/null || return
			own=$(($(date +%s%N) - began)) began=$(date +%s%N)
			mpirun.openmpi --mca btl $btl -np "$ranks" env LD_PRELOAD="$library" TUTTI_TRANSPORT=$transport \
				$program -s x.binary -t start.tree -m GAMMA -n "$transport.tutti.$round" >log 2>&1 </dev/null || return
			echo "$own $(($(date +%s%N) - began))" >>ratios
		done
		awk '{ printf "%.2f %.2f %.2f\n", $1 / 1e9, $2 / 1e9, $2 / $1 }' ratios >seconds
		echo "ExaML, $transport: $(median 1) s, with Tutti $(median 2) s (medians); median of the ratios of the rounds $(median 3)"
	done
}

echo "$(date -I), $ranks ranks, $rounds rounds, load $(cut -d' ' -f1 /proc/loadavg)"
printf '%-24s %-22s %8s %10s %10s %6s\n' library call bytes own/us Tutti/us ratio
each "Open MPI" TUTTI_MPI_OMPI libmpi.so.40 ompi "mpirun.openmpi -np"
each MPICH TUTTI_MPI_MPICH libmpich.so.12 mpich "mpiexec.hydra $bind -n"
if [ -d "${TUTTI_TEST_MPI:+$TUTTI_TEST_MPI/mpich}" ]; then
	each "MPICH of PyPI" TUTTI_MPI_MPICH libmpi.so.12 mpich "$TUTTI_TEST_MPI/mpich/bin/mpiexec $bind -n" "$TUTTI_TEST_MPI/mpich"
	each "Open MPI of PyPI" TUTTI_MPI_OMPI libmpi.so.40 ompi "$TUTTI_TEST_MPI/openmpi/bin/mpirun -np" "$TUTTI_TEST_MPI/openmpi"
	each "Intel MPI" TUTTI_MPI_MPICH libmpi.so.12 mpich "$TUTTI_TEST_MPI/impi-rt/bin/mpiexec.hydra -n" "$TUTTI_TEST_MPI/impi-rt"
fi
examl
