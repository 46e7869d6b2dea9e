/* SPDX-License-Identifier: MIT */
/* What the peer of ibmsg-send and ibmsg-recv says: what is understood is written again the same. */
#include "fuzz.h"

#include "transfer.h"

static void check_message(const uint8_t *bytes, size_t size)
{
	uint8_t head[TRANSFER_HEAD_BYTES];
	struct transfer_message first, again;

	if (!transfer_get(bytes, size, &first))
		return;
	CHECK(first.len == size - TRANSFER_HEAD_BYTES);
	CHECK((const uint8_t *)first.data == bytes + TRANSFER_HEAD_BYTES);
	transfer_put_head(head, &first);
	CHECK(transfer_get(head, sizeof(head), &again));
	CHECK(first.type == again.type && first.crc == again.crc && first.bytes == again.bytes);
}

static void check_greeting(const uint8_t *bytes, size_t size)
{
	enum transfer_purpose purpose = transfer_get_greeting(bytes, size);
	uint8_t again[TRANSFER_GREETING_BYTES];

	if (purpose == PURPOSE_MESSAGES)
		return;
	transfer_put_greeting(again, purpose);
	CHECK(size == sizeof(again) && !memcmp(bytes, again, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = exact_copy(data, size);

	check_message(copy, size);
	check_greeting(copy, size);
	free(copy);
	return 0;
}
