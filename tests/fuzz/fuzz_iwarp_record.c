/* SPDX-License-Identifier: MIT */
/*
 * What a libiwarp peer says: the same bytes as private data and as a record. What is understood is
 * written again, and is the same.
 */
#include "fuzz.h"

#include "record.h"

static void check_private(const uint8_t *bytes, size_t size)
{
	uint8_t out[RECORD_PRIVATE_MAX];
	const uint8_t *user;
	size_t len, made;

	switch (record_get_private(bytes, size, &user, &len)) {
	case PEER_BARE:
		CHECK(user == bytes && len == size);
		break;
	case PEER_OURS:
		CHECK(len <= RECORD_MAX_USER && user + len <= bytes + size);
		made = record_put_private(out, user, len);
		CHECK(made <= size && !memcmp(out, bytes, 6));
		CHECK(!memcmp(out + RECORD_PRIVATE_LEN, bytes + RECORD_PRIVATE_LEN, len));
		break;
	default:
		break;
	}
}

static void check_record(const uint8_t *bytes, size_t size)
{
	uint8_t out[RECORD_LEN];
	struct record record;
	const char *why = NULL;

	if (record_get(bytes, size, &record, &why)) {
		CHECK(why && *why);
		return;
	}
	CHECK(size == RECORD_LEN && !why);
	if (record.type == RECORD_ADVERTISEMENT) {
		CHECK(record.length && record.length <= RECORD_MAX_LENGTH);
		CHECK(record.address + record.length > record.address);
		CHECK(record.rights >= RECORD_READ && record.rights <= 3);
	}
	record_put(out, &record);
	CHECK(!memcmp(out, bytes, RECORD_LEN));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = exact_copy(data, size);

	check_private(copy, size);
	check_record(copy, size);
	free(copy);
	return 0;
}
