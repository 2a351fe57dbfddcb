#!/bin/sh
# check_hardening.sh - the built libraries and tools are hardened: read-only relocations, all bound at start; stack protector
# Called by make check in the build folder.
command -v readelf >/dev/null || { echo "no readelf (package binutils)"; exit 77; }
[ -e .libs/libtutti.so ] || { echo "no shared library in this build"; exit 77; }

n=0
claim() {   # STATUS DESCRIPTION
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}
# the file that libtool links: its wrapper of a program is a script
binary() { [ -e "$(dirname "$1")/.libs/$(basename "$1")" ] && echo "$(dirname "$1")/.libs/$(basename "$1")" || echo "$1"; }

for file in .libs/libtutti.so .libs/libtutti-train.so .libs/libnccl.so .libs/libtutti-mpi-ompi.so .libs/libtutti-mpi-mpich.so .libs/libtutti-mpi-abi.so perf/tutti perf/allreduce_perf trainer/tutti-train; do
	file=$(binary $file)
	[ -e "$file" ] || continue
	readelf -lW "$file" | grep -q GNU_RELRO
	claim $? "$file: relocations become read-only (RELRO)"
	readelf -dW "$file" | grep -qE 'BIND_NOW|FLAGS_1.*NOW'
	claim $? "$file: every function is bound at start (BIND_NOW)"
	! readelf -lW "$file" | grep GNU_STACK | grep -q E
	claim $? "$file: no stack is executable"
done
readelf --dyn-syms -W .libs/libtutti.so | grep -q __stack_chk_fail
claim $? "libtutti.so: functions with arrays check the stack (stack protector)"
if grep -q '^TT_HARDEN = .*_FORTIFY_SOURCE' Makefile && ! grep -q '^CFLAGS = .*-O0' Makefile; then
	readelf --dyn-syms -W .libs/libtutti.so | grep -qE '__(snprintf|memcpy|read|recv)_chk'
	claim $? "libtutti.so: calls of libc check the sizes of buffers (_FORTIFY_SOURCE)"
else
	n=$((n + 1))
	echo "ok $n - libtutti.so: _FORTIFY_SOURCE # SKIP a build without optimization, or with a sanitizer"
fi
echo 1..$n
