/* SPDX-License-Identifier: MIT */
/*
 * Keys and addresses that a stranger may not use: nothing outside what was offered is written or
 * read.
 */
#include "house.h"

#define LOCAL_ONLY IBV_ACCESS_LOCAL_WRITE

static struct fpdu fpdu;

/* ---- Writes ---- */

static void refuse_write(const struct scene_options *options, uint32_t key_change, uint64_t at,
			 size_t len, uint16_t code)
{
	struct scene scene;

	scene_open(&scene, options);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey ^ key_change, scene_to(&scene) + at,
		    len, 0x99);
	scene_refuse(&scene, &fpdu, code);
	assert_int_equal(scene.recvs.flushed, RECVS);
	scene_close(&scene);
}

static void test_write_within_the_region_is_placed(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey, scene_to(&scene), REGION, 0x42);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_alive(&scene);
	assert_true(is_all(scene.region, REGION, 0x42));
	scene_close(&scene);
}

static void test_write_with_an_unknown_key_is_refused(void **state)
{
	(void)state;
	refuse_write(NULL, 0x5a5a5a00, 0, 64, TERM_DDP_INVALID_STAG);
	refuse_write(NULL, 0x80000000, 0, 64, TERM_DDP_INVALID_STAG);
}

static void test_write_with_a_key_off_by_one_is_refused(void **state)
{
	(void)state;
	refuse_write(NULL, 1, 0, 64, TERM_DDP_INVALID_STAG);
	refuse_write(NULL, 0x80, 0, 64, TERM_DDP_INVALID_STAG);
	refuse_write(NULL, 0x100, 0, 64, TERM_DDP_INVALID_STAG);
}

static void test_write_with_key_zero_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, 0, scene_to(&scene), 64, 0x99);
	scene_refuse(&scene, &fpdu, TERM_DDP_INVALID_STAG);
	scene_close(&scene);
}

static void test_write_outside_the_region_is_refused(void **state)
{
	(void)state;
	refuse_write(NULL, 0, 1, REGION, TERM_DDP_BOUNDS);
	refuse_write(NULL, 0, REGION - 1, 2, TERM_DDP_BOUNDS);
	refuse_write(NULL, 0, REGION, 1, TERM_DDP_BOUNDS);
	refuse_write(NULL, 0, (uint64_t)-1, 2, TERM_DDP_BOUNDS);
	refuse_write(NULL, 0, (uint64_t)-64, 64, TERM_DDP_BOUNDS);
	refuse_write(NULL, 0, (uint64_t)1 << 32, 64, TERM_DDP_BOUNDS);
}

static void test_write_whose_offset_wraps_is_refused(void **state)
{
	static const uint64_t ends[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 62};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(ends); i++) {
		struct scene scene;

		scene_open(&scene, NULL);
		fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey, ends[i], 64, 0x99);
		scene_refuse(&scene, &fpdu, TERM_DDP_TO_WRAP);
		scene_close(&scene);
	}
}

static void test_write_to_the_last_addresses_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey, UINT64_MAX - 64, 64, 0x99);
	scene_refuse(&scene, &fpdu, TERM_DDP_BOUNDS);
	scene_close(&scene);
}

static void test_write_without_the_right_is_refused(void **state)
{
	static const struct scene_options readable = {.access = IBV_ACCESS_LOCAL_WRITE |
								IBV_ACCESS_REMOTE_READ};
	static const struct scene_options local = {.access = LOCAL_ONLY};

	(void)state;
	refuse_write(&readable, 0, 0, 64, TERM_DDP_INVALID_STAG);
	refuse_write(&local, 0, 0, 64, TERM_DDP_INVALID_STAG);
}

/* The region of a side whose protection domain is another. */
static void test_write_to_another_domain_is_refused(void **state)
{
	struct scene scene, other;

	(void)state;
	scene_open(&other, NULL);
	scene_open(&scene, NULL);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, other.mr->rkey, scene_to(&other), 64, 0x99);
	scene_refuse(&scene, &fpdu, TERM_DDP_FOREIGN_STAG);
	assert_true(scene_is_untouched(&other));
	scene_expect_alive(&other);
	scene_close(&scene);
	scene_close(&other);
}

