#!/bin/bash
# nccl_tests.sh - NVIDIA's nccl-tests over libnccl.so.2 without a GPU: every program, all values checked
#
#   NCCL_TESTS=FOLDER tests/scripts/nccl_tests.sh      in the build folder, after make check; FOLDER: a checkout of nccl-tests
#
# nvcc compiles the programs unchanged. The runtime is tests/fakes/cudart, the driver tests/fakes/cuda, or the one in
# TUTTI_TEST_CUDA_DRIVER (tests/fakes/ptx). The kernels that make and verify values run as host functions
# (tests/nccl/host_launch.h). The programs' kernels over NCCL's device interface are not run. TAP; called by tests/tiers full.
# Exits with 77 and the reason if something is missing.
set -u
top=$(cd "${top_srcdir:-..}" && pwd) from=${NCCL_TESTS:-}
miss() { echo "skipped: $1"; exit 77; }
[ -e "$from/verifiable/verifiable.cu" ] || miss "no nccl-tests in NCCL_TESTS"
nvcc=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)} || miss "no nvcc"
cuda=$(dirname "$nvcc")/../include
grep -qs 'CUDART_VERSION  *13' "$cuda/cuda_runtime_api.h" || miss "no headers of CUDA 13 beside nvcc"
[ -e "$cuda/nccl.h" ] || miss "no nccl.h beside CUDA's headers"
[ -e .libs/libnccl.so.2 ] && [ -e tests/fakes/cuda/libcuda.so.1 ] || miss "this build has no shared library or no fake CUDA driver"
n=0 failed=0
point() { # STATUS TEXT LOG
	n=$((n + 1))
	[ "$1" = 0 ] && { echo "ok $n - $2"; return; }
	failed=1
	echo "not ok $n - $2"
	tail -n 25 "$3" | sed 's/^/# /'
}

# ---- the programs, kept as long as their sources are the same ----------------------------------------------------------

