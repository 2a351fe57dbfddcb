#!/bin/sh
# tool_ranks.sh - ranks of the benchmarks: joins, errors of joins, deaths, bindings
# Called by make check in the build folder.
. "$(dirname "$0")/tool_runs.sh"

# ---- joining by the environment -------------------------------------------------------------------------------------

free_port() { echo $((20000 + ($$ * 7 + n * 131) % 2000)); }
by_environment() {
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_SECRET=sesame TUTTI_NRANKS=2
	export TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	TUTTI_RANK=1 timeout 60 perf/allreduce_perf -b 1K -e 1K -n 3 "$@" >"$tmp/out1" 2>&1 </dev/null &
	TUTTI_RANK=0 right perf/allreduce_perf -b 1K -e 1K -n 3 "$@"
	good=$?
	wait $! && [ ! -s "$tmp/out1" ] && [ $good -eq 0 ]
	good=$?
	unset TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	return $good
}
point "ranks join by the environment" by_environment
point "threads of several processes join by the environment" by_environment -t 2
other_options() { # within a second, not at the deadline of a call that one rank alone makes
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_SECRET=sesame TUTTI_NRANKS=2
	export TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	TUTTI_RANK=1 timeout 60 perf/allreduce_perf -b 8 -e 128 -f 2 -n 5 >/dev/null 2>"$tmp/err1" </dev/null &
	TUTTI_RANK=0 refused "rank 0 has -e 64, rank 1 has 128" perf/allreduce_perf -b 8 -e 64 -f 2
	good=$?
	wait $!
	[ $? -eq 2 ] && grep -q "rank 0 has -e 64, rank 1 has 128" "$tmp/err1" && [ $good -eq 0 ]
	good=$?
	unset TUTTI_ROOT TUTTI_SECRET TUTTI_NRANKS
	return $good
}
point "ranks with different options are refused by the option and its values" other_options
other_threads() { # $1: threads of rank 1, $2: its status, $3: sentence of rank 0; the join of all threads would wait for threads that nobody starts
	TUTTI_SECRET=sesame TUTTI_NRANKS=2
	export TUTTI_SECRET TUTTI_NRANKS
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_RANK=1 timeout 20 perf/allreduce_perf -t "$1" -b 8 -e 8 >/dev/null 2>&1 </dev/null &
	TUTTI_ROOT=127.0.0.1:$(free_port) TUTTI_RANK=0 timeout 20 perf/allreduce_perf -t 2 -b 8 -e 8 >"$tmp/out" 2>"$tmp/err" </dev/null
	[ $? -eq 2 ] && grep -q "$3" "$tmp/err"
	good=$?
	wait $!
	[ $? -eq "$2" ] && [ $good -eq 0 ]
	good=$?
	unset TUTTI_SECRET TUTTI_NRANKS
	return $good
}
point "processes with different -t are refused" other_threads 3 2 "give all the same -t"
point "a process with -t and one without fail at once" other_threads 1 1 "rank 0 called broadcast"

names_missing() {
	root_port=$(free_port) pids=
	for way in 127.0.0.1:$root_port file:$tmp/nobody; do # ranks without a rank 0
		TUTTI_ROOT=$way TUTTI_SECRET=s TUTTI_NRANKS=3 TUTTI_RANK=1 perf/allreduce_perf -T 7 \
			>/dev/null 2>"$tmp/err${way%%:*}" & pids="$pids $!"
	done
	TUTTI_ROOT=127.0.0.1:$((root_port + 1)) TUTTI_SECRET=s TUTTI_NRANKS=3 TUTTI_RANK=0 run 1 perf/allreduce_perf -T 7 || return 1
	for pid in $pids; do wait "$pid" && return 1; done
	grep -q "waiting for ranks 1, 2 of 3" "$tmp/err" && grep -q "^rank 0: init: .*1.*2" "$tmp/err" &&
		grep -q "rank 1: waiting for rank 0; tried 127.0.0.1:$root_port (Connection refused)" "$tmp/err127.0.0.1" &&
		grep -q "rank 1: waiting for rank 0: .*$tmp/nobody" "$tmp/errfile" || { cat "$tmp"/err?*; return 1; }
}
point "missing ranks are named during the init and at the deadline, rank 0 too" names_missing
taken() {
	root_port=$(free_port)
	TUTTI_ROOT=127.0.0.1:$root_port TUTTI_SECRET=s TUTTI_NRANKS=2 TUTTI_RANK=0 perf/allreduce_perf -T 20 >/dev/null 2>&1 &
	until cat /proc/net/tcp /proc/net/tcp6 | grep -q ":$(printf %04X "$root_port") [0-9A-F]*:0000 0A" || ! kill -0 $!; do
		sleep .05
	done
	TUTTI_ROOT=127.0.0.1:$root_port TUTTI_SECRET=s TUTTI_NRANKS=2 TUTTI_RANK=0 run 1 perf/allreduce_perf -T 20 &&
		grep -q "port $root_port of TUTTI_ROOT .*is taken.*choose another port" "$tmp/err"
	rc=$?
	kill $!
	return $rc
}
point "a TUTTI_ROOT port that is taken is named" taken
# $1: commands that set up the network of a namespace
without_lo() {
	limit=30 run 1 unshare -rn sh -c "$1 TUTTI_TIMEOUT_MS=60000 exec perf/allreduce_perf --np 2 -b 8 -e 8 -n 1" &&
		grep -q "^rank 1: init: .*loopback.*ip link set lo up" "$tmp/err"
}
no_lo() {
	without_lo '' && without_lo 'ip link add b0 type bridge && ip link set b0 up && ip addr add 10.1.0.1/24 dev b0 &&'
}
if unshare -rn ip link add b0 type bridge 2>/dev/null; then
	point "a network namespace without loopback is an immediate error" no_lo
