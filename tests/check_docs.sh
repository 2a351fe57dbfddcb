#!/bin/sh
# check_docs.sh - header, environment table, --help and README say what the man pages and the examples say
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

functions=$(sed -n 's/^TUTTI_API [a-zA-Z_ *]*[ *]\(tutti[A-Za-z]*\)(.*/\1/p' "$top_srcdir/lib/tutti.h")
same "every function of tutti.h has its synopsis in a page of section 3" "$functions" \
	"$(awk '/^\.Sh/ { on = /SYNOPSIS/ } on && /^\.Fn/ { print $2 }' "$man"/*.3)"
same "and stands under NAME" "$functions" "$(sed -n 's/^\.Nm \(tutti[A-Za-z]*\).*/\1/p' "$man"/*.3)"

if [ -x perf/tutti ]; then
	same "tutti info and tutti.7 list the same variables" "$(perf/tutti info | grep -o '^ *TUTTI_[A-Z_]*' | tr -d ' ')" \
		"$(sed -n 's/^\.It Ev \(TUTTI_[A-Z_]*\).*/\1/p' "$man/tutti.7")"
else
	skip "tutti info and tutti.7 list the same variables" "perf/tutti was not made"
fi

if [ -x perf/tutti ]; then
	same "tutti plan --print json has the keys that tutti.1 explains" \
		"$(perf/tutti plan two-shot --np 3 --print json | grep -o '"[a-z_]*":' | tr -d '":')" \
		"$(awk '/^\.S[hs]/ { on = /Plans as JSON/ } on && /^\.(It )?Cm/' "$man/tutti.1" | grep -oE '[a-z_]{2,}' |
			grep -v json)"
else
	skip "tutti plan --print json and tutti.1" "perf/tutti was not made"
fi

for tool in perf/tutti perf/allreduce_perf trainer/tutti-train; do
	page=$man/$(basename $tool).1
	[ -x $tool ] || { skip "$tool --help" "not made"; continue; }
	$tool --help >"$tmp/help" 2>&1 || { n=$((n + 1)); echo "not ok $n - $tool --help exits with 0"; }
	same "$tool --help and its page have the same options" \
		"$(grep -oE '(^|[ ,[|])--[a-z][a-z0-9-]*' "$tmp/help" | sed 's/^[^-]*--//')" \
		"$(grep -oE 'Fl -[a-z][a-z0-9-]*' "$page" | sed 's/^Fl -//')"
done

same "the README's program is examples/allreduce.c" "$(awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' \
	"$top_srcdir/README.md")" "$(cat "$top_srcdir/examples/allreduce.c")"

if command -v mandoc >/dev/null; then
	for page in "$man"/*.[137]; do
		same "mandoc -Tlint $(basename "$page")" clean \
			"$(mandoc -Tlint -Wwarning "$page" 2>/dev/null | grep . || echo clean)"
	done
else
	skip "mandoc -Tlint" "no mandoc"
fi
echo 1..$n
