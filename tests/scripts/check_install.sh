#!/bin/sh
# check_install.sh - the files of `make install` suffice to compile, link and run the README's program
# Called by make check in the build folder.
n=0
point() {   # STATUS DESCRIPTION
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}

[ -e .libs/libtutti.so ] || { echo "no shared library in this build"; exit 77; }
command -v pkg-config >/dev/null || { echo "no pkg-config"; exit 77; }
tmp=$(mktemp -d) dest=$tmp/root
trap 'rm -rf "$tmp"' EXIT
${MAKE:-make} -s install DESTDIR="$dest" >"$tmp/log" 2>&1
point $? "make install"

libdir=$(dirname "$(find "$dest" -name libtutti.so)")
export PKG_CONFIG_SYSROOT_DIR="$dest" PKG_CONFIG_PATH="$libdir/pkgconfig"
$CC "$top_srcdir/examples/allreduce.c" -o "$tmp/shared" $(pkg-config --cflags --libs tutti)
point $? "the program compiles and links with pkg-config --cflags --libs tutti"
# the lines of tutti_comm(3)
if command -v c++ >/dev/null; then
	c++ -x c++ "$top_srcdir/examples/allreduce.c" -o "$tmp/cxx" $(pkg-config --cflags --libs tutti)
	point $? "the program is C++, too"
fi
if command -v cmake >/dev/null && command -v c++ >/dev/null; then
	mkdir "$tmp/cmake"
	cp "$top_srcdir/examples/allreduce.c" "$tmp/cmake/x.cc"
	{ echo "cmake_minimum_required(VERSION 3.13)"; echo "project(x CXX)"; echo "add_executable(x x.cc)"
	  sed -n '/^find_package/,/^target_link/p' "$top_srcdir/man/tutti_comm.3"; } >"$tmp/cmake/CMakeLists.txt"
	cmake -S "$tmp/cmake" -B "$tmp/cmake/build" -Dtutti_DIR="$libdir/cmake/tutti" >"$tmp/log" 2>&1 && cmake --build "$tmp/cmake/build" >>"$tmp/log" 2>&1
	point $? "the lines for CMake build the program"
	[ -x "$tmp/cmake/build/x" ] || tail -5 "$tmp/log" | sed 's/^/# /'
fi
if [ -e "$libdir/libtutti-train.so" ]; then
	$CC "$top_srcdir/examples/train_sine.c" -o "$tmp/train" $(pkg-config --cflags --libs tutti-train) -lm &&
		LD_LIBRARY_PATH=$libdir "$tmp/train" --steps 1 >"$tmp/log" 2>&1
	point $? "a program with a model of its own compiles with pkg-config --cflags --libs tutti-train, and trains"
fi
kinds=shared
if [ -e "$libdir/libtutti.a" ]; then
	kinds="shared static"
	flags=$(pkg-config --libs --static tutti | sed "s| *-ltutti | $libdir/libtutti.a |")
	$CC "$top_srcdir/examples/allreduce.c" -o "$tmp/static" $(pkg-config --cflags tutti) $flags
	point $? "the program links with libtutti.a"
	ldd "$tmp/static" | grep -q libtutti
	[ $? -ne 0 ]
	point $? "the static program does not need libtutti.so"
else
	point 0 "the program links with libtutti.a # SKIP this build has none"
fi

[ -e "$libdir/tutti/libnccl.so.2" ] && [ -z "$(find "$libdir" -maxdepth 1 -name 'libnccl*')" ]
point $? "libnccl.so.2 is in a folder of its own"

tool=$(find "$dest" -name all_reduce_perf) && "$(readlink -f "$tool")" --version >"$tmp/log" && [ -e "$(dirname "$tool")/all_gather_perf" ]
point $? "the tools have the names of nccl-tests, too"

