/*
 * gpu_peer_records.c - what a peer tells of its device memory and cannot be: refused in words, agreed on
 * by all ranks, and nothing of it stays open
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sock.h"
#include "tests/support/descriptors.h"
#include "tests/gpu/gpu_ranks.h"

/* ---- one card -------------------------------------------------------------------------------- */

/* Of an area of this process, made by the driver's table. */
static struct tt_ipc_buffer *make_area(bool by_fd, struct tt_ipc_record *ret_card)
{
	const struct tt_cuda *cu = harness_cuda();
	struct tt_ipc_buffer *area = NULL;
	tt_custream s;
	tt_cuctx ctx;

	claim(cu && !cu->ctx_current(&ctx) && !cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING));
	claim(cu && !tt_ipc_buffer_take(cu, ctx, 0, by_fd, s, &area));
	if (!area)
		_exit(1);
	cu->stream_synchronize(s), cu->stream_destroy(s);
	tt_ipc_buffer_describe(area, ret_card);
	return area;
}

/* A process that tells of its areas, one of either sort, and has them until `link` is closed. */
static void export_areas(int link)
{
	for (int by_fd = 0; by_fd < 2; by_fd++) {
		struct tt_ipc_record card;
		struct tt_ipc_buffer *area = make_area(by_fd, &card);
		bool told = by_fd ? tt_sock_give_fd(link, NULL, 0, &card, sizeof(card), area->fd)
				  : send(link, &card, sizeof(card), 0) == sizeof(card);

		claim(told);
	}
	claim(recv(link, &(char){ 0 }, 1, 0) == 0);
	_exit(gpu_broken);
}

static void keep(struct tt_ipc_record *c) { (void)c; }
static void say_nothing(struct tt_ipc_record *c) { c->bytes = 0; }
static void say_less(struct tt_ipc_record *c) { c->bytes = TT_DEV_IPC_BYTES - 1; }
static void say_more(struct tt_ipc_record *c) { c->bytes += 1 << 20; }
static void say_most(struct tt_ipc_record *c) { c->bytes = ~(uint64_t)0; }
static void go_beside(struct tt_ipc_record *c) { c->at += 4096; }
static void go_nowhere(struct tt_ipc_record *c) { c->at = 0; }
static void move_context(struct tt_ipc_record *c) { c->ctx ^= 64; }
static void move_device(struct tt_ipc_record *c) { c->device++; }
static void lose_device(struct tt_ipc_record *c) { c->device = -1; }
static void forget_handle(struct tt_ipc_record *c) { memset(&c->handle, 0, sizeof(c->handle)); }
static void garble_handle(struct tt_ipc_record *c) { memset(&c->handle, 0xa5, sizeof(c->handle)); }

enum fd_of { THEIRS, NONE, A_PIPES };

/* says: in the error; NULL: it is a card like any other. */
static const struct false_record {
	enum { HERE, BY_HANDLE, BY_FD } way;
	enum fd_of fd;
	void (*tell)(struct tt_ipc_record *card);
	const char *says;
	bool driver;                           /* it is to refuse this, not the library */
} lies[] = {
	{ HERE, NONE, keep, NULL, false },
	{ HERE, NONE, say_nothing, "an IPC buffer of 0 bytes", false },
	{ HERE, NONE, say_less, "do all ranks run the same build?", false },
	{ HERE, NONE, say_more, "where this process has none", false },
	{ HERE, NONE, go_beside, "where this process has none", false },
	{ HERE, NONE, go_nowhere, "where this process has none", false },
	{ HERE, NONE, move_context, "where this process has none", false },
	{ HERE, NONE, move_device, "on device 1, where this process has none", false },
	{ HERE, NONE, lose_device, "on device -1, where this process has none", false },
	{ BY_HANDLE, NONE, keep, NULL, false },
	{ BY_HANDLE, NONE, move_device, NULL, false },  /* it numbers them as it sees them */
	{ BY_HANDLE, NONE, go_nowhere, NULL, false },   /* and has addresses of its own */
	{ BY_HANDLE, NONE, say_nothing, "an IPC buffer of 0 bytes", false },
	{ BY_HANDLE, NONE, say_less, "do all ranks run the same build?", false },
	{ BY_HANDLE, NONE, forget_handle, "by IPC handle", true },
	{ BY_HANDLE, NONE, garble_handle, "by IPC handle", true },
	{ BY_FD, THEIRS, keep, NULL, false },
	{ BY_FD, THEIRS, say_nothing, "an IPC buffer of 0 bytes", false },
	{ BY_FD, THEIRS, say_less, "do all ranks run the same build?", false },
	{ BY_FD, THEIRS, say_more, "by descriptor", true },
	{ BY_FD, THEIRS, say_most, "by descriptor", true },
	{ BY_FD, NONE, keep, "did not arrive", false },
	{ BY_FD, A_PIPES, keep, "by descriptor", true },
};

static void tell(const struct false_record *lie, struct tt_ipc_record card, const int fds[])
{
	const struct tt_cuda *cu = tt_cuda_here();
	const bool by_fd = lie->way == BY_FD;
	int before = count_descriptors(), rc;
	size_t opened = 77;
	tt_cuptr at = 0;

	if (lie->driver && getenv("TUTTI_TEST_GPU"))
		return;
	lie->tell(&card);
	rc = tt_ipc_buffer_map(cu, 0, &card, by_fd, fds[lie->fd], &at, &opened);
	if (lie->says) {
		claim(rc == TT_CUDA && opened == 0);
		claim(strstr(tt_error_text(), lie->says));
	} else {
		claim(rc == 0 && at && opened == (lie->way == HERE ? 0 : card.bytes));
		claim(cu->dtoh(&rc, at + TT_DEV_IPC_BYTES - sizeof(rc), sizeof(rc)) == 0);
		if (opened)
			tt_ipc_buffer_unmap(cu, at, opened, by_fd);
	}
	claim(count_descriptors() == before);
	if (gpu_broken)
		fprintf(stderr, "way %d, to be told \"%s\": %s\n", lie->way,
			lie->says ? lie->says : "", tt_error_text());
}

