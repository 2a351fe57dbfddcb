#!/bin/bash
# mutants.sh [PATTERN] - does the simulation see defects? Builds the library with one defect of the list `mutants` at a time,
# those that match PATTERN, in a folder of its own, and runs schedules until one fails.
# Prints TAP. TT_SCHEDULES: the most schedules for each, 40000.
top=$(cd "${top_srcdir:-.}" && pwd)
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
schedules=${TT_SCHEDULES:-40000}
n=0 failed=0
point() { [ "$1" = ok ] || failed=1; echo "$1 $((n += 1)) - $2"; }

mkdir "$work/source" "$work/build"
(cd "$top" && ls -A | grep -vE '^(\.git|build(-(asan|tsan|bare|o2|coverage|fuzz))?)$' | tar -cf - -T -) | tar -xf - -C "$work/source"
cd "$work/build" || exit 99
if ! { ../source/configure CC="${CC:-cc}" --without-criterion CFLAGS='-O1 -g0' && make -j"$(nproc)" tests/simulation/simulation; } \
	>"$work/log" 2>&1; then
	tail -n 20 "$work/log"
	exit 1
fi
./tests/simulation/simulation --schedules 300 --jobs "$(nproc)" >"$work/out" 2>&1 && point ok "300 schedules without a defect" ||
	{ point "not ok" "300 schedules without a defect"; sed 's/^/# /' "$work/out"; }
while read -r line; do
	case $line in '#'*) continue ;; esac
	file=${line%% | *} change=${line#* | } what=${line##* | }
	change=${change% | *}
	case "$file: $what" in *${1-}*) ;; *) continue ;; esac
	cp "../source/$file" "$work/original"
	sed "$change" "$work/original" >"../source/$file"
	if cmp -s "$work/original" "../source/$file"; then
		point "not ok" "$file: $what: the line to change is gone"
	elif ! make tests/simulation/simulation >"$work/log" 2>&1; then
		point "not ok" "$file: $what: does not compile"
		grep error "$work/log" | head -n 3 | sed 's/^/# /'
	elif ./tests/simulation/simulation --until-failure --schedules "$schedules" --jobs "$(nproc)" >"$work/out" 2>&1; then
		point "not ok" "$file: $what: not seen in $schedules schedules"
	else
		point ok "$file: $what: $(sed -n 's/.*: \(seed\)/\1/; 1s/^\(seed [0-9]*\).*/\1/p' "$work/out")"
		sed -n '1s/^/# /p' "$work/out"
	fi
	cp "$work/original" "../source/$file"
done <"$top/tests/simulation/mutants"
echo "1..$n"
exit $failed
