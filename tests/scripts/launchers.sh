#!/bin/bash
# launchers.sh - the launchers of Debian start the tools as they are: Open MPI, MPICH, Slurm, torchrun
#
# Each launcher runs allreduce_perf and tutti-train, and reports a dead rank by a status that is not 0. The script has its own
# munged, slurmctld and slurmd, with all their files in its own folder. A launcher that is not installed is skipped. TAP.
set -u
perf=$PWD/perf/allreduce_perf train=$PWD/trainer/tutti-train with_mpi=$PWD/tests/support/with_mpi
tmp=$(mktemp -d) || exit 99
daemons=() shown=out
undo() { [ ${#daemons[@]} = 0 ] || { kill "${daemons[@]}"; wait "${daemons[@]}"; } 2>/dev/null; rm -rf "$tmp"; }
trap undo EXIT
# A watcher in its own session outlives a killed script. The watcher kills the script's processes, found by TT_LAUNCHERS or
# SLURM_CONF in their environment (srun and slurmstepd would wait for slurmctld forever), and removes the folder.
setsid sh -c 'while kill -0 "$1"; do sleep 1; done
	for _ in 1 2; do grep -lzE "^(TT_LAUNCHERS=$2|SLURM_CONF=$2/slurm.conf)\$" /proc/[0-9]*/environ | cut -d/ -f3 | xargs -r kill -9; sleep .2; done
	rm -rf "$2"' - $$ "$tmp" >/dev/null 2>&1 </dev/null &
export TT_LAUNCHERS=$tmp
. "$(dirname "$0")/tap.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 TUTTI_LOG=debug
few=(-b 4K -e 64K -f 16 -n 2 -w 1 -c 1)
short=(--data synth --model linear --global-batch 64 --steps 8)

# run COMMAND: the output goes to $tmp/out; returns the command's status
run() { timeout -k 5 60 "$@" >"$tmp/out" 2>&1 </dev/null; }
right() { grep -q 'Out of bounds values : 0 OK' "$tmp/out" && grep -q "launch $1, rank $2" "$tmp/out"; }

# launcher NAME WORD COMMAND...: COMMAND starts 4 ranks of the program appended to it; WORD is the launcher's name in TUTTI_LAUNCH
launcher() {
	local name=$1 word=$2
	shift 2
	run "$@" "$perf" "${few[@]}" && right "$word" '3 of 4'
	claim $? "$name: allreduce_perf"
	if [ -x "$train" ]; then
		run "$@" "$train" "${short[@]}" && grep -q '"np":4' "$tmp/out"
		claim $? "$name: tutti-train"
	else
		skip "$name: tutti-train" "tutti-train was not built"
	fi
	! TUTTI_FAULT=kill@1:3 run "$@" "$perf" "${few[@]}"
	claim $? "$name: a dead rank is reported by a status that is not 0"
}

# both NAME LIBRARY COMMAND...
both() {
	local name=$1 library=$2 order
	shift 2
	for order in first last; do
		run "$@" "$with_mpi" "$library" $order && [ "$(grep -o both "$tmp/out" | wc -l)" = 4 ]
		claim $? "$name: a program that initializes MPI $order"
	done
}

# survives NAME COMMAND...: 3 ranks train, one dies, the launcher lets the others go on (tutti_launch(7))
survives() {
	local name=$1
	shift
	if [ -x "$train" ]; then
		# MPICH's status is that of the dead rank
		TUTTI_FAULT=kill@1:20 run "$@" "$train" "${short[@]}" --steps 60 --sim-compute-ms 5 --on-failure shrink
		grep -q '"steps":60,"died":1' "$tmp/out"
		claim $? "$name: survivors of a death go on"
	else
		skip "$name: survivors of a death go on" "tutti-train was not built"
	fi
}

# names_flag NAME FLAG COMMAND...: a launcher that ends all ranks when one dies
names_flag() {
	local name=$1 flag=$2
	shift 2
	if [ -x "$train" ]; then
		run "$@" "$train" "${short[@]}" --on-failure shrink && grep -q "on-failure shrink: this launcher ends all ranks.* use $flag" "$tmp/out"
		claim $? "$name: a training that is to survive deaths names the launcher's flag"
	else
		skip "$name: a training that is to survive deaths names the launcher's flag" "tutti-train was not built"
	fi
}

if command -v mpirun.openmpi >/dev/null; then
	launcher "Open MPI" pmix mpirun.openmpi -np 4 -x TUTTI_LOG -x TUTTI_FAULT
	survives "Open MPI" mpirun.openmpi --enable-recovery -np 3 -x TUTTI_FAULT
	names_flag "Open MPI" "mpirun --enable-recovery" mpirun.openmpi -np 3
	both "Open MPI" libmpi.so.40 mpirun.openmpi -np 4
else
	skip "Open MPI" "no mpirun.openmpi (package openmpi-bin)"
fi

if command -v mpiexec.hydra >/dev/null; then
	launcher MPICH pmi mpiexec.hydra -n 4
	survives MPICH mpiexec.hydra -disable-auto-cleanup -n 3 sh -c 'trap "" USR1; "$@"; exit $?' sh
	both MPICH libmpich.so.12 mpiexec.hydra -n 4
else
	skip MPICH "no mpiexec.hydra (package mpich)"
fi

# ---- Slurm -----------------------------------------------------------------------------------------------------------
# free_port NUMBER: an unused port, with an unused one behind it for the rendezvous of torchrun's ranks; below the kernel's
# ephemeral ports, and outside the ranges of the other scripts
free_port() {
	local port=$((29000 + ($$ * 8 + $1 * 2) % 400))
	while (: <>"/dev/tcp/127.0.0.1/$port" || : <>"/dev/tcp/127.0.0.1/$((port + 1))") 2>/dev/null; do
		port=$((29000 + (port - 29000 + 8) % 400))
	done
	echo $port
}
start_slurm() {
	local name
	name=$(hostname -s)
	mkdir -p "$tmp/state" "$tmp/spool" "$tmp/tmpfs"
	head -c 64 /dev/urandom >"$tmp/key"
	chmod 700 "$tmp"; chmod 400 "$tmp/key"
	munged -F --force --key-file="$tmp/key" --socket="$tmp/munge" --pid-file="$tmp/munged.pid" --log-file="$tmp/munged.log" \
		--seed-file="$tmp/seed" --num-threads=1 >"$tmp/munged.out" 2>&1 & daemons+=($!)
	cat >"$tmp/slurm.conf" <<-END
		ClusterName=tutti
		SlurmctldHost=$name(127.0.0.1)
		SlurmctldPort=$(free_port 0)
		SlurmdPort=$(free_port 1)
		SlurmUser=root
		AuthType=auth/munge
		AuthInfo=socket=$tmp/munge
		StateSaveLocation=$tmp/state
		SlurmdSpoolDir=$tmp/spool
		TmpFS=$tmp/tmpfs
		SlurmctldPidFile=$tmp/slurmctld.pid
		SlurmdPidFile=$tmp/slurmd.pid
		ProctrackType=proctrack/pgid
		TaskPlugin=task/none
		SelectType=select/linear
		ReturnToService=2
		SchedulerParameters=sched_min_interval=10000
		NodeName=$name NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
		PartitionName=all Nodes=$name Default=YES State=UP
	END
	echo CgroupPlugin=cgroup/v1 >"$tmp/cgroup.conf"         # no autodetection: a container may have no cgroups
	export SLURM_CONF=$tmp/slurm.conf
	slurmctld -D >"$tmp/slurmctld.out" 2>&1 & daemons+=($!)
	slurmd -D >"$tmp/slurmd.out" 2>&1 & daemons+=($!)
	for _ in {1..240}; do sinfo -h -o %t 2>/dev/null | grep -q idle && return 0; sleep .25; done
	cat "$tmp"/slurm*.out "$tmp/munged.out" | tail -n 15 >"$tmp/out"
	return 1
}
if [ "$(id -u)" != 0 ] || ! command -v slurmd >/dev/null || ! command -v srun >/dev/null || ! command -v munged >/dev/null; then
	skip Slurm "needs root, slurmctld, slurmd, srun and munged (packages slurm-wlm, munge)"
elif ! start_slurm; then
	claim 1 "slurmctld and slurmd start"
else
	# one allocation for all steps, as in a batch script
	launcher Slurm slurm salloc -Q srun -O -n 4
	if srun --mpi=list 2>&1 | grep -q pmix; then
		run salloc -Q srun --mpi=pmix -O -n 4 "$perf" "${few[@]}" && right pmix '3 of 4'
		status=$?
		if grep -q 'can not load PMIx library' "$tmp/out"; then
			skip "Slurm with --mpi=pmix" "its plugin finds no libpmix.so (package libpmix-dev)"
		else
			claim $status "Slurm with --mpi=pmix"
		fi
	else
		skip "Slurm with --mpi=pmix" "this Slurm has no such plugin"
	fi
	kill "${daemons[@]:1}" 2>/dev/null
fi

# ---- torchrun --------------------------------------------------------------------------------------------------------
python=''
[ "${TT_TIER:-default}" = default ] || for p in python3 /usr/bin/python3; do $p -c 'import torch.distributed.run' 2>/dev/null && python=$p; done
if [ -n "$python" ]; then
	port=$(free_port 2)
	# Debian's torch 1.13 does not start under its Python 3.11 unless output is redirected
	launcher torchrun torchrun $python -m torch.distributed.run -r 1 -t 1 --log_dir "$tmp/logs" --nproc_per_node 4 \
		--master_port "$port" --no_python
else
	skip torchrun "no torch (package python3-torch), or tier default (torchrun takes 40 s)"
	# torchrun's variables instead
	port=$(free_port 2)
	cat >"$tmp/torchrun" <<-END
		#!/bin/sh
		for r in 0 1 2 3; do
			RANK=\$r WORLD_SIZE=4 LOCAL_RANK=\$r LOCAL_WORLD_SIZE=4 GROUP_RANK=0 MASTER_ADDR=localhost MASTER_PORT=$port \\
				TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "\$@" & pids="\$pids \$!"
		done
		for p in \$pids; do wait \$p || bad=1; done
		exit \${bad:-0}
	END
	chmod +x "$tmp/torchrun"
	launcher "torchrun's variables" torchrun "$tmp/torchrun"
fi
done_testing