else
	skip "a network namespace without loopback is an immediate error" "needs unshare -rn and ip"
fi
# the kernel allows names of 64 bytes, and control characters
odd_host_name() {
	run 0 unshare -ru sh -c 'printf "h\001%062d" 0 >/proc/sys/kernel/hostname; [ "$(hostname | wc -c)" -eq 65 ] &&
		exec perf/allreduce_perf --np 2 -b 8 -e 8 -n 1'
}
if unshare -ru true 2>/dev/null; then
	point "ranks of a host whose name is long and has control characters join" odd_host_name
else
	skip "ranks of a host whose name is long and has control characters join" "needs unshare -ru"
fi
# every rank says so in one sentence, whichever call needed the descriptor, or the job succeeds
few_files() {
	for limit_n in 14 16 20; do
		# in a new shell, which needs no descriptors of its own
		run 0 sh -c "ulimit -n $limit_n; exec perf/allreduce_perf --np 4 --transport tcp -b 8 -e 8 -n 1" && continue
		for r in 0 1 2 3; do
			[ "$(grep -c "^rank $r: .*ulimit -n" "$tmp/err")" -eq 1 ] ||
				{ echo "ulimit -n $limit_n: rank $r"; return 1; }
		done
	done
}
point "with few descriptors all ranks name the limit" few_files
# open_secret MODE REFUSALS: a rank without a peer reads a secret file with that mode
open_secret() {
	(umask 077 && echo mine >"$tmp/secret") && chmod "$1" "$tmp/secret" || return 1
	TUTTI_RANK=1 TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:1 TUTTI_SECRET_FILE=$tmp/secret \
		run $((1 + $2)) perf/allreduce_perf -T .2 || return 1
	[ "$(grep -c "secret: mode $1 lets other users" "$tmp/err")" -eq "$2" ]
}
open_secrets() { open_secret 600 0 && open_secret 400 0 && open_secret 644 1 && open_secret 602 1 && open_secret 660 1; }
point "a secret file that other users can read or write is refused" open_secrets
# refused_secret PATH SENTENCE: at once, without a wait for the writer of a pipe
refused_secret() {
	TUTTI_RANK=1 TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:1 TUTTI_SECRET_FILE=$1 limit=20 run 2 perf/allreduce_perf -T .2 &&
		grep -q "TUTTI_SECRET_FILE=$1 $2" "$tmp/err"
}
odd_secrets() {
	mkfifo -m 600 "$tmp/pipe" && refused_secret "$tmp/pipe" "is no plain file" && refused_secret "$tmp" "is no plain file" &&
		ln -s "$tmp/pipe" "$tmp/link" && refused_secret "$tmp/link" "is no plain file"
}
point "a pipe, a folder or a link to one is no secret file" odd_secrets
foreign_secret() { # also where a link of this user leads to it
	(umask 077 && echo theirs >"$tmp/theirs") && chown 4711 "$tmp/theirs" && ln -s "$tmp/theirs" "$tmp/mine" &&
		refused_secret "$tmp/theirs" "belongs to user 4711" && refused_secret "$tmp/mine" "belongs to user 4711"
}
if [ "$(id -u)" -eq 0 ]; then
	point "a secret file of another user is refused" foreign_secret
