/* SPDX-License-Identifier: MIT */
/* MPA start-up frames byte by byte, the negotiation from both ends, and FPDU sizes. */
#include "test_wire_frames.h"

#include "../../src/common/bytes.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

#define KEY_LEN 16

static const char request_key[] = "MPA ID Req Frame";
static const char reply_key[] = "MPA ID Rep Frame";

/* A frame from what follows its key. Returns its length. */
static size_t make_frame(enum mpa_kind kind, const void *rest, size_t rest_len, uint8_t *out)
{
	memcpy(out, kind == MPA_REQUEST ? request_key : reply_key, KEY_LEN);
	memmove(out + KEY_LEN, rest, rest_len);
	return KEY_LEN + rest_len;
}

#define FRAME(kind, out, ...)                                                                      \
	make_frame(kind, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}),   \
		   out)

/* ---- frames ---- */

static void test_mpa_frame_len_grows_from_header_to_whole(void **state)
{
	(void)state;
	for (size_t len = 0; len <= request_g.len; len++) {
		uint8_t *copy = exact_copy(request_g.bytes, len);

		assert_int_equal(mpa_frame_len(MPA_REQUEST, copy, len),
				 len < MPA_HEADER_LEN ? MPA_HEADER_LEN : request_g.len);
		exact_free(copy, len);
	}
}

static void test_mpa_frame_len_wrong_key_is_refused_at_its_byte(void **state)
{
	(void)state;
	for (size_t wrong = 0; wrong < KEY_LEN; wrong++) {
		uint8_t frame[sizeof(frame_g)];

		memcpy(frame, frame_g, sizeof(frame));
		frame[wrong] ^= 0x20;
		assert_int_equal(mpa_frame_len(MPA_REQUEST, frame, wrong), MPA_HEADER_LEN);
		assert_int_equal(mpa_frame_len(MPA_REQUEST, frame, wrong + 1), -EPROTO);
		assert_int_equal(mpa_frame_len(MPA_REQUEST, frame, sizeof(frame)), -EPROTO);
	}
}

static void test_mpa_frame_len_other_kind_is_refused(void **state)
{
	(void)state;
	assert_int_equal(mpa_frame_len(MPA_REPLY, frame_g, 9), MPA_HEADER_LEN);
	assert_int_equal(mpa_frame_len(MPA_REPLY, frame_g, 10), -EPROTO);
}

static void test_mpa_frame_len_revision_above_2_is_refused(void **state)
{
	uint8_t frame[MPA_MAX_FRAME];

	(void)state;
	for (int revision = 0; revision <= 255; revision++) {
		FRAME(MPA_REQUEST, frame, 0x00, (uint8_t)revision, 0x00, 0x00);
		for (size_t len = 18; len <= MPA_HEADER_LEN; len++)
			assert_int_equal(mpa_frame_len(MPA_REQUEST, frame, len),
					 revision <= 2 ? MPA_HEADER_LEN : -EPROTO);
	}
}

static void test_mpa_frame_len_private_data_above_512_is_refused(void **state)
{
	uint8_t frame[MPA_MAX_FRAME];

	(void)state;
	FRAME(MPA_REPLY, frame, 0x00, 0x01, 0x02, 0x00);
	assert_int_equal(mpa_frame_len(MPA_REPLY, frame, MPA_HEADER_LEN), MPA_MAX_FRAME);
	FRAME(MPA_REPLY, frame, 0x00, 0x01, 0x02, 0x01);
	assert_int_equal(mpa_frame_len(MPA_REPLY, frame, MPA_HEADER_LEN), -EPROTO);
	FRAME(MPA_REPLY, frame, 0x00, 0x01, 0xff, 0xff);
	assert_int_equal(mpa_frame_len(MPA_REPLY, frame, MPA_HEADER_LEN), -EPROTO);
}

static void test_mpa_parse_sample_g_gives_its_fields(void **state)
{
	struct mpa_frame frame;

	(void)state;
	assert_int_equal(mpa_parse(MPA_REQUEST, frame_g, sizeof(frame_g), &frame), 0);
	assert_int_equal(frame.kind, MPA_REQUEST);
	assert_int_equal(frame.revision, 2);
	assert_true(frame.crc && frame.enhanced);
	assert_false(frame.markers || frame.reject || frame.soft || frame.peer_to_peer);
	assert_int_equal(frame.rtr, 0);
	assert_int_equal(frame.ird, 16);
	assert_int_equal(frame.ord, 16);
	assert_int_equal(frame.private_len, 2);
	assert_ptr_equal(frame.private_data, frame_g + 24);
}

static void test_mpa_parse_any_other_length_is_refused(void **state)
{
	struct mpa_frame frame;

	(void)state;
	for (size_t len = 0; len <= sizeof(frame_g) + 2; len++) {
		uint8_t longer[sizeof(frame_g) + 2] = {0}, *copy;

		memcpy(longer, frame_g, sizeof(frame_g));
		copy = exact_copy(longer, len);
		assert_int_equal(mpa_parse(MPA_REQUEST, copy, len, &frame),
				 len == sizeof(frame_g) ? 0 : -EPROTO);
		exact_free(copy, len);
	}
}