static void test_write_to_a_deregistered_region_is_refused(void **state)
{
	struct scene scene;
	uint32_t key;

	(void)state;
	scene_open(&scene, NULL);
	key = scene.mr->rkey;
	assert_int_equal(ibv_dereg_mr(scene.mr), 0);
	/* The same memory under another key does not bring the old one back. */
	scene.mr = ibv_reg_mr(scene.side.pd, scene.region, REGION, ALL_ACCESS);
	assert_non_null(scene.mr);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, key, scene_to(&scene), 64, 0x99);
	scene_refuse(&scene, &fpdu, TERM_DDP_INVALID_STAG);
	scene_close(&scene);
}

static void test_write_of_length_zero_with_a_bad_key_is_accepted(void **state)
{
	static const uint64_t anywhere[] = {0, 1, UINT64_MAX};
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(anywhere); i++) {
		fpdu_tagged(&fpdu, RDMAP_WRITE, true, 0xdeadbeef + i, anywhere[i], 0, 0);
		stranger_say_fpdu(&scene.stranger, &fpdu);
	}
	scene_expect_alive(&scene);
	assert_true(scene_is_untouched(&scene));
	scene_close(&scene);
}

/* The message's first segment is good. */
static void refuse_second_segment(uint32_t key_change, uint64_t at, uint16_t code)
{
	struct scene scene;

	scene_open(&scene, NULL);
	fpdu_tagged(&fpdu, RDMAP_WRITE, false, scene.mr->rkey, scene_to(&scene), 64, 0x42);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey ^ key_change, scene_to(&scene) + at,
		    64, 0x99);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_terminate(&scene, code);
	assert_true(is_all(scene.region, 64, 0x42));
	assert_true(is_all(scene.region + 64, REGION - 64, FRESH));
	scene_close(&scene);
}

static void test_write_whose_segments_do_not_belong_together_is_refused(void **state)
{
	(void)state;
	refuse_second_segment(0, 65, TERM_DDP_BOUNDS);
	refuse_second_segment(0, 0, TERM_DDP_BOUNDS);
	refuse_second_segment(1, 64, TERM_DDP_INVALID_STAG);
}

static void test_write_that_runs_over_the_end_segment_by_segment_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	for (unsigned at = 0; at <= REGION; at += 1024) {
		fpdu_tagged(&fpdu, RDMAP_WRITE, false, scene.mr->rkey, scene_to(&scene) + at, 1024,
			    0x42);
		stranger_say_fpdu(&scene.stranger, &fpdu);
	}
	scene_expect_terminate(&scene, TERM_DDP_BOUNDS);
	scene_close(&scene); /* which looks at the guards */
}

/* ---- Read Requests ---- */

static void refuse_read(const struct scene_options *options, uint32_t key_change, uint64_t at,
			uint32_t len, uint16_t code)
{
	struct scene scene;

	scene_open(&scene, options);
	fpdu_read(&fpdu, &scene.stranger, scene.mr->rkey ^ key_change, scene_to(&scene) + at, len);
	scene_refuse(&scene, &fpdu, code);
	scene_close(&scene);
}

static void expect_response(struct scene *scene, uint32_t len)
{
	stranger_hear_fpdu(&scene->stranger, &fpdu);
	assert_int_equal(fpdu.bytes[ULPDU(0)], 0xc1);
	assert_int_equal(fpdu.bytes[ULPDU(1)], 0x40 | RDMAP_READ_RESPONSE);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(2)), SINK_STAG);
	assert_int_equal(get_be64(fpdu.bytes + ULPDU(6)), SINK_TO);
	assert_int_equal(fpdu.len, ULPDU(DDP_TAGGED_LEN) + len);
	assert_true(is_all(fpdu.bytes + ULPDU(DDP_TAGGED_LEN), len, FRESH));
}

static void test_read_within_the_region_is_answered(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_read(&fpdu, &scene.stranger, scene.mr->rkey, scene_to(&scene) + REGION - 128, 128);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	expect_response(&scene, 128);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void test_read_of_size_zero_with_a_bad_key_is_answered(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_read(&fpdu, &scene.stranger, 0xdeadbeef, UINT64_MAX, 0);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	expect_response(&scene, 0);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void test_read_with_a_wrong_key_is_refused(void **state)
{
	(void)state;
	refuse_read(NULL, 0x5a5a5a00, 0, 64, TERM_RDMAP_INVALID_STAG);
	refuse_read(NULL, 1, 0, 64, TERM_RDMAP_INVALID_STAG);
	refuse_read(NULL, 0x100, 0, 64, TERM_RDMAP_INVALID_STAG);
}

static void test_read_outside_the_region_is_refused(void **state)
{
	(void)state;
	refuse_read(NULL, 0, 1, REGION, TERM_RDMAP_BOUNDS);
	refuse_read(NULL, 0, REGION, 1, TERM_RDMAP_BOUNDS);
	refuse_read(NULL, 0, (uint64_t)-1, 1, TERM_RDMAP_BOUNDS);
	refuse_read(NULL, 0, 0, UINT32_MAX, TERM_RDMAP_BOUNDS);
}

static void test_read_whose_offset_wraps_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_read(&fpdu, &scene.stranger, scene.mr->rkey, UINT64_MAX - 10, 64);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_TO_WRAP);
	scene_close(&scene);
}

