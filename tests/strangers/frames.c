/* SPDX-License-Identifier: MIT */
/*
 * FPDUs and untagged segments that are not as they should be: each ends its own connection, with
 * the RFC's reason.
 */
#include "house.h"

#include <unistd.h>

static struct fpdu fpdu;

/* A Send that @spoil makes bad, as the first FPDU. */
static void refuse_send(size_t payload, void (*spoil)(struct fpdu *fpdu, unsigned value),
			unsigned value, uint16_t code)
{
	struct scene scene;

	scene_open(&scene, NULL);
	fpdu_send(&fpdu, &scene.stranger, payload, 0x11);
	spoil(&fpdu, value);
	scene_refuse(&scene, &fpdu, code);
	assert_int_equal(scene.recvs.flushed, RECVS);
	scene_close(&scene);
}

/* ---- lengths ---- */

static void set_length(struct fpdu *at, unsigned len)
{
	put_be16(at->bytes, (uint16_t)len);
	at->len = FPDU_LENGTH_LEN + len;
}

static void test_fpdu_of_length_zero_is_refused(void **state)
{
	(void)state;
	refuse_send(0, set_length, 0, TERM_RDMAP_STREAM);
}

static void test_fpdu_of_length_one_is_refused(void **state)
{
	(void)state;
	refuse_send(0, set_length, 1, TERM_RDMAP_STREAM);
}

static void test_fpdu_too_short_for_its_opcode_is_refused(void **state)
{
	static const uint8_t least[] = {
		[RDMAP_WRITE] = 14,       [RDMAP_READ_REQUEST] = 46, [RDMAP_READ_RESPONSE] = 14,
		[RDMAP_SEND] = 18,        [RDMAP_SEND_INV] = 18,     [RDMAP_SEND_SE] = 18,
		[RDMAP_SEND_SE_INV] = 18, [RDMAP_TERMINATE] = 22,
	};

	(void)state;
	for (unsigned opcode = 0; opcode < ARRAY_SIZE(least); opcode++) {
		for (unsigned len = 2; len < least[opcode]; len += len < 14 ? 5 : 1) {
			struct scene scene;

			scene_open(&scene, NULL);
			fpdu_send(&fpdu, &scene.stranger, 40, 0);
			fpdu.bytes[ULPDU(0)] = least[opcode] == 14 ? 0xc1 : 0x41;
			fpdu.bytes[ULPDU(1)] = (uint8_t)(0x40 | opcode);
			set_length(&fpdu, len);
			scene_refuse(&scene, &fpdu, TERM_RDMAP_STREAM);
			scene_close(&scene);
		}
	}
}

static void test_fpdu_of_length_65535_into_a_small_receive_is_refused(void **state)
{
	struct scene scene;
	struct ibv_wc wc;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_send(&fpdu, &scene.stranger, 0, 0);
	set_length(&fpdu, UINT16_MAX);
	/* The header alone decides: the rest never comes. */
	stranger_say(&scene.stranger, fpdu.bytes, ULPDU(DDP_UNTAGGED_LEN));
	wc = cq_next(scene.side.recv_cq);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	tally_count(&scene.recvs, &wc);
	scene_expect_terminate(&scene, TERM_DDP_TOO_LONG);
	assert_true(is_all(scene.side.buf, scene.side.size, FRESH));
	scene_close(&scene);
}

static void test_fpdu_of_length_65535_that_fits_is_received(void **state)
{
	static const struct scene_options options = {.no_recv = 1};
	const uint32_t payload = UINT16_MAX - DDP_UNTAGGED_LEN;
	struct scene scene;

	(void)state;
	scene_open(&scene, &options);
	side_recv(&scene.side, 0, 0, 64 * KIB);
	scene.recvs.posted = 1;
	fpdu_send(&fpdu, &scene.stranger, 0, 0);
	set_length(&fpdu, UINT16_MAX);
	memset(fpdu.bytes + ULPDU(DDP_UNTAGGED_LEN), 0x33, payload);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_recv(&scene, payload, 0x33);
	scene.recvs.posted = 0; /* its room is not one of the usual ones */
	scene_close(&scene);
}

/* ---- the control bytes ---- */

static void set_ddp(struct fpdu *at, unsigned value)
{
	at->bytes[ULPDU(0)] = (uint8_t)value;
}

static void set_rdmap(struct fpdu *at, unsigned value)
{
	at->bytes[ULPDU(1)] = (uint8_t)value;
}

