#!/bin/bash
# gpu_races.sh [PATTERN] - data races of nvcc's float32 kernel between 2 to 8 ranks, and defects that must be seen
#
# The kernel's PTX is translated and compiled for ThreadSanitizer (tests/fakes/ptx); ranks run allreduces with barriers, by LL and
# by kernels between waits of streams. Then each defect of tests/gpu/mutants (those that match PATTERN) is planted alone, except those
# that only a litmus program sees (gpu_litmus.sh). The
# kernel has SUM as its only op here, which shortens compiling. Prints TAP; run in the build folder.
set -u
. "${top_srcdir:-.}/tests/fakes/ptx/functions"
ptx_require every
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
flags=(-O0 -DPTX_RACES -fsanitize=thread)
n=0 failed=0
point() { echo "$1 $((n += 1)) - $2"; [ "$1" = ok ] || { failed=1; sed 's/^/# /' "$tmp/log" | head -n 30; }; }

# kernel EXPRESSION: makes $tmp/race of the kernel that EXPRESSION changes. 1: not made, and $tmp/log says why
kernel() {
	local ptx objects type=$tmp/source/gpu/kernels/kernel_type.h
	rm -rf "$tmp/source" && mkdir -p "$tmp/source/gpu" && cp -r "$ptx_top/lib/gpu/kernels" "$tmp/source/gpu/" || return 1
	sed -i "$1" "$tmp"/source/gpu/kernels/*
	[ -z "$1" ] || ! diff -r "$ptx_top/lib/gpu/kernels" "$tmp/source/gpu/kernels" >"$tmp/log" || { echo "the lines to change are gone" >"$tmp/log"; return 1; }
	ptx_source Float32 "$tmp/source"
	awk '/^#define WITH_OP/ { inside = 1 } inside && /case|break|f\((PROD|MAX|MIN|ADJUSTED)|BITWISE/ { next } { print }
		/^	}/ { inside = 0 }' "$type" >"$tmp/type.h" && mv "$tmp/type.h" "$type"
	ptx=$(ptx_of "$tmp/source/kernels.cu" tt_Float32 2>"$tmp/log") || return 1
	python3 -B "$ptx_here/ptx_rules.py" --vectors "$ptx" >"$tmp/log" || { how=rule; return 2; }
	objects=$(ptx_objects "$ptx" "${flags[@]}" 2>"$tmp/log") || { how=rule; return 2; }
	${CC:-cc} "${ptx_flags[@]}" -std=gnu17 -D_GNU_SOURCE "${flags[@]}" "$ptx_here/race_kernels.c" "$tmp/ptx_run.o" $objects \
		-o "$tmp/race" -lm 2>"$tmp/log"
}

# race RANKS ROUNDS LIMIT: runs the kernel; sets $how it failed
race() {
	local status
	timeout -k 5 900 env TSAN_OPTIONS="halt_on_error=1 exitcode=66" "$tmp/race" "$@" >"$tmp/log" 2>&1
	status=$?
	case $status in 0) how= ;; 66) how=race ;; 1) how=value ;; *) how=failure ;; esac
	return $status
}

# ptx_run.c switches threads itself, unseen by ThreadSanitizer
${CC:-cc} "${ptx_flags[@]}" -D_GNU_SOURCE -O1 -DPTX_RACES -c "$ptx_here/ptx_run.c" -o "$tmp/ptx_run.o" || exit 99
kernel '' || { point "not ok" "the kernel compiles for ThreadSanitizer"; echo "1..$n"; exit 1; }
for ranks in ${TT_RACE_RANKS:-2 3 4 5 6 7 8}; do
	race $ranks 15 120 && point ok "$ranks ranks: no race, no wrong value" || point "not ok" "$ranks ranks: no race, no wrong value"
done
while IFS= read -r line; do
	case $line in '#'*) continue ;; esac
	expression=${line%% | *} what=${line##* | } expected=${line#* | } expected=${line% | *} expected=${expected##* | }
	expression=${line% | "$expected" | "$what"}
	case $what in *${1-}*) ;; *) continue ;; esac
	case $expected in '- '*) continue ;; esac
	kernel "$expression"
	made=$?
	if [ $made = 1 ]; then
		point "not ok" "$what: not made"
		continue
	elif [ $made = 0 ]; then
		for attempt in 1 2 3 4 5; do race 3 $((attempt * 10)) 20 || break; done
	fi
	case " $expected " in
	*" ${how:-none} "*) point ok "$what: seen as $how" ;;
	*) point "not ok" "$what: ${how:-not seen}, not $expected" ;;
	esac
done <"$ptx_top/tests/gpu/mutants"
echo "1..$n"
exit $failed
