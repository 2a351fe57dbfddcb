/*
 * wire_capture.c - keep every frame that a device sends or receives; for wire.sh
 *
 *   wire_capture DEVICE FILE     until SIGTERM
 *
 * Exit status 1: the kernel lost frames.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

static volatile sig_atomic_t over;

static void on_signal(int number)
{
	(void)number;
	over = 1;
}

int main(int argc, char **argv)
{
	static char frame[256 << 10];
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), room = 64 << 20;
	struct sockaddr_ll device = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct sigaction action = { .sa_handler = on_signal };
	struct timeval slice = { .tv_usec = 100000 };
	struct tpacket_stats lost = { 0 };
	FILE *file = argc == 3 ? fopen(argv[2], "we") : NULL;
	long frames = 0;

	device.sll_ifindex = argc == 3 ? (int)if_nametoindex(argv[1]) : 0;
	if (fd < 0 || !file || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)) ||
	    bind(fd, (struct sockaddr *)&device, sizeof(device)))
		return perror("wire_capture"), 2;
	sigaction(SIGTERM, &action, NULL);
	puts("captures");
	fflush(stdout);
	for (ssize_t n; !over || errno != EAGAIN;) { /* after the signal: what has come */
		errno = 0;
		n = recv(fd, frame, sizeof(frame), over ? MSG_DONTWAIT : 0);
		if (n > 0 && fwrite(frame, 1, (size_t)n, file) == (size_t)n)
			frames++;
	}
	getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &lost, &(socklen_t){ sizeof(lost) });
	printf("%ld frames, %u lost\n", frames, lost.tp_drops);
	return fclose(file) || lost.tp_drops;
}
