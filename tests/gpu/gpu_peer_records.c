/*
 * gpu_peer_records.c - invalid records of a peer's device memory are refused with a message, all ranks
 * agree on a fallback, and no mapping or descriptor stays open
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sock.h"
#include "gpu/gpu_call.h"
#include "tests/support/descriptors.h"
#include "tests/gpu/gpu_ranks.h"

/* ---- one record ------------------------------------------------------------------------------ */

/* Makes an IPC buffer of this process, and its record. */
static struct tt_ipc_buffer *make_buffer(bool by_fd, struct tt_ipc_record *ret_record)
{
	const struct tt_cuda *cu = harness_cuda();
	struct tt_ipc_buffer *buffer = NULL;
	tt_custream s;
	tt_cuctx ctx;

	claim(cu && !cu->ctx_current(&ctx) && !cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING));
	claim(cu && !tt_ipc_buffer_take(cu, ctx, 0, by_fd, s, &buffer));
	if (!buffer)
		_exit(1);
	cu->stream_synchronize(s), cu->stream_destroy(s);
	tt_ipc_buffer_describe(buffer, ret_record);
	return buffer;
}

/* A process that sends the records of two IPC buffers, one by handle with the descriptor of its host words,
 * one by descriptor, and keeps the buffers until `link` is closed. */
static void export_buffers(int link)
{
	for (int by_fd = 0; by_fd < 2; by_fd++) {
		struct tt_ipc_record record;
		struct tt_ipc_buffer *buffer = make_buffer(by_fd, &record);

		claim(tt_sock_give_fd(link, NULL, 0, &record, sizeof(record),
				      by_fd ? buffer->fd : buffer->words_fd));
	}
	claim(recv(link, &(char){ 0 }, 1, 0) == 0);
	_exit(gpu_failed);
}

static void change_nothing(struct tt_ipc_record *c)
{
	(void)c;
}
static void set_no_bytes(struct tt_ipc_record *c)
{
	c->bytes = 0;
}
static void set_fewer_bytes(struct tt_ipc_record *c)
{
	c->bytes = TT_DEV_IPC_BYTES - 1;
}
static void set_more_bytes(struct tt_ipc_record *c)
{
	c->bytes += 1 << 20;
}
static void set_most_bytes(struct tt_ipc_record *c)
{
	c->bytes = ~(uint64_t)0;
}
static void shift_address(struct tt_ipc_record *c)
{
	c->at += 4096;
}
static void clear_address(struct tt_ipc_record *c)
{
	c->at = 0;
}
static void shift_host_words(struct tt_ipc_record *c)
{
	c->words += 4096;
}
static void change_context(struct tt_ipc_record *c)
{
	c->ctx ^= 64;
}
static void change_device(struct tt_ipc_record *c)
{
	c->device++;
}
static void set_no_device(struct tt_ipc_record *c)
{
	c->device = -1;
}
static void clear_handle(struct tt_ipc_record *c)
{
	memset(&c->handle, 0, sizeof(c->handle));
}
static void garble_handle(struct tt_ipc_record *c)
{
	memset(&c->handle, 0xa5, sizeof(c->handle));
}

enum record_fd { OF_WORDS, OF_BUFFER, NO_FD, OF_PIPE };

/* says: part of the error message; NULL: the record is valid. driver: the fake driver refuses the
 * record, not the library. */
