#!/bin/sh
# check_headers.sh - tutti.h is C99 and C++ and includes two standard headers only; every other header compiles on its own
# Called by make check with CC and top_srcdir.
n=0
compiles() {   # DESCRIPTION SOURCE COMMAND...
	n=$((n + 1))
	what=$1 source=$2
	shift 2
	if said=$(printf '%s\n' "$source" | "$@" -fsyntax-only -Werror -Wall -Wextra - 2>&1); then
		echo "ok $n - $what"
	else
		echo "not ok $n - $what"
		printf '%s\n' "$said" | head -n 20 | sed 's/^/# /'
	fi
}

user='#include "tutti.h"
int main(void) { tuttiConfig_t c = TUTTI_CONFIG_INITIALIZER; return c.timeout_ms; }'
train='#include "trainer/tutti_train.h"
int main(int argc, char **argv) { tuttiTrainModel_t m; m.size = sizeof(m); return tuttiTrain(argc, argv, &m); }'
cc="${CC:-cc} -I$top_srcdir/lib -I$top_srcdir"
compiles "tutti.h is C99" "$user" $cc -xc -std=c99 -pedantic
compiles "tutti_train.h is C99" "$train" $cc -xc -std=c99 -pedantic
cxx=$(command -v g++ || command -v clang++)
if [ -n "$cxx" ] && echo | $cxx -xc++ -fsyntax-only - 2>/dev/null; then
	for std in c++11 c++17; do
		compiles "tutti.h is $std" "$user" $cxx -I"$top_srcdir/lib" -xc++ -std=$std -pedantic
		compiles "tutti_train.h is $std" "$train" $cxx -I"$top_srcdir/lib" -I"$top_srcdir" -xc++ -std=$std -pedantic
	done
else
	n=$((n + 1))
	echo "ok $n - tutti.h is C++ # SKIP no C++ compiler"
fi

n=$((n + 1))
extra=$(grep '^#include' "$top_srcdir/lib/tutti.h" | grep -v -e '<stddef.h>' -e '<stdint.h>')
[ -z "$extra" ] && echo "ok $n - tutti.h includes stddef.h and stdint.h only" ||
	echo "not ok $n - tutti.h includes stddef.h and stdint.h only: $extra"

cuda=
for dir in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/include; do
	[ -e "$dir/cuda.h" ] && cuda=$dir && break
done
if [ -n "$cuda" ]; then
	compiles "gpu/cuda.h has the numbers and layouts of the vendor's cuda.h" \
		"$(cat "$top_srcdir/tests/gpu/cuda_facts.c")" $cc -isystem "$cuda" -xc -std=gnu17 -D_GNU_SOURCE
else
	n=$((n + 1))
	echo "ok $n - gpu/cuda.h has the numbers and layouts of the vendor's cuda.h # SKIP no cuda.h here"
fi

# A header without an include guard is a template, included several times by design.
cd "$top_srcdir" || exit 1
for h in $(find lib algorithms transports nccl mpi tools perf trainer -name "*.h" | sort); do
	grep -q '^#ifndef [A-Z0-9_]*_H$' "$h" || continue
	compiles "$h compiles on its own" "#include \"$h\"" $cc -xc -std=gnu17 -D_GNU_SOURCE -Wno-unused-function
done
echo 1..$n
