# tool_runs.sh - runs of the tools, for tools.sh, tool_ranks.sh and tool_commands.sh, which source this file in the build folder
# shellcheck shell=sh
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
shown="why err out"
. "${top_srcdir:-..}/tests/scripts/tap.sh"
unset TUTTI_LOG TUTTI_ALGO TUTTI_TRANSPORT

# run STATUS COMMAND...: stdout and stderr go to $tmp/out and $tmp/err; true if the command exits with STATUS
run() {
	want=$1
	shift
	timeout -k 5 "${limit:-60}" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	status=$?
	[ $status -eq "$want" ] || { echo "$*: exit status $status, not $want"; return 1; }
}
rows() { grep -v '^#' "$tmp/out"; }
# a wrong command line: status 2, one line on stderr with the wrong word, nothing on stdout
refused() {
	word=$1
	shift
	run 2 "$@" && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qF -- "$word" "$tmp/err"
}
# every row of the output has 18 columns and no wrong values
sound_rows() {
	rows | awk '
		NF != 18 { print "columns: " NF; bad = 1 }
		{ if ($9 != 0 && $9 != "N/A" || $13 != 0 && $13 != "N/A") { print "wrong: " $0; bad = 1 } }
		END { exit bad || NR == 0 }' && [ ! -s "$tmp/err" ]
}
right() { run 0 "$@" && sound_rows; }
