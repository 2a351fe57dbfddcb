#!/bin/bash
# guards.sh - counts the cost of a call: instructions, loads and stores, system calls, allocations; bounds in tests/guards
#
# No time is measured, so a busy machine changes no figure. The work of a waiting rank depends on the others; therefore
# rank 0 is counted call by call, the others run ahead, and the figure is that of the call with the least waiting:
#   instructions   of a call, by valgrind's callgrind on rank 0 (the others run at full speed)
#   accesses       loads and stores of the same call: 32 bytes each in copies and reductions (AVX2)
#   syscalls       of all threads of rank 0 in 20 calls (sockets: 4), by strace, without those that only wait: yields,
#                  polls, attempts without a result; a wake-up of a peer counts
#   kernel         bytes that the kernel copied for rank 0 in the same calls: results of sends, receives and reads of peers
#   allocations    in a join, and in 20 calls, of all threads, counted at malloc (tests/support/call_cost.c)
# One run counts all calls of a transport; a figure above its bound is measured up to five times, the call alone.
# Called by make check in the build folder; writes TAP.
set -u
export LC_ALL=C
guard=${GUARD:-./tests/support/call_cost}
bounds=$(dirname "$0")/../guards
tmp=$(mktemp -d) || exit 99
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$tmp"' EXIT
for v in $(env | sed -n 's/^\(TUTTI_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done

# ---- running ---------------------------------------------------------------------------------------------------------

cores=$(nproc)
# The number of the K-th core that this process may use.
core() { taskset -pc $$ | sed 's/.*: *//' | tr , '\n' | awk -F- -v k="$1" '{ for (c = $1; c <= $NF; c++) if (k-- == 0) print c }'; }

# ranks N TRANSPORT ARGUMENTS-OF-GUARD -- TRACER...: runs rank 0 under the tracer; returns 0 if all ranks succeeded. Each rank
# has its own core if possible: two ranks that share a core yield to each other, which is a system call.
ranks() {
	local n=$1 good=0 r args=() pids=() on=()
	export TUTTI_NRANKS=$1 TUTTI_TRANSPORT=$2 TUTTI_SECRET=guard TUTTI_ROOT=127.0.0.1:$((27000 + RANDOM % 2000))
	shift 2
	while [ "$1" != -- ]; do args+=("$1"); shift; done
	shift
	for ((r = 1; r < n; r++)); do
		[ "$n" -gt "$cores" ] || on=(taskset -c "$(core $r)")
		TUTTI_RANK=$r timeout -k 1 60 "${on[@]}" "$guard" calls "${args[@]}" >>"$tmp/said" 2>&1 </dev/null &
		pids+=($!)
	done
	[ "$n" -gt "$cores" ] || on=(taskset -c "$(core 0)")
	TUTTI_RANK=0 timeout -k 1 60 "${on[@]}" "$@" "$guard" calls "${args[@]}" >>"$tmp/said" 2>&1 </dev/null || good=1
	for r in "${pids[@]}"; do wait "$r" || good=1; done
	return $good
}

# ---- counting: each writes lines `WHAT TRANSPORT RANKS CALL BYTES FIGURE` into $tmp/figures ------------------------------

# counted WHAT TRANSPORT RANKS CALL BYTES: the calls that one run counts, as words CALL BYTES ...: at first all lines of the
# bounds that the same tool counts there, then, if a figure is above its bound, that call alone.
counted() {
	local at="$2 $3"
	case " $tried " in *" $(tool_of "$1"):${at/ /:} "*) echo "$4 $5"; return ;; esac
	while read -r what transport n call bytes rest; do
		case $what in '' | \#*) continue ;; esac
		[ "$transport $n" = "$at" ] && [ "$(tool_of "$what")" = "$(tool_of "$1")" ] && echo "$call $bytes"
	done <"$bounds" | sort -u
}

# Fixes the code path for all machines with AVX2: valgrind does not support AVX-512, and counts string moves by bytes.
by_callgrind() {
	local transport=$1 n=$2 calls=40
	shift 2
	rm -f "$tmp"/count.*
	TUTTI_ISA=avx2 GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000 \
		ranks "$n" "$transport" $calls 1 "$@" -- valgrind -q --tool=callgrind --cache-sim=yes --LL=4194304,16,64 \
		--callgrind-out-file="$tmp/count" --collect-atstart=no --toggle-collect=guarded_call \
		--dump-after=guarded_call || return 1
	ls "$tmp"/count.* | sort -t. -k3n | xargs awk -v at="$transport $n" -v list="$*" -v calls=$calls '
		BEGIN { words = split(list, word, " ") }
		function report() {
			print "instructions", at, word[2 * k + 1], word[2 * k + 2], instructions
			print "accesses", at, word[2 * k + 1], word[2 * k + 2], accesses
			k++
		}
		/^totals:/ {
			if (!(n++ % calls)) { if (n > 1) report(); instructions = $2; accesses = $3 + $4 }
			if ($2 < instructions) instructions = $2
			if ($3 + $4 < accesses) accesses = $3 + $4
		}
		END { report(); exit n < calls * words / 2 }
	' >>"$tmp/figures"
}

