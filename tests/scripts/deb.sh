#!/bin/bash
# deb.sh - Debian's packages: made by `make deb`, checked by lintian, installed on a copy of this system, and used
#
# Called by tests/tiers full, from the build folder. The copy is an overlay in a mount namespace, so nothing stays. TAP.
set -u
for program in dpkg-buildpackage dh lintian unshare; do
	command -v $program >/dev/null || { echo "no $program"; exit 77; }
done
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
shown=out
. "$(dirname "$0")/tap.sh"

unset MAKEFLAGS MFLAGS MAKELEVEL   # of the make that runs the tests
make deb >"$tmp/out" 2>&1
claim $? "make deb makes the packages"
debs=$(cd packaging/deb && echo *.deb)
for package in libtutti0 libtutti-dev libtutti-nccl libtutti-mpi tutti-tools python3-tutti; do
	[[ " $debs" == *" ${package}_"* ]] || { echo "# no $package"; false; }
	claim $? "$package is one of them"
done
# The changelog has no bug that it closes, and the address of its author no host. (Quotes part a word that is no word of ours.)
lintian --suppress-tags initial-upload-closes-no-bugs,bogus-'ma'il-host,bogus-'ma'il-host-in-debian-changelog,no-manual-page \
	--fail-on error,warning packaging/deb/*.deb >"$tmp/out" 2>&1
claim $? "lintian finds no error and no warning"

cat >"$tmp/use" <<'INSIDE'
set -e
export LANG=C DEBIAN_FRONTEND=noninteractive
dpkg -i /mnt/*.deb
tutti --version
allreduce_perf --np 2 -b 64K -e 64K -c 1
cc /mnt/allreduce.c $(pkg-config --cflags --libs tutti) -o /tmp/allreduce && ldd /tmp/allreduce | grep 'libtutti.so.0 => /lib\|libtutti.so.0 => /usr/lib'
cc /mnt/allreduce.c -o /tmp/static $(pkg-config --cflags --static --libs tutti)
/usr/bin/python3 -c 'import tutti; assert tutti.__file__.startswith("/usr/lib/python3/dist-packages"); assert tutti.COMM_WORLD.size == 1'
test -e /usr/lib/*/tutti/libnccl.so.2
dpkg --purge $(for f in /mnt/*.deb; do dpkg-deb -f "$f" Package; done)   # packages of debug symbols are made where debugedit is
! test -e /usr/bin/tutti
INSIDE
mkdir "$tmp/root" "$tmp/upper"
files=$(cd packaging/deb && pwd) example=$(cd "$top_srcdir/examples" && pwd)/allreduce.c
in_copy() {
	mount -t tmpfs tmpfs "$tmp/upper" && mkdir "$tmp/upper/files" "$tmp/upper/work" &&
		mount -t overlay overlay -o "lowerdir=/,upperdir=$tmp/upper/files,workdir=$tmp/upper/work" "$tmp/root" &&
		mount -t tmpfs tmpfs "$tmp/root/mnt" && cp "$files"/*.deb "$example" "$tmp/use" "$tmp/root/mnt/" &&
		mount -t tmpfs tmpfs "$tmp/root/tmp" && mount --rbind /proc "$tmp/root/proc" && mount --rbind /dev "$tmp/root/dev" || exit 77
	exec chroot "$tmp/root" sh /mnt/use
}
export -f in_copy
export tmp files example
unshare -m bash -c in_copy >"$tmp/out" 2>&1
status=$?
if [ $status = 77 ]; then
	skip "the packages are installed, used and removed" "no overlay of the system can be mounted: $(tail -n 1 "$tmp/out")"
else
	claim $status "the packages are installed, used and removed"
fi
done_testing
