#!/bin/bash
# fuzz_coverage.sh [FOLDER] - which lines of the parsers do the fuzzers execute? FOLDER: a build with CFLAGS='-O0 --coverage',
# build-coverage; made where it is not there. Each fuzzer takes its seeds and 20,000 random inputs. Prints a table by file, and
# TAP: at least TT_COVERAGE (90) % of the lines of the functions in tests/fuzz/parsers, in each file.
top=$(cd "${top_srcdir:-.}" && pwd)
dir=${1:-build-coverage}
least=${TT_COVERAGE:-90}
command -v gcov >/dev/null || { echo "no gcov"; exit 77; }
trap 'exit 130' INT TERM
if [ ! -f "$dir/Makefile" ]; then
	mkdir -p "$dir" && (cd "$dir" && "$top/configure" --disable-shared CFLAGS='-O0 --coverage' >configure.log 2>&1) ||
		{ echo "cannot configure $dir (see $dir/configure.log)"; exit 99; }
fi
cd "$dir" || exit 99
fuzzers=$(cd "$top/tests/fuzz" && ls fuzz_*.c | sed 's/\.c$//' | grep -vE '^fuzz_(main|control)$')
make -j"$(nproc)" libtutti-core.la $(printf 'tests/fuzz/%s ' $fuzzers) >coverage.log 2>&1 ||
	{ tail -n 5 coverage.log; exit 99; }
find . -name '*.gcda' -delete
n=0
for fuzzer in $fuzzers; do
	seeds=$top/tests/fuzz/seeds/$fuzzer
	[ -d "$seeds" ] || seeds=
	if "tests/fuzz/$fuzzer" -runs="${TT_FUZZ_RUNS:-20000}" $seeds >coverage.log 2>&1; then
		echo "ok $((n += 1)) - $fuzzer: $(tail -n 1 coverage.log)"
	else
		echo "not ok $((n += 1)) - $fuzzer"
		tail -n 5 coverage.log | sed 's/^/# /'
	fi
done

# gcov -f says of a function: Function 'name', then Lines executed:P% of N.
lines_of() { # file of the list
	local file=$1 data
	data=$(find . -name "*$(basename "$file" .c).gcda" -path "*$(dirname "$file")/*" | head -n 1)
	case $file in # a part of its fuzzer
	lib/launch/store_pmi.c) data=$(find . -name '*fuzz_store.gcda' | head -n 1) ;;
	perf/commands/trace_files.c) data=$(find . -name '*fuzz_trace.gcda' | head -n 1) ;;
	trainer/cluster.c) data=$(find . -name '*fuzz_cluster.gcda' | head -n 1) ;;
	trainer/checkpoint.c) data=$(find . -name '*fuzz_checkpoint.gcda' | head -n 1) ;;
	esac
	[ -n "$data" ] && gcov -n -f "$data" 2>/dev/null
}
grep -v '^#' "$top/tests/fuzz/parsers" | while IFS=: read -r file functions; do
	lines_of "$file" | awk -v file="$file" -v list="$functions" '
		BEGIN { n = split(list, name, " "); for (i = 1; i <= n; i++) wanted[name[i]] = 1 }
		/^Function / { f = $2; gsub(/\x27/, "", f) }
		/^No executable lines/ { f = "" }
		/^Lines executed:/ && f in wanted {
			split($0, part, /[:% ]+/)
			lines += part[5]; hit += part[3] * part[5] / 100
			if (part[3] < 100) rest = rest sprintf(" %s %d%%", f, part[3])
			delete wanted[f]; f = ""
		}
		END {
			for (f in wanted) rest = rest " " f " (not found)"
			printf "%s %d %d%s\n", file, hit + 0.5, lines, rest
		}'
done | awk -v least="$least" -v n=$((n + 1)) '
	BEGIN { print "# lines of parsers executed by the fuzzers" }
	{ printf "# %-40s %4d of %4d %5.1f %%", $1, $2, $3, $3 ? 100 * $2 / $3 : 0
	  rest = ""; for (i = 4; i <= NF; i++) rest = rest " " $i
	  print rest; hit += $2; lines += $3; missing += rest ~ /not found/
	  if (!$3 || 100 * $2 / $3 < least) few = few " " $1 }
	END {
		p = lines ? 100 * hit / lines : 0
		printf "# all %d of %d lines, %.1f %%\n", hit, lines, p
		print (few ? "not ok " : "ok ") n " - at least " least " % of the lines of each file of parsers" few
		print (missing ? "not ok " : "ok ") n + 1 " - every function of tests/fuzz/parsers exists"
		print "1.." n + 1
		exit few || missing
	}'
