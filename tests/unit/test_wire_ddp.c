/* SPDX-License-Identifier: MIT */
/* DDP segments: every check a header must pass, the order of segments, and the bytes we send. */
#include "test_wire_frames.h"

#include "../../src/common/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

#define ULPDU(frame) ((frame) + FPDU_LENGTH_LEN)

/* What every opcode looks like, told once more and otherwise than the code tells it. */
static const struct shape {
	uint8_t opcode;
	bool tagged, single;
	uint32_t qn;
	size_t header_len, min_len;
} shapes[] = {
	{0, true, false, 0, 14, 14},  {1, false, true, 1, 46, 46},  {2, true, false, 0, 14, 14},
	{3, false, false, 0, 18, 18}, {4, false, false, 0, 18, 18}, {5, false, false, 0, 18, 18},
	{6, false, false, 0, 18, 18}, {7, false, true, 2, 18, 22},  {8, false, true, 0, 26, 26},
	{9, false, true, 0, 26, 26},  {10, false, true, 1, 70, 70}, {11, false, true, 3, 30, 30},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* A valid last segment of the shape: MSN 1 or STag 0x11223344, the rest counting up. */
static void fill(const struct shape *shape, uint8_t *ulpdu, size_t len)
{
	for (size_t i = 0; i < len; i++)
		ulpdu[i] = (uint8_t)i;
	ulpdu[0] = shape->tagged ? 0xc1 : 0x41;
	ulpdu[1] = 0x40 | shape->opcode;
	if (shape->tagged) {
		put_be32(ulpdu + 2, 0x11223344);
		put_be64(ulpdu + 6, 0x1000);
	} else {
		put_be32(ulpdu + 2, 0xaabbccdd);
		put_be32(ulpdu + 6, shape->qn);
		put_be32(ulpdu + 10, 1);
		put_be32(ulpdu + 14, 0);
	}
}

/* ddp_parse on an exact copy of the first @have bytes. */
static int parse(const uint8_t *ulpdu, size_t have, size_t ulpdu_len, struct ddp_header *out,
		 uint16_t *why)
{
	uint8_t *copy = exact_copy(ulpdu, have);
	int err = ddp_parse(copy, have, ulpdu_len, true, out, why);

	exact_free(copy, have);
	return err;
}

static void check_refused(const uint8_t *ulpdu, size_t len, uint16_t expected)
{
	struct ddp_header header = {.msn = 99};
	uint16_t why = TERM_NONE;

	assert_int_equal(parse(ulpdu, len, len, &header, &why), -EPROTO);
	assert_int_equal(why, expected);
	assert_int_equal(header.msn, 99); /* results are not touched */
}

/* ---- samples ---- */

static void parse_sample(const uint8_t *frame, struct ddp_header *header)
{
	uint16_t why;
	size_t len = get_be16(frame);

	assert_int_equal(parse(ULPDU(frame), len, len, header, &why), 0);
	assert_int_equal(header->header_len + header->payload_len, len);
}

static void test_ddp_parse_sample_c_is_send_hello(void **state)
{
	struct ddp_header header;

	(void)state;
	parse_sample(frame_c, &header);
	assert_false(header.tagged);
	assert_true(header.last);
	assert_int_equal(header.opcode, RDMAP_SEND);
	assert_int_equal(header.qn, DDP_QN_SEND);
	assert_int_equal(header.msn, 1);
	assert_int_equal(header.mo, 0);
	assert_int_equal(header.payload_len, 5);
	assert_memory_equal(ULPDU(frame_c) + header.header_len, "hello", 5);
}

static void test_ddp_parse_sample_d_is_empty_write(void **state)
{
	struct ddp_header header;

	(void)state;
	parse_sample(frame_d, &header);
	assert_true(header.tagged && header.last);
	assert_int_equal(header.opcode, RDMAP_WRITE);
	assert_int_equal(header.stag, 1);
	assert_int_equal(header.to, 0);
	assert_int_equal(header.payload_len, 0);
}

static void test_ddp_parse_sample_e_is_read_request(void **state)
{
	struct ddp_header header;

	(void)state;
	parse_sample(frame_e, &header);
	assert_int_equal(header.opcode, RDMAP_READ_REQUEST);
	assert_int_equal(header.qn, DDP_QN_REQUEST);
	assert_int_equal(header.msn, 1);
	assert_int_equal(header.payload_len, 0);
	assert_int_equal(header.read.sink_stag, 0x11223344);
	assert_int_equal(header.read.sink_to, 0x1000);
	assert_int_equal(header.read.size, 4096);
	assert_int_equal(header.read.source_stag, 0x55667788);
	assert_int_equal(header.read.source_to, 0x2000);
}

static void test_ddp_parse_sample_f_is_terminate_with_control_word_as_payload(void **state)
{
	struct ddp_header header;

	(void)state;
	parse_sample(frame_f, &header);
	assert_int_equal(header.opcode, RDMAP_TERMINATE);
	assert_int_equal(header.qn, DDP_QN_TERMINATE);
	assert_int_equal(header.header_len, 18);
	assert_int_equal(header.payload_len, 4);
	assert_int_equal(terminate_parse(ULPDU(frame_f) + header.header_len, header.payload_len),
			 TERM_DDP_NO_BUFFER);
}

/* ---- parse ---- */

static void test_ddp_parse_every_opcode_has_its_shape(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		uint8_t ulpdu[128];
		struct ddp_header header;
		uint16_t why;

		fill(&shapes[i], ulpdu, sizeof(ulpdu));
		assert_int_equal(parse(ulpdu, shapes[i].min_len, shapes[i].min_len, &header, &why),
				 0);
		assert_int_equal(header.opcode, shapes[i].opcode);
		assert_int_equal(header.tagged, shapes[i].tagged);
		assert_int_equal(header.header_len, shapes[i].header_len);
		assert_int_equal(header.payload_len, shapes[i].min_len - shapes[i].header_len);
	}
}

