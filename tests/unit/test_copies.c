/*
 * test_copies.c - no call copies a payload by memcpy at addresses where `rep movsb` is slow
 *
 * The memcpy of this program counts such copies of the calling thread.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "mem/copy.h"
#include "tests/support/malloc_count.h"
#include "tests/support/must.h"

static __thread long slow;

#if COUNTED
static void *(*volatile move)(void *, const void *, size_t) = memmove;

void *memcpy(void *restrict dst, const void *restrict src, size_t bytes)
{
	slow += tt_copy_is_slow(dst, src, bytes);
	return move(dst, src, bytes);
}
#endif

#define MOST (1u << 20)

static tuttiResult_t call(int which, char *in, char *out, size_t bytes, int rank, tuttiComm_t c)
{
	size_t n = bytes / sizeof(float), part = n / 2;
	tuttiResult_t rc;

	switch (which) {
	case 0:
		return tuttiBroadcast(in, out, n, tuttiFloat, 0, c, NULL);
	case 1:
		return tuttiAllGather(in, out, part, tuttiFloat, c, NULL);
	case 2:
		return tuttiAlltoAll(in, out, part, tuttiFloat, c, NULL);
	case 3:
		return tuttiGather(in, out, part, tuttiFloat, 0, c, NULL);
	case 4:
		return tuttiScatter(in, out, part, tuttiFloat, 0, c, NULL);
	case 5:
		return tuttiAllReduce(in, out, n, tuttiFloat, tuttiSum, c, NULL);
	}
	tuttiGroupStart();
	rc = tuttiSend(in, n, tuttiFloat, !rank, c, NULL);
	if (!rc)
		rc = tuttiRecv(out, n, tuttiFloat, !rank, c, NULL);
	return tuttiGroupEnd() ? tuttiInternalError : rc;
}

/* Slots and cells begin a page, so a buffer some bytes behind one is behind or before them. */
static int odd_addresses(tuttiComm_t *comm, int rank, int n, void *arg)
{
	char *in = aligned_alloc(4096, 2 * MOST), *out = aligned_alloc(4096, 2 * MOST);

	(void)n;
	(void)arg;
	memset(in, 1, 2 * MOST);
	memset(out, 1, 2 * MOST);
	for (size_t bytes = 4096; bytes <= MOST; bytes *= 4)
		for (size_t shift = 4; shift < 4096; shift = shift == 4 ? 4096 - 64 : shift + 60)
			for (int which = 0; which < 7; which++) {
				slow = 0;
				MUST(call(which, in + shift, out + shift, bytes, rank, *comm));
				MUST(call(which, in, out + shift, bytes, rank, *comm));
				MUST(call(which, in + shift, out, bytes, rank, *comm));
				if (slow) {
					fprintf(stderr,
						"call %d, %zu bytes, +%zu: %ld slow copies\n",
						which, bytes, shift, slow);
					return 1;
				}
			}
	free(in);
	free(out);
	return 0;
}

Test(copies, no_address_takes_the_slow_kind, .timeout = 60)
{
	struct ranks r = { .n = 2, .transport = "shm" };

	if (!COUNTED)
		cr_skip_test("a sanitizer has its own memcpy");
	cr_expect_eq(ranks_run(&r, odd_addresses), 0);
}
