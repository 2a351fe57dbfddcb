#!/bin/sh
# check_dist.sh - the tarball has every file that git tracks; tier full runs `make distcheck`
# Called by make check in the build folder.
git -C "$top_srcdir" rev-parse --show-toplevel >/dev/null 2>&1 || { echo "the sources are no git checkout"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
${MAKE:-make} -s distdir distdir="$tmp/tutti" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
git -C "$top_srcdir" ls-files | grep -vx .gitignore | while read -r file; do
	[ -e "$tmp/tutti/$file" ] || echo "$file is not in the tarball: add it to EXTRA_DIST or to a list of sources"
done >"$tmp/lacking"
cat "$tmp/lacking"
[ ! -s "$tmp/lacking" ]
