#!/bin/bash
# container.sh - the image of packaging/container/Containerfile, on a bare Debian 12, and the command of examples/kubernetes.yaml
#
# Called by tests/tiers full, from the build folder. mmdebstrap makes the image that the file begins with, since a registry may
# be out of reach; buildah makes the other one by changing root, in a store of its own. TAP.
set -u
for program in mmdebstrap buildah; do
	command -v $program >/dev/null || { echo "no $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
shown=out
. "$(dirname "$0")/tap.sh"
store() { buildah --root "$tmp/root" --runroot "$tmp/run" --storage-driver vfs "$@"; }
inside() { store run --isolation chroot "$container" -- "$@" >"$tmp/out" 2>&1; }

mmdebstrap -q --variant=minbase bookworm "$tmp/bare.tar" http://deb.debian.org/debian >"$tmp/out" 2>&1 ||
	{ echo "no bare Debian: $(tail -n 1 "$tmp/out")"; exit 77; }
container=$(store from scratch) && store add -q "$container" "$tmp/bare.tar" / >"$tmp/out" 2>&1 &&
	store commit -q "$container" docker.io/library/debian:12 >"$tmp/out" 2>&1
claim $? "a bare Debian 12 is an image"
unset MAKEFLAGS MFLAGS MAKELEVEL   # of the make that runs the tests
mkdir "$tmp/files" && make -s dist distdir=tutti-0.1.0 >"$tmp/out" 2>&1 && mv tutti-0.1.0.tar.xz "$tmp/files"
claim $? "make dist makes the tarball"
store bud --pull-never --isolation chroot -f "$top_srcdir/packaging/container/Containerfile" -t tutti "$tmp/files" >"$tmp/out" 2>&1
claim $? "the image is made"
container=$(store from --pull-never tutti 2>"$tmp/out")
command=$(sed -n 's/^ *command: \[\(.*\)\]$/\1/p' "$top_srcdir/examples/kubernetes.yaml" | tr -d '",')
inside $command && grep -q 'Out of bounds values : 0 OK' "$tmp/out"
claim $? "the command of examples/kubernetes.yaml runs in it: $command"
inside python3 -c 'import tutti; assert tutti.COMM_WORLD.size == 1'
claim $? "so does the Python package"
done_testing
