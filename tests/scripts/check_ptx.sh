#!/bin/bash
# check_ptx.sh [every] - the GPU suites on the PTX that nvcc makes of the kernels, run on the host (tests/fakes/ptx)
#
# The kernel of float32 and the trainer's kernels come from PTX; `every` (tier full): all kernels, with nvcc from PyPI if there
# is none. Called by make check in the build folder; results of nvcc and of the compiler stay in ptx-cache.
set -u
. "${top_srcdir:-.}/tests/fakes/ptx/functions"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0
point() { # STATUS TEXT LOG
	[ "$1" = 0 ] && { echo "ok $((n += 1)) - $2"; return; }
	failed=1
	echo "not ok $((n += 1)) - $2"
	tail -n 30 "$3" | sed 's/^/# /'
}

# ---- the translator and the checks of accesses and barriers ---------------------------------------------------------

# ends KERNEL TEXT PATTERN: the translation or the execution of KERNEL.ptx prints a matching line
ends() {
	mkdir -p "$tmp/$1"
	{ python3 -B "$ptx_here/ptx_to_c.py" "$ptx_top/tests/fixtures/ptx/$1.ptx" "$tmp/$1" &&
		${CC:-cc} "${ptx_flags[@]}" -O0 "$tmp/$1/wrong.c" "$ptx_here"/{run_one,ptx_run}.c -o "$tmp/$1/run" -lm &&
		"$tmp/$1/run"; } >"$tmp/log" 2>&1
	grep -qE "$3" "$tmp/log"
	point $? "$2" "$tmp/log"
}
if command -v python3 >/dev/null && [ "$(uname -m)" = x86_64 ]; then
	store='\.ptx:19 \(wrong.cu:10\): thread . of block 0 of 1'
	ends right "a right kernel runs" 'memory\[7\] = [01]00000000'
	ends misaligned "a misaligned access names its lines" "wrong, misaligned$store: misaligned access of 4 bytes at 0x"
	ends outside "an access outside of allocations names its lines" "wrong, outside$store: access of 4 bytes at .*, outside of all"
	ends shared "an access outside of shared memory names its lines" "wrong, shared$store: access of 4 bytes at offset 16 of 16 bytes"
	ends barrier "a barrier that a thread does not reach names its lines" \
		'wrong, barrier.ptx:22 \(wrong.cu:11\): thread 0 of block 0 of 1: 1 of 2 threads wait at a barrier'
	ends instruction "an unknown instruction names its lines" \
		'wrong, instruction.ptx:19 \(wrong.cu:10\): instruction ex2.approx.f32 is not translated'
	ends form "an unknown form of an instruction names its lines" \
		'wrong, form.ptx:19 \(wrong.cu:10\): form add.rn.ftz.f32 %f1, %f2, %f2 is not translated'
fi

# ---- the suites ------------------------------------------------------------------------------------------------------

reason=$(ptx_require "$@") || { echo "ok $((n += 1)) - nvcc's kernels # SKIP ${reason##*skipped: }"; echo "1..$n"; exit 0; }
ptx_require "$@"
types=(Float32)
cases=(barriers_give_the streams_give_the their_own_give_the factor_values replayed different_calls signal_each_other)
[ "${1-}" != every ] || types=("${ptx_types[@]}") cases=()
ptx_driver "$PWD/ptx-driver" "${types[@]}" >"$tmp/log" 2>&1
point $? "each instruction of nvcc's kernels is translated: ${types[*]}, and the trainer's" "$tmp/log"
driver=$PWD/ptx-driver/libcuda.so.1

