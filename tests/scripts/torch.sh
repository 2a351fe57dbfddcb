#!/bin/sh
# torch.sh - unmodified PyTorch over libnccl.so.2 without a GPU: collectives of a process group, and a killed rank
#
#   tests/scripts/torch.sh [PYTHON]      in the build folder, after make check; PYTHON has a PyTorch for CUDA 13, default python3
#
# The driver is tests/fakes/cuda, the runtime tests/fakes/cudart. Kernels of this runtime do nothing, so the script trains
# nothing. Called by tests/tiers full. Exits with 77 and the reason if PyTorch or CUDA's headers are missing.
tests=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
miss() { echo "skipped: $1"; exit 77; }

packages=$("$python" -c 'import os, torch; assert torch.version.cuda.startswith("13"); print(os.path.dirname(torch.__path__[0]))' \
	2>/dev/null) || miss "$python has no PyTorch for CUDA 13"
for include in "$packages/nvidia/cu13/include" /usr/local/cuda/include; do
	grep -qs 'CUDART_VERSION  *13' "$include/cuda_runtime_api.h" && break
done
[ -e "$include/cuda_runtime_api.h" ] || miss "CUDA's headers are not installed"
[ -e .libs/libnccl.so.2 ] && [ -e tests/fakes/cuda/libcuda.so.1 ] || miss "this build has no shared library or no fake CUDA driver"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo 'libcudart.so.13 { global: *; };' >"$tmp/map"
${CC:-cc} -std=gnu17 -O1 -g -shared -fPIC -fvisibility=hidden -I"$tests/../lib" -I"$include" \
	"$tests/fakes/cudart/runtime.c" tests/fakes/cuda/libcuda.so.1 -Wl,-soname,libcudart.so.13 \
	-Wl,--version-script="$tmp/map" -o "$tmp/libcudart.so.13" || exit 1
export LD_LIBRARY_PATH="$PWD/tests/fakes/cuda"
status=0
# run PART [VARIABLE=VALUE]
run() {
	part=$1
	shift
	env "$@" timeout 280 "$python" -W ignore "$tests/gpu/torch.py" --np 4 --part "$part" --largest 4096 \
		--preload "$tmp/libcudart.so.13:$PWD/.libs/libnccl.so.2" >"$tmp/log" 2>&1 || { cat "$tmp/log"; status=1; }
	grep -E '^(not )?ok' "$tmp/log"
}
run collectives
run collectives TORCH_NCCL_USE_COMM_NONBLOCKING=1
run killed
exit $status
