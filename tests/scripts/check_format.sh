#!/bin/sh
# check_format.sh - every C file has the format of .clang-format, by clang-format 14 (Debian 12)
# Called by make check. `clang-format -i FILE` repairs a file.
clang-format --version 2>/dev/null | grep -q 'version 14\.' || { echo "no clang-format 14"; exit 77; }
cd "$top_srcdir" || exit 1
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
find lib algorithms transports nccl mpi tools perf trainer tests examples \( -name '*.[ch]' -o -name '*.cu' \) ! -path 'tests/fixtures/*' |
	sort | xargs -n 16 -P 2 clang-format -n -Werror >"$tmp/log" 2>&1
files=$(sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*/\1/p' "$tmp/log" | sort -u)
[ -z "$files" ] && echo "ok 1 - clang-format would change nothing" || {
	echo "not ok 1 - clang-format would change nothing"
	printf '%s\n' "$files" | sed 's/^/# clang-format -i /'
}
printf 'int  x;\n' >"$tmp/x.c"
! clang-format -n -Werror "$tmp/x.c" 2>/dev/null && echo "ok 2 - a badly formatted file is found" || echo "not ok 2 - a badly formatted file is found"
echo 1..2