static void test_ddp_parse_shorter_than_header_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		uint8_t ulpdu[128];

		fill(&shapes[i], ulpdu, sizeof(ulpdu));
		for (size_t len = 0; len < shapes[i].min_len; len++)
			check_refused(ulpdu, len, TERM_RDMAP_STREAM);
	}
}

static void test_ddp_parse_part_of_header_asks_for_more(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		size_t ulpdu_len = shapes[i].single ? shapes[i].min_len : UINT16_MAX;
		uint8_t ulpdu[128];
		struct ddp_header header;
		uint16_t why = TERM_NONE;

		fill(&shapes[i], ulpdu, sizeof(ulpdu));
		for (size_t have = 0; have < shapes[i].header_len; have++)
			assert_int_equal(parse(ulpdu, have, ulpdu_len, &header, &why), -EAGAIN);
		assert_int_equal(why, TERM_NONE);
		assert_int_equal(parse(ulpdu, shapes[i].header_len, ulpdu_len, &header, &why), 0);
		assert_int_equal(header.payload_len, ulpdu_len - shapes[i].header_len);
		assert_true(shapes[i].header_len <= DDP_MAX_HEADER);
	}
}

static void test_ddp_parse_bytes_beyond_the_ulpdu_do_not_count(void **state)
{
	struct ddp_header header;
	uint16_t why;

	(void)state;
	assert_int_equal(ddp_parse(ULPDU(frame_c), 30, 23, false, &header, &why), 0);
	assert_int_equal(header.payload_len, 5);
	assert_int_equal(ddp_parse(ULPDU(frame_c), 30, 17, false, &header, &why), -EPROTO);
}

static void test_ddp_parse_other_ddp_version_is_refused(void **state)
{
	(void)state;
	for (uint8_t version = 0; version < 4; version++) {
		uint8_t ulpdu[32];

		if (version == 1)
			continue;
		fill(&shapes[RDMAP_WRITE], ulpdu, sizeof(ulpdu));
		ulpdu[0] = 0xc0 | version;
		check_refused(ulpdu, sizeof(ulpdu), TERM_DDP_TAGGED_VERSION);
		fill(&shapes[RDMAP_SEND], ulpdu, sizeof(ulpdu));
		ulpdu[0] = 0x40 | version;
		check_refused(ulpdu, sizeof(ulpdu), TERM_DDP_UNTAGGED_VERSION);
	}
}

static void test_ddp_parse_other_rdmap_version_is_refused(void **state)
{
	uint8_t ulpdu[32];

	(void)state;
	fill(&shapes[RDMAP_SEND], ulpdu, sizeof(ulpdu));
	for (int version = 0; version < 4; version++) {
		if (version == 1)
			continue;
		ulpdu[1] = (uint8_t)(version << 6 | RDMAP_SEND);
		check_refused(ulpdu, sizeof(ulpdu), TERM_RDMAP_VERSION);
	}
}