static void test_mpa_parse_enhanced_too_short_is_refused(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME] = {0};
	struct mpa_frame frame;

	(void)state;
	for (uint8_t private_len = 0; private_len <= 4; private_len++) {
		FRAME(MPA_REQUEST, bytes, 0x10, 0x02, 0x00, private_len);
		assert_int_equal(
			mpa_parse(MPA_REQUEST, bytes, MPA_HEADER_LEN + private_len, &frame),
			private_len < 4 ? -EPROTO : 0);
	}
	assert_int_equal(frame.private_len, 0);
}

static void test_mpa_parse_flag_s_without_revision_2_is_no_enhanced_header(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame frame;

	(void)state;
	for (uint8_t revision = 0; revision <= 1; revision++) {
		size_t len =
			FRAME(MPA_REQUEST, bytes, 0x10, revision, 0, 4, 0xff, 0xff, 0xff, 0xff);

		assert_int_equal(mpa_parse(MPA_REQUEST, bytes, len, &frame), 0);
		assert_false(frame.enhanced);
		assert_int_equal(frame.private_len, 4);
		assert_int_equal(frame.ird, 0);
		assert_int_equal(frame.rtr, 0);
	}
}

static void test_mpa_parse_each_flag_is_read_alone(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame frame;

	(void)state;
	for (int bit = 0; bit < 8; bit++) {
		uint8_t flags = (uint8_t)(1 << bit);
		size_t len = FRAME(MPA_REQUEST, bytes, flags, 2, 0, 4, 0, 0, 0, 0);

		assert_int_equal(mpa_parse(MPA_REQUEST, bytes, len, &frame), 0);
		assert_int_equal(frame.markers, flags == 0x80);
		assert_int_equal(frame.crc, flags == 0x40);
		assert_int_equal(frame.reject, flags == 0x20);
		assert_int_equal(frame.enhanced, flags == 0x10);
		assert_int_equal(frame.soft, flags == 0x01);
	}
}

static void test_mpa_parse_each_rtr_flag_is_read_alone(void **state)
{
	static const struct {
		uint8_t first, second;
		bool peer_to_peer;
		uint8_t rtr;
	} rows[] = {
		{0x80, 0x00, true, 0},
		{0x40, 0x00, false, MPA_RTR_FPDU},
		{0x00, 0x80, false, MPA_RTR_WRITE},
		{0x00, 0x40, false, MPA_RTR_READ},
		{0xc0, 0xc0, true, MPA_RTR_FPDU | MPA_RTR_WRITE | MPA_RTR_READ},
	};
	uint8_t bytes[MPA_MAX_FRAME];
	struct mpa_frame frame;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t len = FRAME(MPA_REPLY, bytes, 0x10, 2, 0, 4, rows[i].first | 0x12, 0x34,
				   rows[i].second | 0x3f, 0xff);

		assert_int_equal(mpa_parse(MPA_REPLY, bytes, len, &frame), 0);
		assert_int_equal(frame.peer_to_peer, rows[i].peer_to_peer);
		assert_int_equal(frame.rtr, rows[i].rtr);
		assert_int_equal(frame.ird, 0x1234);
		assert_int_equal(frame.ord, MPA_NOT_NEGOTIATED);
	}
}

static void test_mpa_soft_mark_echoed_by_another_is_not_taken_for_its_own(void **state)
{
	struct mpa_frame mark = {.kind = MPA_REQUEST, .revision = 1, .soft = true}, frame;
	uint8_t bytes[MPA_MAX_FRAME];
	ssize_t len = mpa_build(&mark, bytes);

	(void)state;
	assert_int_equal(mpa_parse(MPA_REQUEST, bytes, (size_t)len, &frame), 0);
	assert_true(frame.soft);
	/* siw answers with the request itself under another key. */
	make_frame(MPA_REPLY, bytes + KEY_LEN, (size_t)len - KEY_LEN, bytes);
	assert_int_equal(mpa_parse(MPA_REPLY, bytes, (size_t)len, &frame), 0);
	assert_false(frame.soft);

	mark.kind = MPA_REPLY;
	len = mpa_build(&mark, bytes);
	assert_int_equal(mpa_parse(MPA_REPLY, bytes, (size_t)len, &frame), 0);
	assert_true(frame.soft);
}

static void test_mpa_build_sample_g_gives_its_bytes(void **state)
{
	const struct mpa_frame frame = {
		.kind = MPA_REQUEST,
		.revision = 2,
		.crc = true,
		.enhanced = true,
		.ird = 16,
		.ord = 16,
		.private_len = 2,
		.private_data = (const uint8_t *)"hi",
	};
	uint8_t out[MPA_MAX_FRAME];

	(void)state;
	assert_int_equal(mpa_build(&frame, out), sizeof(frame_g));
	assert_memory_equal(out, frame_g, sizeof(frame_g));
}

