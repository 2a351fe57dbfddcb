#!/bin/sh
# check_spack.sh - Spack's recipe has the version and the options of configure
# Called by make check in the build folder.
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || { echo "no python3"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
version=$(sed -n 's/^AC_INIT(\[tutti\], \[\(.*\)\])$/\1/p' "$top_srcdir/configure.ac")
n=0
# point CLAIM RECIPE WORDS: what check_spack.py says of the recipe
point() {
	n=$((n + 1))
	if python3 "$top_srcdir/tests/scripts/check_spack.py" "$2" "$top_srcdir/configure" "$version" 2>&1 >"$tmp/said" | sed 's/^/# /' &&
		grep -q "$3" "$tmp/said"; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		sed 's/^/# /' "$tmp/said"
	fi
}
recipe=$top_srcdir/packaging/spack_repo/tutti/packages/tutti/package.py
point "the recipe is consistent" "$recipe" '^consistent$'
sed 's/version("0.1.0")/version("0.1")/' "$recipe" >"$tmp/version.py"
point "an older version is refused" "$tmp/version.py" "the version is not $version"
sed 's/"--with-openssl"/"--with-ssl"/' "$recipe" >"$tmp/option.py"
point "an option that configure lacks is refused" "$tmp/option.py" 'configure has no --with-ssl'
sed '/depends_on("jansson"/d' "$recipe" >"$tmp/dependency.py"
point "a library that is no dependency is refused" "$tmp/dependency.py" 'with-jansson needs a package'
echo "1..$n"
