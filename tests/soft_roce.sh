#!/bin/bash
# soft_roce.sh - the verbs transport on a kernel's own RDMA devices, in an emulated machine (tests/soft-roce/machine)
#
# The claims are soft-roce/claims.sh; what it does more in tier full stands there. TAP on standard output; where QEMU or
# the kernel's package is missing, it is skipped and says why.
here=$(dirname "$(readlink -f "$0")")/soft-roce
"$here/machine" "TT_TIER=${TT_TIER:-default} bash $here/claims.sh" 2>&1 | sed -u -E '/^((not )?ok |#|1\.\.|skipped)/!s/^/# /'
exit "${PIPESTATUS[0]}"