static void test_mpa_build_revision_0_is_never_written(void **state)
{
	const struct mpa_frame frame = {.kind = MPA_REPLY};
	uint8_t out[MPA_MAX_FRAME];

	(void)state;
	assert_int_equal(mpa_build(&frame, out), MPA_HEADER_LEN);
	assert_int_equal(out[17], 1);
}

static void test_mpa_build_too_much_private_data_is_refused(void **state)
{
	static const uint8_t data[MPA_MAX_PRIVATE + 1];
	uint8_t out[MPA_MAX_FRAME];
	struct mpa_frame frame = {.kind = MPA_REQUEST, .revision = 1, .private_data = data};

	(void)state;
	frame.private_len = MPA_MAX_PRIVATE;
	assert_int_equal(mpa_build(&frame, out), MPA_MAX_FRAME);
	frame.private_len = MPA_MAX_PRIVATE + 1;
	assert_int_equal(mpa_build(&frame, out), -EINVAL);
	frame.private_len = UINT16_MAX;
	assert_int_equal(mpa_build(&frame, out), -EINVAL);

	frame.revision = 2;
	frame.enhanced = true;
	frame.private_len = MPA_MAX_PRIVATE - MPA_ENHANCED_LEN;
	assert_int_equal(mpa_build(&frame, out), MPA_MAX_FRAME);
	frame.private_len++;
	assert_int_equal(mpa_build(&frame, out), -EINVAL);
}

static void test_mpa_build_depth_above_14_bits_is_not_negotiated(void **state)
{
	const struct mpa_frame frame = {
		.kind = MPA_REQUEST, .revision = 2, .enhanced = true, .ird = 0x4000, .ord = 0xffff};
	uint8_t out[MPA_MAX_FRAME];

	(void)state;
	assert_int_equal(mpa_build(&frame, out), MPA_HEADER_LEN + MPA_ENHANCED_LEN);
	assert_int_equal(get_be16(out + 20), MPA_NOT_NEGOTIATED);
	assert_int_equal(get_be16(out + 22), MPA_NOT_NEGOTIATED);
}

static void assert_frame_equal(const struct mpa_frame *a, const struct mpa_frame *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->revision, b->revision);
	assert_int_equal(a->markers, b->markers);
	assert_int_equal(a->crc, b->crc);
	assert_int_equal(a->reject, b->reject);
	assert_int_equal(a->enhanced, b->enhanced);
	assert_int_equal(a->soft, b->soft);
	assert_int_equal(a->peer_to_peer, b->peer_to_peer);
	assert_int_equal(a->rtr, b->rtr);
	assert_int_equal(a->ird, b->ird);
	assert_int_equal(a->ord, b->ord);
	assert_int_equal(a->private_len, b->private_len);
	assert_memory_equal(a->private_data, b->private_data, a->private_len);
}

static void test_mpa_build_then_parse_gives_the_same(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 4096; i++) {
		uint8_t out[MPA_MAX_FRAME];
		struct mpa_frame frame = {
			.kind = i & 1 ? MPA_REPLY : MPA_REQUEST,
			.revision = i & 2 ? 2 : 1,
			.markers = i & 4,
			.crc = i & 8,
			.reject = i & 16,
			.soft = i & 32,
			.private_len = i & 64 ? 5 : 0,
			.private_data = (const uint8_t *)"hello",
		};
		struct mpa_frame again;
		ssize_t len;

		if (frame.revision == 2 && i & 128) {
			frame.enhanced = true;
			frame.peer_to_peer = i & 256;
			frame.rtr = (uint8_t)(i >> 9);
			frame.ird = (uint16_t)(i * 3);
			frame.ord = (uint16_t)(i * 2 + 1);
		}
		len = mpa_build(&frame, out);
		assert_true(len >= MPA_HEADER_LEN);
		assert_int_equal(mpa_frame_len(frame.kind, out, (size_t)len), len);
		assert_int_equal(mpa_parse(frame.kind, out, (size_t)len, &again), 0);
		assert_frame_equal(&frame, &again);
	}
}

/* ---- negotiation, as the kernel's siw does it ---- */

#define PD6 'p', 'r', 'i', 'v', 'a', 't'
#define PD7 'a', 'n', 's', 'w', 'e', 'r', 's'

static const struct exchange {
	const char *what;
	uint8_t request[16], reply[16];
	size_t request_len, reply_len;
	bool crc;
	uint8_t rtr;
	uint16_t responder_ird, responder_ord;
} exchanges[] = {
	{"plain", {0x00, 1, 0, 0}, {0x00, 1, 0, 7, PD7}, 4, 11, false, 0, 128, 64},
	{"CRC", {0x40, 1, 0, 0}, {0x40, 1, 0, 7, PD7}, 4, 11, true, 0, 128, 64},
	{"enhanced",
	 {0x10, 2, 0, 10, 0, 4, 0, 3, PD6},
	 {0x10, 2, 0, 11, 0, 3, 0, 4, PD7},
	 14,
	 15,
	 false,
	 0,
	 3,
	 4},
	{"peer-to-peer",
	 {0x10, 2, 0, 10, 0x80, 4, 0x80, 3, PD6},
	 {0x10, 2, 0, 11, 0x80, 3, 0x80, 4, PD7},
	 14,
	 15,
	 false,
	 MPA_RTR_WRITE,
	 3,
	 4},
};
#define EXCHANGES (sizeof(exchanges) / sizeof(exchanges[0]))