static void test_ddp_parse_reserved_bits_are_ignored(void **state)
{
	uint8_t ulpdu[32];
	struct ddp_header header;
	uint16_t why;

	(void)state;
	fill(&shapes[RDMAP_SEND], ulpdu, sizeof(ulpdu));
	ulpdu[0] |= 0x3c;
	ulpdu[1] |= 0x30;
	assert_int_equal(parse(ulpdu, sizeof(ulpdu), sizeof(ulpdu), &header, &why), 0);
	assert_int_equal(header.opcode, RDMAP_SEND);
}

static void test_ddp_parse_unknown_opcode_is_refused(void **state)
{
	uint8_t ulpdu[128];

	(void)state;
	fill(&shapes[RDMAP_SEND], ulpdu, sizeof(ulpdu));
	for (uint8_t opcode = 12; opcode < 16; opcode++) {
		ulpdu[1] = 0x40 | opcode;
		check_refused(ulpdu, sizeof(ulpdu), TERM_RDMAP_OPCODE);
	}
}

static void test_ddp_parse_extended_opcodes_are_known_only_when_agreed(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		uint8_t ulpdu[128];
		struct ddp_header header;
		uint16_t why = TERM_NONE;
		int err;

		fill(&shapes[i], ulpdu, sizeof(ulpdu));
		err = ddp_parse(ulpdu, sizeof(ulpdu), shapes[i].min_len, false, &header, &why);
		assert_int_equal(err, shapes[i].opcode < 8 ? 0 : -EPROTO);
		assert_int_equal(why, shapes[i].opcode < 8 ? TERM_NONE : TERM_RDMAP_OPCODE);
	}
}

static void test_ddp_parse_wrong_t_flag_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		uint8_t ulpdu[128];

		fill(&shapes[i], ulpdu, sizeof(ulpdu));
		ulpdu[0] ^= 0x80;
		check_refused(ulpdu, shapes[i].min_len, TERM_RDMAP_OPCODE);
	}
}

static void test_ddp_parse_wrong_queue_is_refused(void **state)
{
	static const uint32_t queues[] = {0, 1, 2, 3, 4, 256, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		if (shapes[i].tagged)
			continue;
		for (size_t q = 0; q < sizeof(queues) / sizeof(queues[0]); q++) {
			uint8_t ulpdu[128];

			if (queues[q] == shapes[i].qn)
				continue;
			fill(&shapes[i], ulpdu, sizeof(ulpdu));
			put_be32(ulpdu + 6, queues[q]);
			check_refused(ulpdu, shapes[i].min_len,
				      shapes[i].qn == 0 ? TERM_DDP_QN : TERM_RDMAP_OPCODE);
		}
	}
}

static void test_ddp_parse_single_segment_not_last_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		uint8_t ulpdu[128];
		struct ddp_header header;
		uint16_t why;

		fill(&shapes[i], ulpdu, sizeof(ulpdu));
		ulpdu[0] &= (uint8_t)~0x40;
		if (shapes[i].single) {
			check_refused(ulpdu, shapes[i].min_len, TERM_DDP_TOO_LONG);
		} else {
			assert_int_equal(
				parse(ulpdu, shapes[i].min_len, shapes[i].min_len, &header, &why),
				0);
			assert_false(header.last);
		}
	}
}

static void test_ddp_parse_bytes_left_over_after_fixed_header_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES; i++) {
		uint8_t ulpdu[128];
		struct ddp_header header;
		uint16_t why;
		size_t len = shapes[i].min_len + 1;

		fill(&shapes[i], ulpdu, sizeof(ulpdu));
		if (shapes[i].single && shapes[i].opcode != RDMAP_TERMINATE) {
			check_refused(ulpdu, len, TERM_DDP_TOO_LONG);
		} else {
			assert_int_equal(parse(ulpdu, len, len, &header, &why), 0);
			assert_int_equal(header.payload_len, len - shapes[i].header_len);
		}
	}
}