mapfile -t modules <ptx-driver/modules
python3 -B "$ptx_here/ptx_rules.py" --vectors "${modules[@]}" >"$tmp/log" 2>&1
point $? "accesses that peers and the host see are .sys, none is non-coherent, loops move 16 bytes at once" "$tmp/log"
cubins=()
for module in "${modules[@]}"; do
	cubins+=("$tmp/$(basename "$module" .ptx).cubin")
	"$(dirname "$nvcc")/ptxas" -v -arch=sm_90 "$module" -o "${cubins[-1]}"
	readelf -SW "${cubins[-1]}" 2>/dev/null | awk '{ for (i = 2; i < NF; i++) if ($i ~ /^\.text\./) print substr($i, 7), "0x" $(i + 4) }' |
		while read -r name bytes; do echo "$name $((bytes))"; done >>"$tmp/code"
done >"$tmp/ptxas" 2>&1
python3 -B "$ptx_here/ptx_rules.py" --ptxas "$tmp/ptxas" --registers 128 >"$tmp/log" 2>&1
point $? "sm_90: no register is spilled, and 512 threads have room for their at most 128 registers" "$tmp/log"

bounds=$ptx_top/tests/gpu/kernel_bounds
python3 -B "$ptx_here/ptx_rules.py" --bounds "$bounds" --code "$tmp/code" "${modules[@]}" >"$tmp/log" 2>&1
status=$?
sed -n '/^#/p' "$tmp/log"
point $status "sm_90: each kernel's PTX instructions, with which ptxas's time grows, and its machine code are within tests/gpu/kernel_bounds" "$tmp/log"

# seen OPTION FILE CHANGE PATTERN ARGUMENT...: ptx_rules finds the breach that the sed expression CHANGE plants in FILE
seen() {
	sed -E "$3" "$2" >"$tmp/planted"
	! python3 -B "$ptx_here/ptx_rules.py" "$1" "$tmp/planted" "${@:5}" >"$tmp/log" 2>&1 && grep -qE "$4" "$tmp/log"
	point $? "a planted breach is seen: $4" "$tmp/log"
}
seen --ptxas "$tmp/ptxas" 's/ 0 bytes spill stores/ 8 bytes spill stores/' '8 bytes of registers are spilled'
seen --ptxas "$tmp/ptxas" 's/Used [0-9]+ registers/Used 129 registers/' '129 registers, more than 128'
seen --ptxas "$tmp/ptxas" '/Used/d' 'ptxas names no kernel'
sizes=(--code "$tmp/code" "${modules[@]}")
seen --bounds "$bounds" 's/^(tt_Float32) [0-9]+/\1 1000/' 'PTX instructions, more than 1000' "${sizes[@]}"
seen --bounds "$bounds" 's/^(tt_Float32 [0-9]+) .*/\1 1000/' 'bytes of machine code, more than 1000' "${sizes[@]}"
seen --bounds "$bounds" '/Float32/d' 'tt_Float32: no bounds' "${sizes[@]}"

