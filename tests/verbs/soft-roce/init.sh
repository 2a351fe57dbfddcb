#!/bin/busybox sh
# init.sh - first process of the machine (see machine): mounts the host's files, loads the modules, runs the command
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
hostname machine
for module in /modules/*.ko; do insmod $module 2>/dev/null; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host
for folder in proc sys dev; do mount --bind /$folder /host/$folder; done
mkdir -p /dev/shm /dev/pts
mkdir -p /under && mount --bind /host /under
for folder in tmp run dev/shm; do mount -t tmpfs tmpfs /host/$folder; done
top=$(sed -n 's,^\(/\(tmp\|run\)/[^/]*\).*,\1,p' /folder)      # a folder that the new /tmp would hide
[ -z "$top" ] || { mkdir -p "/host$top" && mount --bind "/under$top" "/host$top"; }
mkdir -p /host/tmp/machine && cp /command /adapters.sh /host/tmp/machine/
echo      # ends the line that the BIOS has begun
chroot /host /bin/sh -c '
	export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
	ulimit -l unlimited
	. /tmp/machine/adapters.sh
	bash /tmp/machine/command
	echo "machine: exit $?"' 2>&1
poweroff -f
