/*
 * rendezvous.c - from the job of a launcher to the unique id by which its ranks join
 *
 * Called by api. With a store rank 0 makes an id and puts the id into the store. Without a store
 * every rank computes the same id, from rank 0's endpoint and the user's secret.
 */
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launch/launch.h"

#define REFUSE_MS 2000
/* the DNS name of a pod appears a little after the pod */
#define RESOLVE_AGAIN_NS 200000000l

/* ---- the secret ------------------------------------------------------------------------------ */

/* As for ssh's keys: the file is this user's alone, or root's, who may let a group read it
 * (Kubernetes mounts secrets for a fsGroup so). A pipe would wait for its writer, or be read by one rank only. */
static int check_owner(const char *path, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return tt_fail(TT_ARG, "TUTTI_SECRET_FILE=%s: %m", path);
	if (!S_ISREG(st.st_mode))
		return tt_fail(TT_USAGE, "TUTTI_SECRET_FILE=%s is no plain file", path);
	if (st.st_uid && st.st_uid != geteuid())
		return tt_fail(
			TT_USAGE,
			"TUTTI_SECRET_FILE=%s belongs to user %u, who knows the secret: chown it",
			path, (unsigned)st.st_uid);
	if (st.st_mode & (st.st_uid ? 077 : 027))
		return tt_fail(
			TT_USAGE,
			"TUTTI_SECRET_FILE=%s: mode %03o lets other users %s the secret: chmod 600 it, "
			"and make a new one",
			path, st.st_mode & 0777, st.st_mode & 044 ? "read" : "replace");
	return 0;
}

static int read_secret(const char *path, char *secret, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
	ssize_t n;

	if (fd < 0)
		return tt_fail(TT_ARG, "TUTTI_SECRET_FILE=%s: %m", path);
	rc = check_owner(path, fd);
	n = rc ? 0 : read(fd, secret, room - 1);
	if (n < 0)
		rc = tt_fail(TT_ARG, "TUTTI_SECRET_FILE=%s: %m", path);
	close(fd);
	if (rc)
		return rc;
	secret[n] = '\0';
	secret[strcspn(secret, "\r\n")] = '\0';
	return *secret ? 0 : tt_fail(TT_ARG, "TUTTI_SECRET_FILE=%s: its first line is empty", path);
}

int tt_launch_secret(const struct tt_env *env, char *secret, size_t room)
{
	if (*env->secret && *env->secret_file)
		return tt_fail(
			TT_USAGE,
			"both TUTTI_SECRET and TUTTI_SECRET_FILE are set; unset one of them");
	if (*env->secret_file)
		return read_secret(env->secret_file, secret, room);
	snprintf(secret, room, "%s", env->secret);
	return 0;
}

/* ---- by an endpoint -------------------------------------------------------------------------- */

/* On another host than rank 0's, drop loopback addresses: /etc/hosts of some hosts maps a host name
 * to one. */
static int drop_loopback(const struct tt_job *job, struct tt_root_endpoint *root)
{
	int n = 0, all = root->naddresses;
	char text[TT_ENDPOINT_TEXT] = "";

	for (int i = 0; i < all; i++) {
		if (!tt_address_is_loopback(&root->addresses[i]))
			root->addresses[n++] = root->addresses[i];
		else
			tt_address_text(&root->addresses[i], 0, text);
	}
	root->naddresses = n;
	return n ? 0
		 : tt_fail(TT_USAGE,
			   "rank %d: %s, the host of rank 0, is %s here, which is this host itself; rank 0 is on "
			   "another one: correct /etc/hosts, or set TUTTI_ROOT",
			   job->rank, job->host, text);
}

static int resolve(const struct tt_job *job, struct tt_root_endpoint *root, uint64_t deadline_ns)
{
	int rc;

	while ((rc = tt_address_resolve(job->host, root->addresses, &root->naddresses))) {
		if (tt_now_ns() > deadline_ns)
			return tt_fail(rc, "rank %d: %s", job->rank, tt_error_text());
		nanosleep(&(struct timespec){ .tv_nsec = RESOLVE_AGAIN_NS }, NULL);
	}
	return job->on_root_host ? 0 : drop_loopback(job, root);
}

