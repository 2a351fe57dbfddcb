#!/bin/bash
# soft_roce.sh - the verbs transport on a kernel's own RDMA devices, in an emulated machine (tests/verbs/soft-roce/machine)
#
# The claims are soft-roce/claims.sh; what it does more in tier full stands there. TAP on standard output; where QEMU or
# the kernel's package is missing, it is skipped and says why.
here=$(dirname "$(readlink -f "$0")")/../verbs/soft-roce
bits=""
if [ -x tests/support/bits ]; then
	for np in 2 3 4; do
		one=$(timeout 60 tests/support/bits tcp $np) && [ "$one" = "$(timeout 60 tests/support/bits shm $np)" ] ||
			{ echo "not ok 1 - $np ranks, tcp and shm: the same bits"; echo 1..1; exit 1; }
		bits+="$one "
	done
fi
"$here/machine" "TT_TIER=${TT_TIER:-default} BITS='$bits' bash $here/claims.sh" 2>&1 | sed -u -E '/^((not )?ok |#|1\.\.|skipped)/!s/^/# /'
exit "${PIPESTATUS[0]}"
