/* SPDX-License-Identifier: MIT */
/* Immediate data and atomics, from a stranger that says that it is softrdma and may use them. */
#include "house.h"

#define ATOMIC_ACCESS (ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC)

static const struct scene_options soft = {.soft = true, .access = ATOMIC_ACCESS};
static struct fpdu fpdu;

/* ---- immediate data ---- */

static void put_immediate(struct scene *scene, uint64_t value)
{
	fpdu.len = ddp_put_immediate(fpdu.bytes, false, scene->stranger.send_msn++, value);
}

static void test_immediate_takes_a_receive(void **state)
{
	struct scene scene;
	struct ibv_wc wc;

	(void)state;
	scene_open(&scene, &soft);
	put_immediate(&scene, 0x01020304);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	wc = cq_next(scene.side.recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 0x01020304);
	tally_count(&scene.recvs, &wc);
	scene_expect_alive(&scene);
	scene_close(&scene);
}

static void test_immediate_of_another_length_is_refused(void **state)
{
	static const struct {
		uint16_t len, code;
	} cases[] = {{25, TERM_RDMAP_STREAM}, {27, TERM_DDP_TOO_LONG}, {60000, TERM_DDP_TOO_LONG}};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene scene;

		scene_open(&scene, &soft);
		put_immediate(&scene, 1);
		put_be16(fpdu.bytes, cases[i].len);
		fpdu.len = ULPDU(cases[i].len);
		scene_refuse(&scene, &fpdu, cases[i].code);
		assert_int_equal(scene.recvs.flushed, RECVS);
		scene_close(&scene);
	}
}

static void test_immediate_in_the_middle_of_a_send_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &soft);
	fpdu_segment(&fpdu, &scene.stranger, RDMAP_SEND, false, 0, 16, 1);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	put_immediate(&scene, 1);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_OPCODE);
	assert_int_equal(scene.recvs.flushed, RECVS);
	scene_close(&scene);
}

static void test_immediates_without_end_or_receive_are_bounded(void **state)
{
	static const struct scene_options options = {.soft = true, .no_recv = 1};
	const unsigned most = 4 * MIB;
	size_t before, len = 0;
	struct scene scene;
	unsigned i;

	(void)state;
	scene_open(&scene, &options);
	before = resident_bytes();
	for (i = 0; i < most; i++) {
		put_immediate(&scene, i);
		len = fpdu_end(&fpdu, &scene.stranger);
		if (stranger_push(&scene.stranger, fpdu.bytes, len, 500) < len)
			break;
	}
	assert_true(i < most);
	expect_growth_below(before, 4 * MIB);
	house_check();
	stranger_reset(&scene.stranger);
	scene_expect_disconnected(&scene);
	scene_close(&scene);
}

/* ---- atomic requests ---- */

static struct rdmap_atomic_request an_add(const struct scene *scene)
{
	return (struct rdmap_atomic_request){
		.op = RDMAP_FETCH_ADD,
		.id = 77,
		.stag = scene->mr->rkey,
		.to = scene_to(scene) + 64,
		.add_swap = 5,
	};
}

static void put_atomic(struct scene *scene, const struct rdmap_atomic_request *request)
{
	fpdu.len = ddp_put_atomic_request(fpdu.bytes, scene->stranger.read_msn++, request);
}

static uint64_t hear_result(struct scene *scene, uint32_t id)
{
	stranger_hear_fpdu(&scene->stranger, &fpdu);
	assert_int_equal(fpdu.bytes[ULPDU(1)], 0x40 | RDMAP_ATOMIC_RESPONSE);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(6)), DDP_QN_ATOMIC_RESPONSE);
	assert_int_equal(get_be32(fpdu.bytes + ULPDU(18)), id);
	return get_be64(fpdu.bytes + ULPDU(22));
}

static void test_atomic_within_the_region_takes_effect(void **state)
{
	struct rdmap_atomic_request request;
	struct scene scene;
	uint64_t before, after;

	(void)state;
	scene_open(&scene, &soft);
	memcpy(&before, scene.region + 64, sizeof(before));
	request = an_add(&scene);
	put_atomic(&scene, &request);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	assert_true(hear_result(&scene, 77) == before);
	request = (struct rdmap_atomic_request){.op = RDMAP_CMP_SWAP,
						.id = 78,
						.stag = request.stag,
						.to = request.to,
						.compare = before + 5,
						.compare_mask = UINT64_MAX,
						.add_swap = 1,
						.add_swap_mask = UINT64_MAX};
	put_atomic(&scene, &request);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	assert_true(hear_result(&scene, 78) == before + 5);
	side_settle(&scene.side);
	memcpy(&after, scene.region + 64, sizeof(after));
	assert_true(after == 1);
	assert_true(is_all(scene.region, 64, FRESH));
	assert_true(is_all(scene.region + 72, REGION - 72, FRESH));
	scene_close(&scene);
}