/* Do the ranks meet at a loopback address, and so on one host? */
static bool meet_inside_host(const struct tt_job *job, const struct tt_env *env)
{
	struct tt_address list[TT_ADDRESSES];
	int n;

	return job->one_host || (*env->root && !tt_address_resolve(job->host, list, &n) &&
				 tt_address_is_loopback(&list[0]));
}

static int make_id(struct tt_rendezvous *l, const struct tt_env *env, unsigned number,
		   const char *secret, uint64_t deadline_ns)
{
	const struct tt_job *job = &l->job;
	struct tt_ports range = tt_ports_read(env->ports);
	struct tt_root_endpoint root = { .port = job->port,
					 .nports = job->nports,
					 .epoch = job->epoch };
	char name[400];
	int rc;

	if (!meet_inside_host(job, env) && tt_secret_check(secret))
		return tt_fail(TT_USAGE, "rank %d: %s", job->rank, tt_error_text());
	if (range.count && !*env->root) {
		root.port = range.first;
		root.nports = range.count < job->nports ? range.count : job->nports;
	}
	snprintf(name, sizeof(name), *env->root ? "tutti %s %d" : "tutti %s %d.%u", job->name,
		 root.port, number);
	root.job = name;
	if (job->rank && (rc = resolve(job, &root, deadline_ns)))
		return rc;
	/* rank 0 checks the user's address, if its host can resolve the name */
	if (!job->rank && *env->root)
		(void)tt_address_resolve(job->host, root.addresses, &root.naddresses);
	return tt_id_at(&root, secret, &l->id);
}

static int by_endpoint(struct tt_rendezvous *l, const struct tt_env *env, unsigned number,
		       const char *secret, uint64_t deadline_ns)
{
	if (!*secret)
		return tt_fail(
			TT_USAGE,
			"rank %d of %d: %s started ranks on several hosts and carries no secret for them; "
			"set TUTTI_SECRET or TUTTI_SECRET_FILE alike for all ranks, or TUTTI_ROOT=file:/path in a "
			"folder that they share",
			l->job.rank, l->job.nranks, l->job.launcher);
	return make_id(l, env, number, secret, deadline_ns);
}

/* ---- by a store ------------------------------------------------------------------------------ */

static void hex(const void *data, size_t bytes, char *text)
{
	for (size_t i = 0; i < bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)data)[i]);
}

static bool unhex(const char *text, void *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned value;

		if (sscanf(text + 2 * i, "%2x", &value) != 1)
			return false;
		((uint8_t *)data)[i] = (uint8_t)value;
	}
	return true;
}

/* Rank 0 has no id: pass the reason to the other ranks through the store. */
static int refuse(struct tt_rendezvous *l, int code)
{
	char value[TT_STORE_VALUE] = "!", why[(TT_STORE_VALUE - 4) / 2];

	snprintf(why, sizeof(why), "%s", tt_error_text());
	hex(why, strlen(why) + 1, value + 1);
	if (!(l->store.ops->abort && l->store.ops->abort(&l->store, why)) &&
	    !l->store.ops->put(&l->store, l->key, value) && l->store.ops->fence)
		l->store.ops->fence(&l->store, tt_deadline_ns(REFUSE_MS));
	return tt_fail(code, "%s", why);
}

static int put_id(struct tt_rendezvous *l, const struct tt_env *env)
{
	char value[TT_STORE_VALUE];
	int rc = tt_id_make(env->ifname, env->ports, &l->id);

	if (rc)
		return refuse(l, rc);
	hex(&l->id, sizeof(l->id), value);
	rc = l->store.ops->put(&l->store, l->key, value);
	OPENSSL_cleanse(value, sizeof(value));
	return rc;
}

static int get_id(struct tt_rendezvous *l, uint64_t deadline_ns)
{
	char value[TT_STORE_VALUE], why[TT_STORE_VALUE / 2];
	int rc = l->store.ops->get(&l->store, l->key, value, deadline_ns);

	if (rc)
		return rc;
	if (*value == '!' && unhex(value + 1, why, strlen(value + 1) / 2))
		return tt_fail(TT_REMOTE, "rank 0 cannot join: %.*s", (int)(strlen(value + 1) / 2),
			       why);
	if (strlen(value) != 2 * sizeof(l->id) || !unhex(value, &l->id, sizeof(l->id)))
		rc = tt_fail(TT_REMOTE, "rank %d: the value of rank 0 in %s is no unique id",
			     l->job.rank, l->store.ops->name);
	OPENSSL_cleanse(value, sizeof(value));
	return rc;
}

