#!/bin/sh
# check_kubernetes.sh - examples/kubernetes.yaml is YAML and consistent
yaml=$top_srcdir/examples/kubernetes.yaml
for python in python3 /usr/bin/python3; do
	$python -c 'import yaml' 2>/dev/null || continue
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	echo 1..2
	$python "$top_srcdir/tests/scripts/check_kubernetes.py" "$yaml" >"$tmp/said" 2>&1 && echo "ok 1 - the example is consistent" ||
		{ echo "not ok 1 - the example is consistent"; sed 's/^/# /' "$tmp/said"; }
	sed 's/completions: 4/completions: 5/' "$yaml" >"$tmp/wrong.yaml"
	$python "$top_srcdir/tests/scripts/check_kubernetes.py" "$tmp/wrong.yaml" >"$tmp/said" && echo "not ok 2 - a wrong example is refused" ||
		echo "ok 2 - a wrong example is refused"
	exit 0
done
echo "no YAML parser (package python3-yaml)"
exit 77
