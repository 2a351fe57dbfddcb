/*
 * unique_id.c - make and read unique ids
 *
 * Called by api (make, from root), launch (make, at) and bootstrap (unpack). Making an id starts no
 * thread: a bound socket that never listens reserves a port, so that a process may make the id and
 * its forked or started child be rank 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/openssl.h"
#include "control/control.h"
#include "control/frame.h"
#include "control/key.h"
#include "control/unique_id.h"

#define ID_MAGIC 0x31495454u /* "TTI1": a new layout gets a new digit */

#define RESERVED 64

static pthread_mutex_t reserved_lock = PTHREAD_MUTEX_INITIALIZER;
/* Ports of the latest ids with which no thread of this process has joined; forked children inherit
 * them. port 0: free slot. Slot 0 holds the latest port of a range, since its ports are few. */
static struct {
	int fd, port;
} reserved[1 + RESERVED];
static unsigned nreserved; /* ports outside ranges so far; the oldest is replaced */

/* ---- layout ---------------------------------------------------------------------------------- */

void tt_id_pack(const struct tt_id *id, tuttiUniqueId *ret_id)
{
	struct tt_writer w = { .data = (uint8_t *)ret_id->internal,
			       .room = sizeof(ret_id->internal) };
	uint8_t sum[TT_DIGEST];

	memset(ret_id, 0, sizeof(*ret_id));
	tt_put(&w, ID_MAGIC, 4);
	tt_put(&w, 0, 4); /* room for the checksum */
	tt_put(&w, (uint16_t)id->port, 2);
	tt_put(&w, id->from_root, 1);
	tt_put(&w, (uint8_t)id->naddresses, 1);
	tt_put_bytes(&w, id->secret, TT_SECRET);
	tt_put_bytes(&w, id->nonce, TT_NONCE);
	tt_put(&w, id->netns, 8);
	for (int i = 0; i < id->naddresses; i++) {
		/* IPv4 as RFC 4291 maps it into IPv6 */
		uint8_t mapped[16] = { [10] = 0xff, [11] = 0xff };

		if (id->addresses[i].family == 4)
			memcpy(mapped + 12, id->addresses[i].bytes, 4);
		else
			memcpy(mapped, id->addresses[i].bytes, 16);
		tt_put_bytes(&w, mapped, 16);
	}
	w.have = sizeof(ret_id->internal) - 4;
	tt_put(&w, (uint16_t)id->epoch, 2);
	tt_put(&w, (uint8_t)(id->nports > 1 ? id->nports : 1), 1);
	tt_digest(ret_id->internal, sizeof(ret_id->internal), sum);
	memcpy(ret_id->internal + 4, sum, 4);
}

static void get_address(struct tt_reader *r, struct tt_address *ret_a)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint8_t p[16];

	tt_get_copy(r, p, 16);
	ret_a->family = memcmp(p, mapped, 12) ? 6 : 4;
	if (ret_a->family == 6)
		memcpy(ret_a->bytes, p, 16);
	else
		memcpy(ret_a->bytes, p + 12, 4);
}

/* The checksum comes first: after it the fields are as they were packed, short of a forgery. */
int tt_id_unpack(const tuttiUniqueId *bytes, struct tt_id *ret_id)
{
	tuttiUniqueId blank = *bytes;
	struct tt_reader r = { .at = (const uint8_t *)bytes->internal,
			       .left = sizeof(bytes->internal) };
	uint8_t sum[TT_DIGEST];
	uint64_t magic = tt_get(&r, 4);
	uint8_t check[4];

	tt_get_copy(&r, check, 4);
	memset(blank.internal + 4, 0, 4);
	tt_digest(blank.internal, sizeof(blank.internal), sum);
	memset(ret_id, 0, sizeof(*ret_id));
	ret_id->port = (int)tt_get(&r, 2);
	ret_id->from_root = tt_get(&r, 1);
	ret_id->naddresses = (int)tt_get(&r, 1);
	tt_get_copy(&r, ret_id->secret, TT_SECRET);
	tt_get_copy(&r, ret_id->nonce, TT_NONCE);
	ret_id->netns = tt_get(&r, 8);
	if (magic != ID_MAGIC && (magic & 0xffffff) == (ID_MAGIC & 0xffffff))
		return tt_fail(TT_ARG, "this unique id was made by another version of Tutti");
	if (magic != ID_MAGIC || memcmp(check, sum, 4) || !ret_id->port ||
	    ret_id->naddresses > TT_ID_ADDRESSES)
		return tt_fail(
			TT_ARG,
			"these %d bytes are not an id of tuttiGetUniqueId, or were changed on the way",
			TUTTI_UNIQUE_ID_BYTES);
	for (int i = 0; i < ret_id->naddresses; i++)
		get_address(&r, &ret_id->addresses[i]);
	r = (struct tt_reader){
		.at = (const uint8_t *)bytes->internal + sizeof(bytes->internal) - 4, .left = 4
	};
	ret_id->epoch = (int)tt_get(&r, 2);
	ret_id->nports = (int)tt_get(&r, 1);
	if (!ret_id->nports || ret_id->port + ret_id->nports > 65536)
		return tt_fail(TT_ARG, "this unique id has ports outside 1 to 65535");
	return 0;
}

