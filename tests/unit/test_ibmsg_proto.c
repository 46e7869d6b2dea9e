/* SPDX-License-Identifier: MIT */
/* What two libibmsg ends say to each other: the bytes, round trips, and all that is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto.h"

#define WHOLE (PROTO_HEADER_LEN + PROTO_REGION_LEN)

/* A copy that ends where an allocation ends, so that sanitizers see a read beyond it. */
static uint8_t *exact_copy(const void *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	return copy;
}

/* ---- private data ---- */

static enum proto_peer get_private(const void *bytes, size_t len, struct proto_private *out)
{
	uint8_t *copy = exact_copy(bytes, len);
	enum proto_peer peer = proto_get_private(copy, len, out);

	free(copy);
	return peer;
}

static struct proto_private some_private(uint8_t user_len)
{
	struct proto_private made = {
		.version = PROTO_VERSION,
		.features = PROTO_TAKES_MANY,
		.max_send = 0x01020304,
		.data_credits = 0x0506,
		.control_credits = 0x0708,
		.user_len = user_len,
	};

	for (uint8_t i = 0; i < user_len; i++)
		made.user[i] = (uint8_t)(0xa0 + i);
	return made;
}

static void assert_equal_private(const struct proto_private *a, const struct proto_private *b)
{
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->features, b->features);
	assert_int_equal(a->max_send, b->max_send);
	assert_int_equal(a->data_credits, b->data_credits);
	assert_int_equal(a->control_credits, b->control_credits);
	assert_int_equal(a->user_len, b->user_len);
	assert_memory_equal(a->user, b->user, a->user_len);
}

static void test_private_put_gives_the_documented_bytes(void **state)
{
	static const uint8_t expected[] = {
		'i', 'b', 'm', 0xb5, /* magic */
		1,   2,   0,   1,    /* version, user data, features */
		1,   2,   3,   4,    /* longest SEND */
		5,   6,   7,   8,    /* credits */
		0,   0,   0,   0,    0, 0, 0, 0, 0xa0, 0xa1,
	};
	struct proto_private in = some_private(2);
	uint8_t out[PROTO_PRIVATE_MAX];

	(void)state;
	memset(out, 0xee, sizeof(out));
	assert_int_equal(proto_put_private(out, &in), sizeof(expected));
	assert_memory_equal(out, expected, sizeof(expected));
	for (size_t i = sizeof(expected); i < sizeof(out); i++)
		assert_int_equal(out[i], 0xee);
}

static void test_private_of_each_user_length_comes_back(void **state)
{
	(void)state;
	for (uint8_t len = 0; len <= PROTO_MAX_USER_DATA; len++) {
		struct proto_private in = some_private(len), out;
		uint8_t bytes[PROTO_PRIVATE_MAX];
		size_t size = proto_put_private(bytes, &in);

		assert_int_equal(size, PROTO_PRIVATE_LEN + len);
		memset(&out, 0xff, sizeof(out));
		assert_int_equal(get_private(bytes, size, &out), PEER_IBMSG);
		assert_equal_private(&in, &out);
	}
}

/* rxe pads to 56, 196 and 148 bytes. */
static void test_private_padded_with_zeros_comes_back(void **state)
{
	static const size_t padded[] = {56, 57, 148, 196, 252};

	(void)state;
	for (size_t i = 0; i < sizeof(padded) / sizeof(*padded); i++) {
		struct proto_private in = some_private((uint8_t)(i * 8)), out;
		uint8_t bytes[256] = {0};

		proto_put_private(bytes, &in);
		assert_int_equal(get_private(bytes, padded[i], &out), PEER_IBMSG);
		assert_equal_private(&in, &out);
	}
}

