/* SPDX-License-Identifier: MIT */
#include "record.h"

#include <errno.h>
#include <string.h>

#include "../common/bytes.h"

static const uint8_t record_magic[4] = {'i', 'w', 'r', 0xad};
static const uint8_t private_magic[4] = {'i', 'w', 'p', 0xad};

/* ---- records ---- */

void record_put(uint8_t out[RECORD_LEN], const struct record *in)
{
	memset(out, 0, RECORD_LEN);
	memcpy(out, record_magic, sizeof(record_magic));
	out[4] = RECORD_VERSION;
	out[5] = (uint8_t)in->type;
	if (in->type == RECORD_HELLO)
		return;
	out[6] = in->rights;
	put_be64(out + 8, in->address);
	put_be64(out + 16, in->length);
	put_be32(out + 24, in->key);
}

static const char *fault_of_hello(const struct record *record)
{
	if (record->rights || record->address || record->length || record->key)
		return "a hello with more in it";
	return NULL;
}

static const char *fault_of_advertisement(const struct record *record)
{
	if (!record->rights || record->rights & ~(RECORD_READ | RECORD_WRITE))
		return "an advertisement with unknown rights";
	if (!record->length || record->length > RECORD_MAX_LENGTH)
		return "an advertisement of an impossible length";
	if (record->address > UINT64_MAX - record->length)
		return "an advertisement that reaches beyond the end of memory";
	return NULL;
}

static const char *fault_of_head(const uint8_t *at, size_t len)
{
	if (len != RECORD_LEN)
		return len < RECORD_LEN ? "a message that is too short for an advertisement"
					: "a message that is too long for an advertisement";
	if (memcmp(at, record_magic, sizeof(record_magic)) != 0)
		return "a message that is not an advertisement";
	if (at[4] != RECORD_VERSION)
		return "an advertisement of another version";
	if (at[7] || get_be32(at + 28))
		return "an advertisement with something where nothing should be";
	return NULL;
}

int record_get(const void *data, size_t len, struct record *out, const char **why)
{
	const uint8_t *at = data;
	const char *fault = fault_of_head(at, len);
	struct record record;

	if (fault) {
		*why = fault;
		return -EPROTO;
	}
	record = (struct record){
		.type = (enum record_type)at[5],
		.rights = at[6],
		.address = get_be64(at + 8),
		.length = get_be64(at + 16),
		.key = get_be32(at + 24),
	};
	if (record.type == RECORD_HELLO)
		fault = fault_of_hello(&record);
	else if (record.type == RECORD_ADVERTISEMENT)
		fault = fault_of_advertisement(&record);
	else
		fault = "a record of unknown type";
	if (fault) {
		*why = fault;
		return -EPROTO;
	}
	*out = record;
	return 0;
}

/* ---- private data ---- */

size_t record_put_private(uint8_t *out, const void *user, size_t user_len)
{
	memset(out, 0, RECORD_PRIVATE_LEN);
	memcpy(out, private_magic, sizeof(private_magic));
	out[4] = RECORD_VERSION;
	out[5] = (uint8_t)user_len;
	if (user_len)
		memcpy(out + RECORD_PRIVATE_LEN, user, user_len);
	return RECORD_PRIVATE_LEN + user_len;
}

enum record_peer record_get_private(const void *data, size_t len, const uint8_t **user,
				    size_t *user_len)
{
	const uint8_t *at = data;

	if (!data || len < RECORD_PRIVATE_LEN ||
	    memcmp(at, private_magic, sizeof(private_magic)) != 0) {
		*user = data;
		*user_len = data ? len : 0;
		return PEER_BARE;
	}
	if (at[4] != RECORD_VERSION || at[5] > RECORD_MAX_USER ||
	    len < RECORD_PRIVATE_LEN + (size_t)at[5])
		return PEER_UNKNOWN;
	*user = at + RECORD_PRIVATE_LEN;
	*user_len = at[5];
	return PEER_OURS;
}