else
	skip "a secret file of another user is refused" "needs root"
fi
joined() {
	TUTTI_LOG=info TUTTI_ENCRYPT=on run 0 perf/allreduce_perf --np 3 --transport tcp -b 8 -e 8 -n 1 &&
		grep -q "info: rank 2 of 3.*: host $(hostname); 3 ranks here, 1 host; .*; ranks 0, 1 by tcp, encrypted" "$tmp/err" &&
		grep -q "info: rank 0: host $(hostname) has ranks 0 to 2" "$tmp/err" &&
		grep -q "info: rank 0: no transport shm: another transport was requested" "$tmp/err" &&
		grep -q "info: rank 0: TUTTI_ENCRYPT is set to on" "$tmp/err" && ! grep -q TUTTI_SECRET "$tmp/err" &&
		algorithm=$(perf/tutti info --plan 8 --np 3 --transport tcp | sed -n 's/^\* \([^ ]*\) .*/\1/p') &&
		grep -q "info: rank 0: allreduce: $algorithm to .*, then " "$tmp/err"
}
point "TUTTI_LOG=info says ranks, hosts, transports, variables and algorithms at the join" joined
logged_errors() {
	TUTTI_LOG=info TUTTI_FAULT=exit@1:5 run 1 perf/allreduce_perf --np 2 -b 8 -e 8 -n 100
	[ "$(grep -c "^tutti [0-9]* info: rank 0: the communicator is broken: rank 1 died" "$tmp/err")" -eq 2 ] &&
		grep -q "^tutti [0-9]* info: rank 0: operation .*: rank 1 died" "$tmp/err"
}
point "TUTTI_LOG=info logs the sentence of each error, and the break of each communicator" logged_errors
# under a launcher that carries a secret of its own, too
no_secret() {
	torch="RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29400"
	refused "TUTTI_SECRET_FILE=$tmp/none: No such file" env $torch TUTTI_SECRET_FILE="$tmp/none" perf/allreduce_perf -T .2 &&
		refused "TUTTI_SECRET_FILE=$tmp/none: No such file" env TUTTI_SECRET_FILE="$tmp/none" perf/allreduce_perf &&
		refused "unset one" env $torch TUTTI_SECRET=a TUTTI_SECRET_FILE="$tmp/none" perf/allreduce_perf -T .2
}
point "a missing TUTTI_SECRET_FILE, or a second secret, is refused under every launcher" no_secret
half_set() {
	refused TUTTI_NRANKS env TUTTI_RANK=1 perf/allreduce_perf &&
		refused TUTTI_NRANKS env TUTTI_RANK=1 perf/allreduce_perf -t 2
}
point "half an environment exits with 2" half_set

# ---- deaths and signals ---------------------------------------------------------------------------------------------

# endless NP OPTIONS: starts an endless run in the background, which the kernel kills when this script is killed; its ranks' pids
# are in $pids
with_script=''
setpriv --pdeathsig KILL true 2>/dev/null && with_script='setpriv --pdeathsig KILL'
endless() {
	: >"$tmp/out"   # no rows of an earlier job
	setsid $with_script perf/allreduce_perf -b 64K -e 64K -N 0 -n 5 --np "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
	parent=$!
	for _ in $(seq 200); do
		[ "$(grep -vc '^#' "$tmp/out")" -gt 0 ] && break
		sleep .1
	done
	pids=$(sed -n 's/^#  Rank .* Pid *\([0-9]*\) .*/\1/p' "$tmp/out")
	[ "$(echo "$pids" | wc -w)" -eq "$1" ] || { echo "no ranks started"; kill -9 $parent $pids; return 1; }
	for pid in $pids; do
		[ "$(parent_of "$pid")" = $parent ] || { echo "$pid is no child"; kill -9 $parent $pids; return 1; }
	done
}
parent_of() { sed 's/.*) . //; s/ .*//' "/proc/$1/stat"; }
ended() { state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null); [ "${state:-Z}" = Z ]; }
# the launcher ends within 30 s with status $1
ends() {
	for _ in $(seq 300); do ended $parent && break; sleep .1; done
	ended $parent || { echo "the launcher did not end within 30 s"; kill -9 $parent; }
	wait $parent
	status=$?
	[ $status -eq "$1" ] || { echo "exit status $status, not $1"; return 1; }
}
# all ranks end within 30 s
gone() {
	for _ in $(seq 300); do
		left=
		for pid in $pids; do ended "$pid" || left=$pid; done
		[ -z "$left" ] && return 0
		sleep .1
	done
	echo "process $left is still running"
	return 1
}
# names of shared memory and files, without the folders of suites that run at the same time
segments() { ls /dev/shm /tmp 2>/dev/null | grep tutti | grep -vE '^tutti-[a-z]*-.{6}$' | sort; }
# no name beside those in $before; other runs may remove theirs
no_segments() { segments >"$tmp/segments"; [ -z "$(printf '%s\n' "$before" | comm -13 - "$tmp/segments")" ]; }
killed_rank() {
	before=$(segments)
	endless 3 || return 1
	kill -9 "$(echo $pids | cut -d' ' -f2)"
	ends 1 && gone && grep -q "rank 1: .*signal 9" "$tmp/err" &&
		grep -q "^rank 0: .*rank 1" "$tmp/err" && [ "$(grep -c "^rank 0: " "$tmp/err")" -eq 1 ] &&
		no_segments
}
point "the launcher and the other ranks name a killed rank, and no files remain" killed_rank
terminated() {
	endless 3 || return 1
	kill -TERM $parent
	ends 143 && gone
}
point "TERM ends all ranks" terminated
orphaned() {
	endless 2 || return 1
	kill -9 $parent
	ends 137 && gone
}
point "ranks do not outlive their launcher" orphaned
stopped() {
	before=$(segments)
	endless 2 -T 2 || return 1
	kill -STOP "$(echo $pids | cut -d' ' -f2)"
	ends 1 && gone && grep -q "^rank 0: .*rank 1" "$tmp/err" && no_segments
}
point "a stopped rank is named at the deadline and killed" stopped