/* ---- network namespace ----------------------------------------------------------------------- */

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* "": there is no file. 0 | TT_SYSTEM */
static int read_boot(char *text, size_t bytes)
{
	FILE *f = fopen(BOOT_ID, "re");

	text[0] = '\0';
	if (!f && errno != ENOENT && errno != EACCES)
		return tt_fail(TT_SYSTEM, "%s, by which ranks recognize their host: %m", BOOT_ID);
	if (f && !fgets(text, (int)bytes, f))
		text[0] = '\0';
	if (f)
		fclose(f);
	return 0;
}

uint64_t tt_id_machine(void)
{
	uint8_t sum[TT_DIGEST];
	char boot[64];
	uint64_t id;

	if (read_boot(boot, sizeof(boot)))
		tt_error_clear();
	if (!boot[0])
		return 0;
	tt_digest(boot, strlen(boot), sum);
	memcpy(&id, sum, sizeof(id));
	return id;
}

int tt_id_netns(const char *override, uint64_t *ret_netns)
{
	char text[256] = "", boot[64] = "";
	uint8_t sum[TT_DIGEST];
	struct stat st = { 0 };
	int rc = override[0] ? 0 : read_boot(boot, sizeof(boot));

	if (rc)
		return rc;
	if (!override[0] && !boot[0])
		gethostname(boot, sizeof(boot) - 1);
	stat("/proc/self/ns/net", &st);
	snprintf(text, sizeof(text), "%.128s/%s/%llu", override, boot,
		 (unsigned long long)st.st_ino);
	tt_digest(text, strlen(text), sum);
	memcpy(ret_netns, sum, sizeof(*ret_netns));
	return 0;
}

/* ---- the reserved port ----------------------------------------------------------------------- */

/* A program may make several ids before it joins with the first one: without the reservation the
 * kernel could give the first id's port to any listener meanwhile, also of this process. */
static void keep_reserved(int fd, int port, bool of_range)
{
	int old = -1;
	unsigned at;

	pthread_mutex_lock(&reserved_lock);
	at = of_range ? 0 : 1 + nreserved++ % RESERVED;
	if (reserved[at].port)
		old = reserved[at].fd;
	reserved[at].fd = fd;
	reserved[at].port = port;
	pthread_mutex_unlock(&reserved_lock);
	tt_sock_close(old);
}

void tt_id_release(int port)
{
	int fd = -1;

	pthread_mutex_lock(&reserved_lock);
	for (int i = 0; i <= RESERVED && fd < 0; i++)
		if (port && reserved[i].port == port) {
			fd = reserved[i].fd;
			reserved[i].port = 0;
		}
	pthread_mutex_unlock(&reserved_lock);
	tt_sock_close(fd);
}

