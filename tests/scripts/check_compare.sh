#!/bin/sh
# check_compare.sh - perf/compare runs the ranks of all libraries under the same conditions (check_compare.py)
for tool in python3 bash; do
	command -v $tool >/dev/null || { echo "no $tool"; exit 77; }
done
exec python3 "$top_srcdir/tests/scripts/check_compare.py" "$top_srcdir/perf/peers"