made=$PWD/nccl-tests/$(cat "$from"/{src,verifiable,os}/*.{cu,cc,h} "$top"/tests/{nccl/host_launch.h,fakes/cudart/runtime.c} 2>/dev/null |
	sha256sum | cut -c1-16)
flags=(-std=c++17 -O1 -DNCCL_OS_LINUX "-I$from/verifiable" "-I$from/os" "-I$from")
mkdir -p "$made"
log=$made/log
make_all() {
	local f o
	echo 'libcudart.so.13 { global: *; };' >"$made/map"
	${CC:-cc} -std=gnu17 -O1 -g -shared -fPIC -fvisibility=hidden "-I$top/lib" "-I$cuda" "$top/tests/fakes/cudart/runtime.c" \
		tests/fakes/cuda/libcuda.so.1 -Wl,-soname,libcudart.so.13 "-Wl,--version-script=$made/map" -o "$made/libcudart.so.13" || return
	sed -e 's/(void const\*)&\([A-Za-z0-9_]*<[^;]*>\);/HOST_KERNEL(\1);/' -e 's/cudaLaunchKernel(/host_launch(/' \
		-e 's/asm volatile("red\.global\.add\.u64.*/__atomic_fetch_add(bad_elt_n, bad, __ATOMIC_RELAXED);/' \
		-e '/<<<1,512>>>/d' "$from/verifiable/verifiable.cu" >"$made/verifiable.cc"
	${CXX:-g++} -w "${flags[@]}" "-I$cuda" "-I$top/tests/nccl" -include host_launch.h -c "$made/verifiable.cc" -o "$made/verifiable.o" &&
		${CXX:-g++} "${flags[@]}" -c "$from/src/timer.cc" -o "$made/timer.o" &&
		${CXX:-g++} "${flags[@]}" -c "$from/os/linux.cc" -o "$made/linux.o" || return
	for f in "$from"/src/*.cu; do
		o=$made/$(basename "$f" .cu).o
		[ -e "$o" ] || { "$nvcc" -arch=sm_90 -Xptxas -O0 --extended-lambda "${flags[@]}" -c "$f" -o "$o.new" && mv "$o.new" "$o"; } || return
	done
	for f in all_reduce all_gather broadcast reduce_scatter reduce alltoall alltoallv scatter gather sendrecv hypercube; do
		${CXX:-g++} "$made"/{$f,common,util,timer,linux,verifiable}.o .libs/libnccl.so.2 "$made/libcudart.so.13" \
			-Wl,-rpath-link,tests/fakes/cuda -lpthread -o "$made/${f}_perf" || return
	done
}
[ -e "$made/done" ] || { make_all && touch "$made/done"; } >"$log" 2>&1
point $? "nvcc compiles nccl-tests $(sed -n 's/^#define NCCL_TESTS_VERSION "\(.*\)"/\1/p' "$from/src/common.h"), and they link with libnccl.so.2" "$log"
[ $failed = 0 ] || { echo "1..$n"; exit 1; }

# ---- runs --------------------------------------------------------------------------------------------------------------

driver=${TUTTI_TEST_CUDA_DRIVER:-tests/fakes/cuda/libcuda.so.1}
export LD_LIBRARY_PATH="$PWD/.libs:$made:$(cd "$(dirname "$driver")" && pwd)" TUTTI_TEST_CUDA_DEVICES=4 CUDA_DEVICE_MAX_CONNECTIONS=32

# run TEXT ROWS PROGRAM ARGUMENT...: at least ROWS lines of results, whose values are right
run() {
	timeout -k 5 300 "$made/$3_perf" "${@:4}" -c 1 -n 2 -w 1 >"$log" 2>&1 </dev/null &&
		grep -q '# Out of bounds values : 0 OK' "$log" &&
		[ "$(awk '$1 ~ /^[0-9]+$/ && $(NF - 4) ~ /^(0|N\/A)$/ && $NF ~ /^(0|N\/A)$/ && $(NF - 4) $NF != "N/AN/A"' "$log" | wc -l)" -ge "$2" ]
	point $? "$3_perf: $1" "$log"
}
for program in all_reduce all_gather broadcast reduce_scatter reduce alltoall alltoallv scatter gather sendrecv; do
	run "4 ranks of one thread, a GPU each" 4 $program -g 4 -b 192 -e 768K -f 16
done
run "4 threads" 4 hypercube -t 4 -b 192 -e 768K -f 16   # with -g, its steps would be one group
run "2 threads with 2 ranks each" 4 all_reduce -t 2 -g 2 -b 192 -e 768K -f 16
run "in graphs" 2 all_reduce -g 2 -b 1K -e 64K -f 64 -G 2
run "every type and operation" 70 all_reduce -g 2 -b 1K -e 1K -d all -o all
run "every type and operation" 70 reduce_scatter -g 3 -b 3K -e 3K -d all -o all
run "every type" 12 all_gather -g 3 -b 3K -e 3K -d all
run "every root" 4 broadcast -g 4 -b 4K -e 4K -r -1
run "registered buffers" 2 all_reduce -g 2 -b 1K -e 64K -f 64 -R 1
run "without calls that block" 2 all_reduce -t 2 -b 1K -e 64K -f 64 -z 0

cat >"$made/between.c" <<'END'
#include <nccl.h>
ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return pncclAllReduce(in, out, n, type, op == ncclSum ? ncclMax : op, comm, stream);
}
END
${CC:-cc} -shared -fPIC "-I$cuda" "$made/between.c" -o "$made/between.so" >"$log" 2>&1 &&
	! LD_PRELOAD=$made/between.so timeout 60 "$made/all_reduce_perf" -g 2 -b 1K -e 1K -c 1 -n 2 -w 1 >"$log" 2>&1 </dev/null &&
	grep -q 'Out of bounds values : 2 FAILED' "$log"
point $? "all_reduce_perf sees a library that takes maxima for sums" "$log"
echo "1..$n"
exit $failed
