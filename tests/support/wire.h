/*
 * wire.h - shared by the ranks and the relay of wire.sh: markers, ports, the state of a round
 */
#ifndef WIRE_H
#define WIRE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Markers that ranks plant; wire.sh looks for them. The marker of a message is its tag, then its
 * version, as they lie in memory. */
#define DATA_MARKER "marker-of-data--"
#define TAG_MARKER "tagOfMessage"
#define FORGED "a sentence forged by the relay"

#define ROOT_PORT 29791 /* rank 0 listens here, rank 1 at the next port */

/* The relay forges: a frame, a frame in a record, verdicts, an alert; sends bytes twice; loses some; ends the
 * connection behind exactly that number of bytes. */
enum wire_kind {
	WIRE_FRAME = 1,
	WIRE_RECORD,
	WIRE_WELCOME,
	WIRE_EXCLUDED,
	WIRE_ALERT,
	WIRE_FORGERIES = WIRE_ALERT,
	WIRE_REPEAT,
	WIRE_LOSE,
	WIRE_CUT,
	WIRE_KINDS = WIRE_CUT
};

/* Faults that the relay plants in the first connection of a round to one of the two ports. */
struct wire_plan {
	int port;   /* ROOT_PORT, ROOT_PORT + 1; 0: nothing */
	long bit;   /* that it changes, of the bytes of both directions in order; -1: none */
	int kind;   /* 0, or what it does to the stream (enum wire_kind) ... */
	long after; /* ... after this number of bytes */
	int from;   /* direction: 0 as if the client sent them, 1 the server */
};

struct wire_state {          /* in a file that all map */
	atomic_int ready[2]; /* the round for which a rank is ready */
	atomic_int round;    /* with this plan: */
	struct wire_plan plan;
	atomic_int altered; /* the last round in which the relay did something */
	atomic_bool over;   /* a rank ended early */
};

static inline struct wire_state *wire_map(const char *path)
{
	struct wire_state *state = MAP_FAILED;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd >= 0 && !ftruncate(fd, sizeof(*state)))
		state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (state == MAP_FAILED) {
		perror(path);
		exit(4);
	}
	close(fd);
	return state;
}

static inline void wire_pause(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

#endif