static int by_store(struct tt_rendezvous *l, const struct tt_env *env, uint64_t deadline_ns)
{
	struct tt_store *s = &l->store;
	struct tt_id id;
	int rc;

	*s = (struct tt_store){ .ops = l->job.store, .job = &l->job };
	rc = s->ops->open(s);
	if (rc) {
		s->ops = NULL;
		return rc;
	}
	if (l->job.nranks == 1)
		return tt_id_make(env->ifname, "", &l->id);
	if (l->job.rank == 0)
		rc = put_id(l, env);
	if (!rc && s->ops->fence)
		rc = s->ops->fence(s, deadline_ns);
	if (!rc && l->job.rank)
		rc = get_id(l, deadline_ns);
	if (rc && l->job.rank == 0 && !tt_id_unpack(&l->id, &id))
		tt_id_release(id.port);
	if (rc)
		tt_rendezvous_close(l);
	return rc;
}

/* ---- the log line ---------------------------------------------------------------------------- */

static void log_job(const struct tt_rendezvous *l, const struct tt_env *env)
{
	struct tt_address mine[TT_ADDRESSES];
	const struct tt_job *job = &l->job;
	char root[TT_ENDPOINT_TEXT] = "here", via[TT_IFNAME] = "lo", local[48] = "";
	struct tt_id id;
	int n = 0, best = 0;

	if (tt_id_unpack(&l->id, &id))
		return;
	OPENSSL_cleanse(id.secret, TT_SECRET);
	if (tt_address_list(env->ifname, mine, &n))
		return;
	/* rank 0 itself, which listens at all of its addresses */
	if (id.naddresses == 0 && n)
		id.addresses[id.naddresses++] = mine[0];
	for (int i = id.naddresses - 1; i >= 0; i--)
		for (int k = 0; k < n; k++)
			if (tt_address_near(&mine[k], &id.addresses[i]))
				best = i;
	if (id.naddresses) {
		tt_address_text(&id.addresses[best], id.port, root);
		tt_address_route(&id.addresses[best], via);
	}
	if (job->local_rank >= 0 && job->local_nranks > 0)
		snprintf(local, sizeof(local), ", local %d of %d", job->local_rank,
			 job->local_nranks);
	tt_log(TT_LOG_DEBUG, "launch %s, rank %d of %d%s, root %s via %s", job->launcher, job->rank,
	       job->nranks, local, root, via);
}

int tt_rendezvous_open(struct tt_rendezvous *l, const struct tt_env *env, unsigned number,
		       uint64_t deadline_ns)
{
	char secret[1024] = "";
	/* also for a launcher that carries a secret of its own: the user's file may be misspelled */
	int rc = tt_launch_secret(env, secret, sizeof(secret));

	l->store.ops = NULL;
	memset(&l->id, 0, sizeof(l->id));
	snprintf(l->key, sizeof(l->key), "tutti-%u", number);
	if (!rc && l->job.nranks == 1)
		rc = tt_id_make(env->ifname, "", &l->id);
	else if (!rc)
		rc = l->job.store ? by_store(l, env, deadline_ns)
				  : by_endpoint(l, env, number, secret, deadline_ns);
	else
		rc = tt_fail(rc, "rank %d: %s", l->job.rank, tt_error_text());
	if (!rc && *secret && (l->job.store == &tt_store_user || l->job.store == &tt_store_oob))
		rc = tt_id_mix(&l->id, secret);
	OPENSSL_cleanse(secret, sizeof(secret));
	if (!rc)
		log_job(l, env);
	return rc;
}

void tt_rendezvous_close(struct tt_rendezvous *l)
{
	if (l->store.ops && l->store.ops->close)
		l->store.ops->close(&l->store);
	l->store.ops = NULL;
	OPENSSL_cleanse(&l->id, sizeof(l->id));
}