# The fat binary as configure makes it: machine code for each architecture, PTX for later ones, and its size
if [ "${1-}" = every ]; then
	fat=$ptx_cache/$({ "$nvcc" --version; cat "$ptx_top/configure.ac" "$ptx_top"/lib/gpu/{kernels.cu,kernels.h,kernels/*}; } | ptx_hash).fatbin
	archs=$(sed -n 's/.*for arch in \([0-9 ]*\); do.*/\1/p' "$ptx_top/configure.ac") gencode=()
	for arch in $archs; do gencode+=(-gencode "arch=compute_$((arch > 90 ? 90 : arch)),code=sm_$arch"); done
	[ -e "$fat" ] || "$nvcc" "-I$ptx_top/lib" -fmad=false "${gencode[@]}" -gencode arch=compute_90,code=compute_90 -Xptxas -v \
		--compress-mode=size --threads 2 -fatbin "$ptx_top/lib/gpu/kernels.cu" -o "$fat" >"$fat.log" 2>&1
	spilled=$(grep -o '[0-9]* bytes spill stores' "$fat.log" | sort -n | tail -n 1)
	echo "# fat binary: at most ${spilled:-no figure of ptxas}"
	[ "${spilled%% *}" -le 64 ] 2>"$tmp/log"
	point $? "no kernel of any architecture spills more than 64 bytes of registers" "$fat.log"
	{ python3 -B "$ptx_here/fat_binary.py" "$fat" >"$tmp/fat" && cut -d' ' -f1 "$tmp/fat" | sort |
		diff - <({ printf 'sm_%s\n' $archs; echo compute_90; } | sort) && awk '{ sum += $2 } END { exit !(NR && sum < 2.25 * 2 ^ 20) }' "$tmp/fat"; } >>"$tmp/log" 2>&1
	status=$?
	sed 's/^/# fat binary: /; s/$/ bytes/' "$tmp/fat"
	point $status "the fat binary has machine code for $archs, PTX for later GPUs, and less than 2.25 MiB" "$tmp/log"
fi

if nvdisasm=$(ptx_nvdisasm "$@"); then
	for cubin in "${cubins[@]}"; do "$nvdisasm" -c "$cubin"; done >"$tmp/sass" 2>"$tmp/log" && python3 -B "$ptx_here/ptx_rules.py" --sass "$tmp/sass" >>"$tmp/log" 2>&1
	point $? "sm_90: machine code has LDG and STG of 16 bytes, strong accesses reach the host, none is non-coherent" "$tmp/log"
	seen --sass "$tmp/sass" 's/LDG\.E\.128/LD.E.128/' 'LD.E.128 finds the space'
	seen --sass "$tmp/sass" 's/STG\.E\.128/STG.E.64/' 'no STG of 16 bytes'
	seen --sass "$tmp/sass" 's/STRONG\.SYS/STRONG.GPU/' 'does not reach other GPUs'
	seen --sass "$tmp/sass" 's/LDG\.E\.128/&.CONSTANT/' 'non-coherent path'
else
	echo "ok $((n += 1)) - rules on machine code # SKIP no nvdisasm"
fi

counted=("$ptx_here"/{count_kernels,ptx_run}.c "$ptx_top/lib/model/gpu_time.c")
ptx_source Float32 "$tmp"
{ float=$(ptx_of "$tmp/kernels.cu" tt_Float32) && objects=$(ptx_objects "$float" -O1 -DPTX_COUNTS) &&
	${CC:-cc} "${ptx_flags[@]}" -std=gnu17 -D_GNU_SOURCE -O1 -DPTX_COUNTS "${counted[@]}" $objects -o "$tmp/count" -lm &&
	timeout -k 5 300 "$tmp/count"; } >"$tmp/log" 2>&1
point $? "FIFO: bytes loaded, stored and sent, words and barriers equal the model's formulas; no load is of a peer's memory; copies go by vectors" "$tmp/log"

# suite NAME COMMAND...: the suite's points become points of this script
suite() {
	local name=$1 line points
	shift
	timeout -k 5 1500 env TUTTI_TEST_CUDA_DRIVER="$driver" NCCL_CLIENT_CUDA="$driver" "$@" >"$tmp/log" 2>&1
	points=$(grep -E '^(not )?ok ' "$tmp/log")
	while read -r line; do
		case $line in ok*) point 0 "$name: ${line#*- }" ;; *) point 1 "$name: ${line#*- }" "$tmp/log" ;; esac
	done <<<"$points"
	grep -q "^1\.\.$(wc -l <<<"$points")$" "$tmp/log"
	point $? "$name completes on nvcc's kernels" "$tmp/log"
}
suite test_gpu tests/gpu/test_gpu "${cases[@]}"
[ ! -x tests/gpu/test_train_gpu ] || suite test_train_gpu tests/gpu/test_train_gpu
[ ! -x tests/nccl/nccl_client ] || suite nccl_client tests/nccl/nccl_client
[ ! -x tests/nccl/nccl_train ] || suite nccl_train tests/nccl/nccl_train
echo "1..$n"
exit $failed
