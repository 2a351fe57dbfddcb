# tap.sh - points of TAP for test scripts; sourced, not run. The script makes the folder $tmp and ends with: done_testing
# shellcheck shell=sh
n=0
shown=${shown:-why} # files of $tmp whose last lines a failed point shows; patterns are expanded

# claim STATUS DESCRIPTION [LINES]: one point, which passes if STATUS is 0
claim() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		(cd "$tmp" && for f in $shown; do tail -n "${3:-20}" "$f" 2>/dev/null; done) | sed 's/^/# /'
	fi
}
# point DESCRIPTION COMMAND...: one point; its output is in $tmp/why
point() {
	what=$1
	shift
	"$@" >"$tmp/why" 2>&1
	claim $? "$what"
}
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
skip_all() { echo "1..0 # SKIP $1"; exit 0; }
done_testing() { echo "1..$n"; }
# has REGEX FILE: true if a line of the file matches
has() { grep -qE -- "$1" "$2" || { echo "no line has: $1"; cat "$2"; return 1; }; }