static const struct mpa_local siw_like = {.ird = 128, .ord = 64};

static void test_mpa_answer_to_known_requests_is_siws(void **state)
{
	(void)state;
	for (size_t i = 0; i < EXCHANGES; i++) {
		const struct exchange *row = &exchanges[i];
		uint8_t bytes[MPA_MAX_FRAME], out[MPA_MAX_FRAME], expected[MPA_MAX_FRAME];
		size_t len = make_frame(MPA_REQUEST, row->request, row->request_len, bytes);
		size_t expected_len = make_frame(MPA_REPLY, row->reply, row->reply_len, expected);
		struct mpa_frame request, reply;
		struct mpa_agreed agreed;
		uint16_t why = TERM_NONE;

		assert_int_equal(mpa_parse(MPA_REQUEST, bytes, len, &request), 0);
		assert_int_equal(mpa_answer(&request, &siw_like, &reply, &agreed, &why), 0);
		assert_int_equal(reply.private_len, 0);
		reply.private_len = 7;
		reply.private_data = (const uint8_t *)"answers";
		assert_int_equal(mpa_build(&reply, out), expected_len);
		assert_memory_equal(out, expected, expected_len);

		assert_int_equal(agreed.crc, row->crc);
		assert_int_equal(agreed.rtr, row->rtr);
		assert_int_equal(agreed.ird, row->responder_ird);
		assert_int_equal(agreed.ord, row->responder_ord);
		assert_false(agreed.soft);
	}
}

static void test_mpa_conclude_of_siws_replies_mirrors_the_responder(void **state)
{
	(void)state;
	for (size_t i = 0; i < EXCHANGES; i++) {
		const struct exchange *row = &exchanges[i];
		uint8_t bytes[MPA_MAX_FRAME], answer[MPA_MAX_FRAME];
		size_t len = make_frame(MPA_REQUEST, row->request, row->request_len, bytes);
		size_t answer_len = make_frame(MPA_REPLY, row->reply, row->reply_len, answer);
		struct mpa_frame request, reply;
		struct mpa_agreed agreed;
		struct mpa_local local;
		uint16_t why = TERM_NONE;

		assert_int_equal(mpa_parse(MPA_REQUEST, bytes, len, &request), 0);
		assert_int_equal(mpa_parse(MPA_REPLY, answer, answer_len, &reply), 0);
		local.ird = request.enhanced ? request.ird : 64;
		local.ord = request.enhanced ? request.ord : 128;
		local.crc = request.crc;
		assert_int_equal(mpa_conclude(&request, &local, &reply, &agreed, &why), 0);
		assert_int_equal(agreed.crc, row->crc);
		assert_int_equal(agreed.rtr, row->rtr);
		assert_int_equal(agreed.ord, row->responder_ird);
		assert_int_equal(agreed.ird, row->responder_ord);
		assert_int_equal(reply.private_len, 7);
		assert_memory_equal(reply.private_data, "answers", 7);
	}
}

static void test_mpa_answer_siws_own_request_is_accepted(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	size_t len = FRAME(MPA_REQUEST, bytes, 0x10, 2, 0, 11, 0, 5, 0, 4, PD7);
	struct mpa_frame request, reply;
	struct mpa_agreed agreed;
	uint16_t why = TERM_NONE;

	(void)state;
	assert_int_equal(mpa_parse(MPA_REQUEST, bytes, len, &request), 0);
	assert_int_equal(request.private_len, 7);
	assert_int_equal(mpa_answer(&request, &siw_like, &reply, &agreed, &why), 0);
	assert_int_equal(agreed.ird, 4);
	assert_int_equal(agreed.ord, 5);
	assert_int_equal(mpa_build(&reply, bytes), 24);
	assert_memory_equal(bytes + KEY_LEN, ((uint8_t[]){0x10, 2, 0, 4, 0, 4, 0, 5}), 8);
}

static void test_mpa_answer_to_markers_is_refusal(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	size_t len = FRAME(MPA_REQUEST, bytes, 0x80, 1, 0, 0);
	struct mpa_frame request, reply = {.reject = true};
	struct mpa_agreed agreed = {.ird = 99};
	uint16_t why = TERM_NONE;

	(void)state;
	assert_int_equal(mpa_parse(MPA_REQUEST, bytes, len, &request), 0);
	assert_int_equal(mpa_answer(&request, &siw_like, &reply, &agreed, &why), -ECONNREFUSED);
	assert_int_equal(why, TERM_MPA_STARTUP);
	assert_true(reply.reject); /* results are not touched */
	assert_int_equal(agreed.ird, 99);

	/* and the refusal, as siw writes it */
	reply = (struct mpa_frame){.kind = MPA_REPLY, .revision = request.revision, .reject = true};
	assert_int_equal(mpa_build(&reply, bytes), MPA_HEADER_LEN);
	assert_memory_equal(bytes + KEY_LEN, ((uint8_t[]){0x20, 1, 0, 0}), 4);
}