static void test_ddp_parse_ulp_word_is_read_of_every_send(void **state)
{
	(void)state;
	for (int opcode = RDMAP_SEND; opcode <= RDMAP_SEND_SE_INV; opcode++) {
		uint8_t ulpdu[32];
		struct ddp_header header;
		uint16_t why;

		fill(&shapes[opcode], ulpdu, sizeof(ulpdu));
		assert_int_equal(parse(ulpdu, sizeof(ulpdu), sizeof(ulpdu), &header, &why), 0);
		assert_int_equal(header.ulp_word, 0xaabbccdd);
	}
}

static void test_ddp_parse_longest_ulpdu_keeps_its_length(void **state)
{
	struct ddp_header header;
	uint16_t why;

	(void)state;
	assert_int_equal(parse(ULPDU(frame_c), 18, UINT16_MAX, &header, &why), 0);
	assert_int_equal(header.payload_len, UINT16_MAX - 18);
}

static void test_ddp_parse_atomic_op_is_four_bits(void **state)
{
	uint8_t ulpdu[RDMAP_ATOMIC_REQ_LEN];
	struct ddp_header header;
	uint16_t why;

	(void)state;
	fill(&shapes[RDMAP_ATOMIC_REQUEST], ulpdu, sizeof(ulpdu));
	put_be32(ulpdu + 18, 0xfffffff0 | RDMAP_CMP_SWAP);
	assert_int_equal(parse(ulpdu, sizeof(ulpdu), sizeof(ulpdu), &header, &why), 0);
	assert_int_equal(header.atomic.op, RDMAP_CMP_SWAP);
}

/* ---- order ---- */

static struct ddp_header send_segment(uint32_t msn, uint32_t mo, uint16_t len, bool last)
{
	return (struct ddp_header){.last = last,
				   .opcode = RDMAP_SEND,
				   .header_len = DDP_UNTAGGED_LEN,
				   .payload_len = len,
				   .qn = DDP_QN_SEND,
				   .msn = msn,
				   .mo = mo};
}

static struct ddp_header tagged_segment(uint8_t opcode, uint32_t stag, uint64_t to, uint16_t len,
					bool last)
{
	return (struct ddp_header){.tagged = true,
				   .last = last,
				   .opcode = opcode,
				   .header_len = DDP_TAGGED_LEN,
				   .payload_len = len,
				   .stag = stag,
				   .to = to};
}

static struct ddp_header single_segment(uint8_t opcode, uint32_t qn, uint32_t msn)
{
	return (struct ddp_header){.last = true, .opcode = opcode, .qn = qn, .msn = msn};
}

static void accept(struct ddp_order *order, struct ddp_header header)
{
	uint16_t why = TERM_NONE;

	assert_int_equal(ddp_order_check(order, &header, &why), 0);
	assert_int_equal(why, TERM_NONE);
}

static void reject(struct ddp_order *order, struct ddp_header header, uint16_t expected)
{
	struct ddp_order before;
	uint16_t why = TERM_NONE;

	memcpy(&before, order, sizeof(before));
	assert_int_equal(ddp_order_check(order, &header, &why), -EPROTO);
	assert_int_equal(why, expected);
	assert_memory_equal(order, &before, sizeof(before));
}

static struct ddp_order fresh(void)
{
	struct ddp_order order;

	memset(&order, 0xee, sizeof(order));
	ddp_order_init(&order);
	return order;
}

static void test_ddp_order_every_queue_starts_with_msn_1(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	reject(&order, send_segment(0, 0, 1, true), TERM_DDP_MSN);
	reject(&order, send_segment(2, 0, 1, true), TERM_DDP_MSN);
	accept(&order, send_segment(1, 0, 1, true));
	for (uint32_t qn = 1; qn < DDP_QN_COUNT; qn++) {
		reject(&order, single_segment(RDMAP_READ_REQUEST, qn, 2), TERM_DDP_MSN);
		accept(&order, single_segment(RDMAP_READ_REQUEST, qn, 1));
		reject(&order, single_segment(RDMAP_READ_REQUEST, qn, 1), TERM_DDP_MSN);
		accept(&order, single_segment(RDMAP_READ_REQUEST, qn, 2));
	}
	accept(&order, send_segment(2, 0, 1, true));
}

static void test_ddp_order_msn_counts_messages_not_segments(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	accept(&order, send_segment(1, 0, 10, false));
	reject(&order, send_segment(2, 10, 10, false), TERM_DDP_MSN);
	accept(&order, send_segment(1, 10, 0, false));
	accept(&order, send_segment(1, 10, 10, true));
	reject(&order, send_segment(1, 20, 10, true), TERM_DDP_MSN);
	accept(&order, send_segment(2, 0, 0, true));
	accept(&order, send_segment(3, 0, 0, true));
}

