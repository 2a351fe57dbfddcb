#!/bin/sh
# check_nccl.sh - libnccl.so.2 has NCCL's exports, is small, and runs a program written against nccl.h
# Called by make check in the build folder. fixtures/nccl/*.txt list symbols: exports of NCCL, and imports of PyTorch.
lib=.libs/libnccl.so.2
[ -e $lib ] || { echo "no shared library in this build"; exit 77; }
fixtures=$top_srcdir/tests/fixtures/nccl

n=0
point() {   # STATUS DESCRIPTION [LINES]
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" || { echo "not ok $n - $2"; echo "$3" | sed 's/^/# /'; }
}
expect_empty() {   # DESCRIPTION LINES
	[ -z "$2" ]
	point $? "$1" "$2"
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

nm -D --defined-only $lib | awk '{ print $3 }' | sort >"$tmp/exported"
[ "$(wc -l <"$fixtures/exports-2.28.9.txt")" -ge 100 ]
point $? "the list of NCCL's symbols can be read"
for list in exports-2.28.9 exports-later torch-2.11.0; do
	sort "$fixtures/$list.txt" >"$tmp/list"
	expect_empty "every symbol of $list.txt is exported" "$(comm -23 "$tmp/list" "$tmp/exported")"
done
expect_empty "no other symbol is exported" "$(sort -u "$fixtures"/exports-*.txt | comm -13 - "$tmp/exported")"
expect_empty "symbols have no versions" "$(nm -D --defined-only $lib | grep @)"
expect_empty "each ncclX is a weak symbol beside a strong pncclX" "$(nm -D --defined-only $lib | awk '
	$3 ~ /^nccl/ && $3 !~ /Internal$/ && $2 != "W" || $3 ~ /^pnccl/ && $2 != "T"')"
# A program may also contain NCCL, whose pncclX would otherwise be called.
expect_empty "internal calls use no name that NCCL exports" "$(readelf -rW $lib | grep -oE 'p?nccl[A-Z][A-Za-z]*' | sort -u)"
[ "$(readelf -d $lib | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = libnccl.so.2 ]
point $? "the soname is libnccl.so.2"
expect_empty "the library needs only libc, OpenSSL and hwloc" "$(readelf -d $lib | sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p' |
	grep -vE '^(libc|libm|libpthread|libdl|libssl|libcrypto|libhwloc|ld-linux.*)\.so')"
strip --strip-unneeded -o "$tmp/stripped" $lib
bytes=$(wc -c <"$tmp/stripped")
[ "$bytes" -lt 3670016 ]
point $? "the library is smaller than 3.5 MiB ($bytes bytes stripped)"

# The client was compiled with our header; where NVIDIA's is installed, the client is compiled with it, too.
export LD_LIBRARY_PATH="$PWD/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
stock=
for dir in ${NCCL_HOME:+"$NCCL_HOME/include"} /usr/local/cuda/include /usr/include; do
	[ -e "$dir/nccl.h" ] && stock=$dir && break
done
if [ -n "$stock" ] && grep -q 'NCCL_VERSION_CODE 228' "$stock/nccl.h"; then
	printf '#include <limits.h>\n#include <stddef.h>\n#include <nccl.h>\n#include "nccl/nccl_facts.h"\n' |
		$CC -std=gnu17 -I"$stock" -I"$top_srcdir" -fsyntax-only -xc - >"$tmp/log" 2>&1
	point $? "NVIDIA's header has our layouts and numbers" "$(cat "$tmp/log")"
	$CC -std=gnu17 -DNCCL_HEADER='<nccl.h>' -I"$stock" -I"$top_srcdir" "$top_srcdir"/tests/nccl/nccl_client*.c -o "$tmp/stock" -L.libs \
		-lnccl -lpthread -ldl >"$tmp/log" 2>&1
	point $? "the client compiles with NVIDIA's header" "$(cat "$tmp/log")"
	LD_BIND_NOW=1 timeout 60 "$tmp/stock" collectives one-thread configs >"$tmp/log" 2>&1
	point $? "the client compiled with NVIDIA's header runs" "$(cat "$tmp/log")"
else
	for what in "NVIDIA's header has our layouts and numbers" "the client compiles with NVIDIA's header" \
		"the client compiled with NVIDIA's header runs"; do
		n=$((n + 1))
		echo "ok $n - $what # SKIP no nccl.h of 2.28 on this machine"
	done
fi

# run_client KIND LEAST-NUMBER-OF-CASES COMMAND...: the client's points become points of this script
run_client() {
	kind=$1 least=$2
	shift 2
	timeout 120 "$@" >"$tmp/log" 2>&1
	grep '^#' "$tmp/log"
	grep -E '^(not )?ok' "$tmp/log" >"$tmp/points"
	while IFS= read -r line; do
		case $line in ok*) status=0 ;; *) status=1 ;; esac
		point $status "$kind: ${line#*- }"
	done <"$tmp/points"
	[ "$(wc -l <"$tmp/points")" -ge "$least" ]
	point $? "$kind: the client completes" "$(tail -5 "$tmp/log")"
}
run_client "host memory" 35 tests/nccl/nccl_client
fake=$PWD/tests/fakes/cuda/libcuda.so.1
run_client "fake CUDA driver" 37 env NCCL_CLIENT_CUDA="$fake" tests/nccl/nccl_client
run_client "fake CUDA driver with random delays" 12 env NCCL_CLIENT_CUDA="$fake" TUTTI_TEST_CUDA_DELAY_US=1000 \
	tests/nccl/nccl_client groups split several one-thread abort killed operations again

