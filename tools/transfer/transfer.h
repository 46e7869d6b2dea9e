/* SPDX-License-Identifier: MIT */
/*
 * What ibmsg-send and ibmsg-recv say to each other about a file or stream: bytes in, bytes out.
 *
 *   sender                                              receiver
 *   connects, with a greeting                           accepts with one, or rejects with a reason
 *   BEGIN   size or TRANSFER_SIZE_UNKNOWN, name
 *   CHUNK   offset, bytes                    ...
 *   END     bytes in all, their CRC32C
 *                                                       DONE    the same, when they are in place
 *   closes
 *
 * Either side may say FAILED at any time: how far it came, and why. Then it closes.
 */
#ifndef IBMSG_TOOLS_TRANSFER_H
#define IBMSG_TOOLS_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSFER_HEAD_BYTES    16
#define TRANSFER_MESSAGE_BYTES ((size_t)1 << 20) /* the largest message */
#define TRANSFER_CHUNK_BYTES   (TRANSFER_MESSAGE_BYTES - TRANSFER_HEAD_BYTES)
#define TRANSFER_NAME_BYTES    255
#define TRANSFER_SIZE_UNKNOWN  UINT64_MAX

enum transfer_type {
	TRANSFER_BEGIN = 1,
	TRANSFER_CHUNK,
	TRANSFER_END,
	TRANSFER_DONE,
	TRANSFER_FAILED,
};

struct transfer_message {
	enum transfer_type type;
	uint32_t crc;
	uint64_t bytes; /* size, offset, all, or how far */
	const void *data;
	size_t len; /* of data: the name, the chunk, or why */
};

/* Writes the first TRANSFER_HEAD_BYTES; the data behind it is the caller's to write. */
void transfer_put_head(void *out, const struct transfer_message *message);
/* False: it is none. Its data points into @bytes. */
bool transfer_get(const void *bytes, size_t len, struct transfer_message *out);

/*
 * What a connection is for, in the data of connect and accept. Without a greeting it is for bare
 * messages, as of an original ibmsg.
 */
enum transfer_purpose { PURPOSE_MESSAGES, PURPOSE_TEXT = 't', PURPOSE_FILE = 'f' };

#define TRANSFER_GREETING_BYTES 4

void transfer_put_greeting(uint8_t out[TRANSFER_GREETING_BYTES], enum transfer_purpose purpose);
enum transfer_purpose transfer_get_greeting(const void *bytes, size_t len);

#endif
