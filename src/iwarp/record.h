/* SPDX-License-Identifier: MIT */
/*
 * What two libiwarp ends say to each other: bytes in, bytes out; no I/O, no state. All numbers are
 * big-endian.
 *
 * Private data, in the CM's request, reply and reject (8 bytes, then the user's, up to 48; the
 * fabric may pad behind it): 0  4  magic 4  1  version 5  1  length of the user's data 6  2  0 A
 * peer without it uses verbs itself: its private data is all the user's, and it says no hello.
 *
 * A record is one SEND of 32 bytes:
 *    0  4  magic
 *    4  1  version
 *    5  1  type
 *    6  1  rights: 1 remote read, 2 remote write
 *    7  1  0
 *    8  8  address
 *   16  8  length
 *   24  4  key
 *   28  4  0
 * ADVERTISEMENT  a buffer of the sender's.
 * HELLO          all 0 from the rights on. On iWARP the acceptor may not speak first: there the
 *                connector's first message is a hello, and the acceptor's first one answers it.
 */
#ifndef IWARP_RECORD_H
#define IWARP_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define RECORD_VERSION     1
#define RECORD_LEN         32
#define RECORD_MAX_USER    48
#define RECORD_PRIVATE_LEN 8
#define RECORD_PRIVATE_MAX (RECORD_PRIVATE_LEN + RECORD_MAX_USER)
#define RECORD_MAX_LENGTH  (UINT64_C(1) << 56) /* of a buffer: no machine has as much */

#define RECORD_READ  0x01
#define RECORD_WRITE 0x02

enum record_type { RECORD_HELLO = 1, RECORD_ADVERTISEMENT };

struct record {
	enum record_type type;
	uint8_t rights;
	uint64_t address;
	uint64_t length;
	uint32_t key;
};

void record_put(uint8_t out[RECORD_LEN], const struct record *in);
/* 0, or -EPROTO, and then why in *@why. @len is of the whole SEND. */
int record_get(const void *data, size_t len, struct record *out, const char **why);

enum record_peer { PEER_BARE, PEER_OURS, PEER_UNKNOWN /* of ours, but not to be understood */ };

/* Returns the length. @out has RECORD_PRIVATE_MAX bytes, @user_len is RECORD_MAX_USER at most. */
size_t record_put_private(uint8_t *out, const void *user, size_t user_len);
/* The user's data in *@user and *@user_len: within @data. */
enum record_peer record_get_private(const void *data, size_t len, const uint8_t **user,
				    size_t *user_len);

#endif