static void test_read_without_the_right_is_refused(void **state)
{
	static const struct scene_options writable = {.access = IBV_ACCESS_LOCAL_WRITE |
								IBV_ACCESS_REMOTE_WRITE};
	static const struct scene_options local = {.access = LOCAL_ONLY};

	(void)state;
	refuse_read(&writable, 0, 0, 64, TERM_RDMAP_ACCESS);
	refuse_read(&local, 0, 0, 64, TERM_RDMAP_ACCESS);
}

static void test_read_of_another_domain_is_refused(void **state)
{
	struct scene scene, other;

	(void)state;
	scene_open(&other, NULL);
	scene_open(&scene, NULL);
	fpdu_read(&fpdu, &scene.stranger, other.mr->rkey, scene_to(&other), 64);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_FOREIGN_STAG);
	scene_expect_alive(&other);
	scene_close(&scene);
	scene_close(&other);
}

static void test_read_with_a_wrong_msn_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	scene.stranger.read_msn = 2;
	fpdu_read(&fpdu, &scene.stranger, scene.mr->rkey, scene_to(&scene), 64);
	scene_refuse(&scene, &fpdu, TERM_DDP_MSN);
	scene_close(&scene);
}

/* All at once, so that none is answered before the last has come. */
static void say_reads(struct scene *scene, unsigned count)
{
	uint8_t bytes[64 * 64];
	size_t len = 0;

	for (unsigned i = 0; i < count; i++) {
		size_t one;

		fpdu_read(&fpdu, &scene->stranger, scene->mr->rkey, scene_to(scene), 16);
		one = fpdu_end(&fpdu, &scene->stranger);
		memcpy(bytes + len, fpdu.bytes, one);
		len += one;
	}
	stranger_say(&scene->stranger, bytes, len);
}

static void test_reads_as_many_as_agreed_are_answered(void **state)
{
	static const struct scene_options options = {
		.enhanced = true, .ird = 4, .ord = 4, .side.reads = 4};
	struct scene scene;

	(void)state;
	scene_open(&scene, &options);
	assert_int_equal(scene.reply.ird, 4);
	say_reads(&scene, 4);
	for (unsigned i = 0; i < 4; i++)
		expect_response(&scene, 16);
	scene_close(&scene);
}

static void test_reads_more_than_agreed_are_refused(void **state)
{
	static const struct scene_options options = {
		.enhanced = true, .ird = 4, .ord = 4, .side.reads = 4};
	struct scene scene;

	(void)state;
	scene_open(&scene, &options);
	say_reads(&scene, 5);
	scene_expect_terminate(&scene, TERM_RDMAP_STREAM);
	scene_close(&scene);
}

static void test_read_where_none_was_agreed_is_refused(void **state)
{
	static const struct scene_options options = {.enhanced = true, .ird = 0, .ord = 0};
	struct scene scene;

	(void)state;
	scene_open(&scene, &options);
	assert_int_equal(scene.reply.ird, 0);
	assert_int_equal(scene.reply.ord, 0);
	fpdu_read(&fpdu, &scene.stranger, scene.mr->rkey, scene_to(&scene), 16);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_STREAM);
	scene_close(&scene);
}

/* ---- Read Responses ---- */

#define READ_AT  (40 * KIB)
#define READ_LEN 100u

struct read_wire {
	uint32_t stag;
	uint64_t to;
};

/* What the side's Read Request names as the sink. */
static struct read_wire hear_read(struct scene *scene)
{
	stranger_hear_fpdu(&scene->stranger, &fpdu);
	assert_int_equal(fpdu.bytes[ULPDU(1)], 0x40 | RDMAP_READ_REQUEST);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(30)), READ_LEN);
	return (struct read_wire){.stag = get_be32(fpdu.bytes + ULPDU(18)),
				  .to = get_be64(fpdu.bytes + ULPDU(22))};
}

