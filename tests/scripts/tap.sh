# tap.sh - points of TAP for test scripts; sourced, not run. The script makes the folder $tmp and ends with: done_testing
# shellcheck shell=sh
n=0
shown=${shown:-why} # files of $tmp whose last lines a failed point shows

# point DESCRIPTION COMMAND...: one point; its output is in $tmp/why
point() {
	what=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/why" 2>&1; then
		echo "ok $n - $what"
	else
		echo "not ok $n - $what"
		for f in $shown; do tail -n 20 "$tmp/$f" 2>/dev/null | sed 's/^/# /'; done
	fi
}
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
done_testing() { echo "1..$n"; }
# has REGEX FILE: true if a line of the file matches
has() { grep -qE -- "$1" "$2" || { echo "no line has: $1"; cat "$2"; return 1; }; }
