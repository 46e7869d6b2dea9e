/* SPDX-License-Identifier: MIT */
/*
 * What two libibmsg ends say to each other: bytes in, bytes out; no I/O, no state. All numbers are
 * big-endian.
 *
 * Private data, in the CM's request and reply (24 bytes, then user data up to 32; the fabric may
 * pad behind it):
 *    0  4  magic
 *    4  1  version
 *    5  1  length of the user data
 *    6  2  features: 1, it takes MANY
 *    8  4  the longest SEND that the sender of this takes
 *   12  2  data receives that are posted: the credits to begin with
 *   14  2  control receives, likewise
 *   16  8  0
 * A reject carries the same, with the reason as user data. A peer without it is an original ibmsg.
 *
 * Every SEND begins with a header of 16 bytes:
 *    0  1  type
 *    1  1  flags
 *    2  2  data credits: so many more receives are posted
 *    4  2  control credits, likewise
 *    6  2  0
 *    8  8  of the type:
 * HELLO   control. The connector's first message, and the acceptor's answer to it; 16 bytes follow:
 *         address (8) and key (4) of a word that the peer may read as a sign of life, 0 (4).
 * DATA    a message: the bytes that follow.
 * OFFER   a message that the peer is to read: its length (8 bytes in the header); 16 bytes follow:
 *         address (8), key (4), number (4).
 * DONE    control. The header has the number (4) and a status (4) of an OFFER: it was read, or will
 *         not be.
 * CREDIT  control. Nothing but credits.
 * END     control. The sender has posted its last message, and all have been received. The flag
 *         SEEN: so has the receiver of this, as its END has said.
 * MANY    several short messages, for a peer that takes it: how many (8 bytes in the header); then
 *         each with its length (2) and 14 bytes of 0 in front, and 0 behind it, once at least, up
 *         to a multiple of 16. So each has room for a header of its own where it lies, and
 *         for the byte that ends a string.
 * DATA, OFFER and MANY cost a data credit, the others a control credit.
 */
#ifndef IBMSG_PROTO_H
#define IBMSG_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROTO_VERSION       1
#define PROTO_MAX_USER_DATA 32
#define PROTO_PRIVATE_LEN   24
#define PROTO_PRIVATE_MAX   (PROTO_PRIVATE_LEN + PROTO_MAX_USER_DATA)
#define PROTO_HEADER_LEN    16
#define PROTO_REGION_LEN    16 /* what follows a HELLO's or an OFFER's header */
#define PROTO_MIN_SEND      (PROTO_HEADER_LEN + 4096) /* the least that a peer must take */

#define PROTO_TAKES_MANY 0x0001 /* features */

struct proto_private {
	uint8_t version;
	uint16_t features;
	uint32_t max_send;
	uint16_t data_credits;
	uint16_t control_credits;
	uint8_t user_len;
	uint8_t user[PROTO_MAX_USER_DATA];
};

/* Returns the length. @out has PROTO_PRIVATE_MAX bytes. */
size_t proto_put_private(uint8_t *out, const struct proto_private *in);

enum proto_peer { PEER_ORIGINAL, PEER_IBMSG, PEER_UNKNOWN /* of ours, but not to be understood */ };

enum proto_peer proto_get_private(const void *data, size_t len, struct proto_private *out);

enum proto_type {
	PROTO_HELLO = 1,
	PROTO_DATA,
	PROTO_OFFER,
	PROTO_DONE,
	PROTO_CREDIT,
	PROTO_END,
	PROTO_MANY,
};

#define PROTO_WANT_CREDIT 0x01 /* of any message: more wait here for data credits */
#define PROTO_SEEN        0x02 /* of END */

/* Of DONE. */
enum proto_status { PROTO_TAKEN, PROTO_TOO_LARGE, PROTO_NO_MEMORY };

struct proto_message {
	enum proto_type type;
	uint8_t flags;
	uint16_t data_credits;
	uint16_t control_credits;
	uint64_t length;  /* OFFER: bytes; MANY: messages */
	uint64_t address; /* HELLO, OFFER */
	uint32_t key;
	uint32_t number; /* OFFER, DONE */
	enum proto_status status;
};

static inline bool proto_is_control(enum proto_type type)
{
	return type != PROTO_DATA && type != PROTO_OFFER && type != PROTO_MANY;
}

/* Returns the length: PROTO_HEADER_LEN, or PROTO_REGION_LEN more. What follows a DATA's or a MANY's
 * header is put there by the caller. */
size_t proto_put_message(uint8_t *out, const struct proto_message *in);
/* 0, or -EPROTO. @len is of the whole SEND; what follows a DATA's header is not looked at. */
int proto_get_message(const void *data, size_t len, struct proto_message *out);

/* What a message of a MANY takes. */
static inline size_t proto_part_len(size_t len)
{
	return PROTO_HEADER_LEN + (len / 16 + 1) * 16;
}

/* Returns that. */
size_t proto_put_part(uint8_t *out, const void *bytes, uint16_t len);
/* Likewise; 0: it is not whole within @left bytes. The message is behind PROTO_HEADER_LEN bytes. */
size_t proto_get_part(const uint8_t *at, size_t left, uint16_t *len);

#endif
