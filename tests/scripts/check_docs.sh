#!/bin/sh
# check_docs.sh - header, environment table, --help and README agree with the man pages and the examples
# Called by make check in the build folder.
man=$top_srcdir/man
n=0
same() {   # DESCRIPTION WANTED GOT: two lists, compared as sets
	n=$((n + 1))
	printf '%s\n' "$2" | sort -u >"$tmp/want"
	printf '%s\n' "$3" | sort -u >"$tmp/got"
	if [ -s "$tmp/want" ] && [ -n "$2" ] && cmp -s "$tmp/want" "$tmp/got"; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		comm -23 "$tmp/want" "$tmp/got" | sed 's/^/# missing in the second: /'
		comm -13 "$tmp/want" "$tmp/got" | sed 's/^/# missing in the first: /'
	fi
}
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

functions=$(sed -n 's/^TUTTI_API [a-zA-Z_ *]*[ *]\(tutti[A-Za-z]*\)(.*/\1/p' "$top_srcdir/lib/tutti.h" "$top_srcdir/trainer/tutti_train.h")
same "every function of tutti.h and tutti_train.h has its synopsis in a page of section 3" "$functions" \
	"$(awk '/^\.Sh/ { on = /SYNOPSIS/ } on && /^\.Fn/ { print $2 }' "$man"/*.3)"
same "every function of these headers is under NAME of a page of section 3" "$functions" "$(sed -n 's/^\.Nm \(tutti[A-Za-z]*\).*/\1/p' "$man"/*.3)"

if [ -x perf/tutti ]; then
	same "tutti info and tutti.7 list the same variables" "$(perf/tutti info | grep -o '^ *TUTTI_[A-Z_]*' | tr -d ' ')" \
		"$(sed -n 's/^\.It Ev \(TUTTI_[A-Z_]*\).*/\1/p' "$man/tutti.7")"
else
	skip "tutti info and tutti.7 list the same variables" "perf/tutti was not built"
fi

# items PAGE: a line for every list item of the page: the names in the head, as --NAME or TUTTI_NAME, a tab, the text
items() {
	sed -E 's/Ns ?//g; s/^\.(Cm|Li|Pq|Dv|Pa|Ql|Em|Ev|Ar|Xr|Fl)//' "$1" | awk '
		function out() { if (names != "") print names "\t" text " "; names = text = "" }
		/^\.It/ {
			if (text != "") out()
			for (i = 2; i <= NF; i++) if ($i ~ /^(-[a-zA-Z][a-zA-Z0-9_-]*|TUTTI_[A-Z_]*)$/)
				names = names " " ($i ~ /^-/ ? "-" $i : $i)
			next
		}
		/^\.(El|S[hs])/ { out(); next }
		names != "" { text = text " " $0 }'
}
# stated LIST PAGE: the lines "NAME VALUE..." of LIST for which the page's item of NAME lacks one of several values, or states a
# default other than the single value
stated() {
	items "$2" | awk -F'\t' -v list="$1" '
		{ n = split($1, names, " "); for (i = 1; i <= n; i++) text[names[i]] = $2 }
		END {
			while ((getline line <list) > 0) {
				n = split(line, w, " "); t = text[w[1]]; seen += t != ""
				if (n < 3 && t !~ /default|\(.*\)|unless set/) continue
				for (i = 2; i <= n; i++) if (t !~ "[^a-zA-Z0-9.]" w[i] "[^a-zA-Z0-9]") print w[1] ": " w[i]
			}
			if (!seen) print "this script cannot read the page"
		}'
}

if [ -x perf/tutti ]; then
	perf/tutti info | sed -n 's/^ *\(TUTTI_[A-Z_]*\) *\(not set\|.*\); \([^;]*\); \(.*\)/\1 \3 \4/p' |
		awk '/no default|first-last/ { next } $3 ~ /\.\./ { $3 = "" } { print }' | grep -v TUTTI_ALGO >"$tmp/list"
	same "defaults and choices of variables in tutti.7 are those of the library" none \
		"$(stated "$tmp/list" "$man/tutti.7" | grep . || echo none)"
fi

if [ -x perf/tutti ]; then
	same "tutti plan --print json has the keys that tutti.1 explains" \
		"$(perf/tutti plan two-shot --np 3 --print json | grep -o '"[a-z_]*":' | tr -d '":')" \
		"$(awk '/^\.S[hs]/ { on = /Plans as JSON/ } on && /^\.(It )?Cm/' "$man/tutti.1" | grep -oE '[a-z_]{2,}' |
			grep -v json)"
else
	skip "tutti plan --print json and tutti.1" "perf/tutti was not built"
fi

for tool in perf/tutti perf/allreduce_perf trainer/tutti-train 'trainer/tutti-train schedule'; do
	page=$man/$(basename "$tool" | tr ' ' -).1
	[ -x "${tool%% *}" ] || { skip "$tool --help" "not built"; continue; }
	$tool --help >"$tmp/help" 2>&1 || { n=$((n + 1)); echo "not ok $n - $tool --help exits with 0"; }
	same "$tool --help and its page have the same options" \
		"$(grep -oE '(^|[ ,[|])--[a-z][a-z0-9-]*' "$tmp/help" | sed 's/^[^-]*--//')" \
		"$(grep -oE 'Fl -[a-z][a-z0-9-]*' "$page" | sed 's/^Fl -//')"
	awk '/^ +(-[a-zA-Z], +|    )--/ { match($0, /--[a-zA-Z_-]+/); name = substr($0, RSTART, RLENGTH) }
		name && match($0, / \([^() ]+\)$/) { print name, substr($0, RSTART + 2, RLENGTH - 3) }' "$tmp/help" |
		grep -v ' auto$' >"$tmp/list"
	same "$tool --help and its page state the same defaults" none "$(stated "$tmp/list" "$page" | grep . || echo none)"