static void test_mpa_conclude_of_a_refusal_keeps_its_private_data(void **state)
{
	struct mpa_frame request = {.kind = MPA_REQUEST, .revision = 1, .markers = true}, reply;
	struct mpa_agreed agreed;
	uint16_t why = TERM_MPA_CRC;
	uint8_t bytes[MPA_MAX_FRAME];
	size_t len = FRAME(MPA_REPLY, bytes, 0x20, 1, 0, 7, PD7);

	(void)state;
	assert_int_equal(mpa_parse(MPA_REPLY, bytes, len, &reply), 0);
	assert_int_equal(mpa_conclude(&request, &siw_like, &reply, &agreed, &why), -ECONNREFUSED);
	assert_int_equal(why, TERM_NONE);
	assert_memory_equal(reply.private_data, "answers", 7);
}

static void test_mpa_revision_3_request_is_no_frame(void **state)
{
	uint8_t bytes[MPA_MAX_FRAME];
	size_t len = FRAME(MPA_REQUEST, bytes, 0x00, 3, 0, 0);
	struct mpa_frame request;

	(void)state;
	assert_int_equal(mpa_parse(MPA_REQUEST, bytes, len, &request), -EPROTO);
}

static void test_mpa_answer_to_revision_0_is_revision_1(void **state)
{
	struct mpa_frame request = {.kind = MPA_REQUEST}, reply;
	struct mpa_agreed agreed;
	uint16_t why;

	(void)state;
	assert_int_equal(mpa_answer(&request, &siw_like, &reply, &agreed, &why), 0);
	assert_int_equal(reply.revision, 1);
}

static void test_mpa_answer_crc_is_on_when_either_wants_it(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct mpa_frame request = {.revision = 1, .crc = i & 1}, reply;
		struct mpa_local local = {.crc = i & 2};
		struct mpa_agreed agreed;
		uint16_t why;

		assert_int_equal(mpa_answer(&request, &local, &reply, &agreed, &why), 0);
		assert_int_equal(reply.crc, i != 0);
		assert_int_equal(agreed.crc, i != 0);
	}
}

static void test_mpa_answer_soft_is_told_to_softrdma_only(void **state)
{
	(void)state;
	for (int soft = 0; soft <= 1; soft++) {
		struct mpa_frame request = {.revision = 1, .soft = soft}, reply;
		struct mpa_agreed agreed;
		uint16_t why;

		assert_int_equal(mpa_answer(&request, &siw_like, &reply, &agreed, &why), 0);
		assert_int_equal(reply.soft, soft);
		assert_int_equal(agreed.soft, soft);
	}
}

static void test_mpa_answer_depths_are_crossed_and_cut(void **state)
{
	static const struct {
		uint16_t request_ird, request_ord, local_ird, local_ord;
		uint16_t reply_ird, reply_ord, ird, ord;
	} rows[] = {
		{5, 9, 128, 128, 9, 5, 9, 5},
		{5, 9, 7, 3, 7, 3, 7, 3},
		{0, 0, 128, 128, 0, 0, 0, 0},
		{5, 9, 0, 0, 0, 0, 0, 0},
		{5, MPA_NOT_NEGOTIATED, 128, 64, MPA_NOT_NEGOTIATED, 5, 128, 5},
		{MPA_NOT_NEGOTIATED, 9, 128, 64, 9, MPA_NOT_NEGOTIATED, 9, 64},
		{0x3ffe, 0x3ffe, 0xffff, 0xffff, 0x3ffe, 0x3ffe, 0x3ffe, 0x3ffe},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mpa_frame request = {.revision = 2,
					    .enhanced = true,
					    .ird = rows[i].request_ird,
					    .ord = rows[i].request_ord};
		struct mpa_local local = {.ird = rows[i].local_ird, .ord = rows[i].local_ord};
		struct mpa_frame reply;
		struct mpa_agreed agreed;
		uint16_t why;

		assert_int_equal(mpa_answer(&request, &local, &reply, &agreed, &why), 0);
		assert_true(reply.enhanced);
		assert_int_equal(reply.ird, rows[i].reply_ird);
		assert_int_equal(reply.ord, rows[i].reply_ord);
		assert_int_equal(agreed.ird, rows[i].ird);
		assert_int_equal(agreed.ord, rows[i].ord);
	}
}

