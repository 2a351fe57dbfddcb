/*
 * tensorboard.c - a file of TensorBoard's events (tensorboard.h)
 *
 * A record is its length (64 bits), a checksum of it, the event, a checksum of that; all
 * little-endian. The checksum is CRC-32C, rotated and shifted by a constant. An event is a message of
 * protocol buffers: 1: wall time, a double; 2: step, an integer; 3: version of the file, a text; or 5:
 * a summary, whose 1 is a value with 1: its tag and 2: a float.
 */
#include "trainer/tensorboard.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int train_tensorboard_path(const char *directory, char *ret_path, size_t room)
{
	char host[64] = "";

	gethostname(host, sizeof(host) - 1);
	if (mkdir(directory, 0777) && errno != EEXIST)
		return -1;
	if (snprintf(ret_path, room, "%s/events.out.tfevents.%lld.%s.%d", directory,
		     (long long)time(NULL), host, (int)getpid()) < (int)room)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

/* ---- records ------------------------------------------------------------------------------------ */

static uint32_t crc32c(const uint8_t *data, size_t bytes)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < bytes; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static void write_checksum(FILE *f, const void *data, size_t bytes)
{
	uint32_t crc = crc32c(data, bytes), masked = (crc >> 15 | crc << 17) + 0xa282ead8u;

	masked = htole32(masked);
	fwrite(&masked, sizeof(masked), 1, f);
}

static void write_record(FILE *f, const uint8_t *event, size_t bytes)
{
	uint64_t length = htole64(bytes);

	fwrite(&length, sizeof(length), 1, f);
	write_checksum(f, &length, sizeof(length));
	fwrite(event, 1, bytes, f);
	write_checksum(f, event, bytes);
}

/* ---- protocol buffers --------------------------------------------------------------------------- */

enum { TAG_MOST = 64 };
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

struct message {
	uint8_t data[4 * TAG_MOST];
	size_t bytes;
};

static void add_varint(struct message *m, uint64_t value)
{
	for (; value > 127; value >>= 7)
		m->data[m->bytes++] = (uint8_t)(value | 128);
	m->data[m->bytes++] = (uint8_t)value;
}

static void add_bytes(struct message *m, int field, const void *data, size_t bytes)
{
	add_varint(m, (uint64_t)(field << 3 | WIRE_BYTES));
	add_varint(m, bytes);
	memcpy(m->data + m->bytes, data, bytes);
	m->bytes += bytes;
}

static struct message begin_event(uint64_t step)
{
	struct message m = { .bytes = 0 };
	struct timespec now;
	double seconds;
	uint64_t bits;

	clock_gettime(CLOCK_REALTIME, &now);
	seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	memcpy(&bits, &seconds, sizeof(bits));
	bits = htole64(bits);
	add_varint(&m, 1 << 3 | WIRE_64);
	memcpy(m.data + m.bytes, &bits, sizeof(bits));
	m.bytes += sizeof(bits);
	add_varint(&m, 2 << 3 | WIRE_VARINT);
	add_varint(&m, step);
	return m;
}

void train_tensorboard_begin(FILE *f)
{
	struct message event = begin_event(0);

	add_bytes(&event, 3, "brain.Event:2", 13);
	write_record(f, event.data, event.bytes);
}

void train_tensorboard_scalar(FILE *f, uint64_t step, const char *tag, double value)
{
	struct message scalar = { .bytes = 0 }, summary = { .bytes = 0 };
	struct message event = begin_event(step);
	float single = (float)value;
	uint32_t bits;

	memcpy(&bits, &single, sizeof(bits));
	bits = htole32(bits);
	add_bytes(&scalar, 1, tag, strnlen(tag, TAG_MOST));
	add_varint(&scalar, 2 << 3 | WIRE_32);
	memcpy(scalar.data + scalar.bytes, &bits, sizeof(bits));
	scalar.bytes += sizeof(bits);
	add_bytes(&summary, 1, scalar.data, scalar.bytes);
	add_bytes(&event, 5, summary.data, summary.bytes);
	write_record(f, event.data, event.bytes);
}
