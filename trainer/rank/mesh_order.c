/* mesh_order.c - the ranks of a mesh, host by host (mesh_order.h) */
#include "trainer/rank/mesh_order.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mesh_place {
	char host[96];
	int32_t processor; /* the first that the rank may use */
	int32_t rank;      /* the launcher's number */
	int32_t first;     /* the lowest rank of the host */
};

static int first_processor(void)
{
	cpu_set_t allowed;

	CPU_ZERO(&allowed);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return 0;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &allowed))
			return i;
	return 0;
}

/* The library's identity of a host, if one is given (tutti(7)), else its name. */
static void find_place(struct mesh_place *p, int rank)
{
	const char *id = getenv("TUTTI_HOST_ID");

	*p = (struct mesh_place){ .processor = first_processor(), .rank = rank };
	if (id && *id)
		snprintf(p->host, sizeof(p->host), "%s", id);
	else
		gethostname(p->host, sizeof(p->host) - 1);
	if (rank == 0)
		p->processor = -1; /* stays the first */
}

static int by_host(const void *a, const void *b)
{
	const struct mesh_place *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	if (x->processor != y->processor)
		return x->processor < y->processor ? -1 : 1;
	return x->rank < y->rank ? -1 : 1;
}

static bool same_host(const struct mesh_place *p, int a, int b)
{
	return p[a].first == p[b].first;
}

static void count(const struct train_mesh *m, const struct mesh_place *p, int n,
		  struct train_placement *ret_counts)
{
	int each = m->tensor * m->stages;

	for (int r = 0; r < n; r++) {
		int next = r + m->tensor;

		ret_counts->hosts += p[r].rank == p[r].first;
		if (r % m->tensor == 0) {
			ret_counts->groups++;
			ret_counts->local_groups += same_host(p, r, r + m->tensor - 1);
		}
		if (next < n && r / each == next / each) {
			ret_counts->pairs++;
			ret_counts->local_pairs += same_host(p, r, next);
		}
	}
}

static int renumber(struct train_rank *t, int rank)
{
	tuttiComm_t ordered;
	int rc = train_check(tuttiCommSplit(t->world, 0, rank, &ordered, NULL), t->world);

	if (rc)
		return rc;
	tuttiCommDestroy(t->world);
	t->world = ordered;
	t->rank = t->world_rank = rank;
	return TRAIN_OK;
}

static int place(struct train_rank *t, struct mesh_place *p, int n)
{
	struct train_placement *counts = &t->mesh.placement;
	int own = t->world_rank, rc;

	find_place(&p[n], own);
	rc = train_check(tuttiAllGather(&p[n], p, sizeof(*p), tuttiUint8, t->world, NULL),
			 t->world);
	for (int r = 0; r < n && !rc; r++) {
		p[r].first = r;
		for (int q = r - 1; q >= 0; q--)
			if (!strcmp(p[q].host, p[r].host))
				p[r].first = q;
	}
	if (rc)
		return rc;
	qsort(p, (size_t)n, sizeof(*p), by_host);
	for (int r = 0; r < n; r++) {
		counts->renumbered |= p[r].rank != r;
		own = p[r].rank == t->world_rank ? r : own;
	}
	count(&t->mesh, p, n, counts);
	return counts->renumbered ? renumber(t, own) : TRAIN_OK;
}

int train_place_ranks(struct train_rank *t)
{
	struct mesh_place *p;
	int n, rc = train_check(tuttiCommCount(t->world, &n), t->world);

	if (rc)
		return rc;
	p = calloc((size_t)n + 1, sizeof(*p));
	if (!p)
		return train_fail(TRAIN_FAILED, "no memory for the places of %d ranks", n);
	t->mesh.placement = (struct train_placement){ 0 };
	rc = place(t, p, n);
	free(p);
	return rc;
}