static void test_ddp_version_that_is_unknown_is_refused(void **state)
{
	(void)state;
	refuse_send(24, set_ddp, 0x40, TERM_DDP_UNTAGGED_VERSION);
	refuse_send(24, set_ddp, 0x42, TERM_DDP_UNTAGGED_VERSION);
	refuse_send(24, set_ddp, 0x43, TERM_DDP_UNTAGGED_VERSION);
	refuse_send(24, set_ddp, 0xc0, TERM_DDP_TAGGED_VERSION);
	refuse_send(24, set_ddp, 0xc2, TERM_DDP_TAGGED_VERSION);
	refuse_send(24, set_ddp, 0x83, TERM_DDP_TAGGED_VERSION);
}

static void test_rdmap_version_that_is_unknown_is_refused(void **state)
{
	(void)state;
	refuse_send(24, set_rdmap, 0x00 | RDMAP_SEND, TERM_RDMAP_VERSION);
	refuse_send(24, set_rdmap, 0x80 | RDMAP_SEND, TERM_RDMAP_VERSION);
	refuse_send(24, set_rdmap, 0xc0 | RDMAP_SEND, TERM_RDMAP_VERSION);
}

static void test_opcode_that_is_unknown_is_refused(void **state)
{
	(void)state;
	for (unsigned opcode = 12; opcode < 16; opcode++)
		refuse_send(64, set_rdmap, 0x40 | opcode, TERM_RDMAP_OPCODE);
}

/* Only softrdma peers have agreed on these. */
static void test_opcode_of_rfc7306_from_a_foreign_peer_is_refused(void **state)
{
	(void)state;
	for (unsigned opcode = RDMAP_IMMEDIATE; opcode <= RDMAP_ATOMIC_RESPONSE; opcode++)
		refuse_send(64, set_rdmap, 0x40 | opcode, TERM_RDMAP_OPCODE);
}

static void test_tagged_flag_that_does_not_suit_the_opcode_is_refused(void **state)
{
	(void)state;
	refuse_send(64, set_ddp, 0xc1, TERM_RDMAP_OPCODE); /* a Send */
	refuse_send(64, set_rdmap, 0x40 | RDMAP_WRITE, TERM_RDMAP_OPCODE);
	refuse_send(64, set_rdmap, 0x40 | RDMAP_READ_RESPONSE, TERM_RDMAP_OPCODE);
}

/* ---- queue, sequence and offset ---- */

static void set_qn(struct fpdu *at, unsigned value)
{
	put_be32(at->bytes + ULPDU(6), value);
}

static void set_msn(struct fpdu *at, unsigned value)
{
	put_be32(at->bytes + ULPDU(10), value);
}

static void set_mo(struct fpdu *at, unsigned value)
{
	put_be32(at->bytes + ULPDU(14), value);
}

static void test_queue_number_of_a_send_that_is_wrong_is_refused(void **state)
{
	static const unsigned wrong[] = {1, 2, 3, 4, 0x100, 0xffffffff};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++)
		refuse_send(24, set_qn, wrong[i], TERM_DDP_QN);
}

static void test_queue_number_of_a_read_request_that_is_wrong_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_read(&fpdu, &scene.stranger, scene.mr->rkey, scene_to(&scene), 16);
	set_qn(&fpdu, DDP_QN_SEND);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_OPCODE);
	scene_close(&scene);
}

static void test_msn_that_is_skipped_is_refused(void **state)
{
	static const unsigned wrong[] = {0, 2, 3, 0x7fffffff, 0xffffffff};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++)
		refuse_send(24, set_msn, wrong[i], TERM_DDP_MSN);
}

static void test_msn_that_is_repeated_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_send(&fpdu, &scene.stranger, 24, 0x11);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_recv(&scene, 24, 0x11);
	scene_refuse(&scene, &fpdu, TERM_DDP_MSN);
	assert_int_equal(scene.recvs.flushed, RECVS - 1);
	scene_close(&scene);
}

static void test_mo_of_a_first_segment_that_is_not_zero_is_refused(void **state)
{
	(void)state;
	refuse_send(24, set_mo, 1, TERM_DDP_MO);
	refuse_send(24, set_mo, 0xffffffff, TERM_DDP_MO);
}

static void test_mo_that_leaves_a_gap_or_overlaps_is_refused(void **state)
{
	static const unsigned wrong[] = {0, 15, 17, 0xfffffff0};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct scene scene;

		scene_open(&scene, NULL);
		fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, 0, 16, 1);
		stranger_say_fpdu(&scene.stranger, &fpdu);
		fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, true, wrong[i], 16, 2);
		scene_refuse(&scene, &fpdu, TERM_DDP_MO);
		assert_int_equal(scene.recvs.flushed, RECVS);
		scene_close(&scene);
	}
}

/* ---- messages that do not fit ---- */

