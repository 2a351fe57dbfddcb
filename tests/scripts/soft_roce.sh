#!/bin/bash
# soft_roce.sh - the verbs transport on RDMA devices of a real kernel, in an emulated machine (tests/verbs/soft-roce/machine)
#
# soft-roce/claims.sh has the tests, including those of tier full. TAP on standard output; skipped with the reason if QEMU or
# the kernel's package is missing.
here=$(dirname "$(readlink -f "$0")")/../verbs/soft-roce
bits=""
if [ -x tests/support/bits ]; then
	ranks=2; [ "${TT_TIER:-default}" = default ] || ranks+=" 3 4"
	for np in $ranks; do
		one=$(timeout 60 tests/support/bits tcp $np) && [ "$one" = "$(timeout 60 tests/support/bits shm $np)" ] ||
			{ echo "not ok 1 - $np ranks, tcp and shm: the same bits"; echo 1..1; exit 1; }
		bits+="$one "
	done
fi
"$here/machine" "TT_TIER=${TT_TIER:-default} BITS='$bits' bash $here/claims.sh" 2>&1 | sed -u -E '/^((not )?ok |#|1\.\.|skipped)/!s/^/# /'
exit "${PIPESTATUS[0]}"