# Training with PyTorch's calls; each rank on a GPU of its own, and all on one
if [ -x tests/nccl/nccl_train ]; then
	run_client "fake CUDA driver" 7 env NCCL_CLIENT_CUDA="$fake" tests/nccl/nccl_train
	run_client "a fake GPU for each rank, with random delays" 7 env NCCL_CLIENT_CUDA="$fake" TUTTI_TEST_CUDA_DEVICES=4 \
		TUTTI_TEST_CUDA_DELAY_US=100 tests/nccl/nccl_train
fi

# A profiler replaces ncclX and calls pncclX. This profiler also changes the operation, which makes the client fail.
cat >"$tmp/between.c" <<'END'
#include "nccl/nccl_abi.h"
ncclResult_t pncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			    cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream)
{
	return pncclAllReduce(in, out, n, type, op == ncclSum ? ncclMax : op, comm, stream);
}
END
$CC -shared -fPIC -I"$top_srcdir" "$tmp/between.c" -o "$tmp/between.so" &&
	! LD_PRELOAD=$tmp/between.so timeout 60 tests/nccl/nccl_client one-thread >"$tmp/log" 2>&1 &&
	grep -q 'not so: got == n' "$tmp/log"
point $? "a profiler can interpose between a program and the library" "$(cat "$tmp/log")"

# NCCL's variables that Tutti supports
NCCL_COMM_ID=127.0.0.1:29617 tests/nccl/nccl_client groups >"$tmp/log" 2>&1
grep -q 'TUTTI_SECRET must be set' "$tmp/log"
point $? "NCCL_COMM_ID without a secret is refused" "$(cat "$tmp/log")"
for port in 29617 30618 31619; do      # one port is free
	NCCL_COMM_ID=127.0.0.1:$port TUTTI_SECRET=check-nccl-$$ timeout 60 tests/nccl/nccl_client scaled >"$tmp/log" 2>&1
	grep -q 'is taken' "$tmp/log" || break