static void expect_too_long(struct scene *scene)
{
	struct ibv_wc wc;

	stranger_expect_terminate(&scene->stranger, TERM_DDP_TOO_LONG);
	wc = cq_next(scene->side.recv_cq);
	assert_int_equal(wc.wr_id, 0);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	tally_count(&scene->recvs, &wc);
	scene_expect_disconnected(scene);
	assert_int_equal(scene->recvs.flushed, RECVS - 1);
}

static void test_send_longer_than_the_receive_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_send(&fpdu, &scene.stranger, ROOM + 1, 0x11);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	expect_too_long(&scene);
	assert_true(is_all(scene.side.buf, scene.side.size, FRESH));
	scene_close(&scene);
}

static void test_send_that_outgrows_the_receive_segment_by_segment_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	for (unsigned mo = 0; mo <= ROOM; mo += 64) {
		fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, mo, 64, 0x11);
		stranger_say_fpdu(&scene.stranger, &fpdu);
	}
	expect_too_long(&scene);
	scene_close(&scene);
}

static void test_send_that_just_fits_is_received(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_send(&fpdu, &scene.stranger, ROOM, 0x11);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_recv(&scene, ROOM, 0x11);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void test_send_of_empty_segments_without_end_is_harmless(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	for (unsigned i = 0; i < 5000; i++) {
		fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, 0, 0, 0);
		stranger_say_fpdu(&scene.stranger, &fpdu);
	}
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, true, 0, 5, 0x11);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_recv(&scene, 5, 0x11);
	scene_close(&scene);
}

/* ---- segments between segments ---- */

static void test_segments_of_two_sends_interleaved_are_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, 0, 16, 1);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene.stranger.send_msn++;
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, true, 0, 16, 2);
	scene_refuse(&scene, &fpdu, TERM_DDP_MSN);
	scene_close(&scene);
}

static void test_segments_of_a_send_that_change_their_opcode_are_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, 0, 16, 1);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND_SE, true, 16, 16, 2);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_OPCODE);
	scene_close(&scene);
}

static void test_segments_of_a_write_around_a_send_are_both_taken(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_tagged(&fpdu, RDMAP_WRITE, false, scene.mr->rkey, scene_to(&scene), 100, 0x21);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, 0, 20, 0x11);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, scene.mr->rkey, scene_to(&scene) + 100, 100, 0x21);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, true, 20, 20, 0x11);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_recv(&scene, 40, 0x11);
	side_settle(&scene.side);
	assert_true(is_all(scene.region, 200, 0x21));
	assert_true(is_all(scene.region + 200, REGION - 200, FRESH));
	scene_expect_alive(&scene);
	scene_close(&scene);
}

/* ---- a Terminate from the stranger ---- */

/* It is not answered: the stream just ends. */
static void expect_terminated(uint8_t first, uint8_t second, uint8_t third)
{
	struct scene scene;

	scene_open(&scene, NULL);
	fpdu_terminate(&fpdu, first, second, third);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_disconnected(&scene);
	stranger_expect_end(&scene.stranger);
	assert_int_equal(scene.recvs.flushed, RECVS);
	scene_close(&scene);
}

static void test_terminate_of_any_kind_ends_the_connection(void **state)
{
	(void)state;
	expect_terminated(0x12, 0x02, 0xc0); /* as the RFC orders the nibbles */
	expect_terminated(0x21, 0x02, 0x03); /* as siw does */
	expect_terminated(0xff, 0xff, 0xff);
	expect_terminated(0x00, 0x00, 0x00);
	expect_terminated(0x37, 0x99, 0x18);
}

static void test_terminate_that_is_long_ends_the_connection(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_terminate(&fpdu, 0x12, 0x02, 0xe0);
	memset(fpdu.bytes + ULPDU(22), 0xee, 60000);
	set_length(&fpdu, 22 + 60000);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	scene_expect_disconnected(&scene);
	stranger_expect_end(&scene.stranger);
	scene_close(&scene);
}

static void test_terminate_that_is_not_the_last_segment_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_terminate(&fpdu, 0x12, 0x02, 0);
	set_ddp(&fpdu, 0x01);
	scene_refuse(&scene, &fpdu, TERM_DDP_TOO_LONG);
	scene_close(&scene);
}

static void test_terminate_with_a_wrong_msn_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, NULL);
	fpdu_terminate(&fpdu, 0x12, 0x02, 0);
	set_msn(&fpdu, 2);
	scene_refuse(&scene, &fpdu, TERM_DDP_MSN);
	scene_close(&scene);
}

/* ---- CRC ---- */

static const struct scene_options with_crc = {.crc = true};

static void refuse_crc(struct scene *scene, size_t spoiled)
{
	size_t len = fpdu_end(&fpdu, &scene->stranger);

	fpdu.bytes[spoiled < len ? spoiled : len - 1] ^= 0x40;
	stranger_say(&scene->stranger, fpdu.bytes, len);
	scene_expect_terminate(scene, TERM_MPA_CRC);
}