done

same "the README's program is examples/allreduce.c" "$(awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' \
	"$top_srcdir/README.md")" "$(cat "$top_srcdir/examples/allreduce.c")"

same "README, SECURITY, HACKING, NEWS and docs name files that exist" none "$(cd "$top_srcdir" &&
	grep -oHE '(lib|algorithms|transports|nccl|tools|perf|trainer|tests|man|docs)/[a-zA-Z0-9_./-]*[a-z0-9]\.(c|h|cu|sh|py|md|[137])\b' \
		README.md SECURITY.md HACKING.md NEWS docs/design/*.md docs/results/*.md |
	while IFS=: read -r page file; do [ -e "$file" ] || echo "$page: $file"; done | grep . || echo none)"
same "README, SECURITY, HACKING and docs/design name functions, fields and files that exist" none "$(cd "$top_srcdir" &&
	grep -ohE '`([a-z]+_[a-z0-9_]*[a-z0-9]|[a-z0-9_]+\.(c|h|cu))(\(\))?`' README.md SECURITY.md HACKING.md docs/*.md docs/design/*.md |
	tr -d '`()' | sort -u >"$tmp/names"
	for room in lib algorithms transports nccl mpi tools perf trainer tests; do
		find $room -type f -printf '%f\n' | sed 's/\.sh$//'
		grep -rhowFf "$tmp/names" --include='*.[ch]' --include='*.cu' --include='*.py' --include=tiers $room
	done | sort -u | comm -23 "$tmp/names" - | grep . || echo none)"
# A name of a test behind `SUITE`: in a page; "..." stands for any ending
same "the tests that docs/results/survival.md names in tables exist" none "$(cd "$top_srcdir" &&
	awk -F'`' '/^\|/ { for (i = 2; i < NF; i += 2) {
		if ($i ~ /^([a-z]+\/)?test_[a-z_]+$/ && $(i + 1) ~ /^:/) suite = $i
		else if (suite && $i ~ /^[a-z0-9_]+(\.\.\.)?$/) print suite, $i
		if ($(i + 1) ~ /[;|]/) suite = "" } }' docs/results/survival.md >"$tmp/tests"
	[ -s "$tmp/tests" ] || echo "this script cannot read the page"
	while read -r suite name; do
		case $suite in gpu/*) files=tests/gpu/gpu_*.c ;; */*) files=tests/$suite.c ;; *) files=tests/unit/$suite.c ;; esac
		case $name in *...) name="${name%...}[a-z0-9_]*" ;; esac
		grep -qE "^Test\([a-z_]*, $name(,|\)|$)|GPU_CASE\($name\)" $files || echo "$suite has no test $name"
	done <"$tmp/tests" | grep . || echo none)"
if [ -x perf/tutti ] && command -v python3 >/dev/null; then
	same "the figures of README and figures.md are those that docs/figures computes from docs/results" none "$(
		python3 "$top_srcdir/docs/figures" --check 2>&1 && echo none)"
	draw="python3 $top_srcdir/docs/pictures/draw.py"
	same "the README's pictures show the plan and the tables" "$(cksum <"$top_srcdir/docs/pictures/ring.svg"
		cksum <"$top_srcdir/docs/pictures/ratios.svg")" "$(perf/tutti plan ring --np 4 --print json | $draw plan | cksum
		$draw ratios "$top_srcdir/docs/results/compare-xeon.md" | cksum)"
else
	skip "the figures of README and figures.md are those that docs/figures computes from docs/results" "no python3, or perf/tutti was not built"
	skip "the README's pictures show the plan and the tables" "no python3, or perf/tutti was not built"
fi
same "README: 150 lines, 120 columns outside commands, 100 in a cell" none "$(awk '
	/^    / { next } length > 120 { print "line " FNR " has " length " columns" }
	/^\|/ { n = split($0, cell, "|"); for (i = 2; i < n; i++) if (length(cell[i]) > 102) print "line " FNR " has a wide cell" }
	END { if (FNR > 150) print FNR " lines" }' "$top_srcdir/README.md" | grep . || echo none)"

# lines that cannot be broken are tables, wider than a terminal
if command -v groff >/dev/null; then
	same "groff has nothing to say about the pages" none "$(for page in "$man"/*.[137]; do groff -Tutf8 -mandoc -ww -z "$page"; done 2>&1 |
		grep -v "can't break line" | grep . || echo none)"
	same "no cell of a table is wider than its column, so that groff sets the rest aside" none "$(for page in "$man"/*.[137]; do
		groff -Tutf8 -P-cbou -mandoc "$page" 2>/dev/null | sed -n "s/^ \{75,\}/${page##*/}: /p"; done | grep . || echo none)"
else
	skip "groff -ww" "no groff"
fi
if command -v mandoc >/dev/null; then
	for page in "$man"/*.[137]; do
		same "mandoc -Tlint $(basename "$page")" clean \
			"$(mandoc -Tlint -Wwarning "$page" 2>/dev/null | grep . || echo clean)"
	done
else
	skip "mandoc -Tlint" "no mandoc"
fi
echo 1..$n
