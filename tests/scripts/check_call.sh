#!/bin/bash
# check_call.sh - docs/design/a-call.md lists exactly the functions that a call executes, and the number of their files
#
# Callgrind records the functions that rank 0 executes in given calls (tests/support/call_cost.c). A way of the page
# begins with a line `<!-- way: TRANSPORT CALL BYTES VARIABLE=VALUE... -->`; the functions are the indented lines
# `FILE: FUNCTION, FUNCTION...`. A function that the call with the fewest instructions executes must be listed: that call waited
# least, and a rank that waits may execute the functions of `waiting`. A listed function must be executed in some call, or have
# no symbol of its own, since the compiler inlined it.
set -u
export LC_ALL=C
page=$top_srcdir/docs/design/a-call.md
program=./tests/support/call_cost
tmp=$(mktemp -d) || exit 99
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$tmp"' EXIT
command -v valgrind >/dev/null || { echo "no valgrind"; exit 77; }
$program build || { echo "not an optimized build without sanitizers"; exit 77; }
grep -qw avx2 /proc/cpuinfo || { echo "no AVX2"; exit 77; }
for v in $(env | sed -n 's/^\(TUTTI_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
n=0
point() { n=$((n + 1)); if [ -s "$2" ]; then echo "not ok $n - $1"; head -n 30 "$2" | sed 's/^/# /'; else echo "ok $n - $1"; fi; }

# execute TRANSPORT CALL BYTES VARIABLE=VALUE...: functions that rank 0 executes: in any call to
# $tmp/executed, in the shortest call to $tmp/least
execute() {
	local transport=$1 call=$2 bytes=$3 calls=6 r common=(TUTTI_ISA=avx2 TUTTI_NRANKS=2 TUTTI_SECRET=check-call TUTTI_TIMEOUT_MS=120000)
	shift 3
	[ "$bytes" -lt 1048576 ] || calls=3
	common+=(TUTTI_TRANSPORT="$transport" TUTTI_ROOT=127.0.0.1:$((27000 + RANDOM % 2000)) "$@")
	case $transport in
	verbs) common+=(LD_LIBRARY_PATH="$PWD/tests/fakes/verbs" TUTTI_TEST_VERBS="$tmp/verbs") ;;
	esac
	for r in 1 0; do
		local at=("${common[@]}" TUTTI_RANK=$r)
		[ "$transport" != verbs ] || at+=(TUTTI_HOST_ID=$r)
		if [ $r = 1 ]; then
			env "${at[@]}" timeout 250 $program calls $calls 1 "$call" "$bytes" >"$tmp/other" 2>&1 </dev/null &
		else
			env "${at[@]}" timeout 250 valgrind -q --tool=callgrind --compress-strings=no --collect-atstart=no \
				--toggle-collect=guarded_call --dump-after=guarded_call --callgrind-out-file="$tmp/count" \
				$program calls $calls 1 "$call" "$bytes" >"$tmp/said" 2>&1 </dev/null || { cat "$tmp/said" "$tmp/other"; return 1; }
		fi
	done
	wait
	functions "$tmp"/count.* >"$tmp/executed"
	functions "$(for f in "$tmp"/count.*; do sed -n "s,^totals: \([1-9][0-9]*\).*,\1 $f,p" "$f"; done | sort -n | sed -n '1s/.* //p')" >"$tmp/least"
}

# functions CALLGRIND-FILE...: "FILE FUNCTION" of each function in the source tree
functions() {
	sed -n "s,$(cd "$top_srcdir" && pwd)/,,; s,\(fl\|fi\|fe\)=.*/\.\./,\1=,; /^\(fl\|fi\|fe\|fn\)=/p" "$@" |
		awk '/^fn=/ { print file, substr($0, 4); next } { file = substr($0, 4) }' |
		grep -E '^(lib|transports|algorithms)/' | sed "s/'[0-9]*$//; s/\\.\\(isra\\|constprop\\|part\\)\\.[0-9]*$//" | sort -u | defined
}

# defined: replaces the file of a function on standard input that this header does not define. Callgrind names the file of the
# first instruction, which may belong to an inlined function of a header.
defined() {
	local file name definition others
	while read -r file name; do
		case $file in
		*.h)
			definition="^[a-z].*[ *]$name\("
			others=$(cd "$top_srcdir" && { grep -qE "$definition" "$file" ||
				grep -rlE --include='*.c' "$definition" lib transports algorithms; })
			[ -z "$others" ] || [ "$(echo "$others" | wc -l)" != 1 ] || file=$others ;;
		esac
		echo "$file $name"
	done | sort -u
}

# listed WAY PAGE: "FILE FUNCTION" of each function that the page lists
listed() {
	awk -v way="$1" '
		/^<!-- way: / { on = $0 == "<!-- way: " way " -->"; next }
		/^## / { on = 0 }
		on && /^    [a-z_0-9\/]+\.[ch]: / {
			file = $1; sub(/:$/, "", file)
			sub(/^ *[^ ]+ */, ""); sub(/  .*/, "")
			names = split($0, name, /, */)
			for (i = 1; i <= names; i++) print file, name[i]
		}' "$2" | sort -u
}

sed -n 's/^<!-- way: \(.*\) -->$/\1/p' "$page" >"$tmp/ways"
[ "$(grep -vc '^waiting$' "$tmp/ways")" -ge 3 ] || { echo "not ok 1 - $page has three ways"; echo 1..1; exit 1; }
listed waiting "$page" >"$tmp/waiting"
nm $program | awk '{ print $NF }' | sed 's/\..*//' | sort -u >"$tmp/symbols"
while read -r way; do
	[ "$way" != waiting ] || continue
	listed "$way" "$page" >"$tmp/listed"
	for try in 1 2 3; do           # on a busy machine each call may wait for so long that ranks send statuses
		rm -f "$tmp"/count.*
		execute $way >"$tmp/wrong" || break
		comm -23 "$tmp/least" "$tmp/listed" | comm -23 - "$tmp/waiting" | sed 's/^/executed, not listed: /' >"$tmp/wrong"
		[ -s "$tmp/wrong" ] || break
	done
	comm -13 "$tmp/executed" "$tmp/listed" | awk -v symbols="$tmp/symbols" '
		BEGIN { while ((getline s <symbols) > 0) has[s] = 1 } $2 in has { print "listed, not executed: " $0 }' >>"$tmp/wrong"
	point "a call: $way" "$tmp/wrong"
	cut -d' ' -f1 "$tmp/listed" | grep '\.c$' | sort -u | awk 'END { if (NR > 15 || !NR) print NR " files" }' >"$tmp/wrong"
	point "in at most 15 files: $way" "$tmp/wrong"
done <"$tmp/ways"

# a page with one function too many and one function missing
sed 's/^    \(lib\/api\/collectives\.c\): tuttiAllReduce/    \1: tuttiBroadcast/' "$page" >"$tmp/page"
way=$(head -n 1 "$tmp/ways")
listed "$way" "$tmp/page" >"$tmp/listed"
rm -f "$tmp"/count.*
execute $way >"$tmp/wrong"
{ comm -23 "$tmp/least" "$tmp/listed" | grep -q tuttiAllReduce && comm -13 "$tmp/executed" "$tmp/listed" | grep -q tuttiBroadcast; } &&
	: >"$tmp/wrong" || echo "a wrong page was accepted" >"$tmp/wrong"
point "a wrong page is refused" "$tmp/wrong"
echo 1..$n