static const struct false_record {
	enum { SAME_PROCESS, BY_HANDLE, BY_FD } source;
	enum record_fd words, fd; /* descriptors of the host words, of the buffer */
	void (*change)(struct tt_ipc_record *record);
	const char *says;
	bool driver;
} records[] = {
	{ SAME_PROCESS, NO_FD, NO_FD, change_nothing, NULL, false },
	{ SAME_PROCESS, NO_FD, NO_FD, set_no_bytes, "an IPC buffer of 0 bytes", false },
	{ SAME_PROCESS, NO_FD, NO_FD, set_fewer_bytes, "do all ranks run the same build?", false },
	{ SAME_PROCESS, NO_FD, NO_FD, set_more_bytes, "where this process has none", false },
	{ SAME_PROCESS, NO_FD, NO_FD, shift_address, "where this process has none", false },
	{ SAME_PROCESS, NO_FD, NO_FD, clear_address, "where this process has none", false },
	{ SAME_PROCESS, NO_FD, NO_FD, shift_host_words, "where this process has none", false },
	{ SAME_PROCESS, NO_FD, NO_FD, change_context, "where this process has none", false },
	{ SAME_PROCESS, NO_FD, NO_FD, change_device, "on device 1, where this process has none",
	  false },
	{ SAME_PROCESS, NO_FD, NO_FD, set_no_device, "on device -1, where this process has none",
	  false },
	{ BY_HANDLE, OF_WORDS, NO_FD, change_nothing, NULL, false },
	{ BY_HANDLE, OF_WORDS, NO_FD, change_device, NULL,
	  false }, /* a process has device numbers of its own */
	{ BY_HANDLE, OF_WORDS, NO_FD, clear_address, NULL, false }, /* and addresses of its own */
	{ BY_HANDLE, OF_WORDS, NO_FD, set_no_bytes, "an IPC buffer of 0 bytes", false },
	{ BY_HANDLE, OF_WORDS, NO_FD, set_fewer_bytes, "do all ranks run the same build?", false },
	{ BY_HANDLE, OF_WORDS, NO_FD, clear_handle, "by IPC handle", true },
	{ BY_HANDLE, OF_WORDS, NO_FD, garble_handle, "by IPC handle", true },
	{ BY_FD, OF_WORDS, OF_BUFFER, change_nothing, NULL, false },
	{ BY_FD, OF_WORDS, OF_BUFFER, set_no_bytes, "an IPC buffer of 0 bytes", false },
	{ BY_FD, OF_WORDS, OF_BUFFER, set_fewer_bytes, "do all ranks run the same build?", false },
	{ BY_FD, OF_WORDS, OF_BUFFER, set_more_bytes, "by descriptor", true },
	{ BY_FD, OF_WORDS, OF_BUFFER, set_most_bytes, "by descriptor", true },
	{ BY_FD, OF_WORDS, NO_FD, change_nothing, "memory did not arrive", false },
	{ BY_FD, NO_FD, OF_BUFFER, change_nothing, "host words did not arrive", false },
	{ BY_HANDLE, NO_FD, NO_FD, change_nothing, "host words did not arrive", false },
	{ BY_HANDLE, OF_PIPE, NO_FD, change_nothing, "no 4096 bytes of host words", false },
	{ BY_FD, OF_WORDS, OF_PIPE, change_nothing, "by descriptor", true },
};

static void map_record(const struct false_record *test, struct tt_ipc_record record,
		       const int fds[])
{
	const struct tt_cuda *cu = tt_cuda_here();
	const bool by_fd = test->source == BY_FD;
	int before = count_descriptors(), rc;
	struct tt_ipc_mapping map = { .bytes = 77 };

	if (test->driver && getenv("TUTTI_TEST_GPU"))
		return;
	test->change(&record);
	rc = tt_ipc_buffer_map(cu, 0, &record, by_fd,
			       (struct tt_ipc_fds){ fds[test->words], fds[test->fd] }, &map);
	if (test->says) {
		claim(rc == TT_CUDA && map.bytes == 0);
		claim(strstr(tt_error_text(), test->says));
	} else {
		claim(rc == 0 && map.at && map.words_at);
		claim(map.bytes == (test->source == SAME_PROCESS ? 0 : record.bytes));
		claim(cu->dtoh(&rc, map.at + TT_DEV_IPC_BYTES - sizeof(rc), sizeof(rc)) == 0);
		tt_ipc_buffer_unmap(cu, &map, by_fd);
	}
	claim(count_descriptors() == before);
	if (gpu_failed)
		fprintf(stderr, "source %d, expected \"%s\": %s\n", test->source,
			test->says ? test->says : "", tt_error_text());
}