done
! grep -q '^not' "$tmp/log"
point $? "NCCL_COMM_ID sets the address of the bootstrap" "$(cat "$tmp/log")"
NCCL_SOCKET_IFNAME==none0 tests/nccl/nccl_client scaled >"$tmp/log" 2>&1
grep -q none0 "$tmp/log"
point $? "NCCL_SOCKET_IFNAME has its effect" "$(cat "$tmp/log")"
NCCL_DEBUG=INFO NCCL_ALGO=ring NCCL_PROTO=LL NCCL_IB_TC=3 timeout 60 tests/nccl/nccl_client configs >"$tmp/log" 2>&1
[ "$(grep -c 'not read by Tutti: ' "$tmp/log")" = 1 ] && grep -q 'NCCL_ALGO' "$tmp/log" && grep -q 'NCCL_PROTO' "$tmp/log" &&
	! grep -q NCCL_IB_TC "$tmp/log"
point $? "NCCL_DEBUG=INFO names unsupported variables once" "$(cat "$tmp/log")"
for set in "" NCCL_P2P_DISABLE=1 NCCL_P2P_LEVEL=LOC; do
	env ${set:+$set} NCCL_DEBUG=INFO NCCL_CLIENT_CUDA="$fake" timeout 60 tests/nccl/nccl_client scaled >"$tmp/log" 2>&1
	grep -q 'GPU kernels on device' "$tmp/log" && echo "$set"
done >"$tmp/with-kernels"
[ "$(cat "$tmp/with-kernels")" = "" ] && [ "$(wc -l <"$tmp/with-kernels")" = 1 ]
point $? "GPU kernels run without NCCL_P2P_DISABLE, and not with it" "$(cat "$tmp/with-kernels" "$tmp/log")"
# refused VARIABLE=VALUE PATTERN: with the fake libibverbs
refused() {
	env "$1" LD_LIBRARY_PATH="$PWD/tests/fakes/verbs:$LD_LIBRARY_PATH" TUTTI_TEST_VERBS="$tmp/verbs" \
		TUTTI_TRANSPORT=verbs timeout 60 tests/nccl/nccl_client scaled >"$tmp/log" 2>&1
	grep -q "$2" "$tmp/log"
	point $? "$1 has its effect" "$(cat "$tmp/log")"
}
refused NCCL_IB_HCA=mlx5_7:1 'TUTTI_IB_HCA=mlx5_7 names none'
refused NCCL_IB_DISABLE=1 'TUTTI_IB_HCA==none names none'
NCCL_DEBUG=VERSION timeout 60 tests/nccl/nccl_client configs >"$tmp/log" 2>&1
[ "$(grep -c 'NCCL version 2.28.9 is provided by Tutti .*libnccl.so.2' "$tmp/log")" = 1 ] && [ "$(grep -c tutti "$tmp/log")" = 1 ]
point $? "NCCL_DEBUG=VERSION prints only the version and the file" "$(cat "$tmp/log")"
NCCL_COMM_BLOCKING=0 timeout 60 tests/nccl/nccl_client nonblocking >"$tmp/log" 2>&1
point $? "NCCL_COMM_BLOCKING has its effect" "$(cat "$tmp/log")"

# measure COLLECTIVE ENVIRONMENT...: no value is wrong, and every line has nccl-tests' columns
measure() {
	collective=$1
	shift
	timeout 60 env "$@" tests/nccl/nccl_perf "$collective" -p 3 -b 192 -e 96K -f 8 -n 2 -w 1 >"$tmp/log" 2>&1
	status=$?
	lines=$(awk '/^ / && NF == 13 && ($9 != 0 || $13 != 0 && $13 != "N/A") { exit } /^ / && NF == 13 { n++ } END { print n + 0 }' \
		"$tmp/log")
	[ $status = 0 ] && [ "$lines" = 4 ]
	point $? "nccl_perf $collective: the results are right, in nccl-tests' columns" "$(cat "$tmp/log")"
}
measure all_reduce
measure alltoall
measure reduce_scatter NCCL_CLIENT_CUDA="$fake"
echo 1..$n
