#!/bin/bash
# mpi_apps.sh - programs of MPI that people have, unchanged: ExaML (C), LAMMPS (C++) and Quantum ESPRESSO (Fortran)
#
# Runs Debian's programs on Debian's Open MPI without and with libtutti-mpi-ompi.so and compares their results. Each that is
# not installed is skipped. Called by make check in the build folder. TAP.
set -u
library=$PWD/.libs/libtutti-mpi-ompi.so
[ -e "$library" ] || { echo "no $library, since shared libraries were not made"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
shown=log
. "$(dirname "$0")/../scripts/tap.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1
cd "$tmp" || exit 99

# plain RANKS COMMAND... and tutti RANKS TRANSPORT COMMAND...: run a program in its own folder, with its output in log
plain() { timeout -k 5 280 mpirun.openmpi -np "$@" >"$tmp/log" 2>&1 </dev/null; }
tutti() {
	local ranks=$1 transport=$2
	shift 2
	plain "$ranks" env LD_PRELOAD="$library" TUTTI_TRANSPORT="$transport" TUTTI_MPI_STATS=1 "$@"
}
# mostly_taken PERCENT: so many of the collectives that rank 0 made were taken
mostly_taken() {
	awk -v percent="$1" '/^libtutti-mpi: rank 0: MPI_/ { taken += $5; passed += $7 }
		END { printf "# %d calls taken, %d passed on\n", taken, passed; exit !(taken > 0 && 100 * taken >= percent * (taken + passed)) }' "$tmp/log"
}
# lines FILE WORDS...: the lines of a result that contain one of the words
lines() { grep -E "$(IFS='|'; shift; echo "$*")" "$1"; }

if ! command -v mpirun.openmpi >/dev/null; then
	echo "no mpirun.openmpi"
	exit 77
fi

# ---- ExaML ---------------------------------------------------------------------------------------------------------

examl=/usr/lib/examl/bin/examl-sse3
likelihood() { awk '/^Likelihood of best tree/ { print $NF }' "ExaML_info.$1"; }
close_to() { awk -v a="$(likelihood "$1")" -v b="$(likelihood "$2")" 'BEGIN { d = a - b; exit !(a < 0 && d <= 1e-6 && d >= -1e-6) }'; }
if [ ! -x $examl ]; then
	skip ExaML "no $examl (package examl)"
else
	python3 "$top_srcdir/tests/clients/alignment.py" 14 800 . && parse-examl -s x.phy -m DNA -n x >log 2>&1
	claim $? "ExaML: an alignment of 14 taxa"
	arguments="-s x.binary -t start.tree -m GAMMA"
	plain 2 $examl $arguments -n plain2
	claim $? "ExaML: 2 ranks of Open MPI alone"
	for transport in shm tcp; do
		tutti 2 $transport $examl $arguments -n $transport
		claim $? "ExaML: 2 ranks with the preloaded library ($transport)"
		mostly_taken 99
		claim $? "ExaML: Tutti takes its collectives ($transport)"
		cmp ExaML_result.plain2 ExaML_result.$transport >>log 2>&1 && close_to plain2 $transport
		claim $? "ExaML: the tree and its likelihood $(likelihood $transport) are Open MPI's ($transport)"
	done
	plain 4 $examl $arguments -n plain4 && tutti 4 auto $examl $arguments -n tutti4 && close_to plain4 tutti4
	claim $? "ExaML: 4 ranks find a tree whose likelihood is within 1e-6 of Open MPI's: $(likelihood plain4), $(likelihood tutti4)"
fi

# ---- LAMMPS --------------------------------------------------------------------------------------------------------

if ! command -v lmp >/dev/null; then
	skip LAMMPS "no lmp (package lammps)"
else
	# a crystal of 4000 atoms in reduced units melts: potential of Lennard and Jones, cut off at 2.5, constant energy
	cat >in.lj <<-'END'
		units lj
		atom_style atomic
		lattice fcc 0.8442
		region box block 0 10 0 10 0 10
		create_box 1 box
		create_atoms 1 box
		mass 1 1.0
		velocity all create 3.0 87287 loop geom
		pair_style lj/cut 2.5
		pair_coeff 1 1 1.0 1.0 2.5
		neighbor 0.3 bin
		neigh_modify delay 0 every 20 check no
		fix 1 all nve
		thermo 10
		run 100
	END
	thermo() { awk '/^Loop time/ { on = 0 } on; /^ *Step/ { on = 1 }' "$1"; }
	plain 2 lmp -in in.lj -log plain.lmp
	claim $? "LAMMPS: 2 ranks of Open MPI alone"
	for transport in shm tcp; do
		tutti 2 $transport lmp -in in.lj -log $transport.lmp && mostly_taken 99
		claim $? "LAMMPS: Tutti takes its collectives ($transport)"
		thermo plain.lmp >plain.thermo
		[ "$(wc -l <plain.thermo)" = 11 ] && thermo $transport.lmp | cmp - plain.thermo >>log 2>&1
		claim $? "LAMMPS: temperature, energies and pressure of 2 ranks are Open MPI's ($transport)"
	done
fi

# ---- Quantum ESPRESSO ----------------------------------------------------------------------------------------------

pseudo=/usr/share/espresso/pseudo
if ! command -v pw.x >/dev/null || [ ! -e $pseudo/Si.pz-vbc.UPF ]; then
	skip "Quantum ESPRESSO" "no pw.x and $pseudo/Si.pz-vbc.UPF (packages quantum-espresso, quantum-espresso-data)"
else
	# the ground state of silicon
	cat >si.in <<-END
		&control
		 calculation = 'scf', prefix = 'si', pseudo_dir = '$pseudo', outdir = './si', tprnfor = .true., tstress = .true.
		/
		&system
		 ibrav = 2, celldm(1) = 10.2, nat = 2, ntyp = 1, ecutwfc = 16.0
		/
		&electrons
		 conv_thr = 1.0d-9
		/
		ATOMIC_SPECIES
		 Si 28.086 Si.pz-vbc.UPF
		ATOMIC_POSITIONS alat
		 Si 0.00 0.00 0.00
		 Si 0.25 0.25 0.27
		K_POINTS automatic
		 2 2 2 1 1 1
	END
	words=("total energy" "highest occupied" "force =" "P=" "contribution")
	plain 2 pw.x -in si.in && cp log plain.qe && lines plain.qe "${words[@]}" >plain.state
	claim $? "Quantum ESPRESSO: 2 ranks of Open MPI alone"
	for transport in shm tcp; do
		tutti 2 $transport pw.x -in si.in && mostly_taken 90 # the rest is on communicators of one rank
		claim $? "Quantum ESPRESSO: Tutti takes its collectives ($transport)"
		grep -q '^! *total energy' plain.state && lines log "${words[@]}" | cmp - plain.state >>log 2>&1
		claim $? "Quantum ESPRESSO: energies, forces and pressure of 2 ranks are Open MPI's ($transport)"
	done
fi
done_testing
