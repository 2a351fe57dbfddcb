#!/bin/bash
# wheel.sh - the wheel and the sdist of `make wheel`, looked at by twine and auditwheel and installed by pip, without a compiler
# Called by make check in the build folder; PYTHON is of tests/clients/environment, which installs both tools.
[ -e .libs/libtutti.so.0 ] || { echo "no shared library in this build"; exit 77; }
python=${PYTHON:-python3} shown=log
"$python" -c 'import twine, auditwheel' 2>/dev/null || { echo "$python has no twine or no auditwheel"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
. "$(dirname "$0")/../scripts/tap.sh"
dist=bindings/python/dist machine=$(uname -m)
sum='import tutti, array
a = array.array("d", [2, 3]); b = array.array("d", [0, 0])
tutti.COMM_WORLD.Allreduce(a, b)
print("sum", list(b), tutti.__file__)'

rm -rf "$dist"
PYTHON=$python ${MAKE:-make} -s wheel >"$tmp/log" 2>&1 && [ "$(ls "$dist" | wc -l)" = 2 ]
claim $? "make wheel makes a wheel and an sdist"
wheel=$(ls "$dist"/*.whl) sdist=$(ls "$dist"/*.tar.gz)
"$python" -m twine check --strict "$wheel" "$sdist" >"$tmp/log" 2>&1
claim $? "twine takes both"
"$python" -m auditwheel show "$wheel" >"$tmp/log" 2>&1 && tr -s '\n ' ' ' <"$tmp/log" | grep -q "constrains the platform tag to \"manylinux_2_34_$machine\"" &&
	[ "${wheel%-manylinux_2_34_$machine.whl}" != "$wheel" ]
claim $? "the symbols that the library needs are those of manylinux_2_34, which is the tag"
# libssl and libcrypto stay the system's
! tr -s '\n ' ' ' <"$tmp/log" | grep -oE 'lib[a-z]+\.so\.[0-9]+ with' | grep -vE '^lib(ssl|crypto|c|m)\.so'
claim $? "the wheel needs no library of the system but glibc and OpenSSL 3"
[ "$(stat -c %s "$wheel")" -le 1048576 ]
claim $? "the wheel has at most 1 MiB"
# a PATH with nothing but Python
for package in wheel sdist; do
	"$python" -m venv "$tmp/$package" >"$tmp/log" 2>&1 &&
		PATH=$tmp/$package/bin CC=false "$tmp/$package/bin/python" -m pip install --no-index --disable-pip-version-check "${!package}" >"$tmp/log" 2>&1
	claim $? "pip installs the $package without a compiler and without an index"
	[ $package = wheel ] || export TUTTI_LIBRARY=$PWD/.libs/libtutti.so.0
	(cd / && PATH=$tmp/$package/bin "$tmp/$package/bin/python" -c "$sum") >"$tmp/log" 2>&1 && grep -q "^sum \[2.0, 3.0\] $tmp/$package/" "$tmp/log"
	claim $? "the installed $package sums"
done
done_testing