static void test_mpa_answer_one_rtr_is_chosen_in_order(void **state)
{
	static const uint8_t chosen[8] = {
		[1] = MPA_RTR_FPDU, [2] = MPA_RTR_WRITE, [3] = MPA_RTR_WRITE, [4] = MPA_RTR_READ,
		[5] = MPA_RTR_READ, [6] = MPA_RTR_WRITE, [7] = MPA_RTR_WRITE,
	};

	(void)state;
	for (uint8_t offered = 0; offered < 8; offered++) {
		struct mpa_frame request = {
			.revision = 2, .enhanced = true, .peer_to_peer = true, .rtr = offered};
		struct mpa_frame reply;
		struct mpa_agreed agreed;
		uint16_t why = TERM_NONE;
		int err = mpa_answer(&request, &siw_like, &reply, &agreed, &why);

		if (!offered) {
			assert_int_equal(err, -EPROTO);
			assert_int_equal(why, TERM_MPA_RTR);
			continue;
		}
		assert_int_equal(err, 0);
		assert_true(reply.peer_to_peer);
		assert_int_equal(reply.rtr, chosen[offered]);
		assert_int_equal(agreed.rtr, chosen[offered]);
		assert_int_equal(agreed.ird, chosen[offered] == MPA_RTR_READ ? 1 : 0);
		assert_int_equal(reply.ird, agreed.ird);
	}
}

static void test_mpa_answer_rtr_without_peer_to_peer_is_ignored(void **state)
{
	struct mpa_frame request = {.revision = 2, .enhanced = true, .rtr = MPA_RTR_READ}, reply;
	struct mpa_agreed agreed;
	uint16_t why;

	(void)state;
	assert_int_equal(mpa_answer(&request, &siw_like, &reply, &agreed, &why), 0);
	assert_false(reply.peer_to_peer);
	assert_int_equal(reply.rtr, 0);
	assert_int_equal(agreed.rtr, 0);
	assert_int_equal(agreed.ird, 0);
}

/* One change to a good exchange, and what it must lead to. */
static const struct mpa_frame asked = {.kind = MPA_REQUEST,
				       .revision = 2,
				       .enhanced = true,
				       .peer_to_peer = true,
				       .rtr = MPA_RTR_WRITE | MPA_RTR_READ,
				       .ird = 8,
				       .ord = 8};
static const struct mpa_frame granted = {.kind = MPA_REPLY,
					 .revision = 2,
					 .enhanced = true,
					 .peer_to_peer = true,
					 .rtr = MPA_RTR_WRITE,
					 .ird = 8,
					 .ord = 8};

static void check_conclude(const struct mpa_frame *request, const struct mpa_frame *reply,
			   int expected, uint16_t expected_why)
{
	static const struct mpa_local local = {.ird = 8, .ord = 8};
	struct mpa_agreed agreed = {.ird = 99};
	uint16_t why = 0x7777;

	assert_int_equal(mpa_conclude(request, &local, reply, &agreed, &why), expected);
	assert_int_equal(why, expected ? expected_why : 0x7777);
	if (expected)
		assert_int_equal(agreed.ird, 99);
}

static void test_mpa_conclude_good_reply_is_accepted(void **state)
{
	(void)state;
	check_conclude(&asked, &granted, 0, 0);
}

static void test_mpa_conclude_markers_are_refused(void **state)
{
	struct mpa_frame reply = granted;

	(void)state;
	reply.markers = true;
	check_conclude(&asked, &reply, -EPROTO, TERM_MPA_STARTUP);
}

static void test_mpa_conclude_lower_revision_is_refused(void **state)
{
	struct mpa_frame reply = {.kind = MPA_REPLY, .revision = 1};
	struct mpa_frame request = {.kind = MPA_REQUEST, .revision = 2};

	(void)state;
	check_conclude(&asked, &reply, -EPROTO, TERM_MPA_STARTUP);
	check_conclude(&request, &reply, -EPROTO, TERM_MPA_STARTUP);
	reply.revision = 2;
	check_conclude(&request, &reply, 0, 0);
}

static void test_mpa_conclude_enhanced_on_one_side_only_is_refused(void **state)
{
	struct mpa_frame reply = granted, request = asked;

	(void)state;
	reply.enhanced = false;
	check_conclude(&asked, &reply, -EPROTO, TERM_MPA_STARTUP);
	request.enhanced = false;
	check_conclude(&request, &granted, -EPROTO, TERM_MPA_STARTUP);
	check_conclude(&request, &reply, 0, 0);
}

static void test_mpa_conclude_crc_denied_is_refused_and_crc_demanded_is_taken(void **state)
{
	struct mpa_frame request = asked, reply = granted;
	static const struct mpa_local local = {.ird = 8, .ord = 8};
	struct mpa_agreed agreed;
	uint16_t why;

	(void)state;
	request.crc = true;
	check_conclude(&request, &granted, -EPROTO, TERM_MPA_STARTUP);
	reply.crc = true;
	check_conclude(&request, &reply, 0, 0);
	assert_int_equal(mpa_conclude(&asked, &local, &reply, &agreed, &why), 0);
	assert_true(agreed.crc);
	assert_int_equal(mpa_conclude(&asked, &local, &granted, &agreed, &why), 0);
	assert_false(agreed.crc);
}