# On sockets rank 0 sleeps before each call, so that messages have arrived; these sleeps are not counted.
by_strace() {
	local transport=$1 n=$2 late='' windows=60 calls=20
	shift 2
	[ "$transport" = tcp ] && late=200 calls=4
	TT_GUARD_LATE_US=$late ranks "$n" "$transport" $windows $calls "$@" -- strace -f -qq -o "$tmp/trace" || return 1
	awk -v at="$transport $n" -v list="$*" -v windows=$windows '
		BEGIN { words = split(list, word, " ") }
		function report() {
			print "syscalls", at, word[2 * k + 1], word[2 * k + 2], fewest
			print "kernel", at, word[2 * k + 1], word[2 * k + 2], least
			k++
		}
		/close\(-1000/ { inside = 1; calls = -1; bytes = 0 }
		/close\(-1001/ {
			first = !(n++ % windows)
			if (first && n > 1) report()
			if (first || calls < fewest) fewest = calls
			if (first || bytes < least) least = bytes
			inside = 0
		}
		!inside { next }
		!/resumed>/ && !/clock_nanosleep|sched_yield|poll|EAGAIN/ { calls++ }
		/(send|recv|read|write|splice|process_vm)[a-z0-9]*[( ].* = [0-9]+$/ { bytes += $NF }
		END { report(); exit n < windows * words / 2 }
	' "$tmp/trace" >>"$tmp/figures"
}

by_malloc() {
	local transport=$1 n=$2
	timeout -k 1 60 "$guard" allocations "$n" "$transport" >"$tmp/counts" 2>>"$tmp/said" || return 1
	awk -v key="$transport $n" '{ print "allocations", key, $2 "-" $3, $4, $5 }' "$tmp/counts" >>"$tmp/figures"
}

# ---- judging -----------------------------------------------------------------------------------------------------------

tool_of() { case $1 in instructions | accesses) echo callgrind ;; syscalls | kernel) echo strace ;; allocations) echo malloc ;; esac; }

# The reason why this machine cannot count the guard, or nothing.
obstacle() {
	case $(tool_of "$1") in
	callgrind)
		command -v valgrind >/dev/null || { echo "no valgrind"; return; }
		"$guard" build || { echo "not an optimized build without sanitizers"; return; }
		grep -qw avx2 /proc/cpuinfo || echo "no AVX2" ;;
	strace)
		command -v strace >/dev/null || { echo "no strace"; return; }
		"$guard" build || { echo "not an optimized build without sanitizers"; return; }
		[ "$cores" -ge 2 ] || { echo "one core: ranks yield to each other"; return; }
		strace -qq -o /dev/null true 2>/dev/null || echo "strace may not trace here" ;;
	malloc) "$guard" build || echo "not an optimized build without sanitizers" ;;
	*) echo "an unknown kind of guard" ;;
	esac
}

figure() { awk -v key="$*" '{ at = $NF; sub(/ [^ ]*$/, "") } $0 == key && (least == "" || at < least) { least = at } END { print least }' "$tmp/figures"; }

# judge BOUND WHAT TRANSPORT RANKS CALL BYTES: measures up to five times while the figure is above the bound
judge() {
	local bound=$1 found='' again
	shift
	for again in 1 2 3 4 5 6; do
		found=$(figure "$@")
		[ -n "$found" ] && [ "$found" -le "$bound" ] && break
		[ -n "$found" ] && [ $again = 6 ] && break
		: >"$tmp/said"
		"by_$(tool_of "$1")" "$2" "$3" $(counted "$@") || sed 's/^/# /' "$tmp/said"
		tried="$tried $(tool_of "$1"):$2:$3"
		found=$(figure "$@")
	done
	if [ -n "$found" ] && [ "$found" -le "$bound" ]; then
		echo "ok $number - $*: $found of at most $bound"
	else
		echo "not ok $number - $*: ${found:-no figure}, at most $bound; a commit that raises the bound states the reason"
	fi
}

: >"$tmp/figures"
tried=
number=0
while read -r what transport n call bytes bound rest; do
	case $what in '' | \#*) continue ;; esac
	number=$((number + 1))
	why=$(obstacle "$what")
	if [ -n "$why" ]; then
		echo "ok $number - $what $transport $n $call $bytes # SKIP $why"
	else
		judge "$bound" "$what" "$transport" "$n" "$call" "$bytes"
	fi
done <"$bounds"
echo "1..$number"