static void before_fork(void)
{
	pthread_mutex_lock(&reserved_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&reserved_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

/* ---- making ---------------------------------------------------------------------------------- */

int tt_id_make(const char *ifname, const char *port_range, tuttiUniqueId *ret_id)
{
	struct tt_ports ports = tt_ports_read(port_range);
	struct tt_address list[TT_ADDRESSES];
	struct tt_id id = { 0 };
	int fd, n, rc = tt_address_list(ifname, list, &n);

	if (rc || (rc = tt_id_netns("", &id.netns)))
		return rc;
	for (int i = 0; i < n && i < TT_ID_ADDRESSES; i++)
		id.addresses[id.naddresses++] = list[i];
	if (getrandom(id.secret, TT_SECRET, 0) != TT_SECRET ||
	    getrandom(id.nonce, TT_NONCE, 0) != TT_NONCE)
		return tt_fail(TT_SYSTEM, "no random bytes for a unique id");
	rc = tt_sock_among(&ports, tt_sock_reserve, &fd, &id.port);
	if (rc && errno == EADDRINUSE)
		rc = tt_sock_among(&ports, tt_sock_reserve_used, &fd, &id.port);
	if (rc)
		return rc;
	keep_reserved(fd, id.port, ports.count > 0);
	tt_id_pack(&id, ret_id);
	OPENSSL_cleanse(id.secret, TT_SECRET);
	return 0;
}

int tt_id_split_root(const char *host_port, char *host, size_t room, int *ret_port)
{
	const char *colon = strrchr(host_port, ':');
	size_t bytes = colon ? (size_t)(colon - host_port) : 0;
	char *end = NULL;
	long port = colon ? strtol(colon + 1, &end, 10) : 0;

	if (!bytes || bytes >= room || port < 1 || port > 65535 || *end)
		return tt_fail(
			TT_ARG,
			"\"%s\" is not host:port: a port is 1 to 65535, and IPv6 addresses are in brackets",
			host_port);
	if (host_port[0] == '[' && colon[-1] == ']' && bytes > 2) {
		host_port++;
		bytes -= 2;
	}
	memcpy(host, host_port, bytes);
	host[bytes] = '\0';
	*ret_port = (int)port;
	return 0;
}

#define DIGITS "0123456789"
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Characters of random text of 128 bits, by the smallest alphabet that has them all */
static size_t length_of_128_bits(const char *secret)
{
	static const struct {
		const char *alphabet;
		size_t length;
	} t[] = { { DIGITS, 39 },      { DIGITS "abcdefABCDEF", 32 }, { LOWER, 28 },
		  { UPPER, 28 },       { DIGITS LOWER, 25 },          { DIGITS UPPER, 25 },
		  { LOWER UPPER, 23 }, { DIGITS LOWER UPPER, 22 } };
	size_t length = strlen(secret);

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (strspn(secret, t[i].alphabet) == length)
			return t[i].length;
	return 22;
}

int tt_secret_check(const char *secret)
{
	size_t length = strlen(secret), different = 0, need = length_of_128_bits(secret);

	for (size_t i = 0; i < length; i++)
		different += !memchr(secret, secret[i], i);
	if (length >= need && different >= 8)
		return 0;
	return tt_fail(
		TT_USAGE,
		"the secret can be guessed: it has %zu characters, %zu different, and ranks on other hosts need "
		"128 random bits: %zu characters of its kind, 8 different; make a secret with "
		"`openssl rand -hex 16`",
		length, different, need);
}

int tt_id_at(const struct tt_root_endpoint *root, const char *secret, tuttiUniqueId *ret_id)
{
	struct tt_id id = {
		.from_root = true, .port = root->port, .nports = root->nports, .epoch = root->epoch
	};
	uint8_t sum[TT_DIGEST];

	for (int i = 0; i < root->naddresses && i < TT_ID_ADDRESSES; i++)
		id.addresses[id.naddresses++] = root->addresses[i];
	tt_digest(root->job, strlen(root->job), sum);
	memcpy(id.nonce, sum, TT_NONCE);
	if (!tt_secret_stretch(secret, sum, sizeof(sum), id.secret))
		return tt_fail(TT_SYSTEM, "no memory to derive a key from the secret");
	tt_id_pack(&id, ret_id);
	OPENSSL_cleanse(id.secret, TT_SECRET);
	return 0;
}

int tt_id_mix(tuttiUniqueId *id, const char *secret)
{
	uint8_t salt[TT_SECRET + TT_NONCE];
	struct tt_id mixed;
	int rc = tt_id_unpack(id, &mixed);

	if (rc)
		return rc;
	memcpy(salt, mixed.secret, TT_SECRET);
	memcpy(salt + TT_SECRET, mixed.nonce, TT_NONCE);
	if (tt_secret_stretch(secret, salt, sizeof(salt), mixed.secret))
		tt_id_pack(&mixed, id);
	else
		rc = tt_fail(TT_SYSTEM, "no memory to derive a key from the secret");
	OPENSSL_cleanse(salt, sizeof(salt));
	OPENSSL_cleanse(mixed.secret, TT_SECRET);
	return rc;
}

int tt_id_from_root(const char *host_port, const char *secret, tuttiUniqueId *ret_id)
{
	struct tt_root_endpoint root = { 0 };
	char host[256], job[64];
	int rc = tt_id_split_root(host_port, host, sizeof(host), &root.port);

	if (rc || (rc = tt_address_resolve(host, root.addresses, &root.naddresses)) ||
	    (!tt_address_is_loopback(&root.addresses[0]) && (rc = tt_secret_check(secret))))
		return rc;
	/* without the host, since ranks may use different names for it */
	snprintf(job, sizeof(job), "tutti root %d", root.port);
	root.job = job;
	return tt_id_at(&root, secret, ret_id);
}
