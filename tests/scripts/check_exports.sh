#!/bin/sh
# check_exports.sh - libtutti.so exports exactly the functions of tutti.h, and calls nothing that affects the whole process
# Called by make check in the build folder.
lib=.libs/libtutti.so
[ -e $lib ] || { echo "no shared library in this build"; exit 77; }

n=0
expect_empty() {   # DESCRIPTION LINES
	n=$((n + 1))
	[ -z "$2" ] && echo "ok $n - $1" || { echo "not ok $n - $1"; echo "$2" | sed 's/^/# /'; }
}

declared=$(mktemp) exported=$(mktemp)
trap 'rm -f "$declared" "$exported"' EXIT
sed -n 's/^TUTTI_API [a-zA-Z_ *]*[ *]\(tutti[A-Za-z]*\)(.*/\1/p' "$top_srcdir/lib/tutti.h" | sort >"$declared"
nm -D --defined-only $lib | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$exported"
called=$(nm -D --undefined-only $lib | awk '{ sub(/@.*/, "", $NF); print $NF }')

[ "$(wc -l <"$declared")" -ge 40 ] || { echo "not ok 1 - tutti.h can be read by this script"; echo 1..1; exit 1; }
expect_empty "every declared function is exported" "$(comm -23 "$declared" "$exported")"
expect_empty "every exported symbol is declared" "$(comm -13 "$declared" "$exported")"
expect_empty "the library never exits, handles signals or changes the environment" \
	"$(echo "$called" | grep -xE 'exit|signal|sigaction|setenv|putenv|unsetenv|atexit|system')"
expect_empty "the library needs only libc, OpenSSL and hwloc" "$(readelf -d $lib | sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p' |
	grep -vE '^(libc|libm|libpthread|libdl|libssl|libcrypto|libhwloc|ld-linux.*)\.so')"
expect_empty "the library cannot be unloaded while its threads run" "$(readelf -d $lib | grep -q NODELETE || echo "no NODELETE flag")"
echo 1..$n