static void test_mpa_conclude_rtr_must_be_exactly_one_offered(void **state)
{
	(void)state;
	for (uint8_t offered = 0; offered < 8; offered++) {
		for (uint8_t taken = 0; taken < 8; taken++) {
			struct mpa_frame request = asked, reply = granted;
			bool one = taken == 1 || taken == 2 || taken == 4;
			bool good = one && (offered & taken);

			request.rtr = offered;
			reply.rtr = taken;
			check_conclude(&request, &reply, good ? 0 : -EPROTO, TERM_MPA_RTR);

			/* not peer-to-peer: none was offered, whatever the bits say */
			request.peer_to_peer = reply.peer_to_peer = false;
			check_conclude(&request, &reply, taken ? -EPROTO : 0, TERM_MPA_RTR);
		}
	}
}

static void test_mpa_conclude_depths_are_crossed_and_cut(void **state)
{
	static const struct {
		uint16_t reply_ird, reply_ord, ird, ord;
		uint8_t rtr;
	} rows[] = {
		{8, 8, 8, 8, MPA_RTR_WRITE},
		{3, 5, 5, 3, MPA_RTR_WRITE},
		{100, 0, 0, 8, MPA_RTR_WRITE},
		{0, 0, 0, 0, MPA_RTR_WRITE},
		{0, 0, 0, 1, MPA_RTR_READ},
		{MPA_NOT_NEGOTIATED, MPA_NOT_NEGOTIATED, 8, 8, MPA_RTR_WRITE},
	};
	static const struct mpa_local local = {.ird = 8, .ord = 8};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mpa_frame reply = granted;
		struct mpa_agreed agreed;
		uint16_t why;

		reply.ird = rows[i].reply_ird;
		reply.ord = rows[i].reply_ord;
		reply.rtr = rows[i].rtr;
		assert_int_equal(mpa_conclude(&asked, &local, &reply, &agreed, &why), 0);
		assert_int_equal(agreed.ird, rows[i].ird);
		assert_int_equal(agreed.ord, rows[i].ord);
		assert_int_equal(agreed.rtr, rows[i].rtr);
	}
}

static void test_mpa_conclude_peer_that_needs_more_ird_is_refused(void **state)
{
	struct mpa_frame reply = granted;

	(void)state;
	reply.ord = 9;
	check_conclude(&asked, &reply, -ENOSPC, TERM_MPA_IRD);
}

/* Whatever two of us ask for, both ends come to the same. */
static void test_mpa_answer_and_conclude_agree(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 2048; i++) {
		struct mpa_local here = {(uint16_t)(i & 3), (uint16_t)(i >> 2 & 3), i >> 4 & 1};
		struct mpa_local there = {(uint16_t)(i >> 5 & 3), (uint16_t)(i >> 7 & 3),
					  i >> 9 & 1};
		struct mpa_frame request = {.kind = MPA_REQUEST,
					    .revision = 2,
					    .enhanced = true,
					    .crc = here.crc,
					    .soft = true,
					    .peer_to_peer = i >> 10 & 1,
					    .rtr = MPA_RTR_READ,
					    .ird = here.ird,
					    .ord = here.ord};
		struct mpa_frame reply;
		struct mpa_agreed ours, theirs;
		uint16_t why;

		assert_int_equal(mpa_answer(&request, &there, &reply, &theirs, &why), 0);
		assert_int_equal(mpa_conclude(&request, &here, &reply, &ours, &why), 0);
		assert_int_equal(ours.crc, theirs.crc);
		assert_int_equal(ours.rtr, theirs.rtr);
		assert_int_equal(ours.ird, theirs.ord);
		if (theirs.rtr) /* the one forced for the Read may be more than either asked for */
			assert_true(ours.ord >= 1 && ours.ord <= theirs.ird);
		else
			assert_int_equal(ours.ord, theirs.ird);
		assert_true(ours.soft && theirs.soft);
	}
}

/* ---- FPDUs ---- */

static void test_fpdu_len_of_samples_is_theirs(void **state)
{
	(void)state;
	for (size_t i = 2; i < sizeof(fpdus) / sizeof(fpdus[0]); i++)
		assert_int_equal(fpdu_len(get_be16(fpdus[i].bytes)), fpdus[i].len);
	assert_int_equal(fpdu_len(0), 8);
}

static void test_fpdu_len_is_a_multiple_of_4_with_least_padding(void **state)
{
	(void)state;
	for (size_t len = 0; len <= UINT16_MAX; len++) {
		assert_true(fpdu_pad(len) < 4);
		assert_int_equal(fpdu_len(len) % 4, 0);
		assert_int_equal(fpdu_len(len), 2 + len + fpdu_pad(len) + 4);
	}
}

static void test_fpdu_crc_is_least_significant_byte_first(void **state)
{
	uint8_t bytes[FPDU_CRC_LEN];

	(void)state;
	fpdu_put_crc(bytes, 0x01020304);
	assert_memory_equal(bytes, ((uint8_t[]){4, 3, 2, 1}), 4);
	assert_int_equal(fpdu_get_crc(bytes), 0x01020304);
}

