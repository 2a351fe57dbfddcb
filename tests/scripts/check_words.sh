#!/bin/sh
# check_words.sh - no file uses a word that the glossary of tutti(7) has retired; NEWS may, and the glossary itself
# Called by make check. Words count as parts of identifiers, too. A file with a planted word must be refused.
page=$top_srcdir/man/tutti.7
n=0
point() { n=$((n + 1)); if [ -z "$2" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; printf '%s\n' "$2" | head -n 60 | sed 's/^/# /'; fi; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT

# The column "formerly", a word a line.
awk '/^\.Ss Retired words/ { on = 1 } /^\.El/ { on = 0 } on && /^\.It / && !/^\.It \.?Em/ { sub(/^\.It /, ""); sub(/ Ta .*/, ""); print }' \
	"$page" | sed 's/, */\n/g' >"$tmp/words"
count=$(wc -l <"$tmp/words")
[ "$count" -ge 50 ] && lacking= || lacking="only $count words in $page"
point "the glossary has retired words" "$lacking"

# retired FILE...: the lines with such a word. "Business card", const_cast and static_cast are allowed.
retired() {
	awk -v list="$tmp/words" '
		BEGIN { while ((getline word <list) > 0) re = re (re == "" ? "" : "|") word; re = "(^|[^a-z])(" re ")([^a-z]|$)" }
		FILENAME ~ /tutti\.7$/ && /^\.Ss Retired words/ { glossary = 1 }
		FILENAME ~ /tutti\.7$/ && /^\.El/ { glossary = 0 }
		glossary { next }
		{ line = tolower($0); gsub(/business[ _]c[a]rds?|(const|static)_c[a]st/, "", line) }
		match(line, re) { print FILENAME ":" FNR ": " substr(line, RSTART, RLENGTH) ": " substr($0, 1, 120) }' "$@"
}

cd "$top_srcdir" || exit 1
{ git ls-files 2>/dev/null | grep . || find . -type f ! -path './build*' | sed 's,^\./,,'; } |
	grep -vE '^NEWS$|^tests/fixtures/|^tests/fuzz/seeds/|\.(svg|xml|gz)$|^(configure|aclocal\.m4|build-aux/|autom4te\.cache/|Makefile\.in|m4/)' |
	while read -r file; do [ -L "$file" ] || [ ! -f "$file" ] || echo "$file"; done >"$tmp/files"
point "no retired word in $(wc -l <"$tmp/files") files" "$(retired $(cat "$tmp/files"))"

word=$(head -n 1 "$tmp/words")
printf 'int tt_%s_x;\n/* a business card is none */\n' "$word" >"$tmp/planted.c"
[ "$(retired "$tmp/planted.c" | cut -d: -f2)" = 1 ] && found= || found="not found: $word"
point "an inserted retired word is found" "$found"
echo 1..$n