static void test_ddp_order_msn_wraps_to_zero(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	order.next_msn[DDP_QN_SEND] = UINT32_MAX;
	accept(&order, send_segment(UINT32_MAX, 0, 1, true));
	accept(&order, send_segment(0, 0, 1, true));
	accept(&order, send_segment(1, 0, 1, true));
}

static void test_ddp_order_mo_not_the_bytes_so_far_is_refused(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	reject(&order, send_segment(1, 1, 10, true), TERM_DDP_MO);
	accept(&order, send_segment(1, 0, 10, false));
	reject(&order, send_segment(1, 0, 10, true), TERM_DDP_MO);
	reject(&order, send_segment(1, 9, 10, true), TERM_DDP_MO);
	reject(&order, send_segment(1, 11, 10, true), TERM_DDP_MO);
	accept(&order, send_segment(1, 10, 10, true));
}

static void test_ddp_order_mo_of_single_segment_message_must_be_0(void **state)
{
	struct ddp_order order = fresh();
	struct ddp_header header = single_segment(RDMAP_READ_REQUEST, DDP_QN_REQUEST, 1);

	(void)state;
	header.mo = 1;
	reject(&order, header, TERM_DDP_MO);
	header = single_segment(RDMAP_IMMEDIATE, DDP_QN_SEND, 1);
	header.mo = 8;
	reject(&order, header, TERM_DDP_MO);
}

static void test_ddp_order_other_opcode_inside_open_send_is_refused(void **state)
{
	struct ddp_order order = fresh();
	struct ddp_header other = send_segment(1, 10, 10, true);

	(void)state;
	accept(&order, send_segment(1, 0, 10, false));
	other.opcode = RDMAP_SEND_SE;
	reject(&order, other, TERM_RDMAP_OPCODE);
	reject(&order, single_segment(RDMAP_IMMEDIATE, DDP_QN_SEND, 1), TERM_RDMAP_OPCODE);
	reject(&order, single_segment(RDMAP_IMMEDIATE, DDP_QN_SEND, 2), TERM_DDP_MSN);
	accept(&order, send_segment(1, 10, 10, true));
	accept(&order, single_segment(RDMAP_IMMEDIATE, DDP_QN_SEND, 2));
}

static void test_ddp_order_other_queues_do_not_disturb_an_open_send(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	accept(&order, send_segment(1, 0, 10, false));
	accept(&order, single_segment(RDMAP_READ_REQUEST, DDP_QN_REQUEST, 1));
	accept(&order, single_segment(RDMAP_ATOMIC_REQUEST, DDP_QN_REQUEST, 2));
	accept(&order, single_segment(RDMAP_ATOMIC_RESPONSE, DDP_QN_ATOMIC_RESPONSE, 1));
	accept(&order, single_segment(RDMAP_TERMINATE, DDP_QN_TERMINATE, 1));
	accept(&order, send_segment(1, 10, 10, true));
}

static void test_ddp_order_tagged_and_send_may_interleave(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	accept(&order, tagged_segment(RDMAP_WRITE, 7, 0x1000, 16, false));
	accept(&order, send_segment(1, 0, 10, false));
	accept(&order, tagged_segment(RDMAP_WRITE, 7, 0x1010, 16, false));
	accept(&order, send_segment(1, 10, 10, true));
	accept(&order, tagged_segment(RDMAP_WRITE, 7, 0x1020, 16, true));
}

static void test_ddp_order_writes_to_anywhere_follow_each_other(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	accept(&order, tagged_segment(RDMAP_WRITE, 7, 0x1000, 16, true));
	accept(&order, tagged_segment(RDMAP_WRITE, 9, 0x10, 16, true));
	accept(&order, tagged_segment(RDMAP_WRITE, 9, 0x10, 0, true));
	accept(&order, tagged_segment(RDMAP_READ_RESPONSE, 1, 0, 16, true));
	accept(&order, tagged_segment(RDMAP_WRITE, 7, 0, 16, false));
}