/* The side reads from the stranger. */
static struct read_wire begin_read(struct scene *scene)
{
	/* On iWARP the acceptor speaks after the initiator. */
	scene_expect_alive(scene);
	side_post(&scene->side, &(struct request){.opcode = IBV_WR_RDMA_READ,
						  .id = 5,
						  .at = READ_AT,
						  .len = READ_LEN,
						  .flags = IBV_SEND_SIGNALED});
	return hear_read(scene);
}

static void check_sink(struct scene *scene)
{
	side_settle(&scene->side);
	assert_true(is_all(scene->side.buf + READ_AT - 1024, 1024, FRESH));
	assert_true(is_all(scene->side.buf + READ_AT + READ_LEN, 1024, FRESH));
}

static void refuse_response(bool last, uint32_t key_change, uint64_t at, size_t len, uint16_t code)
{
	struct scene scene;
	struct read_wire read;

	scene_open(&scene, NULL);
	read = begin_read(&scene);
	fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, last, read.stag ^ key_change, read.to + at, len,
		    0x31);
	scene_refuse(&scene, &fpdu, code);
	cq_expect(scene.side.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	check_sink(&scene);
	scene_close(&scene);
}

static void test_response_that_is_right_is_taken(void **state)
{
	struct scene scene;
	struct read_wire read;

	(void)state;
	scene_open(&scene, NULL);
	read = begin_read(&scene);
	fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, false, read.stag, read.to, 60, 0x31);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, true, read.stag, read.to + 60, 40, 0x31);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	cq_expect(scene.side.send_cq, 5, IBV_WC_SUCCESS);
	assert_true(is_all(scene.side.buf + READ_AT, READ_LEN, 0x31));
	check_sink(&scene);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void test_response_that_nobody_asked_for_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	for (unsigned len = 0; len <= 64; len += 64) {
		scene_open(&scene, NULL);
		fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, true, scene.mr->rkey, scene_to(&scene), len,
			    0x99);
		scene_refuse(&scene, &fpdu, TERM_RDMAP_OPCODE);
		scene_close(&scene);
	}
}

static void test_response_to_another_sink_is_refused(void **state)
{
	(void)state;
	refuse_response(true, 1, 0, READ_LEN, TERM_DDP_INVALID_STAG);
	refuse_response(true, 0, 1, READ_LEN, TERM_DDP_BOUNDS);
	refuse_response(true, 0, (uint64_t)-1, READ_LEN, TERM_DDP_BOUNDS);
}

static void test_response_of_another_length_is_refused(void **state)
{
	(void)state;
	refuse_response(true, 0, 0, READ_LEN + 1, TERM_DDP_BOUNDS);
	refuse_response(true, 0, 0, READ_LEN - 1, TERM_DDP_BOUNDS);
	refuse_response(true, 0, 0, 0, TERM_DDP_BOUNDS);
	refuse_response(true, 0, 0, 60000, TERM_DDP_BOUNDS);
	refuse_response(false, 0, 0, READ_LEN + 1, TERM_DDP_BOUNDS);
}

static void test_response_without_its_last_flag_is_refused(void **state)
{
	(void)state;
	refuse_response(false, 0, 0, READ_LEN, TERM_DDP_BOUNDS);
}

static void test_response_in_the_middle_of_a_write_is_refused(void **state)
{
	struct scene scene;
	struct read_wire read;

	(void)state;
	scene_open(&scene, NULL);
	read = begin_read(&scene);
	fpdu_tagged(&fpdu, RDMAP_WRITE, false, scene.mr->rkey, scene_to(&scene), 64, FRESH);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, true, read.stag, read.to, READ_LEN, 0x31);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_OPCODE);
	cq_expect(scene.side.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	scene_close(&scene);
}

static void test_response_with_a_wrong_crc_completes_nothing(void **state)
{
	static const struct scene_options options = {.crc = true};
	struct scene scene;
	struct read_wire read;
	size_t len;

	(void)state;
	scene_open(&scene, &options);
	read = begin_read(&scene);
	fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, true, read.stag, read.to, READ_LEN, 0x31);
	len = fpdu_end(&fpdu, &scene.stranger);
	fpdu.bytes[ULPDU(40)] ^= 1;
	stranger_say(&scene.stranger, fpdu.bytes, len);
	scene_expect_terminate(&scene, TERM_MPA_CRC);
	cq_expect(scene.side.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	check_sink(&scene);
	scene_close(&scene);
}

