#!/bin/bash
# top.sh - `tutti top` over the network: jobs of processes, threads, mpirun and torchrun; stopped and killed ranks, wrong secrets, many ranks
# Called by make check in the build folder.
export LC_ALL=C
tmp=$(mktemp -d) || exit 99
jobs=() stopped=()
trap 'kill -CONT "${stopped[@]}" 2>/dev/null; kill "${jobs[@]}" 2>/dev/null; wait; rm -rf "$tmp"' EXIT
. "$(dirname "$0")/tap.sh"
unset TUTTI_LOG TUTTI_ALGO TUTTI_TRANSPORT TUTTI_TRACE TUTTI_METRICS TUTTI_RAS TUTTI_ROOT TUTTI_SECRET TUTTI_SECRET_FILE
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
mkdir "$tmp/ids"
steady=(tests/support/steady 65536)

# begin COMMAND...: in the background, until end_job; in the foreground of timeout, since mpirun leaves its ranks after two signals
begin() { TUTTI_TIMEOUT_MS=100000 timeout --foreground -k 5 300 "$@" >"$tmp/job" 2>&1 </dev/null & jobs+=($!); }
end_job() { kill "${jobs[-1]}" && { wait "${jobs[-1]}"; rm -f "$tmp"/ids/*; true; }; }
top() { timeout -k 5 60 perf/tutti top --once "$@"; }
# holds EXPRESSION: about a communicator c of $tmp/json, whose ranks in order of lateness are r; comms are all
holds() {
	python3 - "$tmp/json" "$1" <<-'END'
		import json, sys
		comms = json.load(open(sys.argv[1]))
		if not any(eval(sys.argv[2].replace("\n", " "), {"c": c, "r": c["lateness"], "comms": comms}) for c in comms):
		    sys.exit(json.dumps(comms, indent=1))
	END
}
# until_top JOB EXPRESSION: ask until it holds
until_top() {
	for ((i = 0; i < 200; i++)); do
		top "$1" --json >"$tmp/json" 2>"$tmp/err" && holds "$2" >"$tmp/holds" 2>&1 && return
		kill -0 "${jobs[-1]}" || break
		sleep 0.1
	done
	cat "$tmp/err" "$tmp/holds" "$tmp/job"
	return 1
}
running='c["ranks"] == 4 and {p["rank"] for p in r} == {0, 1, 2, 3} and all(p["state"] == "answers" and p["pid"] for p in r)'
counts='c["calls_per_s"] and c["bytes_per_s"] > 0 and c["busbw_gbps"] > 0'

# ---- processes ----------------------------------------------------------------------------------------------------------

begin env TUTTI_TOP="$tmp/ids" "${steady[@]}" processes 4
processes() { until_top "$tmp/ids" "$running and $counts and 'allreduce of 16384' in r[0]['call']" && top "$tmp"/ids/*.id >"$tmp/top"; }
point "a job of processes reports its ranks, calls, bytes and busbw, by its folder or its file" processes
private() { [ -n "$(find "$tmp/ids" -name '*.id' -perm 600)" ] && [ -z "$(find "$tmp/ids" -name '*.id' ! -perm 600)" ]; }
point "the file of the id is its user's alone" private
many() {
	local all=()
	for i in 1 2 3 4 5 6 7 8; do top "$tmp/ids" >"$tmp/many.$i" 2>&1 & all+=($!); done
	for i in "${all[@]}"; do wait "$i" || { cat "$tmp"/many.*; return 1; }; done
}
point "eight that ask at once all get their report" many
# Files of ended jobs, and files that are none, are named and left out.
litter() {
	local id=("$tmp"/ids/*.id) litter=$tmp/litter
	mkdir "$litter"
	for ((i = 0; i < 80; i++)); do : >"$litter/$i.id"; done
	head -c 100 "${id[0]}" >"$litter/half.id"
	mkdir "$litter/folder.id"
	ln -s nothing "$litter/link.id"
	cp "${id[0]}" "$litter/open.id" && chmod 644 "$litter/open.id"
	top "$litter" >"$tmp/top" 2>"$tmp/err"
	[ $? = 2 ] && [ ! -s "$tmp/top" ] && has 'open.id: mode 644 lets other users read the secret' "$tmp/err" || return 1
	cp "${id[0]}" "$litter/zz.id"
	top "$litter" --json >"$tmp/json" 2>"$tmp/err" && holds "$running" && [ "$(wc -l <"$tmp/err")" = 84 ] &&
		has '/half.id: not a file of TUTTI_TOP' "$tmp/err" && ! has '/zz.id' "$tmp/err" >/dev/null
}
point "a job is found among files of a folder that are wrong" litter

# The time from the stop to a screen that names the rank, of a top that runs.
named() {
	local began
	timeout -k 5 60 perf/tutti top "$tmp/ids" >"$tmp/screens" 2>&1 &
	jobs+=($!)
	until grep -q ' answers ' "$tmp/screens"; do sleep 0.05; done
	stopped=("$(python3 -c 'import json, sys; print([p["pid"] for p in json.load(open(sys.argv[1]))[0]["lateness"] if p["rank"] == 2][0])' "$tmp/json")")
	kill -STOP "${stopped[0]}" && began=$(date +%s%N) || return 1
	until grep -q 'no answer of rank 2: stopped' "$tmp/screens"; do
		sleep 0.02
		[ $(($(date +%s%N) - began)) -lt 20000000000 ] || { cat "$tmp/screens"; return 1; }
	done
	began=$((($(date +%s%N) - began) / 1000000))
	kill "${jobs[-1]}"
	unset 'jobs[-1]'
	echo "named after $began ms"
	[ "$began" -lt 3000 ]
}
point "a stopped rank is named within 3 s" named
first() {
	top "$tmp/ids" --json >"$tmp/json" && holds 'r[0]["rank"] == 2 and r[0]["state"] == "silent" and c["awaited"] == 2' &&
		holds 'r[0]["pid"] == '"${stopped[0]}" && top "$tmp/ids" >"$tmp/top" && has "^  2 +silent +[0-9]+ +[0-9]+ +[0-9.]+ .* pid ${stopped[0]} on" "$tmp/top"
	until_top "$tmp/ids" 'r[0]["awaited_by"] and 1 < r[0]["late_s"] and c["age_s"] > 1 and c["age_is_exact"] and any(p["awaits"] == 2 for p in r)' || return 1
	kill -CONT "${stopped[0]}" && until_top "$tmp/ids" "$running"
}
point "it is the first of the ranks, with those that await it, until it goes on" first
# One after the other, they would take longer than top has.
silent() {
	local id=("$tmp"/ids/*.id)
	mkdir "$tmp/silent"
	for ((i = 0; i < 60; i++)); do cp -p "${id[0]}" "$tmp/silent/$i.id"; done
	stopped+=("$(python3 -c 'import json, sys; print([p["pid"] for p in json.load(open(sys.argv[1]))[0]["lateness"] if p["rank"] == 0][0])' "$tmp/json")")
	kill -STOP "${stopped[1]}" || return 1
	top "$tmp/silent" >"$tmp/top" 2>"$tmp/err"
	[ $? = 1 ] && [ "$(grep -c 'does not answer: its process is stopped' "$tmp/err")" = 60 ] || { cat "$tmp/err"; return 1; }
	kill -CONT "${stopped[1]}" && until_top "$tmp/ids" "$running"
}
point "60 jobs that do not answer are asked at the same time" silent
killed() {
	rm "$tmp/screens"
	timeout -k 5 60 perf/tutti top "$tmp/ids" --interval 0.2 >"$tmp/screens" 2>"$tmp/err" &
	local watcher=$!
	until grep -qs ' answers ' "$tmp/screens"; do sleep 0.05; done
	kill -KILL "${stopped[0]}"
	wait $watcher
	[ $? = 1 ] && has 'the job has ended|rank 0 ended the connection|connection lost' "$tmp/err" && has 'rank 2' "$tmp/job" || { cat "$tmp/err"; return 1; }
}
point "a killed rank ends the job, and top with it, in words" killed
end_job 2>/dev/null

tidy() {
	TUTTI_TOP=$tmp/ids timeout 60 perf/allreduce_perf --np 2 -b 8 -e 8 >"$tmp/job" 2>&1 </dev/null && [ -z "$(ls "$tmp/ids")" ] &&
		{
		TUTTI_TOP=$tmp/none timeout 60 perf/allreduce_perf --np 2 -b 8 -e 8 >"$tmp/job" 2>&1 </dev/null
		[ $? = 2 ] && has "TUTTI_TOP=$tmp/none: cannot make a file there: No such file or directory; name a folder" "$tmp/job"
	}
}
point "a job that ends removes its file; a folder that does not exist is an error that names it" tidy

# ---- threads ------------------------------------------------------------------------------------------------------------

begin env TUTTI_TOP="$tmp/ids" "${steady[@]}" threads 4
threads() { until_top "$tmp/ids" "$running and $counts and len({p['pid'] for p in r}) == 1"; }
point "a job of threads reports the same" threads
end_job
ranks=64
[ "${TT_TIER:-default}" = default ] || ranks=256
begin env TUTTI_TOP="$tmp/ids" "${steady[@]}" threads $ranks
crowd() {
	until_top "$tmp/ids" "c['ranks'] == $ranks and len(r) == $ranks" && top "$tmp/ids" >"$tmp/top" && [ "$(wc -l <"$tmp/top")" -le 24 ] &&
		has "^communicator [0-9a-f]{16}.*: $ranks ranks on 1 host, open" "$tmp/top" && has '^  ... and [0-9]+ more, ' "$tmp/top"
}
point "$ranks ranks are one screen" crowd
end_job

# watched LAUNCHER...: while its job runs, with a stopped rank, and until a rank is killed
watched() {
	local rank
	begin env TUTTI_TOP="$tmp/ids" "$@" "${steady[@]}" launched
	until_top "$tmp/ids" "$running and $counts" || return 1
	rank=$(python3 -c 'import json, sys; print([p["pid"] for p in json.load(open(sys.argv[1]))[0]["lateness"] if p["rank"] == 3][0])' "$tmp/json")
	stopped=("$rank")
	kill -STOP "$rank" && until_top "$tmp/ids" 'c["awaited"] == 3 and r[0]["rank"] == 3 and r[0]["state"] == "silent"' || return 1
	kill -KILL "$rank" || return 1
	for ((i = 0; i < 300; i++)); do # the others end
		top "$tmp/ids" >"$tmp/top" 2>"$tmp/err" || break
		sleep 0.1
	done
	rm -f "$tmp"/ids/*
	wait "${jobs[-1]}"
	[ $? != 0 ] && has 'no job that runs has its file|the job has ended|rank 0 ended the connection|connection lost|connection closed by the other side' "$tmp/err"
}
# ---- mpirun, by an address and a secret ----------------------------------------------------------------------------------

host=$(hostname -I 2>/dev/null | awk '{ print $1 }')
mpirun=$(command -v mpirun.openmpi)
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
port=$(free_port)
root=$host:$port
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
(umask 077; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$tmp/secret"; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$tmp/other")
launched() { TUTTI_SECRET_FILE=$tmp/secret until_top "$root" "$running and c['calls_per_s'] and c['bytes_per_s'] is None"; }
wrong() {
	! TUTTI_SECRET_FILE=$tmp/other top "$root" >"$tmp/top" 2>"$tmp/err" && [ ! -s "$tmp/top" ] && [ "$(wc -l <"$tmp/err")" = 1 ] &&
		has "^tutti top: $root: the other side uses a different secret" "$tmp/err" &&
		has 'rank 0: a monitor was refused: it used a different TUTTI_SECRET' "$tmp/job" && launched
}
lacking() {
	top "$root" 2>"$tmp/err"
	[ $? = 2 ] && has '^tutti top: set TUTTI_SECRET or TUTTI_SECRET_FILE' "$tmp/err"
}
if [ -n "$mpirun" ] && [ -n "$host" ]; then
	begin env TUTTI_LOG=warn TUTTI_ROOT="$root" TUTTI_SECRET_FILE="$tmp/secret" "$mpirun" -np 4 -x TUTTI_ROOT -x TUTTI_SECRET_FILE -x TUTTI_LOG \
		-x TUTTI_TIMEOUT_MS "${steady[@]}" launched
	point "a job of mpirun reports its ranks to who has its secret; bytes are unknown, since nothing counts them" launched
	point "a wrong secret is refused in one sentence with status 1, and the job goes on" wrong
	point "a secret that is not set is named" lacking
	end_job
	point "a job of mpirun, of which a rank stops and is killed" watched "$mpirun" -np 4 -x TUTTI_TOP -x TUTTI_TIMEOUT_MS
else
	for what in "a job of mpirun" "a wrong secret" "a secret that is not set" "a job of mpirun, of which a rank stops and is killed"; do skip "$what" "no Open MPI, or no address beside loopback"; done
fi

# ---- torchrun, by the file of TUTTI_TOP, since its ranks make their secret themselves ---------------------------------------

cat >"$tmp/torchrun" <<-END
	#!/bin/bash
	# the variables of torchrun, for a machine without it
	pids=()
	trap 'kill "\${pids[@]}" 2>/dev/null; wait; exit 1' TERM
	for r in 0 1 2 3; do
		RANK=\$r WORLD_SIZE=4 LOCAL_RANK=\$r LOCAL_WORLD_SIZE=4 GROUP_RANK=0 MASTER_ADDR=localhost MASTER_PORT=$(free_port) \
			TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "\$@" & pids+=(\$!)
	done
	for p in "\${pids[@]}"; do wait "\$p" || status=1; done
	exit \${status:-0}
END
chmod +x "$tmp/torchrun"
point "a job with torchrun's variables, of which a rank stops and is killed" watched "$tmp/torchrun"
torch='' what="a job of torchrun, of which a rank stops and is killed"
for p in python3 /usr/bin/python3; do $p -c 'import torch.distributed.run' 2>/dev/null && torch=$p && break; done
if [ -n "$torch" ] && [ "${TT_TIER:-default}" != default ]; then
	# Debian's torch 1.13 does not start under its Python 3.11 unless output is redirected
	point "$what" watched "$torch" -m torch.distributed.run -r 1 -t 1 --log_dir "$tmp/logs" --nproc_per_node 4 \
		--master_port "$(free_port)" --no_python
else
	skip "$what" "no torch (package python3-torch), or tier default (torchrun takes 40 s)"
fi

# ---- both ---------------------------------------------------------------------------------------------------------------

# rank 0 knows no address of TUTTI_ROOT, so its file must have its own
by_both() {
	local secret ranks=()
	secret=$(cat "$tmp/secret")
	for rank in 0 1; do
		TUTTI_RANK=$rank TUTTI_NRANKS=2 TUTTI_ROOT=127.0.0.1:$port TUTTI_SECRET=$secret TUTTI_TOP=$tmp/ids TUTTI_TIMEOUT_MS=100000 \
			timeout --foreground -k 5 300 "${steady[@]}" launched >"$tmp/job" 2>&1 </dev/null &
		ranks+=($!)
	done
	jobs+=("${ranks[@]}")
	until_top "$tmp/ids" "c['ranks'] == 2 and $counts" && TUTTI_SECRET=$secret until_top "127.0.0.1:$port" "c['ranks'] == 2 and $counts" || return 1
	kill "${ranks[@]}"
	wait "${ranks[@]}"
	rm -f "$tmp"/ids/*
}
point "a job with TUTTI_ROOT and TUTTI_TOP is found by its address and by its file" by_both
# Each rank has two communicators by TUTTI_ROOT; a split gives rank 0 one of its own, and another to ranks 1 to 3, of which
# a further split leaves rank 1 out: so rank 0 is in neither of these two.
cat >"$tmp/further.py" <<-'END'
	import array, time, tutti
	first = tutti.Communicator.from_env(name="first")
	second = tutti.Communicator.from_env(name="second")
	rank, one = first.Get_rank(), array.array("f", [1])
	part = first.Split(min(rank, 1), name="part")
	comms = [second, part]
	if rank:
	    comms.append(part.Split(min(rank, 2), name="half"))
	while True:
	    for comm in comms:
	        comm.Allreduce(one, array.array("f", [0]))
	    time.sleep(0.005)
END
every='sorted((c["name"], c["ranks"]) for c in comms)'
further() {
	local secret ranks=()
	secret=$(cat "$tmp/secret")
	for rank in 0 1 2 3; do
		TUTTI_RANK=$rank TUTTI_NRANKS=4 TUTTI_ROOT=127.0.0.1:$port TUTTI_SECRET=$secret TUTTI_TIMEOUT_MS=100000 \
			PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$top_srcdir/bindings/python TUTTI_LIBRARY=$PWD/.libs/libtutti.so.0 \
			timeout --foreground -k 5 300 python3 "$tmp/further.py" >"$tmp/job" 2>&1 </dev/null &
		ranks+=($!)
	done
	jobs+=("${ranks[@]}")
	TUTTI_SECRET=$secret until_top "127.0.0.1:$port" "$every == [('first', 4), ('half', 1), ('half', 2), ('part', 1), ('part', 3), ('second', 4)]
		and c['name'] == 'half' and c['ranks'] == 2 and c['calls_per_s'] and c['job'] == '127.0.0.1:$port'" || return 1
	kill "${ranks[@]}"
	wait "${ranks[@]}"
	true
}
if [ -e .libs/libtutti.so.0 ]; then
	point "all communicators of a TUTTI_ROOT are reported, also those without rank 0" further
else
	skip "all communicators of a TUTTI_ROOT are reported, also those without rank 0" "no shared library in this build"
fi
ended() {
	for ((i = 0; i < 100; i++)); do # ranks may outlive mpirun for a while
		TUTTI_SECRET_FILE=$tmp/secret top "127.0.0.1:$port" >"$tmp/top" 2>"$tmp/err" || break
		sleep 0.1
	done
	has "^tutti top: 127.0.0.1:$port: Connection refused: the job has ended, or has not begun" "$tmp/err" &&
		echo nonsense >"$tmp/no.id" && ! top "$tmp/no.id" 2>"$tmp/err" && has 'no.id: not a file of TUTTI_TOP' "$tmp/err"
}
point "a job that has ended, and a file that is none, are named" ended
done_testing