static void test_ddp_order_open_tagged_message_must_continue(void **state)
{
	static const uint8_t opcodes[] = {RDMAP_WRITE, RDMAP_READ_RESPONSE};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		uint8_t opcode = opcodes[i], other = opcodes[1 - i];
		struct ddp_order order = fresh();

		accept(&order, tagged_segment(opcode, 7, 0x1000, 16, false));
		reject(&order, tagged_segment(other, 7, 0x1010, 16, true), TERM_RDMAP_OPCODE);
		reject(&order, tagged_segment(opcode, 8, 0x1010, 16, true), TERM_DDP_INVALID_STAG);
		reject(&order, tagged_segment(opcode, 7, 0x1000, 16, true), TERM_DDP_BOUNDS);
		reject(&order, tagged_segment(opcode, 7, 0x1011, 16, true), TERM_DDP_BOUNDS);
		accept(&order, tagged_segment(opcode, 7, 0x1010, 16, true));
		accept(&order, tagged_segment(other, 8, 0x3000, 16, true));
	}
}

static void test_ddp_order_wrapping_to_is_refused(void **state)
{
	struct ddp_order order = fresh();

	(void)state;
	accept(&order, tagged_segment(RDMAP_WRITE, 7, UINT64_MAX, 0, true));
	accept(&order, tagged_segment(RDMAP_WRITE, 7, UINT64_MAX - 16, 16, true));
	reject(&order, tagged_segment(RDMAP_WRITE, 7, UINT64_MAX - 14, 16, true), TERM_DDP_TO_WRAP);
	reject(&order, tagged_segment(RDMAP_WRITE, 7, UINT64_MAX, 0xffff, true), TERM_DDP_TO_WRAP);
}

static void test_ddp_order_message_above_4_gib_is_refused(void **state)
{
	struct ddp_order order = fresh();
	uint64_t total = 0;

	(void)state;
	for (; total + 65535 <= UINT32_MAX; total += 65535) {
		accept(&order, send_segment(1, (uint32_t)total, 65535, false));
		accept(&order, tagged_segment(RDMAP_WRITE, 7, total, 65535, false));
	}
	assert_int_equal(total, UINT32_MAX); /* 65537 segments of 65535 bytes make it exactly */
	reject(&order, send_segment(1, UINT32_MAX, 1, true), TERM_DDP_TOO_LONG);
	reject(&order, tagged_segment(RDMAP_WRITE, 7, total, 1, true), TERM_DDP_BOUNDS);
	accept(&order, send_segment(1, UINT32_MAX, 0, true));
	accept(&order, tagged_segment(RDMAP_WRITE, 7, total, 0, true));
	accept(&order, tagged_segment(RDMAP_WRITE, 7, total, 1, true));
}

/* ---- encoders ---- */

static uint8_t out[FPDU_LENGTH_LEN + DDP_MAX_HEADER];

static int clear_out(void **state)
{
	(void)state;
	memset(out, 0xee, sizeof(out));
	return 0;
}

static struct ddp_header parse_out(size_t len, size_t payload_len)
{
	struct ddp_header header;
	uint16_t why = TERM_NONE;
	size_t ulpdu_len = get_be16(out);

	assert_int_equal(ulpdu_len, len - FPDU_LENGTH_LEN + payload_len);
	assert_int_equal(parse(ULPDU(out), len - FPDU_LENGTH_LEN, ulpdu_len, &header, &why), 0);
	assert_int_equal(header.payload_len, payload_len);
	for (size_t i = len; i < sizeof(out); i++)
		assert_int_equal(out[i], 0xee);
	return header;
}

static void test_ddp_put_send_hello_is_sample_c(void **state)
{
	(void)state;
	assert_int_equal(ddp_put_send(out, RDMAP_SEND, true, 0, 1, 0, 5), 20);
	assert_memory_equal(out, frame_c, 20);
}

static void test_ddp_put_tagged_empty_write_is_sample_d(void **state)
{
	(void)state;
	assert_int_equal(ddp_put_tagged(out, RDMAP_WRITE, true, 1, 0, 0), 16);
	assert_memory_equal(out, frame_d, 16);
}

static void test_ddp_put_read_request_is_sample_e(void **state)
{
	const struct rdmap_read_request read = {.sink_stag = 0x11223344,
						.size = 4096,
						.sink_to = 0x1000,
						.source_stag = 0x55667788,
						.source_to = 0x2000};

	(void)state;
	assert_int_equal(ddp_put_read_request(out, 1, &read), 48);
	assert_memory_equal(out, frame_e, 48);
}

