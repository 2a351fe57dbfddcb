/*
 * count.c - a QEMU plugin that counts instructions of the machine around system calls
 *
 * Loaded by count.sh. Arguments, addresses in hex: out=FILE, start=ENTRY of a system call
 * (several), stop=the kernel's return to user mode, lo= and hi= (an excluded range: spinning on
 * locks), mark=a function of the kernel. The output has, for each system call, the number of calls,
 * and as 10th, 50th and 90th percentile the kernel's instructions from entry to return, those up to
 * the second execution of the mark, and the user's instructions since the previous system call. The
 * timing of the emulated processors does not affect these counts, so they are the same on a busy
 * host.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* QEMU's plugin interface, version 1: its header is not installed */
struct qemu_plugin_tb;
#define EXPORT __attribute__((visibility("default")))
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
						  void (*)(uint64_t id, struct qemu_plugin_tb *));
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *,
						 void (*)(unsigned cpu, void *), int flags,
						 void *);
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*)(uint64_t id, void *), void *);
EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);

#define CALLS 4
#define MOST 200000u
enum { KERNEL, TO_MARK, USER, KINDS };

static struct counted_call {
	uint64_t entry;
	uint32_t n, (*seen)[KINDS];
} call[CALLS];
static int ncalls;
static uint64_t stop, lo, hi, mark;
static const char *path;
static struct cpu {
	struct counted_call *in;
	uint32_t met;
	uint64_t n[KINDS];
} cpus[8];

static void enter(unsigned cpu, void *which)
{
	struct cpu *c = &cpus[cpu % 8];

	c->in = which;
	c->met = 0;
	c->n[KERNEL] = c->n[TO_MARK] = 0;
}

static void meet(unsigned cpu, void *nothing)
{
	struct cpu *c = &cpus[cpu % 8];

	(void)nothing;
	if (c->in && ++c->met == 2)
		c->n[TO_MARK] = c->n[KERNEL];
}

static void leave(unsigned cpu, void *nothing)
{
	struct cpu *c = &cpus[cpu % 8];
	uint32_t i = c->in ? __atomic_fetch_add(&c->in->n, 1, __ATOMIC_RELAXED) : MOST;

	(void)nothing;
	for (int k = 0; i < MOST && k < KINDS; k++)
		c->in->seen[i][k] = (uint32_t)c->n[k];
	if (c->in)
		c->n[USER] = 0;
	c->in = NULL;
}

static void kernel(unsigned cpu, void *n)
{
	cpus[cpu % 8].n[KERNEL] += (uintptr_t)n;
}

static void user(unsigned cpu, void *n)
{
	cpus[cpu % 8].n[USER] += (uintptr_t)n;
}

static void translate(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t at = qemu_plugin_tb_vaddr(tb);
	void *n = (void *)qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (int i = 0; i < ncalls; i++)
		if (at == call[i].entry)
			qemu_plugin_register_vcpu_tb_exec_cb(tb, enter, 0, &call[i]);
	if (at == mark)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, meet, 0, NULL);
	if (at == stop)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, leave, 0, NULL);
	if (at < lo || at >= hi)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, at >> 63 ? kernel : user, 0, n);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void report(uint64_t id, void *nothing)
{
	static const char *const kinds[] = { "in the kernel", "of these until the mark",
					     "of the user before" };
	static uint32_t sorted[MOST];
	FILE *out = fopen(path, "w");

	(void)id, (void)nothing;
	for (struct counted_call *s = call; out && s < call + ncalls; s++) {
		uint32_t n = s->n < MOST ? s->n : MOST;

		fprintf(out, "call %d: %" PRIu32, (int)(s - call), n);
		for (int k = 0; n && k < KINDS; k++) {
			for (uint32_t i = 0; i < n; i++)
				sorted[i] = s->seen[i][k];
			qsort(sorted, n, sizeof(*sorted), compare);
			fprintf(out, "; %s %" PRIu32 " %" PRIu32 " %" PRIu32, kinds[k],
				sorted[n / 10], sorted[n / 2], sorted[n / 10 * 9]);
		}
		fprintf(out, "\n");
	}
	if (out)
		fclose(out);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		const char *value = strchr(argv[i], '=') ? strchr(argv[i], '=') + 1 : "";
		uint64_t at = strtoull(value, NULL, 16);

		if (!strncmp(argv[i], "out=", 4))
			path = value;
		else if (!strncmp(argv[i], "stop=", 5))
			stop = at;
		else if (!strncmp(argv[i], "mark=", 5))
			mark = at;
		else if (!strncmp(argv[i], "lo=", 3))
			lo = at;
		else if (!strncmp(argv[i], "hi=", 3))
			hi = at;
		else if (!strncmp(argv[i], "start=", 6) && ncalls < CALLS)
			call[ncalls++] = (struct counted_call){ .entry = at,
							.seen = calloc(MOST, sizeof(*call->seen)) };
	}
	for (int i = 0; i < ncalls; i++)
		if (!call[i].seen)
			return 1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	qemu_plugin_register_atexit_cb(id, report, NULL);
	return path && ncalls ? 0 : 1;
}
