#!/bin/bash
# deb.sh - Debian's packages: made by `make deb`, checked by lintian, installed on a bare Debian 12, and used
#
# Called by tests/tiers full, from the build folder. mmdebstrap makes the bare system, which has nothing but what apt needs. TAP.
set -u
for program in dpkg-buildpackage dh lintian unshare mmdebstrap; do
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
cd /mnt
apt-get update
apt-get install -y --no-install-recommends ./*.deb   # and all that they depend on, from Debian
tutti --version
allreduce_perf --np 2 -b 64K -e 64K -c 1
python3 -c 'import tutti; assert tutti.__file__.startswith("/usr/lib/python3/dist-packages"); assert tutti.COMM_WORLD.size == 1'
test -e /usr/lib/*/tutti/libnccl.so.2
test -e /usr/lib/*/tutti/libtutti-mpi-ompi.so
apt-get install -y --no-install-recommends gcc libc6-dev pkg-config
cc allreduce.c $(pkg-config --cflags --libs tutti) -o /tmp/allreduce && ldd /tmp/allreduce | grep 'libtutti.so.0 => /lib\|libtutti.so.0 => /usr/lib'
test "$(/tmp/allreduce)" = "1 ranks are here"
cc allreduce.c -o /tmp/static $(pkg-config --cflags --static --libs tutti)
dpkg --purge $(for f in *.deb; do dpkg-deb -f "$f" Package; done)   # packages of debug symbols are made where debugedit is
! test -e /usr/bin/tutti
INSIDE
in_root() {
	cp packaging/deb/*.deb "$top_srcdir/examples/allreduce.c" "$tmp/use" "$tmp/root/mnt/" && cp /etc/resolv.conf "$tmp/root/etc/" &&
		mount --rbind /proc "$tmp/root/proc" && mount --rbind /dev "$tmp/root/dev" && exec chroot "$tmp/root" sh /mnt/use
}
export -f in_root
export tmp top_srcdir
what="the packages are installed on a bare Debian 12 by apt, used and removed"
if ! mmdebstrap -q --variant=minbase bookworm "$tmp/root" http://deb.debian.org/debian >"$tmp/out" 2>&1; then
	skip "$what" "no bare Debian: $(tail -n 1 "$tmp/out")"
else
	unshare -m bash -c in_root >"$tmp/out" 2>&1
	claim $? "$what"
fi
done_testing