static void test_ddp_put_tagged_parsed_again_is_the_same(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		enum rdmap_opcode opcode = i & 1 ? RDMAP_WRITE : RDMAP_READ_RESPONSE;
		bool last = i & 2;
		struct ddp_header header;
		size_t len = ddp_put_tagged(out, opcode, last, 0x89abcdef, 0x0123456789abcdef,
					    FPDU_MAX_ULPDU - DDP_TAGGED_LEN);

		header = parse_out(len, FPDU_MAX_ULPDU - DDP_TAGGED_LEN);
		assert_true(header.tagged);
		assert_int_equal(header.opcode, opcode);
		assert_int_equal(header.last, last);
		assert_int_equal(header.stag, 0x89abcdef);
		assert_int_equal(header.to, 0x0123456789abcdef);
		assert_int_equal(out[2], last ? 0xc1 : 0x81);
	}
}

static void test_ddp_put_send_parsed_again_is_the_same(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		enum rdmap_opcode opcode = (enum rdmap_opcode)(RDMAP_SEND + (i & 3));
		bool last = i & 4;
		size_t len =
			ddp_put_send(out, opcode, last, 0x89abcdef, 0xfffffffe, 0x12345678, 1000);
		struct ddp_header header = parse_out(len, 1000);

		assert_false(header.tagged);
		assert_int_equal(header.opcode, opcode);
		assert_int_equal(header.last, last);
		assert_int_equal(header.ulp_word, 0x89abcdef);
		assert_int_equal(get_be32(out + 4), 0x89abcdef);
		assert_int_equal(header.msn, 0xfffffffe);
		assert_int_equal(header.mo, 0x12345678);
		assert_int_equal(out[2], last ? 0x41 : 0x01);
	}
}

static void test_ddp_put_immediate_parsed_again_is_the_same(void **state)
{
	(void)state;
	for (int solicited = 0; solicited <= 1; solicited++) {
		size_t len = ddp_put_immediate(out, solicited, 3, 0x0123456789abcdef);
		struct ddp_header header = parse_out(len, 0);

		assert_int_equal(header.opcode, solicited ? RDMAP_IMMEDIATE_SE : RDMAP_IMMEDIATE);
		assert_int_equal(header.qn, DDP_QN_SEND);
		assert_int_equal(header.msn, 3);
		assert_int_equal(header.immediate, 0x0123456789abcdef);
		assert_int_equal(get_be64(out + 20), 0x0123456789abcdef);
	}
}

static void test_ddp_put_atomic_request_has_the_rfcs_layout(void **state)
{
	const struct rdmap_atomic_request atomic = {.op = RDMAP_CMP_SWAP,
						    .id = 0x01020304,
						    .stag = 0x05060708,
						    .to = 0x1111111111111111,
						    .add_swap = 0x2222222222222222,
						    .add_swap_mask = 0x3333333333333333,
						    .compare = 0x4444444444444444,
						    .compare_mask = 0x5555555555555555};
	size_t len = ddp_put_atomic_request(out, 9, &atomic);
	struct ddp_header header = parse_out(len, 0);
	const uint8_t *ulpdu = ULPDU(out);

	(void)state;
	assert_int_equal(header.qn, DDP_QN_REQUEST);
	assert_int_equal(header.msn, 9);
	assert_int_equal(get_be32(ulpdu + 18), 2);
	assert_int_equal(get_be32(ulpdu + 22), 0x01020304);
	assert_int_equal(get_be32(ulpdu + 26), 0x05060708);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(get_be64(ulpdu + 30 + 8 * i), 0x1111111111111111 * (i + 1));
	assert_int_equal(header.atomic.op, atomic.op);
	assert_int_equal(header.atomic.id, atomic.id);
	assert_int_equal(header.atomic.stag, atomic.stag);
	assert_int_equal(header.atomic.to, atomic.to);
	assert_int_equal(header.atomic.add_swap, atomic.add_swap);
	assert_int_equal(header.atomic.add_swap_mask, atomic.add_swap_mask);
	assert_int_equal(header.atomic.compare, atomic.compare);
	assert_int_equal(header.atomic.compare_mask, atomic.compare_mask);
}

