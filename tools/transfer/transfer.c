/* SPDX-License-Identifier: MIT */
/* The messages of a transfer as bytes. */
#include "transfer.h"

#include <endian.h>
#include <string.h>

/* As on the wire: big-endian. */
struct head {
	uint8_t type;
	uint8_t reserved[3];
	uint32_t crc;
	uint64_t bytes;
};

_Static_assert(sizeof(struct head) == TRANSFER_HEAD_BYTES, "the wire format is fixed");

void transfer_put_head(void *out, const struct transfer_message *message)
{
	struct head head = {
		.type = (uint8_t)message->type,
		.crc = htobe32(message->crc),
		.bytes = htobe64(message->bytes),
	};

	memcpy(out, &head, sizeof(head));
}

bool transfer_get(const void *bytes, size_t len, struct transfer_message *out)
{
	struct head head;

	if (len < sizeof(head))
		return false;
	memcpy(&head, bytes, sizeof(head));
	if (head.type < TRANSFER_BEGIN || head.type > TRANSFER_FAILED)
		return false;
	*out = (struct transfer_message){
		.type = (enum transfer_type)head.type,
		.crc = be32toh(head.crc),
		.bytes = be64toh(head.bytes),
		.data = (const uint8_t *)bytes + sizeof(head),
		.len = len - sizeof(head),
	};
	return true;
}

/* The last byte of the mark is the version of the format. */
static const uint8_t mark[TRANSFER_GREETING_BYTES - 1] = {'i', 'x', 1};

void transfer_put_greeting(uint8_t out[TRANSFER_GREETING_BYTES], enum transfer_purpose purpose)
{
	memcpy(out, mark, sizeof(mark));
	out[sizeof(mark)] = (uint8_t)purpose;
}

enum transfer_purpose transfer_get_greeting(const void *bytes, size_t len)
{
	const uint8_t *greeting = bytes;

	if (len != TRANSFER_GREETING_BYTES || memcmp(greeting, mark, sizeof(mark)) != 0)
		return PURPOSE_MESSAGES;
	switch (greeting[sizeof(mark)]) {
	case PURPOSE_TEXT:
	case PURPOSE_FILE:
		return (enum transfer_purpose)greeting[sizeof(mark)];
	default:
		return PURPOSE_MESSAGES;
	}
}