static void an_invalid_ipc_record_is_refused_with_a_message_and_nothing_stays_open(void)
{
	struct tt_ipc_record record[3];
	struct tt_ipc_buffer *own;
	int link[2], ends[2], status, fds[4] = { [NO_FD] = -1 };
	pid_t child;

	claim(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link) && !pipe(ends));
	child = fork();
	if (!child) {
		close(link[0]);
		export_buffers(link[1]);
	}
	close(link[1]);
	own = make_buffer(false, &record[SAME_PROCESS]);
	for (int by_fd = 0; by_fd < 2; by_fd++) {
		claim(recv(link[0], &(char){ 0 }, 1, MSG_PEEK) == 1);
		claim(tt_sock_take_fd(link[0], &record[by_fd ? BY_FD : BY_HANDLE], sizeof(*record),
				      &fds[by_fd ? OF_BUFFER : OF_WORDS]) == sizeof(*record));
	}
	fds[OF_PIPE] = ends[0];
	for (size_t i = 0; i < sizeof(records) / sizeof(*records) && !gpu_failed; i++)
		map_record(&records[i], record[records[i].source], fds);
	tt_ipc_buffer_give(own);
	map_record(&(struct false_record){ SAME_PROCESS, NO_FD, NO_FD, change_nothing,
					   "where this process has none", false },
		   record[SAME_PROCESS], fds);
	close(link[0]);
	claim(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Sends nfds copies of fd and a message in the format of ipc_fd.c. */
static void send_fds(const struct tt_fd_exchange *exchange, uint64_t token, int from, int nfds,
		     int fd)
{
	struct {
		uint64_t token;
		int32_t from, unused;
	} message = { token, from, 0 };
	union {
		char bytes[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec one = { .iov_base = &message, .iov_len = sizeof(message) };
	struct sockaddr_un sa;
	socklen_t bytes = sizeof(sa);
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1 };
	int via = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	claim(!getsockname(exchange->socket, (struct sockaddr *)&sa, &bytes));
	claim(!connect(via, (struct sockaddr *)&sa, bytes));
	if (nfds) {
		struct cmsghdr *c = &control.align;

		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		for (int i = 0; i < nfds; i++)
			memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &fd, sizeof(fd));
	}
	claim(sendmsg(via, &msg, 0) == sizeof(message));
	close(via);
}

static void unexpected_descriptors_are_closed(void)
{
	struct tt_fd_exchange exchange;
	int before, null = dup(2);

	memset(exchange.of, -1, sizeof(exchange.of));
	claim(tt_fd_exchange_open(&exchange) == 0);
	before = count_descriptors();
	for (int nfds = 0; nfds <= 8; nfds++) {
		send_fds(&exchange, exchange.address.token + 1, 3, nfds, null); /* a wrong token */
		if (nfds != 1)
			send_fds(&exchange, exchange.address.token, 3, nfds,
				 null); /* a wrong number */
		tt_fd_exchange_collect(&exchange);
		claim(count_descriptors() == before && exchange.of[3].words == -1);
	}
	send_fds(&exchange, exchange.address.token, -1, 1, null);
	send_fds(&exchange, exchange.address.token, TT_DEV_RANKS, 1, null);
	send_fds(&exchange, exchange.address.token, 3, 1, null);
	send_fds(&exchange, exchange.address.token, 3, 1, null); /* twice */
	tt_fd_exchange_collect(&exchange);
	claim(count_descriptors() == before + 1 && exchange.of[3].words >= 0);
	tt_fd_exchange_close(&exchange);
	claim(count_descriptors() == before - 1);
	close(null);
}

/* Takes the name of an exchange that has ended, as another user, and waits. */
static void take_name(const struct sockaddr_un *sa, socklen_t bytes, int ready)
{
	int fd;

	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		_exit(1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (bind(fd, (const struct sockaddr *)sa, bytes) || listen(fd, 1) ||
	    write(ready, "", 1) != 1)
		_exit(2);
	pause();
	_exit(0);
}

static void no_descriptor_is_given_to_another_user(void)
{
	struct tt_fd_exchange exchange;
	struct sockaddr_un sa;
	socklen_t bytes = sizeof(sa);
	int ready[2];
	char byte;
	pid_t child;

	if (geteuid())
		return; /* only root can be another user */
	memset(exchange.of, -1, sizeof(exchange.of));
	claim(!tt_fd_exchange_open(&exchange) && !pipe(ready));
	claim(!getsockname(exchange.socket, (struct sockaddr *)&sa, &bytes));
	tt_fd_exchange_close(&exchange);
	child = fork();
	if (!child)
		take_name(&sa, bytes, ready[1]);
	claim(child > 0 && read(ready[0], &byte, 1) == 1);
	claim(tt_fd_exchange_send(0, 3, &exchange.address, (struct tt_ipc_fds){ 2, -1 }) ==
	      TT_SYSTEM);
	claim(strstr(tt_error_text(), "user 65534 listens where rank 3 should"));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(ready[0]), close(ready[1]);
}

/* ---- host words ------------------------------------------------------------------------------ */

/* Puts two waits for a word on the stream. true: the stream waits */
static bool wait_twice(struct tt_gpu *d, tt_custream s)
{
	static const struct tt_dev_awaited twice[] = { { TT_DEV_MESSAGE, 0 },
						       { TT_DEV_MESSAGE, 0 } };

	claim(tt_gpu_await(d, twice, 2, s) == 0);
	usleep(20000);
	return d->cu->stream_query(s) == TT_CU_NOT_READY;
}

/* Another mapping of the same memory sets them. */
static void streams_wait_for_host_words_until_they_are_set_or_the_host_ends_the_waits(void)
{
	const struct tt_cuda *cu = harness_cuda();
	struct tt_dev_host_words *own, *other;
	struct tt_dev_stream_word *word;
	struct tt_ipc_buffer buffer = { .fd = -1 };
	struct tt_gpu d = { .cu = cu, .ipc = &buffer };
	int fd = -1, before = count_descriptors();
	tt_custream s;

	claim(cu && !cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING));
	claim(!tt_ipc_words_make(cu, &fd, &own, &buffer.words_at));
	other = mmap(NULL, TT_DEV_HOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	claim(other != MAP_FAILED);
	claim(cu->host_register(own, TT_DEV_HOST_BYTES, TT_CU_HOST_MAPPED)); /* is registered */
	word = &other->stream[TT_DEV_MESSAGE];
	claim(wait_twice(&d, s));
	for (int i = 0; i < 2; i++) {
		__atomic_store_n(&word->set, 1, __ATOMIC_RELEASE);
		for (int ms = 0; ms < 10000 && __atomic_load_n(&word->set, __ATOMIC_ACQUIRE); ms++)
			usleep(1000);
	}
	claim(word->set == 0 && cu->stream_synchronize(s) == 0);
	claim(wait_twice(&d, s));
	__atomic_store_n(&own->stream[TT_DEV_MESSAGE].ended, 1, __ATOMIC_RELEASE);
	claim(cu->stream_synchronize(s) == 0 && word->set == 0);
	munmap(other, TT_DEV_HOST_BYTES);
	tt_ipc_words_close(cu, own);
	close(fd);
	cu->stream_destroy(s);
	claim(count_descriptors() == before || getenv("TUTTI_TEST_GPU"));
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static bool false_by_fd;

/* Rank 1 gives IPC buffers with a false size to the pool, and the next communicator sends their
 * records. */
static void pool_false_buffers(int rank)
{
	struct tt_ipc_record record;

	if (rank != 1)
		return;
	for (int by_fd = 0; by_fd <= false_by_fd; by_fd++) {
		struct tt_ipc_buffer *buffer = make_buffer(by_fd, &record);

		buffer->bytes = 4096;
		tt_ipc_buffer_give(buffer);
	}
}

static int sum_once(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int x[100], wrong = 0;
	tt_cuptr p;

	(void)arg;
	for (int i = 0; i < 100; i++)
		x[i] = rank + i;
	wrong += cu->mem_alloc(&p, sizeof(x)) || cu->htod(p, x, sizeof(x));
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 100, tuttiInt32,
				tuttiSum, *comm, NULL) != tuttiSuccess;
	cu->dtoh(x, p, sizeof(x));
	for (int i = 0; i < 100; i++)
		wrong += x[i] != n * i + n * (n - 1) / 2;
	cu->mem_free(p);
	return wrong;
}

static int run_with_false_record(int mode, bool threads)
{
	struct gpu_ranks t = { .ranks = { .n = 3,
					  .threads = threads,
					  .no_join = true,
					  .limit_s = gpu_limit_s,
					  .timeout_ms = 20000 },
			       .fn = sum_once,
			       .mode = mode,
			       .before = pool_false_buffers };

	t.ranks.arg = &t;
	return gpu_ranks_run(&t);
}

/* Threads share the pool of IPC buffers, so any of them may send the false record. */
static void all_ranks_fall_back_together_when_one_sends_a_record_of_a_too_small_ipc_buffer(void)
{
	claim(run_with_false_record(STREAM_ORDER, false) ==
	      0); /* fallback by descriptor, with a true record */
	false_by_fd = true;
	claim(run_with_false_record(STAGED, false) == 0);
	claim(run_with_false_record(STAGED, true) == 0);
}

const struct gpu_case gpu_peer_records[] = {
	GPU_CASE(an_invalid_ipc_record_is_refused_with_a_message_and_nothing_stays_open),
	GPU_CASE(unexpected_descriptors_are_closed),
	GPU_CASE(no_descriptor_is_given_to_another_user),
	GPU_CASE(streams_wait_for_host_words_until_they_are_set_or_the_host_ends_the_waits),
	GPU_CASE(all_ranks_fall_back_together_when_one_sends_a_record_of_a_too_small_ipc_buffer),
	{ NULL, NULL, false },
};