static void test_crc_that_is_right_is_accepted(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &with_crc);
	assert_true(scene.stranger.crc);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void test_crc_of_a_send_that_is_wrong_delivers_nothing(void **state)
{
	static const size_t spoiled[] = {ULPDU(20), ULPDU(18 + 23), SIZE_MAX};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(spoiled); i++) {
		struct scene scene;

		scene_open(&scene, &with_crc);
		fpdu_send(&fpdu, &scene.stranger, 24, 0x11);
		refuse_crc(&scene, spoiled[i]);
		assert_int_equal(scene.recvs.flushed, RECVS);
		scene_close(&scene);
	}
}

static void test_crc_of_a_terminate_that_is_wrong_is_what_ends_it(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &with_crc);
	fpdu_terminate(&fpdu, 0x12, 0x02, 0);
	refuse_crc(&scene, ULPDU(19));
	scene_close(&scene);
}

static void test_crc_of_an_invalidate_that_is_wrong_invalidates_nothing(void **state)
{
	struct scene scene, other;
	uint32_t key;

	(void)state;
	scene_open(&scene, &with_crc);
	key = scene.mr->rkey;
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND_INV, true, 0, 24, 0x11);
	put_be32(fpdu.bytes + ULPDU(2), key);
	refuse_crc(&scene, SIZE_MAX);
	assert_int_equal(scene.recvs.flushed, RECVS);
	/* The key is of that queue pair's domain, so another must be told otherwise. */
	scene_open(&other, NULL);
	fpdu_tagged(&fpdu, RDMAP_WRITE, true, key, scene_to(&scene), 8, 1);
	scene_refuse(&other, &fpdu, TERM_DDP_FOREIGN_STAG);
	scene_close(&other);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fpdu_of_length_zero_is_refused),
		cmocka_unit_test(test_fpdu_of_length_one_is_refused),
		cmocka_unit_test(test_fpdu_too_short_for_its_opcode_is_refused),
		cmocka_unit_test(test_fpdu_of_length_65535_into_a_small_receive_is_refused),
		cmocka_unit_test(test_fpdu_of_length_65535_that_fits_is_received),
		cmocka_unit_test(test_ddp_version_that_is_unknown_is_refused),
		cmocka_unit_test(test_rdmap_version_that_is_unknown_is_refused),
		cmocka_unit_test(test_opcode_that_is_unknown_is_refused),
		cmocka_unit_test(test_opcode_of_rfc7306_from_a_foreign_peer_is_refused),
		cmocka_unit_test(test_tagged_flag_that_does_not_suit_the_opcode_is_refused),
		cmocka_unit_test(test_queue_number_of_a_send_that_is_wrong_is_refused),
		cmocka_unit_test(test_queue_number_of_a_read_request_that_is_wrong_is_refused),
		cmocka_unit_test(test_msn_that_is_skipped_is_refused),
		cmocka_unit_test(test_msn_that_is_repeated_is_refused),
		cmocka_unit_test(test_mo_of_a_first_segment_that_is_not_zero_is_refused),
		cmocka_unit_test(test_mo_that_leaves_a_gap_or_overlaps_is_refused),
		cmocka_unit_test(test_send_longer_than_the_receive_is_refused),
		cmocka_unit_test(test_send_that_outgrows_the_receive_segment_by_segment_is_refused),
		cmocka_unit_test(test_send_that_just_fits_is_received),
		cmocka_unit_test(test_send_of_empty_segments_without_end_is_harmless),
		cmocka_unit_test(test_segments_of_two_sends_interleaved_are_refused),
		cmocka_unit_test(test_segments_of_a_send_that_change_their_opcode_are_refused),
		cmocka_unit_test(test_segments_of_a_write_around_a_send_are_both_taken),
		cmocka_unit_test(test_terminate_of_any_kind_ends_the_connection),
		cmocka_unit_test(test_terminate_that_is_long_ends_the_connection),
		cmocka_unit_test(test_terminate_that_is_not_the_last_segment_is_refused),
		cmocka_unit_test(test_terminate_with_a_wrong_msn_is_refused),
		cmocka_unit_test(test_crc_that_is_right_is_accepted),
		cmocka_unit_test(test_crc_of_a_send_that_is_wrong_delivers_nothing),
		cmocka_unit_test(test_crc_of_a_terminate_that_is_wrong_is_what_ends_it),
		cmocka_unit_test(test_crc_of_an_invalidate_that_is_wrong_invalidates_nothing),
	};

	return cmocka_run_group_tests_name("frames", tests, house_open, house_close);
}