static void test_private_truncated_at_each_length_is_not_ours(void **state)
{
	struct proto_private in = some_private(PROTO_MAX_USER_DATA), out;
	uint8_t bytes[PROTO_PRIVATE_MAX];

	(void)state;
	proto_put_private(bytes, &in);
	for (size_t len = 0; len < PROTO_PRIVATE_MAX; len++)
		assert_int_equal(get_private(bytes, len, &out),
				 len < PROTO_PRIVATE_LEN ? PEER_ORIGINAL : PEER_UNKNOWN);
	assert_int_equal(proto_get_private(NULL, 0, &out), PEER_ORIGINAL);
	assert_int_equal(proto_get_private(NULL, 56, &out), PEER_ORIGINAL);
}

static void test_private_without_magic_is_an_original(void **state)
{
	struct proto_private in = some_private(3), out;
	uint8_t bytes[PROTO_PRIVATE_MAX], zeros[196] = {0};
	size_t len = proto_put_private(bytes, &in);

	(void)state;
	assert_int_equal(get_private(zeros, sizeof(zeros), &out), PEER_ORIGINAL);
	for (size_t i = 0; i < 4; i++) {
		bytes[i] ^= 1;
		assert_int_equal(get_private(bytes, len, &out), PEER_ORIGINAL);
		bytes[i] ^= 1;
	}
	assert_int_equal(get_private(bytes, len, &out), PEER_IBMSG);
}

static void test_private_of_another_version_is_unknown(void **state)
{
	struct proto_private in = some_private(3), out;
	uint8_t bytes[PROTO_PRIVATE_MAX];
	size_t len = proto_put_private(bytes, &in);

	(void)state;
	for (unsigned version = 0; version < 256; version++) {
		bytes[4] = (uint8_t)version;
		assert_int_equal(get_private(bytes, len, &out),
				 version == PROTO_VERSION ? PEER_IBMSG : PEER_UNKNOWN);
	}
}

static void test_private_with_too_much_user_data_is_unknown(void **state)
{
	uint8_t bytes[PROTO_PRIVATE_LEN + 256] = {0};
	struct proto_private in = some_private(0), out;

	(void)state;
	proto_put_private(bytes, &in);
	for (unsigned len = 0; len < 256; len++) {
		bytes[5] = (uint8_t)len;
		assert_int_equal(get_private(bytes, sizeof(bytes), &out),
				 len <= PROTO_MAX_USER_DATA ? PEER_IBMSG : PEER_UNKNOWN);
	}
}

static void test_private_with_too_small_receives_is_unknown(void **state)
{
	struct proto_private in = some_private(0), out;
	uint8_t bytes[PROTO_PRIVATE_MAX];

	(void)state;
	for (uint32_t send = 0; send <= 2 * PROTO_MIN_SEND; send++) {
		in.max_send = send;
		assert_int_equal(get_private(bytes, proto_put_private(bytes, &in), &out),
				 send < PROTO_MIN_SEND ? PEER_UNKNOWN : PEER_IBMSG);
	}
}

static void test_private_that_is_refused_leaves_the_result_alone(void **state)
{
	struct proto_private in = some_private(3), out, before;
	uint8_t bytes[PROTO_PRIVATE_MAX];
	size_t len = proto_put_private(bytes, &in);

	(void)state;
	memset(&before, 0x77, sizeof(before));
	out = before;
	bytes[4] = 99;
	assert_int_equal(get_private(bytes, len, &out), PEER_UNKNOWN);
	assert_memory_equal(&out, &before, sizeof(out));
	bytes[0] = 0;
	assert_int_equal(get_private(bytes, len, &out), PEER_ORIGINAL);
	assert_memory_equal(&out, &before, sizeof(out));
}

/* ---- messages ---- */

static int get_message(const void *bytes, size_t len, struct proto_message *out)
{
	uint8_t *copy = exact_copy(bytes, len);
	int error = proto_get_message(copy, len, out);

	free(copy);
	return error;
}

static size_t length_of(enum proto_type type)
{
	return type == PROTO_HELLO || type == PROTO_OFFER ? WHOLE : PROTO_HEADER_LEN;
}

/* With what its type has, and nothing else. */
static struct proto_message some_message(enum proto_type type)
{
	struct proto_message message = {
		.type = type,
		.flags = PROTO_WANT_CREDIT,
		.data_credits = 0x0102,
		.control_credits = 0x0304,
	};

