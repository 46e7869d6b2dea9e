/* SPDX-License-Identifier: MIT */
/* Terminate messages: both nibble orders, the bytes we send, and that every code has a text. */
#include "test_wire_frames.h"

#include "../../src/common/bytes.h"
#include "wire/crc32c.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

#define PAYLOAD (FPDU_LENGTH_LEN + DDP_UNTAGGED_LEN)

static const uint16_t all_codes[] = {
	TERM_RDMAP_LOCAL,
	TERM_RDMAP_INVALID_STAG,
	TERM_RDMAP_BOUNDS,
	TERM_RDMAP_ACCESS,
	TERM_RDMAP_FOREIGN_STAG,
	TERM_RDMAP_TO_WRAP,
	TERM_RDMAP_NO_INVALIDATE,
	TERM_RDMAP_VERSION,
	TERM_RDMAP_OPCODE,
	TERM_RDMAP_STREAM,
	TERM_DDP_LOCAL,
	TERM_DDP_INVALID_STAG,
	TERM_DDP_BOUNDS,
	TERM_DDP_FOREIGN_STAG,
	TERM_DDP_TO_WRAP,
	TERM_DDP_TAGGED_VERSION,
	TERM_DDP_QN,
	TERM_DDP_NO_BUFFER,
	TERM_DDP_MSN,
	TERM_DDP_MO,
	TERM_DDP_TOO_LONG,
	TERM_DDP_UNTAGGED_VERSION,
	TERM_MPA_CLOSED,
	TERM_MPA_CRC,
	TERM_MPA_MARKER,
	TERM_MPA_STARTUP,
	TERM_MPA_LOCAL,
	TERM_MPA_IRD,
	TERM_MPA_RTR,
};
#define CODES (sizeof(all_codes) / sizeof(all_codes[0]))

static uint16_t parse4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	uint8_t payload[] = {a, b, c, d};

	return terminate_parse(payload, sizeof(payload));
}

static void test_terminate_parse_rfc_order_gives_code(void **state)
{
	(void)state;
	for (size_t i = 0; i < CODES; i++) {
		uint8_t high = (uint8_t)(all_codes[i] >> 8), low = (uint8_t)all_codes[i];

		assert_int_equal(parse4(high, low, 0, 0), all_codes[i]);
		assert_int_equal(parse4(high, low, 0xc0, 0), all_codes[i]);
		assert_int_equal(parse4(high, low, 0xe0, 0), all_codes[i]);
	}
}

static void test_terminate_parse_siw_order_with_flags_gives_code(void **state)
{
	(void)state;
	for (size_t i = 0; i < CODES; i++) {
		uint8_t high = (uint8_t)(all_codes[i] >> 8), low = (uint8_t)all_codes[i];
		uint8_t reversed = (uint8_t)(high << 4 | high >> 4);

		assert_int_equal(parse4(reversed, low, 0x03, 0), all_codes[i]);
		assert_int_equal(parse4(reversed, low, 0x07, 0), all_codes[i]);
	}
}

static void test_terminate_parse_siw_order_without_flags_gives_code_where_unambiguous(void **state)
{
	(void)state;
	assert_int_equal(parse4(0x21, 0x02, 0, 0), TERM_DDP_NO_BUFFER);
	assert_int_equal(parse4(0x21, 0x05, 0, 0), TERM_DDP_TOO_LONG);
	assert_int_equal(parse4(0x02, 0x02, 0, 0), TERM_MPA_CRC);
	assert_int_equal(parse4(0x10, 0x01, 0, 0), TERM_RDMAP_BOUNDS);
	/* Both orders mean something here: the RFC's wins. */
	assert_int_equal(parse4(0x10, 0x00, 0, 0), TERM_DDP_LOCAL);
	assert_int_equal(parse4(0x20, 0x07, 0, 0), TERM_MPA_RTR);
}