/* A Terminate about a read has that read to blame, in either order of its nibbles. */
static void test_terminate_about_a_read_fails_that_read(void **state)
{
	static const uint8_t words[][3] = {{0x01, 0x02, 0xe0}, {0x10, 0x02, 0x07}};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
		struct scene scene;

		scene_open(&scene, NULL);
		begin_read(&scene);
		fpdu_terminate(&fpdu, words[i][0], words[i][1], words[i][2]);
		stranger_say_fpdu(&scene.stranger, &fpdu);
		cq_expect(scene.side.send_cq, 5, IBV_WC_REM_ACCESS_ERR);
		scene_expect_disconnected(&scene);
		stranger_expect_end(&scene.stranger);
		scene_close(&scene);
	}
}

static void test_end_of_the_stream_with_a_read_open_flushes_it(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	begin_read(&scene);
	stranger_finish(&scene.stranger);
	cq_expect(scene.side.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	scene_expect_disconnected(&scene);
	scene_close(&scene);
}

/* At least @len bytes of a message of ours; returns how many. */
static size_t hear_segments(struct scene *scene, enum rdmap_opcode opcode, size_t header,
			    size_t len)
{
	size_t got = 0;

	while (got < len) {
		stranger_hear_fpdu(&scene->stranger, &fpdu);
		assert_int_equal(fpdu.bytes[ULPDU(1)], 0x40 | opcode);
		got += fpdu.len - ULPDU(header);
	}
	return got;
}

/* Both in one call, so that both are in one burst. */
static void post_read_and_write(struct side *side, uint32_t write_len)
{
	struct ibv_sge to = {
		.addr = (uintptr_t)side->buf + READ_AT, .length = READ_LEN, .lkey = side->mr->lkey};
	struct ibv_sge from = {
		.addr = (uintptr_t)side->buf + MIB, .length = write_len, .lkey = side->mr->lkey};
	struct ibv_send_wr write = {.wr_id = 6,
				    .sg_list = &from,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr read = {.wr_id = 5,
				   .next = &write,
				   .sg_list = &to,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_READ,
				   .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(side->qp, &read, &bad), 0);
}

/*
 * The answer to a read comes while the long Write behind it has left only in part, and its place in
 * the queue is taken anew: the newcomer must not complete in its stead.
 */
static void test_response_before_the_rest_of_its_burst_completes_its_read_alone(void **state)
{
	static const struct scene_options options = {.no_recv = 1,
						     .side = {.bytes = 16 * MIB, .depth = 2}};
	struct read_wire read;
	struct scene scene;
	size_t heard;

	(void)state;
	scene_open(&scene, &options);
	side_recv(&scene.side, 0, 0, ROOM);
	scene.recvs.posted = 1;
	scene_expect_alive(&scene);
	scene_shrink_buffers(&scene);
	post_read_and_write(&scene.side, 512 * KIB);
	read = hear_read(&scene);
	fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, true, read.stag, read.to, READ_LEN, 0x31);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	cq_expect(scene.side.send_cq, 5, IBV_WC_SUCCESS);
	side_send(&scene.side, 7, MIB, 12 * MIB);
	hear_segments(&scene, RDMAP_WRITE, DDP_TAGGED_LEN, 512 * KIB);
	heard = hear_segments(&scene, RDMAP_SEND, DDP_UNTAGGED_LEN, MIB);
	cq_expect(scene.side.send_cq, 6, IBV_WC_SUCCESS);
	cq_expect_none(scene.side.send_cq);
	hear_segments(&scene, RDMAP_SEND, DDP_UNTAGGED_LEN, 12 * MIB - heard);
	cq_expect(scene.side.send_cq, 7, IBV_WC_SUCCESS);
	scene_close(&scene);
}

/* ---- invalidation ---- */

static void say_invalidate(struct scene *scene, uint32_t key)
{
	fpdu_segment(&fpdu, &scene->stranger, RDMAP_SEND_SE_INV, true, 0, 16, 0x11);
	put_be32(fpdu.bytes + ULPDU(2), key);
	stranger_say_fpdu(&scene->stranger, &fpdu);
}

static void test_invalidate_of_an_offered_key_ends_its_rights(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	say_invalidate(&scene, scene.mr->rkey);
	scene_expect_recv(&scene, 16, 0x11);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey, scene_to(&scene), 64, 0x99);
	scene_refuse(&scene, &fpdu, TERM_DDP_INVALID_STAG);
	scene_close(&scene);
}