static void test_fpdu_max_ulpdu_fills_the_segment(void **state)
{
	(void)state;
	assert_int_equal(fpdu_max_ulpdu(1448) - 14, 1428);
	assert_int_equal(fpdu_max_ulpdu(1448) - 18, 1424);
	assert_int_equal(fpdu_max_ulpdu(8948) - 14, 8928);
	for (size_t mss = 8; mss < FPDU_MAX_ULPDU; mss++) {
		assert_true(fpdu_len(fpdu_max_ulpdu(mss)) <= mss);
		assert_true(fpdu_len(fpdu_max_ulpdu(mss) + 1) > mss);
	}
}

static void test_fpdu_max_ulpdu_at_the_ends_is_bounded(void **state)
{
	(void)state;
	for (size_t mss = 0; mss < 8; mss++)
		assert_int_equal(fpdu_max_ulpdu(mss), 0);
	assert_int_equal(fpdu_max_ulpdu(65483), FPDU_MAX_ULPDU);
	assert_int_equal(fpdu_max_ulpdu(SIZE_MAX), FPDU_MAX_ULPDU);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mpa_frame_len_grows_from_header_to_whole),
		cmocka_unit_test(test_mpa_frame_len_wrong_key_is_refused_at_its_byte),
		cmocka_unit_test(test_mpa_frame_len_other_kind_is_refused),
		cmocka_unit_test(test_mpa_frame_len_revision_above_2_is_refused),
		cmocka_unit_test(test_mpa_frame_len_private_data_above_512_is_refused),
		cmocka_unit_test(test_mpa_parse_sample_g_gives_its_fields),
		cmocka_unit_test(test_mpa_parse_any_other_length_is_refused),
		cmocka_unit_test(test_mpa_parse_enhanced_too_short_is_refused),
		cmocka_unit_test(test_mpa_parse_flag_s_without_revision_2_is_no_enhanced_header),
		cmocka_unit_test(test_mpa_parse_each_flag_is_read_alone),
		cmocka_unit_test(test_mpa_parse_each_rtr_flag_is_read_alone),
		cmocka_unit_test(test_mpa_soft_mark_echoed_by_another_is_not_taken_for_its_own),
		cmocka_unit_test(test_mpa_build_sample_g_gives_its_bytes),
		cmocka_unit_test(test_mpa_build_revision_0_is_never_written),
		cmocka_unit_test(test_mpa_build_too_much_private_data_is_refused),
		cmocka_unit_test(test_mpa_build_depth_above_14_bits_is_not_negotiated),
		cmocka_unit_test(test_mpa_build_then_parse_gives_the_same),
		cmocka_unit_test(test_mpa_answer_to_known_requests_is_siws),
		cmocka_unit_test(test_mpa_conclude_of_siws_replies_mirrors_the_responder),
		cmocka_unit_test(test_mpa_answer_siws_own_request_is_accepted),
		cmocka_unit_test(test_mpa_answer_to_markers_is_refusal),
		cmocka_unit_test(test_mpa_conclude_of_a_refusal_keeps_its_private_data),
		cmocka_unit_test(test_mpa_revision_3_request_is_no_frame),
		cmocka_unit_test(test_mpa_answer_to_revision_0_is_revision_1),
		cmocka_unit_test(test_mpa_answer_crc_is_on_when_either_wants_it),
		cmocka_unit_test(test_mpa_answer_soft_is_told_to_softrdma_only),
		cmocka_unit_test(test_mpa_answer_depths_are_crossed_and_cut),
		cmocka_unit_test(test_mpa_answer_one_rtr_is_chosen_in_order),
		cmocka_unit_test(test_mpa_answer_rtr_without_peer_to_peer_is_ignored),
		cmocka_unit_test(test_mpa_conclude_good_reply_is_accepted),
		cmocka_unit_test(test_mpa_conclude_markers_are_refused),
		cmocka_unit_test(test_mpa_conclude_lower_revision_is_refused),
		cmocka_unit_test(test_mpa_conclude_enhanced_on_one_side_only_is_refused),
		cmocka_unit_test(test_mpa_conclude_crc_denied_is_refused_and_crc_demanded_is_taken),
		cmocka_unit_test(test_mpa_conclude_rtr_must_be_exactly_one_offered),
		cmocka_unit_test(test_mpa_conclude_depths_are_crossed_and_cut),
		cmocka_unit_test(test_mpa_conclude_peer_that_needs_more_ird_is_refused),
		cmocka_unit_test(test_mpa_answer_and_conclude_agree),
		cmocka_unit_test(test_fpdu_len_of_samples_is_theirs),
		cmocka_unit_test(test_fpdu_len_is_a_multiple_of_4_with_least_padding),
		cmocka_unit_test(test_fpdu_crc_is_least_significant_byte_first),
		cmocka_unit_test(test_fpdu_max_ulpdu_fills_the_segment),
		cmocka_unit_test(test_fpdu_max_ulpdu_at_the_ends_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
