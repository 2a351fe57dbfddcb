/* shared_parameters.c - parameters that the workers of a host share (shared_parameters.h) */
#include "trainer/strategy/shared_parameters.h"

#include "trainer/device/rmsprop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- open and close -------------------------------------------------------------------------- */

/* Where the other workers find rank 0's memory. */
struct shared_address {
	uint64_t token, pid, fd;
};

/* Returns 0 or an error number. */
static int map(struct train_shared *s, int fd)
{
	void *memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return errno;
	s->memory = memory;
	return 0;
}

static void fill(struct train_shared *s, struct train_rank *t)
{
	for (size_t i = 0; i < s->count; i++) {
		s->memory->value[i] = t->parameters[i];
		s->memory->value[s->count + i] = t->state[i];
	}
}

/* Rank 0. Returns 0 or an error number. */
static int create(struct train_shared *s, struct train_rank *t, struct shared_address *address)
{
	int fd = memfd_create("tutti-parameters", MFD_CLOEXEC), rc;

	address->fd = (uint64_t)fd;
	if (fd < 0 || ftruncate(fd, (off_t)s->bytes))
		return errno;
	rc = map(s, fd);
	if (rc)
		return rc;
	s->memory->token = address->token;
	s->memory->next = t->first_step * (uint64_t)t->nranks;
	fill(s, t);
	return 0;
}

/* Another worker. Returns 0 or an error number. */
static int attach(struct train_shared *s, const struct shared_address *address)
{
	char path[64];
	int fd, rc;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)address->pid, (int)address->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	rc = lseek(fd, 0, SEEK_END) == (off_t)s->bytes ? map(s, fd) : ENOENT;
	close(fd);
	return rc ? rc : s->memory->token == address->token ? 0 : ENOENT;
}

int train_shared_open(struct train_shared *s, struct train_rank *t)
{
	struct shared_address address = { .token = train_time_ns(),
					  .pid = (uint64_t)getpid(),
					  .fd = (uint64_t)-1 };
	int32_t failed = 0;
	int rc;

	s->count = t->model.parameters;
	s->bytes = sizeof(*s->memory) + 2 * s->count * sizeof(float);
	if (t->rank == 0)
		failed = create(s, t, &address);
	rc = train_check(tuttiBcast(&address, sizeof(address), tuttiUint8, 0, t->comm, NULL),
			 t->comm);
	if (!rc && t->rank > 0)
		failed = attach(s, &address);
	if (!rc)
		rc = train_check(tuttiAllReduce(&failed, &failed, 1, tuttiInt32, tuttiMax, t->comm,
						NULL),
				 t->comm);
	if (t->rank == 0 && (int)address.fd >= 0)
		close((int)address.fd);
	if (rc || !failed)
		return rc;
	return train_fail(
		TRAIN_USAGE,
		"--strategy a3c: a worker cannot share rank 0's memory: %s; start all of them on one host",
		strerror(failed));
}

void train_shared_close(struct train_shared *s)
{
	if (s->memory)
		munmap(s->memory, s->bytes);
}

/* ---- use -------------------------------------------------------------------------------------- */

static float load(const _Atomic float *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

void train_shared_read(const struct train_shared *s, float *parameters, float *squares)
{
	const _Atomic float *value = s->memory->value;

	for (size_t i = 0; i < s->count; i++)
		parameters[i] = load(&value[i]);
	for (size_t i = 0; squares && i < s->count; i++)
		squares[i] = load(&value[s->count + i]);
}

void train_shared_descend(struct train_shared *s, const float *gradient, float scale, float rate)
{
	_Atomic float *weight = s->memory->value, *square = weight + s->count;

	for (size_t i = 0; i < s->count; i++) {
		float g = scale * gradient[i], mean = train_rmsprop_square(load(&square[i]), g);

		atomic_store_explicit(&square[i], mean, memory_order_relaxed);
		atomic_store_explicit(&weight[i],
				      load(&weight[i]) - train_rmsprop_change(mean, g, rate),
				      memory_order_relaxed);
	}
}

bool train_shared_take(struct train_shared *s, uint64_t end, uint64_t *ret_share)
{
	uint64_t next = atomic_load_explicit(&s->memory->next, memory_order_relaxed);

	while (next < end)
		if (atomic_compare_exchange_weak_explicit(&s->memory->next, &next, next + 1,
							  memory_order_relaxed,
							  memory_order_relaxed)) {
			*ret_share = next;
			return true;
		}
	return false;
}