# ---- places and variables -----------------------------------------------------------------------------------------------

# makes each of two cores a package, by a folder mounted over /sys/devices/system
two_packages() {
	cpus=$(taskset -cp $$ | sed 's/.*: //; s/[-,]/ /g')
	for cpu in ${cpus% *} ${cpus#* }; do
		topology=$tmp/sys/cpu/cpu$cpu/topology
		mkdir -p "$topology"
		echo "$cpu" | tee "$topology/package_cpus_list" >"$topology/thread_siblings_list"
	done
}
grouped() {
	run 0 unshare -rm sh -c "mount --bind $tmp/sys /sys/devices/system && TUTTI_LOG=debug \"\$@\"" - "$@"
}
divided_host() {
	grouped perf/allreduce_perf --np 5 --pin -b 4K -e 64K -f 16 -n 2 --algo hierarchical &&
		rows | awk '$9 + $13 { exit 1 }' || return 1
	groups=$(grep -o 'rank [0-4]: in group [01] of 2' "$tmp/err" | sort -u | tr -dc '0-9\n' | tr '\n' ' ')
	[ "$groups" = "002 112 202 312 402 " ] ||
		{ echo "groups: $(grep -o 'in group.*' "$tmp/err")"; return 1; }
}
unbound_ranks() {
	grouped perf/allreduce_perf --np 5 -b 4K -e 4K -n 2 --algo hierarchical && ! grep -q "in group" "$tmp/err"
}
if [ "$(nproc)" -eq 2 ] && unshare -rm true 2>/dev/null; then
	two_packages
	point "ranks bound to two packages form two groups; hierarchical: the results are right" divided_host
	point "unbound ranks form no groups" unbound_ranks
else
	skip "ranks bound to two packages form two groups" "needs two processors and unshare -rm"
fi
no_devices() { run 0 unshare -rm sh -c 'mount -t tmpfs none /dev && exec perf/allreduce_perf --np 2 -b 8 -e 8 -n 1'; }
if unshare -rm true 2>/dev/null; then
	point "ranks need no file of /dev" no_devices
else
	skip "ranks need no file of /dev" "needs unshare -rm"
fi
wrong_setting() {
	TUTTI_ALGO=nosuch run 2 perf/allreduce_perf --np 2 -b 8 -e 8 && grep -q "^rank 0: .*nosuch" "$tmp/err" &&
		TUTTI_TIMEOUT_MS=soon refused TUTTI_TIMEOUT_MS perf/allreduce_perf --np 2 -b 8 -e 8
}
point "a wrong TUTTI_ variable exits with 2" wrong_setting
setting() { TUTTI_ALGO=tree right perf/allreduce_perf --np 2 -b 8K -e 8K -n 2 && rows | grep -q ' tree$'; }
point "TUTTI_ALGO selects the algorithm in the absence of --algo" setting
done_testing
