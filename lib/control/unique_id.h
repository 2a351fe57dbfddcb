/*
 * unique_id.h - the contents of the 128 bytes of a unique id
 *
 * Called by bootstrap and launch. An id holds the addresses of rank 0 and the secret of the job.
 */
#ifndef TT_UNIQUE_ID_H
#define TT_UNIQUE_ID_H

#include "base/sock.h"
#include "tutti.h"

#define TT_SECRET 16
#define TT_NONCE 8
#define TT_ID_ADDRESSES 5

struct tt_id {
	bool from_root; /* the address is the user's, not the maker's host */
	int port, naddresses;
	/* rank 0 listens at the first of port, port + 1, ... that is free; 1: only port */
	int nports;
	int epoch;      /* attempt of the job; ranks of other attempts are refused */
	uint64_t netns; /* of the maker: ranks with the same may use its loopback */
	uint8_t secret[TT_SECRET];
	uint8_t nonce[TT_NONCE]; /* differs between jobs; not secret */
	struct tt_address addresses[TT_ID_ADDRESSES];
};
/* Rank 0's endpoint, known to all ranks that a launcher started; so is the secret. */
struct tt_root_endpoint {
	const char *job;         /* a text unique to the job; not secret */
	int port, nports, epoch; /* as in struct tt_id */
	struct tt_address addresses[TT_ADDRESSES];
	int naddresses;
};
/* Does the user's secret have 128 bits, as far as its text shows: 22 characters, more of a smaller alphabet
 * (32 of hexadecimal digits, 39 of decimal ones), with 8 different ones? 0 | TT_USAGE */
int tt_secret_check(const char *secret);
/* Mixes the user's secret into that of an id, whose own secret others may have read. 0 | TT_SYSTEM,
 * TT_ARG: not an id */
int tt_id_mix(tuttiUniqueId *id, const char *secret);
/* The id of rank 0's endpoint and the user's secret: the same on every rank. 0 | TT_SYSTEM */
int tt_id_at(const struct tt_root_endpoint *root, const char *secret, tuttiUniqueId *ret_id);
/* Split TUTTI_ROOT, "host:port" or "[IPv6]:port". 0 | TT_ARG */
int tt_id_split_root(const char *host_port, char *host, size_t room, int *ret_port);

void tt_id_pack(const struct tt_id *id, tuttiUniqueId *ret_id);
/* 0 | TT_ARG: the bytes are not an id */
int tt_id_unpack(const tuttiUniqueId *bytes, struct tt_id *ret_id);

/* id_file.c: the id as a file of this user alone in a folder, for monitors; *ret_path: its path.
 * write: 0 | TT_ARG: a wrong folder, or no id | TT_SYSTEM. read: 0 | TT_ARG: also of a file that other
 * users can read. remove: frees path, which may be NULL; the file stays for another communicator of this
 * process that wrote it. Thread: any */
int tt_id_file_write(const char *folder, const tuttiUniqueId *id, char **ret_path);
int tt_id_file_read(const char *path, tuttiUniqueId *ret_id);
void tt_id_file_remove(char *path);
#define TT_ID_FILE ".id" /* the end of its name */

/* Release the port that tt_id_make reserved in this process. */
void tt_id_release(int port);

/* A number for this network namespace of this boot of the kernel; override replaces the boot,
 * "": does not. 0 | TT_SYSTEM (this host's identity cannot be read, for lack of descriptors for example) */
int tt_id_netns(const char *override, uint64_t *ret_netns);
/* A number for this boot of the kernel, equal in all namespaces of a machine. 0: no boot id can be read */
uint64_t tt_id_machine(void);

#endif
