/*
 * survival_networks.c - networks, /tmp and /dev/shm of a scene's own; cuts between two networks
 *
 * Called by the process of a scene, before its ranks exist; everything disappears with the processes
 * of the scene. In a cut the survivors are in one network and the victims in another, joined by a
 * veth pair. A direction is lost when frames go to a hardware address that no interface has, as
 * behind a switch that lost its tables: no queueing discipline is needed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/survival/survival.h"

#define DEVICE "tutti%d" /* of side 0 or 1, with address 10.99.0.1 or 10.99.0.2 */

static int status_of(pid_t pid)
{
	int status;

	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
									       : -1;
}

bool scene_can_isolate(const char **lacks)
{
	pid_t pid;

	*lacks = "network namespaces need root";
	if (getuid())
		return false;
	*lacks = "no ip command (package iproute2)";
	if (system("ip -V >/dev/null 2>&1"))
		return false;
	*lacks = "this kernel or container does not allow network namespaces with veth devices";
	pid = fork();
	if (pid == 0) {
		struct scene_networks nets;

		_exit(!freopen("/dev/null", "w", stderr) || !scene_isolate(true, &nets));
	}
	return status_of(pid) == 0;
}

/* ---- make ------------------------------------------------------------------------------------ */

static bool own_folder(const char *path)
{
	return !mount("none", path, "tmpfs", 0, "size=1g,mode=1777");
}

static bool loopback_up(int fd)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };

	return !ioctl(fd, SIOCSIFFLAGS, &r);
}

/* The pid of a process in the network of ns, which waits until it is killed. */
static pid_t hold(int ns)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setns(ns, CLONE_NEWNET))
		_exit(1);
	for (;;)
		pause();
}

static bool configure(int ns, int side)
{
	char command[200];

	if (setns(ns, CLONE_NEWNET))
		return false;
	snprintf(command, sizeof(command),
		 "ip addr add 10.99.0.%d/24 dev " DEVICE " && ip link set " DEVICE " up", side + 1,
		 side, side);
	return !system(command);
}

static bool join_networks(const struct scene_networks *nets)
{
	pid_t holder = hold(nets->ns[1]);
	char command[200];
	bool ok;

	snprintf(command, sizeof(command),
		 "ip link add " DEVICE " type veth peer name " DEVICE " netns %d", 0, 1, holder);
	ok = !setns(nets->ns[0], CLONE_NEWNET) && !system(command) && configure(nets->ns[0], 0) &&
	     configure(nets->ns[1], 1) && !setns(nets->ns[0], CLONE_NEWNET);
	kill(holder, SIGKILL);
	status_of(holder);
	return ok;
}

bool scene_isolate(bool two, struct scene_networks *ret_nets)
{
	*ret_nets = (struct scene_networks){ { -1, -1 }, { -1, -1 } };
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    !own_folder("/dev/shm") || !own_folder("/tmp"))
		return false;
	for (int side = 0; side <= two; side++) {
		if (unshare(CLONE_NEWNET))
			return false;
		ret_nets->ns[side] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		ret_nets->control[side] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (ret_nets->ns[side] < 0 || !loopback_up(ret_nets->control[side]))
			return false;
	}
	return !two || join_networks(ret_nets);
}

void scene_enter(const struct scene_networks *nets, int side)
{
	if (nets->ns[side] >= 0 && setns(nets->ns[side], CLONE_NEWNET))
		_exit(1);
}

/* ---- cut ------------------------------------------------------------------------------------- */

/* Frames of this side to the other one are lost. */
static bool lose_from(const struct scene_networks *nets, int side)
{
	struct arpreq r = { .arp_flags = ATF_PERM | ATF_COM,
			    .arp_ha = { .sa_family = ARPHRD_ETHER,
					.sa_data = { 2, 0, 0, 0, 0, 99 } } };
	struct sockaddr_in *to = (struct sockaddr_in *)&r.arp_pa;

	to->sin_family = AF_INET;
	to->sin_addr.s_addr = htonl(0x0a630000u + (side ? 1 : 2));
	snprintf(r.arp_dev, sizeof(r.arp_dev), DEVICE, side);
	return !ioctl(nets->control[side], SIOCSARP, &r);
}

static bool set_down(const struct scene_networks *nets, int side)
{
	struct ifreq r = { .ifr_flags = 0 };

	snprintf(r.ifr_name, sizeof(r.ifr_name), DEVICE, side);
	return !ioctl(nets->control[side], SIOCSIFFLAGS, &r);
}

bool scene_cut_link(const struct scene_networks *nets, enum scene_cut cut)
{
	switch (cut) {
	case CUT_DOWN:
		return set_down(nets, 1);
	case CUT_BOTH_WAYS:
		return lose_from(nets, 0) && lose_from(nets, 1);
	case CUT_FROM_VICTIMS:
		return lose_from(nets, 1);
	default:
		return lose_from(nets, 0);
	}
}

/* ---- what is left ---------------------------------------------------------------------------- */

static void find_file(const char *path, char *text, size_t bytes)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && strcmp(e->d_name, "verbs-fake"))
			snprintf(text, bytes, "%s/%s", path, e->d_name);
	if (dir)
		closedir(dir);
}

static void find_socket(char *text, size_t bytes)
{
	FILE *list = fopen("/proc/self/net/unix", "r");
	char line[300];
	int lines = 0;

	while (list && fgets(line, sizeof(line), list))
		if (lines++)
			snprintf(text, bytes, "socket %.200s", line);
	if (list)
		fclose(list);
}

void scene_find_left(const struct scene_networks *nets, char *text, size_t bytes)
{
	text[0] = '\0';
	find_file("/dev/shm", text, bytes);
	find_file("/tmp", text, bytes);
	for (int side = 0; side < 2 && nets->ns[side] >= 0; side++) {
		scene_enter(nets, side);
		find_socket(text, bytes);
	}
}
