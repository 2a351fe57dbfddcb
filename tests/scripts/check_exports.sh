#!/bin/sh
# check_exports.sh - libtutti.so exports exactly the functions of tutti.h, and calls nothing that affects the whole process; it
# contains nothing of lib/verify
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

# inside NAME...: those functions that the library contains
nm --defined-only $lib | awk '{ print $3 }' | sort -u >"$exported"
inside() { printf '%s\n' "$@" | sort | comm -12 - "$exported"; }
verify=$(nm --defined-only .libs/libtutti-verify.a | awk '$2 == "T" { print $3 }')
expect_empty "the library contains no function of lib/verify" "$([ -n "$verify" ] && inside $verify || echo "no function in libtutti-verify.a")"
expect_empty "a function that it contains is found" "$(inside $verify tuttiAllReduce | grep -xq tuttiAllReduce || echo "tuttiAllReduce is not found")"
if [ -e .libs/libtutti-train.so ]; then
	expect_empty "libtutti-train.so exports the functions of tutti_train.h only" "$(
		nm -D --defined-only .libs/libtutti-train.so | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | grep -vx tuttiTrain)"
fi
echo 1..$n