	if (length_of(type) == WHOLE) {
		message.address = 0x1112131415161718;
		message.key = 0x21222324;
	}
	if (type == PROTO_OFFER)
		message.length = 0x3132333435363738;
	if (type == PROTO_OFFER || type == PROTO_DONE)
		message.number = 0x41424344;
	if (type == PROTO_DONE)
		message.status = PROTO_NO_MEMORY;
	return message;
}

static void assert_equal_message(const struct proto_message *a, const struct proto_message *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->data_credits, b->data_credits);
	assert_int_equal(a->control_credits, b->control_credits);
	assert_true(a->length == b->length);
	assert_true(a->address == b->address);
	assert_int_equal(a->key, b->key);
	assert_int_equal(a->number, b->number);
	assert_int_equal(a->status, b->status);
}

static void test_message_put_gives_the_documented_bytes(void **state)
{
	static const uint8_t offer[] = {
		3,    1,    1,    2,    3,    4,    0,    0,    0x31, 0x32, 0x33,
		0x34, 0x35, 0x36, 0x37, 0x38, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
		0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x41, 0x42, 0x43, 0x44,
	};
	static const uint8_t done[] = {4, 1, 1, 2, 3, 4, 0, 0, 0x41, 0x42, 0x43, 0x44, 0, 0, 0, 2};
	static const uint8_t hello[] = {
		1,    1,    1,    2,    3,    4,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0,
		0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0, 0, 0, 0,
	};
	static const uint8_t end[PROTO_HEADER_LEN] = {6, 2, 1, 2, 3, 4};
	struct proto_message message = some_message(PROTO_OFFER);
	uint8_t out[WHOLE];

	(void)state;
	assert_int_equal(proto_put_message(out, &message), sizeof(offer));
	assert_memory_equal(out, offer, sizeof(offer));
	message = some_message(PROTO_DONE);
	assert_int_equal(proto_put_message(out, &message), sizeof(done));
	assert_memory_equal(out, done, sizeof(done));
	message = some_message(PROTO_HELLO);
	assert_int_equal(proto_put_message(out, &message), sizeof(hello));
	assert_memory_equal(out, hello, sizeof(hello));
	message = some_message(PROTO_END);
	message.flags = PROTO_SEEN;
	assert_int_equal(proto_put_message(out, &message), sizeof(end));
	assert_memory_equal(out, end, sizeof(end));
}

static void test_message_of_each_type_comes_back(void **state)
{
	(void)state;
	for (int type = PROTO_HELLO; type <= PROTO_END; type++) {
		struct proto_message in = some_message((enum proto_type)type), out;
		uint8_t bytes[WHOLE];
		size_t len = proto_put_message(bytes, &in);

		assert_int_equal(len, length_of((enum proto_type)type));
		memset(&out, 0xff, sizeof(out));
		assert_int_equal(get_message(bytes, len, &out), 0);
		assert_equal_message(&in, &out);
	}
}

static void test_message_truncated_at_each_length_is_refused(void **state)
{
	(void)state;
	for (int type = PROTO_HELLO; type <= PROTO_END; type++) {
		struct proto_message in = some_message((enum proto_type)type), out;
		uint8_t bytes[WHOLE];
		size_t whole = proto_put_message(bytes, &in);

		for (size_t len = 0; len < whole; len++)
			assert_int_equal(get_message(bytes, len, &out), -EPROTO);
	}
}

static void test_message_that_is_longer_is_refused_but_for_data(void **state)
{
	uint8_t bytes[WHOLE + 200] = {0};

	(void)state;
	for (int type = PROTO_HELLO; type <= PROTO_END; type++) {
		struct proto_message in = some_message((enum proto_type)type), out;
		size_t whole = proto_put_message(bytes, &in);

		for (size_t len = whole + 1; len <= sizeof(bytes); len++)
			assert_int_equal(get_message(bytes, len, &out),
					 type == PROTO_DATA ? 0 : -EPROTO);
	}
}

