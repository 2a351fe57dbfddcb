#!/bin/bash
# gpu_litmus.sh - the litmus programs of the GPU kernels' protocols, and defects that they must see
#
# Runs tests/gpu/litmus on the text of lib/gpu/kernels, then with each defect of tests/gpu/mutants that names a program; in tier
# default with one defect for each program. Called by make check; prints TAP.
set -u
top=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0 seen=' '
python3 -B "$top/tests/gpu/litmus/litmus.py" >"$tmp/log" 2>&1 || failed=1
grep -v '^1\.\.' "$tmp/log"
n=$(grep -cE '^(not )?ok ' "$tmp/log")
while IFS= read -r line; do
	what=${line##* | } how=${line% | *} how=${how##* | } program=${line##*order:} program=${program%% *}
	[ "${TT_TIER:-default}" != default ] || case $seen in *" $program "*) continue ;; esac
	seen="$seen$program "
	rm -rf "$tmp/kernels" && cp -r "$top/lib/gpu/kernels" "$top/lib/gpu/kernels.h" "$tmp"
	sed -i "${line% | "$how" | "$what"}" "$tmp"/kernels/*
	python3 -B "$top/tests/gpu/litmus/litmus.py" --kernels "$tmp" "$program" >"$tmp/log" 2>&1
	if grep -qE '^# (race|value|hang): ' "$tmp/log"; then
		echo "ok $((n += 1)) - $program sees: $what"
	else
		failed=1
		echo "not ok $((n += 1)) - $program sees: $what"
		sed 's/^/# /' "$tmp/log"
	fi
done < <(grep -v '^#' "$top/tests/gpu/mutants" | grep ' order:')
# the table in docs/results/gpu.md: a row for each defect, and no other
table() { sort | diff - <(sed -n '/^| defect | seen as |/,/^$/s/^| \(.*\) | [a-z]* |$/\1/p' "$top/docs/results/gpu.md" | sort); }
if grep -v '^#' "$top/tests/gpu/mutants" | sed 's/.* | //' | table >"$tmp/log"; then
	echo "ok $((n += 1)) - docs/results/gpu.md lists the defects of tests/gpu/mutants"
else
	failed=1
	echo "not ok $((n += 1)) - docs/results/gpu.md lists the defects of tests/gpu/mutants"
	sed 's/^/# /' "$tmp/log"
fi
echo "1..$n"
exit $failed
