/*
 * ras_members.c - the communicators that the RAS service answers for, and the states of their ranks
 *
 * Called by ras.c: add and remove by the threads of the communicators, the others by the service's
 * thread. No function waits for a rank.
 */
#include <pthread.h>
#include <stdlib.h>

#include "comm/ras.h"

#define FRESH_NS 200000000 /* a status this old answers a question, so ranks are asked rarely */

struct tt_ras_entry {
	struct tt_ras_member member;
	struct tt_ras_entry *next;
};

static struct {
	pthread_mutex_t lock;
	struct tt_ras_entry *entries; /* in the order in which they were made */
} members;

static void reset(void)
{
	pthread_mutex_init(&members.lock, NULL);
	members.entries = NULL;
}

/* The parent's communicators are not the child's. */
__attribute__((constructor)) static void watch_forks(void)
{
	reset();
	pthread_atfork(NULL, NULL, reset);
}

int tt_ras_add(const struct tt_ras_member *member, struct tt_ras_entry **ret_entry)
{
	struct tt_ras_entry *e = calloc(1, sizeof(*e)), **at = &members.entries;

	if (!e)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for TUTTI_RAS", member->rank);
	e->member = *member;
	pthread_mutex_lock(&members.lock);
	while (*at)
		at = &(*at)->next;
	*at = e;
	pthread_mutex_unlock(&members.lock);
	*ret_entry = e;
	return 0;
}

bool tt_ras_remove(struct tt_ras_entry *entry)
{
	struct tt_ras_entry **at = &members.entries;
	bool last;

	pthread_mutex_lock(&members.lock);
	while (*at && *at != entry)
		at = &(*at)->next;
	if (*at) /* else of the parent, before a fork */
		*at = entry->next;
	last = !members.entries;
	pthread_mutex_unlock(&members.lock);
	free(entry);
	return last;
}

bool tt_ras_answered(uint64_t asked_ns)
{
	uint64_t since_ns = asked_ns - FRESH_NS;
	bool all = true;

	pthread_mutex_lock(&members.lock);
	for (struct tt_ras_entry *e = members.entries; e; e = e->next) {
		tt_control_ask(e->member.ctl, since_ns);
		all = tt_control_all_answered(e->member.ctl, since_ns) && all;
	}
	pthread_mutex_unlock(&members.lock);
	return all;
}

/* ---- the report ------------------------------------------------------------------------------ */

/* Locked. Of ranks that are threads of one process, the first one reports. */
static bool is_first(const struct tt_ras_entry *entry)
{
	const struct tt_ras_entry *e = members.entries;

	while (e->member.comm != entry->member.comm)
		e = e->next;
	return e == entry;
}

static void write_report(const struct tt_ras_session *s, const struct tt_ras_report *report,
			 FILE *to)
{
	if (s->json)
		tt_ras_write_json(report, to);
	else
		tt_ras_write_text(report, s->verbose, to);
}

/* Locked. Fill ret_comms with the states of the ranks; returns their number. */
static int read_states(struct tt_ras_comm *ret_comms, uint64_t since_ns)
{
	int n = 0;

	for (struct tt_ras_entry *e = members.entries; e; e = e->next) {
		struct tt_ras_comm *comm = &ret_comms[n];

		if (!is_first(e))
			continue;
		*comm = (struct tt_ras_comm){
			e->member.comm, e->member.nranks, tt_control_broken(e->member.ctl),
			calloc((size_t)e->member.nranks, sizeof(*comm->ranks))
		};
		if (!comm->ranks)
			continue;
		tt_control_report(e->member.ctl, since_ns, comm->ranks);
		n++;
	}
	return n;
}

static int count_entries(void)
{
	int n = 0;

	for (struct tt_ras_entry *e = members.entries; e; e = e->next)
		n++;
	return n;
}

char *tt_ras_report(const struct tt_ras_session *session, uint64_t asked_ns, size_t *ret_bytes)
{
	struct tt_ras_report report = { .seconds = (double)(tt_now_ns() - asked_ns) * 1e-9 };
	char *text = NULL;
	FILE *to = open_memstream(&text, ret_bytes);

	if (!to)
		return NULL;
	pthread_mutex_lock(&members.lock);
	report.comms = calloc((size_t)count_entries() + 1, sizeof(*report.comms));
	if (report.comms)
		report.ncomms = read_states(report.comms, asked_ns - FRESH_NS);
	pthread_mutex_unlock(&members.lock);
	if (report.comms)
		write_report(session, &report, to);
	for (int i = 0; i < report.ncomms; i++)
		free(report.comms[i].ranks);
	free(report.comms);
	fclose(to);
	return text;
}
