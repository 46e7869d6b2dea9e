/* SPDX-License-Identifier: MIT */
/*
 * What an ibmsg peer says: the same bytes as private data and as a message. What is understood is
 * written again, and means the same.
 */
#include "fuzz.h"

#include "proto.h"

static void check_private(const uint8_t *bytes, size_t size)
{
	uint8_t out[PROTO_PRIVATE_MAX];
	struct proto_private first, again;
	size_t len;

	if (proto_get_private(bytes, size, &first) != PEER_IBMSG)
		return;
	CHECK(first.version == PROTO_VERSION && first.user_len <= PROTO_MAX_USER_DATA);
	CHECK(first.max_send >= PROTO_MIN_SEND);
	len = proto_put_private(out, &first);
	CHECK(len == PROTO_PRIVATE_LEN + (size_t)first.user_len && len <= size);
	CHECK(proto_get_private(out, len, &again) == PEER_IBMSG);
	CHECK(first.max_send == again.max_send && first.data_credits == again.data_credits);
	CHECK(first.control_credits == again.control_credits);
	CHECK(first.user_len == again.user_len);
	CHECK(!memcmp(first.user, again.user, first.user_len));
}

static void check_part(const uint8_t *part, uint16_t len)
{
	uint8_t *out = malloc(proto_part_len(len));
	uint16_t again;

	CHECK(out && proto_put_part(out, part, len) == proto_part_len(len));
	CHECK(proto_get_part(out, proto_part_len(len), &again) == proto_part_len(len));
	CHECK(again == len && !memcmp(out + PROTO_HEADER_LEN, part, len));
	free(out);
}

/* The messages of a MANY lie within it, and fill it. */
static void check_many(const uint8_t *bytes, size_t size, uint64_t count)
{
	const uint8_t *at = bytes + PROTO_HEADER_LEN, *end = bytes + size;

	CHECK(count && count <= size);
	for (; count; count--) {
		uint16_t len;
		size_t taken = proto_get_part(at, (size_t)(end - at), &len);

		CHECK(taken > PROTO_HEADER_LEN + (size_t)len && taken <= (size_t)(end - at));
		check_part(at + PROTO_HEADER_LEN, len);
		at += taken;
	}
	CHECK(at == end);
}

static void check_message(const uint8_t *bytes, size_t size)
{
	uint8_t out[PROTO_HEADER_LEN + PROTO_REGION_LEN];
	struct proto_message first, again;
	size_t len;

	if (proto_get_message(bytes, size, &first) < 0)
		return;
	CHECK(first.type >= PROTO_HELLO && first.type <= PROTO_MANY);
	if (first.type == PROTO_MANY) {
		check_many(bytes, size, first.length);
		return;
	}
	CHECK(first.status <= PROTO_NO_MEMORY);
	len = proto_put_message(out, &first);
	CHECK(len == size || (first.type == PROTO_DATA && len < size));
	CHECK(proto_get_message(out, len, &again) == 0);
	CHECK(first.type == again.type && first.flags == again.flags);
	CHECK(first.data_credits == again.data_credits);
	CHECK(first.control_credits == again.control_credits);
	CHECK(first.length == again.length && first.address == again.address);
	CHECK(first.key == again.key && first.status == again.status);
	/* A hello has none, but room for one. */
	CHECK(first.type == PROTO_HELLO || first.number == again.number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = exact_copy(data, size);

	check_private(copy, size);
	check_message(copy, size);
	free(copy);
	return 0;
}
