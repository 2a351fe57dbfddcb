/*
 * test_registered.c - the interval tree against a plain list, and registered memory: watchers are
 * notified before memory is freed
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem/registered.h"
#include "mem/memory.h"

#define MOST 400

static uint64_t drawn = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
	drawn ^= drawn << 13;
	drawn ^= drawn >> 7;
	drawn ^= drawn << 17;
	return drawn % below;
}

static bool contains(const struct tt_interval *i, uintptr_t start, uintptr_t end)
{
	return i->start <= start && end <= i->end;
}

static int depth(const struct tt_interval *n)
{
	int l = n ? depth(n->left) : 0, r = n ? depth(n->right) : 0;

	return n ? 1 + (l > r ? l : r) : 0;
}

Test(registered, an_interval_tree_finds_the_same_ranges_as_a_list, .timeout = 60)
{
	static struct tt_interval all[MOST];
	static bool in[MOST];
	struct tt_interval *root = NULL, *found;
	int lookups = 0, found_ranges = 0;

	for (int round = 0; round < 40000; round++) {
		struct tt_interval *i = &all[draw(MOST)];
		uintptr_t start = draw(2000), end = start + draw(200);
		bool expected = false;

		if (!in[i - all]) {
			/* many ranges are equal or nested */
			i->start = draw(2000);
			i->end = i->start + draw(round % 3 ? 40 : 600);
			tt_intervals_add(&root, i);
		} else {
			tt_intervals_remove(&root, i);
		}
		in[i - all] = !in[i - all];
		for (int k = 0; k < MOST && !expected; k++)
			expected = in[k] && contains(&all[k], start, end);
		found = tt_intervals_holding(root, start, end);
		cr_assert(expected == (found != NULL));
		cr_assert(!found || (in[found - all] && contains(found, start, end)));
		lookups++;
		found_ranges += expected;
	}
	cr_assert(found_ranges > lookups / 20 && found_ranges < lookups);
	cr_assert(depth(root) < 40, "%d", depth(root));
}

Test(registered, ranges_added_in_order_keep_the_interval_tree_shallow, .timeout = 60)
{
	static struct tt_interval all[100000];
	struct tt_interval *root = NULL;

	for (size_t i = 0; i < 100000; i++) {
		all[i] = (struct tt_interval){ .start = i * 64, .end = i * 64 + 64 };
		tt_intervals_add(&root, &all[i]);
	}
	cr_assert(depth(root) < 60, "%d", depth(root));
	cr_assert(tt_intervals_holding(root, 6400, 6464) == &all[100]);
	cr_assert(tt_intervals_holding(root, 6400, 6465) == NULL);
	for (size_t i = 0; i < 100000; i += 2)
		tt_intervals_remove(&root, &all[i]);
	cr_assert(tt_intervals_holding(root, 6400, 6464) == NULL);
	cr_assert(tt_intervals_holding(root, 6464, 6528) == &all[101]);
}

/* ---- registered memory ----------------------------------------------------------------------- */

struct counting_watcher {
	struct tt_registered_watcher watch;
	int calls;
	uint64_t number;
	char byte;
};

static void going(struct tt_registered_watcher *w, const struct tt_registered *l)
{
	struct counting_watcher *c = (struct counting_watcher *)w;

	c->calls++;
	c->number = l->number;
	c->byte = *(char *)l->range.start; /* the memory is still mapped */
}

static void number_of(void *arg, const struct tt_registered *l)
{
	*(uint64_t *)arg = l->number;
}

Test(registered, watchers_are_notified_before_memory_is_freed, .timeout = 30)
{
	struct counting_watcher a = { .watch.going = going }, b = { .watch.going = going };
	uint64_t number = 0, second = 0;
	struct tt_registered mine;
	char own[100];
	void *p, *q;

	tt_registered_watch(&a.watch);
	tt_registered_watch(&b.watch);
	cr_assert(tt_memory_alloc(10000, &p) == 0);
	*(char *)p = 7;
	cr_assert(tt_registered_find((char *)p + 100, 5000, number_of, &number));
	cr_assert_not(tt_registered_find((char *)p + 100, 50000, number_of, &number));
	cr_assert_not(tt_registered_find(own, 1, NULL, NULL));
	cr_assert(tt_memory_free(p) == 0);
	cr_assert(a.calls == 1 && b.calls == 1 && a.number == number && a.byte == 7);
	cr_assert_not(tt_registered_find(p, 1, NULL, NULL));
	cr_assert(tt_memory_alloc(10000, &q) == 0); /* often at the same address */
	cr_assert(tt_registered_find(q, 10000, number_of, &second) && second != number);
	tt_registered_watch_end(&a.watch);
	cr_assert(tt_memory_free(q) == 0);
	cr_assert(a.calls == 1 && b.calls == 2);

	own[0] = 3;
	tt_registered_add(&mine, own, sizeof(own));
	cr_assert(tt_registered_find(own + 99, 1, NULL, NULL));
	cr_assert_not(tt_registered_find(own + 99, 2, NULL, NULL));
	tt_registered_remove(&mine);
	cr_assert(b.calls == 3 && b.byte == 3);
	cr_assert_not(tt_registered_find(own, 1, NULL, NULL));
	tt_registered_watch_end(&b.watch);
}

static void count_shared(struct tt_registered_watcher *w, const struct tt_registered *l)
{
	(void)l;
	++**(int **)(w + 1);
}

/* The memory holds, and NICs read it for, the parent. */
Test(registered, a_forked_child_frees_nothing_of_its_parent, .timeout = 30)
{
	struct {
		struct tt_registered_watcher watch;
		int *calls; /* shared with the child */
	} w = { .watch.going = count_shared };
	char *p, *inherited;
	int status;
	pid_t child;

	w.calls = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		       0);
	cr_assert(w.calls != MAP_FAILED && tt_memory_alloc(4096, (void **)&p) == 0);
	memset(p, 7, 4096);
	tt_registered_watch(&w.watch);
	child = fork();
	if (child == 0) {
		inherited = p;
		if (tt_memory_free(inherited) || tt_memory_alloc(4096, (void **)&p))
			_exit(1);
		memset(p, 9, 4096);
		_exit(tt_memory_free(p) ? 2 : 0);
	}
	cr_assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 4096; i++)
		cr_assert_eq(p[i], 7, "byte %d of the parent is %d", i, p[i]);
	cr_assert_eq(*w.calls, 0, "%d watchers of the parent were notified in the child", *w.calls);
	cr_assert(tt_memory_free(p) == 0 && *w.calls == 1);
	tt_registered_watch_end(&w.watch);
	munmap(w.calls, sizeof(int));
}