static void test_message_of_an_unknown_type_is_refused(void **state)
{
	uint8_t bytes[WHOLE] = {0};
	struct proto_message out;

	(void)state;
	for (unsigned type = 0; type < 256; type++) {
		bool known = type >= PROTO_HELLO && type <= PROTO_MANY;

		bytes[0] = (uint8_t)type;
		if (known)
			continue;
		assert_int_equal(get_message(bytes, PROTO_HEADER_LEN, &out), -EPROTO);
		assert_int_equal(get_message(bytes, WHOLE, &out), -EPROTO);
	}
}

static void test_done_with_an_unknown_status_is_refused(void **state)
{
	static const uint32_t unknown[] = {3, 4, 0x100, 0x01000000, UINT32_MAX};
	struct proto_message in = some_message(PROTO_DONE), out;
	uint8_t bytes[WHOLE];

	(void)state;
	for (int status = PROTO_TAKEN; status <= PROTO_NO_MEMORY; status++) {
		in.status = (enum proto_status)status;
		assert_int_equal(get_message(bytes, proto_put_message(bytes, &in), &out), 0);
		assert_int_equal(out.status, status);
	}
	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
		in.status = (enum proto_status)unknown[i];
		assert_int_equal(get_message(bytes, proto_put_message(bytes, &in), &out), -EPROTO);
	}
}

/* So that a later version may use them. */
static void test_message_with_reserved_bytes_set_is_taken(void **state)
{
	struct proto_message in = some_message(PROTO_CREDIT), out;
	uint8_t bytes[WHOLE];
	size_t len = proto_put_message(bytes, &in);

	(void)state;
	bytes[6] = bytes[7] = 0xff;
	assert_int_equal(get_message(bytes, len, &out), 0);
	assert_equal_message(&in, &out);
}

static void test_control_messages_are_all_but_those_with_messages(void **state)
{
	(void)state;
	assert_true(proto_is_control(PROTO_HELLO));
	assert_false(proto_is_control(PROTO_DATA));
	assert_false(proto_is_control(PROTO_OFFER));
	assert_false(proto_is_control(PROTO_MANY));
	assert_true(proto_is_control(PROTO_DONE));
	assert_true(proto_is_control(PROTO_CREDIT));
	assert_true(proto_is_control(PROTO_END));
}

/* ---- several messages in one ---- */

#define MOST_PARTS 300

/* A MANY whose messages have 0, 1, 2, ... bytes of their own number. Returns its length. */
static size_t put_many(uint8_t *out, unsigned count)
{
	struct proto_message many = some_message(PROTO_MANY);
	uint8_t bytes[MOST_PARTS];
	size_t len;

	many.length = count;
	len = proto_put_message(out, &many);
	assert_int_equal(len, PROTO_HEADER_LEN);
	for (unsigned i = 0; i < count; i++) {
		memset(bytes, (int)i, i);
		len += proto_put_part(out + len, bytes, (uint16_t)i);
	}
	return len;
}

static void test_many_gives_the_documented_bytes(void **state)
{
	static const uint8_t expected[] = {
		7, 1, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, /* header: three messages */
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* an empty one */
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* and what fills it up */
		0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* one of one byte */
		1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* likewise */
		0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* one of two */
		2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	};
	uint8_t out[sizeof(expected)];

	(void)state;
	memset(out, 0xee, sizeof(out));
	assert_int_equal(put_many(out, 3), sizeof(expected));
	assert_memory_equal(out, expected, sizeof(expected));
}

static void test_many_of_each_count_comes_back(void **state)
{
	static uint8_t bytes[PROTO_HEADER_LEN + MOST_PARTS * (MOST_PARTS + 2 * PROTO_HEADER_LEN)];

	(void)state;
	for (unsigned count = 1; count < MOST_PARTS; count++) {
		size_t len = put_many(bytes, count);
		const uint8_t *at = bytes + PROTO_HEADER_LEN;
		struct proto_message out;

		assert_int_equal(get_message(bytes, len, &out), 0);
		assert_int_equal(out.type, PROTO_MANY);
		assert_int_equal(out.length, count);
		for (unsigned i = 0; i < count; i++) {
			uint16_t size;

			size_t taken = proto_get_part(at, (size_t)(bytes + len - at), &size);

			assert_int_equal(taken, proto_part_len(i));
			assert_int_equal(size, i);
			for (unsigned k = 0; k < size; k++)
				assert_int_equal(at[PROTO_HEADER_LEN + k], (uint8_t)i);
			at += taken;
		}
		assert_ptr_equal(at, bytes + len);
	}
}

