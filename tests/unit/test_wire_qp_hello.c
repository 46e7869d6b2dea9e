/* SPDX-License-Identifier: MIT */
/* The hello of queue pairs that meet by number, byte by byte. */
#include "test_wire_frames.h"

#include "wire/qp_hello.h"

static const struct qp_hello some = {
	.answer = MEET_CROSSING,
	.path_mtu = 3,
	.from = 0x123456,
	.to = 0xfedcba,
	.psn = 0xffffff,
	.expected = 1,
	.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1},
};

static const uint8_t its_bytes[QP_HELLO_LEN] = {
	's', 'Q',  'P',  'n',  1, 2,    3,    0,    /* version, answer, MTU */
	0,   0x12, 0x34, 0x56, 0, 0xfe, 0xdc, 0xba, /* from, to */
	0,   0xff, 0xff, 0xff, 0, 0,    0,    1,    /* psn, expected */
	0,   0,    0,    0,    0, 0,    0,    0,    0, 0, 0xff, 0xff, 127, 0, 0, 1,
};

static void test_qp_hello_build_is_as_documented(void **state)
{
	uint8_t bytes[QP_HELLO_LEN];

	(void)state;
	memset(bytes, 0xa5, sizeof(bytes));
	qp_hello_build(&some, bytes);
	assert_memory_equal(bytes, its_bytes, sizeof(bytes));
}

static void test_qp_hello_parse_reads_what_build_wrote(void **state)
{
	uint8_t again[QP_HELLO_LEN];
	struct qp_hello hello;

	(void)state;
	assert_int_equal(qp_hello_parse(its_bytes, sizeof(its_bytes), &hello), 0);
	assert_int_equal(hello.answer, some.answer);
	assert_int_equal(hello.from, some.from);
	assert_int_equal(hello.expected, some.expected);
	qp_hello_build(&hello, again);
	assert_memory_equal(again, its_bytes, sizeof(again));
}

static void test_qp_hello_parse_of_another_length_is_refused(void **state)
{
	uint8_t longer[QP_HELLO_LEN + 1] = {0};
	struct qp_hello hello;

	(void)state;
	memcpy(longer, its_bytes, sizeof(its_bytes));
	for (size_t len = 0; len <= sizeof(longer); len++) {
		uint8_t *copy = exact_copy(longer, len);

		assert_int_equal(qp_hello_parse(copy, len, &hello),
				 len == QP_HELLO_LEN ? 0 : -EPROTO);
		exact_free(copy, len);
	}
}

static void test_qp_hello_parse_out_of_range_is_refused_and_writes_nothing(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
	} wrong[] = {{0, 'S'}, {3, 'N'}, {4, 0},  {4, 2}, {5, MEET_ANSWERS}, {6, 0}, {6, 6},
		     {8, 1},   {12, 1},  {16, 1}, {20, 1}};
	struct qp_hello hello, untouched;

	(void)state;
	memset(&hello, 0x5a, sizeof(hello));
	untouched = hello;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		uint8_t bytes[QP_HELLO_LEN];

		memcpy(bytes, its_bytes, sizeof(bytes));
		bytes[wrong[i].at] = wrong[i].value;
		assert_int_equal(qp_hello_parse(bytes, sizeof(bytes), &hello), -EPROTO);
		assert_memory_equal(&hello, &untouched, sizeof(hello));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_qp_hello_build_is_as_documented),
		cmocka_unit_test(test_qp_hello_parse_reads_what_build_wrote),
		cmocka_unit_test(test_qp_hello_parse_of_another_length_is_refused),
		cmocka_unit_test(test_qp_hello_parse_out_of_range_is_refused_and_writes_nothing),
	};

	return cmocka_run_group_tests_name("wire_qp_hello", tests, NULL, NULL);
}