static void a_card_that_cannot_be_is_refused_in_words_and_nothing_stays_open(void)
{
	struct tt_ipc_record card[3];
	struct tt_ipc_buffer *here;
	int link[2], ends[2], status, fds[3] = { [NONE] = -1 };
	pid_t child;

	claim(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link) && !pipe(ends));
	child = fork();
	if (!child) {
		close(link[0]);
		export_areas(link[1]);
	}
	close(link[1]);
	here = make_area(false, &card[HERE]);
	claim(recv(link[0], &card[BY_HANDLE], sizeof(*card), 0) == sizeof(*card));
	claim(recv(link[0], &(char){ 0 }, 1, MSG_PEEK) == 1);
	claim(tt_sock_take_fd(link[0], &card[BY_FD], sizeof(*card), &fds[THEIRS]) == sizeof(*card));
	fds[A_PIPES] = ends[0];
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies) && !gpu_broken; i++)
		tell(&lies[i], card[lies[i].way], fds);
	tt_ipc_buffer_give(here);
	tell(&(struct false_record){ HERE, NONE, keep, "where this process has none", false }, card[HERE],
	     fds);
	close(link[0]);
	claim(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* nfds times fd and a parcel as ipc_fd.c makes them. */
static void post(const struct tt_fd_exchange *box, uint64_t token, int from, int nfds, int fd)
{
	struct { uint64_t token; int32_t from, unused; } parcel = { token, from, 0 };
	union { char bytes[CMSG_SPACE(8 * sizeof(int))]; struct cmsghdr align; } control = { 0 };
	struct iovec one = { .iov_base = &parcel, .iov_len = sizeof(parcel) };
	struct sockaddr_un sa;
	socklen_t bytes = sizeof(sa);
	struct msghdr msg = { .msg_name = &sa, .msg_iov = &one, .msg_iovlen = 1 };
	int via = socket(AF_UNIX, SOCK_DGRAM, 0);

	claim(!getsockname(box->socket, (struct sockaddr *)&sa, &bytes));
	msg.msg_namelen = bytes;
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
	claim(sendmsg(via, &msg, 0) == sizeof(parcel));
	close(via);
}

static void descriptors_that_nobody_wants_are_closed(void)
{
	struct tt_fd_exchange box;
	int before, null = dup(2);

	memset(box.fd, -1, sizeof(box.fd));
	claim(tt_fd_exchange_open(&box) == 0);
	before = count_descriptors();
	for (int nfds = 0; nfds <= 8; nfds++) {
		post(&box, box.address.token + 1, 3, nfds, null);         /* a stranger's */
		if (nfds != 1)
			post(&box, box.address.token, 3, nfds, null);     /* who knows the token */
		tt_fd_exchange_collect(&box);
		claim(count_descriptors() == before && box.fd[3] == -1);
	}
	post(&box, box.address.token, -1, 1, null);
	post(&box, box.address.token, TT_DEV_RANKS, 1, null);
	post(&box, box.address.token, 3, 1, null);
	post(&box, box.address.token, 3, 1, null);                        /* twice */
	tt_fd_exchange_collect(&box);
	claim(count_descriptors() == before + 1 && box.fd[3] >= 0);
	tt_fd_exchange_close(&box);
	claim(count_descriptors() == before - 1);
	close(null);
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static bool lies_by_fd;

/* The next communicator takes the areas that are kept, and tells what is in their records. */
static void keep_areas_that_lie(int rank)
{
	struct tt_ipc_record card;

	if (rank != 1)
		return;
	for (int by_fd = 0; by_fd <= lies_by_fd; by_fd++) {
		struct tt_ipc_buffer *area = make_area(by_fd, &card);

		area->bytes = 4096;
		tt_ipc_buffer_give(area);
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

static int play_with_a_liar(int way, bool threads)
{
	struct gpu_ranks t = { .ranks = { .n = 3, .threads = threads, .no_join = true,
				     .limit_s = gpu_limit_s, .timeout_ms = 20000 },
			  .fn = sum_once,
			  .way = way,
			  .before = keep_areas_that_lie };

	t.ranks.arg = &t;
	return team_failures(&t);
}

/* Threads take one another's areas, so there any rank may be the one that tells of it. */
static void all_ranks_agree_on_another_way_where_one_tells_of_an_area_that_is_too_small(void)
{
	claim(play_with_a_liar(ORDERED, false) == 0);  /* by descriptor, where it tells the truth */
	lies_by_fd = true;
	claim(play_with_a_liar(STAGED, false) == 0);
	claim(play_with_a_liar(STAGED, true) == 0);
}

const struct gpu_case gpu_cards[] = {
	GPU_CASE(a_card_that_cannot_be_is_refused_in_words_and_nothing_stays_open),
	GPU_CASE(descriptors_that_nobody_wants_are_closed),
	GPU_CASE(all_ranks_agree_on_another_way_where_one_tells_of_an_area_that_is_too_small),
	{ NULL, NULL, false },
};