static void test_terminate_parse_unknown_pair_is_returned_as_it_came(void **state)
{
	(void)state;
	assert_int_equal(parse4(0x15, 0x77, 0, 0), 0x1577);
	assert_int_equal(parse4(0x51, 0x77, 0x03, 0), 0x5177);
	assert_int_equal(parse4(0xf0, 0x00, 0xff, 0), 0xf000);
	assert_int_equal(parse4(0x12, 0x77, 0x03, 0), 0x1277);
}

static void test_terminate_parse_flags_at_both_ends_prove_nothing(void **state)
{
	(void)state;
	assert_int_equal(parse4(0x10, 0x00, 0x81, 0), TERM_DDP_LOCAL);
	assert_int_equal(parse4(0x10, 0x00, 0x0b, 0), TERM_DDP_LOCAL);
}

static void test_terminate_parse_any_length_reads_no_further(void **state)
{
	static const uint8_t payload[] = {0x10, 0x00, 0x03, 0x00};
	static const uint16_t expected[] = {TERM_NONE, TERM_NONE, TERM_DDP_LOCAL,
					    TERM_RDMAP_INVALID_STAG, TERM_RDMAP_INVALID_STAG};

	(void)state;
	for (size_t len = 0; len <= sizeof(payload); len++) {
		uint8_t *copy = exact_copy(payload, len);

		assert_int_equal(terminate_parse(copy, len), expected[len]);
		exact_free(copy, len);
	}
}

static void test_terminate_text_every_code_has_its_own(void **state)
{
	(void)state;
	for (size_t i = 0; i < CODES; i++) {
		const char *text = terminate_text(all_codes[i]);

		assert_non_null(text);
		assert_null(strstr(text, "unknown error"));
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(text, terminate_text(all_codes[j]));
	}
}

static void test_terminate_text_any_value_is_never_null(void **state)
{
	(void)state;
	for (uint32_t code = 0; code <= UINT16_MAX; code++)
		assert_true(strlen(terminate_text((uint16_t)code)) > 0);
	assert_string_equal(terminate_text(0x0277), "unknown RDMAP error");
	assert_string_equal(terminate_text(0x1377), "unknown DDP error");
	assert_string_equal(terminate_text(0x2077), "unknown MPA error");
	assert_string_equal(terminate_text(0x7077), "unknown error");
	assert_string_equal(terminate_text(TERM_NONE), "no reason given");
	assert_string_equal(terminate_text(0x00ab), terminate_text(TERM_RDMAP_LOCAL));
}

static void test_terminate_build_bare_is_sample_f(void **state)
{
	uint8_t out[TERMINATE_MAX_FPDU];
	size_t len;

	(void)state;
	memset(out, 0xee, sizeof(out));
	len = terminate_build(out, TERM_DDP_NO_BUFFER, NULL, 0, 0);
	assert_int_equal(len + FPDU_CRC_LEN, sizeof(frame_f));
	fpdu_put_crc(out + len, crc32c(0, out, len));
	assert_memory_equal(out, frame_f, sizeof(frame_f));
}

/* The header of @offending_len bytes attached; @carried of them are expected, and @flags. */
static void check_attached(size_t offending_len, size_t carried, uint8_t flags)
{
	uint8_t offending[DDP_MAX_HEADER], out[TERMINATE_MAX_FPDU];
	uint8_t *copy, *payload = out + PAYLOAD;
	size_t len;

	for (size_t i = 0; i < sizeof(offending); i++)
		offending[i] = (uint8_t)(i + 1);
	memset(out, 0xee, sizeof(out));
	copy = exact_copy(offending, offending_len);
	len = terminate_build(out, TERM_DDP_BOUNDS, copy, offending_len, 0x1234);
	exact_free(copy, offending_len);

	assert_int_equal(len % 4, 0);
	assert_true(len + FPDU_CRC_LEN <= TERMINATE_MAX_FPDU);
	assert_int_equal(len, PAYLOAD + 4 + (carried ? 2 + carried : 0));
	assert_int_equal(get_be16(out), len - FPDU_LENGTH_LEN);
	assert_int_equal(payload[0], 0x11);
	assert_int_equal(payload[1], 0x01);
	assert_int_equal(payload[2], flags);
	assert_int_equal(payload[3], 0);
	if (carried) {
		assert_int_equal(get_be16(payload + 4), 0x1234);
		assert_memory_equal(payload + 6, offending, carried);
	}
}