static void refuse_invalidate(struct scene *scene, uint32_t key)
{
	say_invalidate(scene, key);
	scene_expect_terminate(scene, TERM_RDMAP_NO_INVALIDATE);
	assert_int_equal(scene->recvs.flushed, RECVS);
}

static void test_invalidate_of_an_unknown_key_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	refuse_invalidate(&scene, scene.mr->rkey ^ 0x100);
	scene_close(&scene);
}

static void test_invalidate_of_a_key_that_was_never_offered_is_refused(void **state)
{
	static const struct scene_options options = {.access = LOCAL_ONLY};
	struct scene scene;

	(void)state;
	scene_open(&scene, &options);
	refuse_invalidate(&scene, scene.mr->rkey);
	scene_close(&scene);
}

static void test_invalidate_of_another_domain_is_refused(void **state)
{
	struct scene scene, other;

	(void)state;
	scene_open(&other, NULL);
	scene_open(&scene, NULL);
	refuse_invalidate(&scene, other.mr->rkey);
	/* It still serves the one it belongs to. */
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, other.mr->rkey, scene_to(&other), 64, 0x42);
	stranger_say_fpdu(&other.stranger, &fpdu);
	scene_expect_alive(&other);
	assert_true(is_all(other.region, 64, 0x42));
	scene_close(&scene);
	scene_close(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_within_the_region_is_placed),
		cmocka_unit_test(test_write_with_an_unknown_key_is_refused),
		cmocka_unit_test(test_write_with_a_key_off_by_one_is_refused),
		cmocka_unit_test(test_write_with_key_zero_is_refused),
		cmocka_unit_test(test_write_outside_the_region_is_refused),
		cmocka_unit_test(test_write_whose_offset_wraps_is_refused),
		cmocka_unit_test(test_write_to_the_last_addresses_is_refused),
		cmocka_unit_test(test_write_without_the_right_is_refused),
		cmocka_unit_test(test_write_to_another_domain_is_refused),
		cmocka_unit_test(test_write_to_a_deregistered_region_is_refused),
		cmocka_unit_test(test_write_of_length_zero_with_a_bad_key_is_accepted),
		cmocka_unit_test(test_write_whose_segments_do_not_belong_together_is_refused),
		cmocka_unit_test(test_write_that_runs_over_the_end_segment_by_segment_is_refused),
		cmocka_unit_test(test_read_within_the_region_is_answered),
		cmocka_unit_test(test_read_of_size_zero_with_a_bad_key_is_answered),
		cmocka_unit_test(test_read_with_a_wrong_key_is_refused),
		cmocka_unit_test(test_read_outside_the_region_is_refused),
		cmocka_unit_test(test_read_whose_offset_wraps_is_refused),
		cmocka_unit_test(test_read_without_the_right_is_refused),
		cmocka_unit_test(test_read_of_another_domain_is_refused),
		cmocka_unit_test(test_read_with_a_wrong_msn_is_refused),
		cmocka_unit_test(test_reads_as_many_as_agreed_are_answered),
		cmocka_unit_test(test_reads_more_than_agreed_are_refused),
		cmocka_unit_test(test_read_where_none_was_agreed_is_refused),
		cmocka_unit_test(test_response_that_is_right_is_taken),
		cmocka_unit_test(test_response_that_nobody_asked_for_is_refused),
		cmocka_unit_test(test_response_to_another_sink_is_refused),
		cmocka_unit_test(test_response_of_another_length_is_refused),
		cmocka_unit_test(test_response_without_its_last_flag_is_refused),
		cmocka_unit_test(test_response_in_the_middle_of_a_write_is_refused),
		cmocka_unit_test(test_response_with_a_wrong_crc_completes_nothing),
		cmocka_unit_test(test_terminate_about_a_read_fails_that_read),
		cmocka_unit_test(test_end_of_the_stream_with_a_read_open_flushes_it),
		cmocka_unit_test(
			test_response_before_the_rest_of_its_burst_completes_its_read_alone),
		cmocka_unit_test(test_invalidate_of_an_offered_key_ends_its_rights),
		cmocka_unit_test(test_invalidate_of_an_unknown_key_is_refused),
		cmocka_unit_test(test_invalidate_of_a_key_that_was_never_offered_is_refused),
		cmocka_unit_test(test_invalidate_of_another_domain_is_refused),
	};

	return cmocka_run_group_tests_name("memory", tests, house_open, house_close);
}