static void refuse_atomic(unsigned access, uint32_t key_change, uint64_t at, uint32_t op,
			  uint16_t code)
{
	struct scene_options options = {.soft = true, .access = access};
	struct rdmap_atomic_request request;
	struct scene scene;

	scene_open(&scene, &options);
	request = an_add(&scene);
	request.stag ^= key_change;
	request.to = scene_to(&scene) + at;
	request.op = op;
	put_atomic(&scene, &request);
	scene_refuse(&scene, &fpdu, code);
	scene_close(&scene);
}

static void test_atomic_with_a_wrong_key_is_refused(void **state)
{
	(void)state;
	refuse_atomic(ATOMIC_ACCESS, 1, 0, RDMAP_FETCH_ADD, TERM_RDMAP_INVALID_STAG);
	refuse_atomic(ATOMIC_ACCESS, 0x100, 0, RDMAP_FETCH_ADD, TERM_RDMAP_INVALID_STAG);
}

static void test_atomic_outside_the_region_is_refused(void **state)
{
	(void)state;
	refuse_atomic(ATOMIC_ACCESS, 0, REGION, RDMAP_FETCH_ADD, TERM_RDMAP_BOUNDS);
	refuse_atomic(ATOMIC_ACCESS, 0, (uint64_t)-8, RDMAP_CMP_SWAP, TERM_RDMAP_BOUNDS);
	refuse_atomic(ATOMIC_ACCESS, 0, REGION - 4, RDMAP_FETCH_ADD, TERM_RDMAP_BOUNDS);
}

static void test_atomic_that_is_not_aligned_is_refused(void **state)
{
	(void)state;
	for (unsigned at = 1; at < 8; at++)
		refuse_atomic(ATOMIC_ACCESS, 0, at, RDMAP_FETCH_ADD, TERM_RDMAP_BOUNDS);
}

static void test_atomic_whose_offset_wraps_is_refused(void **state)
{
	struct rdmap_atomic_request request;
	struct scene scene;

	(void)state;
	scene_open(&scene, &soft);
	request = an_add(&scene);
	request.to = UINT64_MAX - 7;
	put_atomic(&scene, &request);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_TO_WRAP);
	scene_close(&scene);
}

static void test_atomic_without_the_right_is_refused(void **state)
{
	(void)state;
	refuse_atomic(ALL_ACCESS, 0, 0, RDMAP_FETCH_ADD, TERM_RDMAP_ACCESS);
	refuse_atomic(IBV_ACCESS_LOCAL_WRITE, 0, 0, RDMAP_FETCH_ADD, TERM_RDMAP_ACCESS);
}

static void test_atomic_of_an_unknown_kind_is_refused(void **state)
{
	(void)state;
	refuse_atomic(ATOMIC_ACCESS, 0, 0, 1, TERM_RDMAP_OPCODE);
	refuse_atomic(ATOMIC_ACCESS, 0, 0, 15, TERM_RDMAP_OPCODE);
}

static void test_atomic_of_another_domain_is_refused(void **state)
{
	struct rdmap_atomic_request request;
	struct scene scene, other;

	(void)state;
	scene_open(&other, &soft);
	scene_open(&scene, &soft);
	request = an_add(&other);
	put_atomic(&scene, &request);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_FOREIGN_STAG);
	assert_true(scene_is_untouched(&other));
	scene_expect_alive(&other);
	scene_close(&scene);
	scene_close(&other);
}

static void test_atomic_that_is_not_the_last_segment_is_refused(void **state)
{
	struct rdmap_atomic_request request;
	struct scene scene;

	(void)state;
	scene_open(&scene, &soft);
	request = an_add(&scene);
	put_atomic(&scene, &request);
	fpdu.bytes[ULPDU(0)] = 0x01;
	scene_refuse(&scene, &fpdu, TERM_DDP_TOO_LONG);
	scene_close(&scene);
}

static void test_atomic_where_none_was_agreed_is_refused(void **state)
{
	static const struct scene_options options = {
		.soft = true, .enhanced = true, .access = ATOMIC_ACCESS};
	struct rdmap_atomic_request request;
	struct scene scene;

	(void)state;
	scene_open(&scene, &options);
	request = an_add(&scene);
	put_atomic(&scene, &request);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_STREAM);
	scene_close(&scene);
}

/* ---- atomic responses ---- */

#define RESULT_AT (40 * KIB)