# a page for every function of the header, and for every tool
pages=$(find "$dest" -path '*/man/man[13]/*')
none=$(for name in $(sed -n 's/^TUTTI_API.* \**\(tutti[A-Z][A-Za-z]*\)(.*/\1.3/p' "$top_srcdir/lib/tutti.h" "$top_srcdir/trainer/tutti_train.h") \
		$(cd "$dest" && find . -path '*/bin/*' | sed 's|.*/||; s/$/.1/'); do
	page=$(echo "$pages" | grep "/$name$") && [ -s "$page" ] || echo "$name"
done)
[ -z "$none" ]
point $? "a manual page for every function and every tool"
[ -z "$none" ] || echo "# none:" $none

# another prefix than configure's, and moved afterwards
${MAKE:-make} -s install prefix="$tmp/first" >"$tmp/log" 2>&1 && mv "$tmp/first" "$tmp/moved"
point $? "make install prefix=DIR"
moved=$(dirname "$(find "$tmp/moved" -name libtutti.so)")
paths=$(env -u PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH="$moved/pkgconfig" pkg-config --cflags --libs tutti)
env -u PKG_CONFIG_SYSROOT_DIR $CC "$top_srcdir/examples/allreduce.c" -o "$tmp/relocated" $paths && case $paths in *"$tmp/first"* | */usr/local*) false ;; esac
point $? "pkg-config gives the paths of the moved installation: $(echo "$paths" | sed "s|$tmp||g")"
[ "$(LD_LIBRARY_PATH=$moved env -u TUTTI_RANK "$tmp/relocated")" = "1 ranks are here" ]
point $? "the program runs with the moved library"
if [ -d "$tmp/cmake" ]; then
	cmake -S "$tmp/cmake" -B "$tmp/cmake/moved" -DCMAKE_PREFIX_PATH="$tmp/moved" >"$tmp/log" 2>&1 && cmake --build "$tmp/cmake/moved" >>"$tmp/log" 2>&1 &&
		[ "$("$tmp/cmake/moved/x")" = "1 ranks are here" ]
	point $? "CMake finds the moved library by its prefix"
	[ -x "$tmp/cmake/moved/x" ] || tail -5 "$tmp/log" | sed 's/^/# /'
	sed -i 's/find_package(tutti 0.1/find_package(tutti 0.2/' "$tmp/cmake/CMakeLists.txt"
	! cmake -S "$tmp/cmake" -B "$tmp/cmake/newer" -DCMAKE_PREFIX_PATH="$tmp/moved" >"$tmp/log" 2>&1 && grep -q 'version: 0.1' "$tmp/log"
	point $? "CMake refuses a version that is not installed"
fi

export TUTTI_NRANKS=3 TUTTI_SECRET=check-install LD_LIBRARY_PATH="$libdir"
for kind in $kinds; do
	for port in 29517 30518 31519; do   # one port is free
		export TUTTI_ROOT=127.0.0.1:$port
		for rank in 1 2; do
			TUTTI_RANK=$rank timeout 30 "$tmp/$kind" >"$tmp/out.$rank" 2>&1 &
		done
		TUTTI_RANK=0 timeout 30 "$tmp/$kind" >"$tmp/out.0" 2>&1
		wait
		grep -q 'is taken' "$tmp/out.0" || break
	done
	[ "$(cat "$tmp"/out.? | sort | uniq -c | sed 's/^ *//')" = "3 3 ranks are here" ]
	point $? "three processes allreduce with the $kind library"
	[ "$(cat "$tmp"/out.? | sort -u)" = "3 ranks are here" ] || sed 's/^/# /' "$tmp"/out.?
done
unset TUTTI_NRANKS TUTTI_ROOT TUTTI_SECRET
[ "$(env -u TUTTI_RANK "$tmp/shared")" = "1 ranks are here" ]
point $? "without variables the program is one rank"

${MAKE:-make} -s uninstall DESTDIR="$dest" >"$tmp/log" 2>&1
left=$(find "$dest" ! -type d)
[ -z "$left" ]
point $? "make uninstall removes all files"
echo "$left" | sed 's/^/# left: /'
echo 1..$n