static void test_ddp_put_atomic_response_has_the_rfcs_layout(void **state)
{
	const struct rdmap_atomic_response response = {.id = 0x01020304,
						       .value = 0x0123456789abcdef};
	size_t len = ddp_put_atomic_response(out, 5, &response);
	struct ddp_header header = parse_out(len, 0);

	(void)state;
	assert_int_equal(header.qn, DDP_QN_ATOMIC_RESPONSE);
	assert_int_equal(header.msn, 5);
	assert_int_equal(get_be32(ULPDU(out) + 18), 0x01020304);
	assert_int_equal(get_be64(ULPDU(out) + 22), 0x0123456789abcdef);
	assert_int_equal(header.atomic_response.id, response.id);
	assert_int_equal(header.atomic_response.value, response.value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ddp_parse_sample_c_is_send_hello),
		cmocka_unit_test(test_ddp_parse_sample_d_is_empty_write),
		cmocka_unit_test(test_ddp_parse_sample_e_is_read_request),
		cmocka_unit_test(test_ddp_parse_sample_f_is_terminate_with_control_word_as_payload),
		cmocka_unit_test(test_ddp_parse_every_opcode_has_its_shape),
		cmocka_unit_test(test_ddp_parse_shorter_than_header_is_refused),
		cmocka_unit_test(test_ddp_parse_part_of_header_asks_for_more),
		cmocka_unit_test(test_ddp_parse_bytes_beyond_the_ulpdu_do_not_count),
		cmocka_unit_test(test_ddp_parse_other_ddp_version_is_refused),
		cmocka_unit_test(test_ddp_parse_other_rdmap_version_is_refused),
		cmocka_unit_test(test_ddp_parse_reserved_bits_are_ignored),
		cmocka_unit_test(test_ddp_parse_unknown_opcode_is_refused),
		cmocka_unit_test(test_ddp_parse_extended_opcodes_are_known_only_when_agreed),
		cmocka_unit_test(test_ddp_parse_wrong_t_flag_is_refused),
		cmocka_unit_test(test_ddp_parse_wrong_queue_is_refused),
		cmocka_unit_test(test_ddp_parse_single_segment_not_last_is_refused),
		cmocka_unit_test(test_ddp_parse_bytes_left_over_after_fixed_header_are_refused),
		cmocka_unit_test(test_ddp_parse_ulp_word_is_read_of_every_send),
		cmocka_unit_test(test_ddp_parse_longest_ulpdu_keeps_its_length),
		cmocka_unit_test(test_ddp_parse_atomic_op_is_four_bits),
		cmocka_unit_test(test_ddp_order_every_queue_starts_with_msn_1),
		cmocka_unit_test(test_ddp_order_msn_counts_messages_not_segments),
		cmocka_unit_test(test_ddp_order_msn_wraps_to_zero),
		cmocka_unit_test(test_ddp_order_mo_not_the_bytes_so_far_is_refused),
		cmocka_unit_test(test_ddp_order_mo_of_single_segment_message_must_be_0),
		cmocka_unit_test(test_ddp_order_other_opcode_inside_open_send_is_refused),
		cmocka_unit_test(test_ddp_order_other_queues_do_not_disturb_an_open_send),
		cmocka_unit_test(test_ddp_order_tagged_and_send_may_interleave),
		cmocka_unit_test(test_ddp_order_writes_to_anywhere_follow_each_other),
		cmocka_unit_test(test_ddp_order_open_tagged_message_must_continue),
		cmocka_unit_test(test_ddp_order_wrapping_to_is_refused),
		cmocka_unit_test(test_ddp_order_message_above_4_gib_is_refused),
		cmocka_unit_test_setup(test_ddp_put_send_hello_is_sample_c, clear_out),
		cmocka_unit_test_setup(test_ddp_put_tagged_empty_write_is_sample_d, clear_out),
		cmocka_unit_test_setup(test_ddp_put_read_request_is_sample_e, clear_out),
		cmocka_unit_test_setup(test_ddp_put_tagged_parsed_again_is_the_same, clear_out),
		cmocka_unit_test_setup(test_ddp_put_send_parsed_again_is_the_same, clear_out),
		cmocka_unit_test_setup(test_ddp_put_immediate_parsed_again_is_the_same, clear_out),
		cmocka_unit_test_setup(test_ddp_put_atomic_request_has_the_rfcs_layout, clear_out),
		cmocka_unit_test_setup(test_ddp_put_atomic_response_has_the_rfcs_layout, clear_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