/* The side asks for an addition; the request's number. */
static uint32_t begin_atomic(struct scene *scene)
{
	struct ibv_sge piece = {.addr = (uintptr_t)scene->side.buf + RESULT_AT,
				.length = sizeof(uint64_t),
				.lkey = scene->side.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 5,
				 .sg_list = &piece,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	scene_expect_alive(scene);
	wr.wr.atomic.remote_addr = SINK_TO;
	wr.wr.atomic.rkey = SINK_STAG;
	wr.wr.atomic.compare_add = 1;
	assert_int_equal(ibv_post_send(scene->side.qp, &wr, &bad), 0);
	stranger_hear_fpdu(&scene->stranger, &fpdu);
	assert_int_equal(fpdu.bytes[ULPDU(1)], 0x40 | RDMAP_ATOMIC_REQUEST);
	return get_be32(fpdu.bytes + ULPDU(22));
}

static void put_result(uint32_t msn, uint32_t id)
{
	const struct rdmap_atomic_response response = {.id = id, .value = 0x1122334455667788};

	fpdu.len = ddp_put_atomic_response(fpdu.bytes, msn, &response);
}

static void test_result_that_is_right_is_taken(void **state)
{
	struct scene scene;
	uint64_t value;
	uint32_t id;

	(void)state;
	scene_open(&scene, &soft);
	id = begin_atomic(&scene);
	put_result(1, id);
	stranger_say_fpdu(&scene.stranger, &fpdu);
	cq_expect(scene.side.send_cq, 5, IBV_WC_SUCCESS);
	memcpy(&value, scene.side.buf + RESULT_AT, sizeof(value));
	assert_true(value == 0x1122334455667788);
	assert_true(is_all(scene.side.buf + RESULT_AT + 8, 1024, FRESH));
	scene_close(&scene);
}

static void test_result_that_nobody_asked_for_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &soft);
	put_result(1, 1);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_OPCODE);
	scene_close(&scene);
}

static void refuse_result(uint32_t msn, uint32_t id_change, uint16_t code)
{
	struct scene scene;
	uint32_t id;

	scene_open(&scene, &soft);
	id = begin_atomic(&scene);
	put_result(msn, id ^ id_change);
	scene_refuse(&scene, &fpdu, code);
	cq_expect(scene.side.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	assert_true(is_all(scene.side.buf + RESULT_AT, 8, FRESH));
	scene_close(&scene);
}

static void test_result_of_another_request_is_refused(void **state)
{
	(void)state;
	refuse_result(1, 1, TERM_RDMAP_OPCODE);
	refuse_result(2, 0, TERM_DDP_MSN);
}

static void test_read_response_to_an_atomic_is_refused(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene, &soft);
	begin_atomic(&scene);
	fpdu_tagged(&fpdu, RDMAP_READ_RESPONSE, true, scene.side.mr->lkey,
		    (uintptr_t)scene.side.buf + RESULT_AT, 8, 0x99);
	scene_refuse(&scene, &fpdu, TERM_RDMAP_OPCODE);
	cq_expect(scene.side.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	assert_true(is_all(scene.side.buf + RESULT_AT, 8, FRESH));
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_immediate_takes_a_receive),
		cmocka_unit_test(test_immediate_of_another_length_is_refused),
		cmocka_unit_test(test_immediate_in_the_middle_of_a_send_is_refused),
		cmocka_unit_test(test_immediates_without_end_or_receive_are_bounded),
		cmocka_unit_test(test_atomic_within_the_region_takes_effect),
		cmocka_unit_test(test_atomic_with_a_wrong_key_is_refused),
		cmocka_unit_test(test_atomic_outside_the_region_is_refused),
		cmocka_unit_test(test_atomic_that_is_not_aligned_is_refused),
		cmocka_unit_test(test_atomic_whose_offset_wraps_is_refused),
		cmocka_unit_test(test_atomic_without_the_right_is_refused),
		cmocka_unit_test(test_atomic_of_an_unknown_kind_is_refused),
		cmocka_unit_test(test_atomic_of_another_domain_is_refused),
		cmocka_unit_test(test_atomic_that_is_not_the_last_segment_is_refused),
		cmocka_unit_test(test_atomic_where_none_was_agreed_is_refused),
		cmocka_unit_test(test_result_that_is_right_is_taken),
		cmocka_unit_test(test_result_that_nobody_asked_for_is_refused),
		cmocka_unit_test(test_result_of_another_request_is_refused),
		cmocka_unit_test(test_read_response_to_an_atomic_is_refused),
	};

	return cmocka_run_group_tests_name("extended", tests, house_open, house_close);
}