static void test_terminate_build_tagged_header_is_attached(void **state)
{
	(void)state;
	check_attached(DDP_TAGGED_LEN, 14, 0xc0);
}

static void test_terminate_build_untagged_header_is_attached(void **state)
{
	(void)state;
	check_attached(DDP_UNTAGGED_LEN, 18, 0xc0);
}

static void test_terminate_build_read_request_is_attached_and_fills_the_maximum(void **state)
{
	(void)state;
	check_attached(RDMAP_READ_REQUEST_LEN, 46, 0xe0);
	assert_int_equal(PAYLOAD + 4 + 2 + 46 + FPDU_CRC_LEN, TERMINATE_MAX_FPDU);
}

static void test_terminate_build_other_headers_are_cut_to_their_ddp_part(void **state)
{
	(void)state;
	check_attached(RDMAP_IMMEDIATE_LEN, 18, 0xc0);
	check_attached(RDMAP_ATOMIC_RESP_LEN, 18, 0xc0);
	check_attached(RDMAP_ATOMIC_REQ_LEN, 18, 0xc0);
	check_attached(DDP_TAGGED_LEN - 1, 0, 0);
	check_attached(0, 0, 0);
}

static void test_terminate_build_parsed_again_is_one_valid_message(void **state)
{
	(void)state;
	for (size_t i = 0; i < CODES; i++) {
		uint8_t out[TERMINATE_MAX_FPDU];
		struct ddp_header header;
		struct ddp_order order;
		uint16_t why = TERM_NONE;
		size_t ulpdu_len;

		terminate_build(out, all_codes[i], frame_e + FPDU_LENGTH_LEN,
				RDMAP_READ_REQUEST_LEN, RDMAP_READ_REQUEST_LEN);
		ulpdu_len = get_be16(out);
		assert_int_equal(ddp_parse(out + FPDU_LENGTH_LEN, ulpdu_len, ulpdu_len, false,
					   &header, &why),
				 0);
		assert_int_equal(header.opcode, RDMAP_TERMINATE);
		assert_int_equal(header.qn, DDP_QN_TERMINATE);
		ddp_order_init(&order);
		assert_int_equal(ddp_order_check(&order, &header, &why), 0);
		assert_int_equal(terminate_parse(out + FPDU_LENGTH_LEN + header.header_len,
						 header.payload_len),
				 all_codes[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_terminate_parse_rfc_order_gives_code),
		cmocka_unit_test(test_terminate_parse_siw_order_with_flags_gives_code),
		cmocka_unit_test(
			test_terminate_parse_siw_order_without_flags_gives_code_where_unambiguous),
		cmocka_unit_test(test_terminate_parse_unknown_pair_is_returned_as_it_came),
		cmocka_unit_test(test_terminate_parse_flags_at_both_ends_prove_nothing),
		cmocka_unit_test(test_terminate_parse_any_length_reads_no_further),
		cmocka_unit_test(test_terminate_text_every_code_has_its_own),
		cmocka_unit_test(test_terminate_text_any_value_is_never_null),
		cmocka_unit_test(test_terminate_build_bare_is_sample_f),
		cmocka_unit_test(test_terminate_build_tagged_header_is_attached),
		cmocka_unit_test(test_terminate_build_untagged_header_is_attached),
		cmocka_unit_test(
			test_terminate_build_read_request_is_attached_and_fills_the_maximum),
		cmocka_unit_test(test_terminate_build_other_headers_are_cut_to_their_ddp_part),
		cmocka_unit_test(test_terminate_build_parsed_again_is_one_valid_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
