#!/bin/sh
# python.sh - the Python package between real processes, from the sources, from a wheel and from a wheel of the sdist
# Called by make check in the build folder, with Debian's python3; PYTHON names another one.
[ -e .libs/libtutti.so.0 ] || { echo "no shared library in this build"; exit 77; }
python=${PYTHON:-$(command -v /usr/bin/python3 || command -v python3)} || { echo "no python3"; exit 77; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { echo "$python is older than 3.9"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
export PYTHONDONTWRITEBYTECODE=1
tests=$top_srcdir/tests/clients package=$top_srcdir/bindings/python n=17
PYTHONPATH=$package TUTTI_LIBRARY=$PWD/.libs/libtutti.so.0 "$python" "$tests/test_python.py" | grep -v '^1\.\.'
point() { n=$((n + 1)); if [ "$2" = "$3" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; printf '%s\n' "$2" "$3" | sed 's/^/# /'; fi; }

# A copy, since pip and Python may write beside the sources
cp -r "$package" "$tmp/sources"
"$python" "$tmp/sources/build_backend.py" "$tmp/dist" .libs/libtutti.so.0 >"$tmp/log" 2>&1 || cat "$tmp/log"
wheel=$(ls "$tmp"/dist/*.whl)
point "the tag of the wheel names glibc 2.34 or newer" "$(basename "$wheel" | grep -cE '^tutti-[0-9.]+-py3-none-manylinux_2_(3[4-9]|[4-9][0-9])_[a-z0-9_]+\.whl$')" 1
lines='import tutti, array
a = array.array("d", [2, 3]); b = array.array("d", [0, 0])
tutti.COMM_WORLD.Allreduce(a, b)
print(list(b), tutti.__version__, tutti.__file__.rsplit("/", 2)[0])'
version=$(sed -n 's/^#define TUTTI_\(MAJOR\|MINOR\|PATCH\) //p' "$top_srcdir/lib/tutti.h" | paste -sd.)
mkdir "$tmp/wheel" && "$python" -m zipfile -e "$wheel" "$tmp/wheel"
point "an unpacked wheel runs with its own library, and has its version" \
	"$(cd / && PYTHONPATH=$tmp/wheel "$python" -c "$lines" 2>&1)" "[2.0, 3.0] $version $tmp/wheel"
point "the version of the package is the library's" "$(basename "$wheel" | cut -d- -f2)" "$version"
# torch loads the entry point on `import torch`; an error there would break torch
point "the entry point of torch needs neither libtutti nor a new torch" "$(cd / && PYTHONPATH=$tmp/wheel TUTTI_LIBRARY=/nowhere "$python" -c '
import importlib, sys, types
module, function = open(sys.path[1] + "/'"$(cd "$tmp/wheel" && echo tutti-*.dist-info)"'/entry_points.txt").read().split("tutti = ")[1].split(":")
entry = importlib.import_module(module)
print(callable(getattr(entry, function.strip())), "tutti" in sys.modules)
sys.modules["torch"] = types.SimpleNamespace(__version__="2.14.1+cpu")
try:
    entry.create(None)
except RuntimeError as error:
    print(error)' 2>&1)" "True False
the backend tutti needs PyTorch 2.15 or newer, not 2.14.1+cpu"
# a wheel of the sdist has no library, and uses the system's
mkdir "$tmp/sdist" && tar -xzf "$tmp"/dist/tutti-*.tar.gz -C "$tmp/sdist" --strip-components 1 &&
	(cd "$tmp/sdist" && "$python" -c 'import build_backend; build_backend.build_wheel(".")' && "$python" -m zipfile -e ./*-any.whl "$tmp/pure")
point "a wheel of the sdist runs with the library of the system" \
	"$(cd / && PYTHONPATH=$tmp/pure LD_LIBRARY_PATH=$OLDPWD/.libs "$python" -c "$lines" 2>&1)" "[2.0, 3.0] $version $tmp/pure"
point "without a library, the import names the remedy" \
	"$(cd / && PYTHONPATH=$tmp/pure TUTTI_LIBRARY=/nowhere/libtutti.so.0 "$python" -c 'import tutti' 2>&1 | grep -c '^ImportError:.*or set TUTTI_LIBRARY')" 1
echo 1..$n