static void test_many_cut_off_or_with_more_behind_is_refused(void **state)
{
	uint8_t bytes[PROTO_HEADER_LEN + 512] = {0};
	size_t len = put_many(bytes, 8);
	struct proto_message out;

	(void)state;
	for (size_t other = 0; other < sizeof(bytes); other++)
		assert_int_equal(get_message(bytes, other, &out), other == len ? 0 : -EPROTO);
}

static void test_many_of_another_count_is_refused(void **state)
{
	static const uint64_t counts[] = {0, 1, 7, 9, 256 + 8, 1ull << 32 | 8, UINT64_MAX};
	uint8_t bytes[PROTO_HEADER_LEN + 512], header[PROTO_HEADER_LEN];
	size_t len = put_many(bytes, 8);
	struct proto_message many, out;

	(void)state;
	assert_int_equal(get_message(bytes, len, &many), 0);
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		many.length = counts[i];
		proto_put_message(header, &many);
		memcpy(bytes, header, sizeof(header));
		assert_int_equal(get_message(bytes, len, &out), -EPROTO);
	}
	/* Of none at all. */
	many.length = 0;
	assert_int_equal(get_message(header, proto_put_message(header, &many), &out), -EPROTO);
}

static void test_many_with_a_length_beyond_its_end_is_refused(void **state)
{
	uint8_t bytes[PROTO_HEADER_LEN + 256];
	size_t len = put_many(bytes, 4);
	uint8_t *last = bytes + len - 2 * PROTO_HEADER_LEN;
	struct proto_message out;

	(void)state;
	for (unsigned size = 0; size <= UINT16_MAX; size++) {
		last[0] = (uint8_t)(size >> 8);
		last[1] = (uint8_t)size;
		assert_int_equal(get_message(bytes, len, &out), size <= 15 ? 0 : -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private_put_gives_the_documented_bytes),
		cmocka_unit_test(test_private_of_each_user_length_comes_back),
		cmocka_unit_test(test_private_padded_with_zeros_comes_back),
		cmocka_unit_test(test_private_truncated_at_each_length_is_not_ours),
		cmocka_unit_test(test_private_without_magic_is_an_original),
		cmocka_unit_test(test_private_of_another_version_is_unknown),
		cmocka_unit_test(test_private_with_too_much_user_data_is_unknown),
		cmocka_unit_test(test_private_with_too_small_receives_is_unknown),
		cmocka_unit_test(test_private_that_is_refused_leaves_the_result_alone),
		cmocka_unit_test(test_message_put_gives_the_documented_bytes),
		cmocka_unit_test(test_message_of_each_type_comes_back),
		cmocka_unit_test(test_message_truncated_at_each_length_is_refused),
		cmocka_unit_test(test_message_that_is_longer_is_refused_but_for_data),
		cmocka_unit_test(test_message_of_an_unknown_type_is_refused),
		cmocka_unit_test(test_done_with_an_unknown_status_is_refused),
		cmocka_unit_test(test_message_with_reserved_bytes_set_is_taken),
		cmocka_unit_test(test_control_messages_are_all_but_those_with_messages),
		cmocka_unit_test(test_many_gives_the_documented_bytes),
		cmocka_unit_test(test_many_of_each_count_comes_back),
		cmocka_unit_test(test_many_cut_off_or_with_more_behind_is_refused),
		cmocka_unit_test(test_many_of_another_count_is_refused),
		cmocka_unit_test(test_many_with_a_length_beyond_its_end_is_refused),
	};

	return cmocka_run_group_tests_name("ibmsg_proto", tests, NULL, NULL);
}
