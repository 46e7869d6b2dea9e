/* SPDX-License-Identifier: MIT */
/*
 * A stranger that shares memory: entries that are wrong, keys that are not its own, indices that
 * lie, and noise all over. It harms nobody's connection but its own.
 */
#include "lodger.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

/* ---- what is right ---- */

static void test_lodger_that_behaves_is_served(void **state)
{
	struct lodger lodger;
	struct rc_frame entry;
	const uint8_t *payload;

	(void)state;
	lodger_open(&lodger);
	lodger_expect_alive(&lodger);
	entry = (struct rc_frame){.kind = RC_WRITE,
				  .len = 100,
				  .key = lodger.scene.mr->rkey,
				  .addr = scene_to(&lodger.scene) + 8};
	lodger_put(&lodger, &entry, 0x42);
	entry = (struct rc_frame){.kind = RC_READ,
				  .key = lodger.scene.mr->rkey,
				  .addr = scene_to(&lodger.scene) + 8,
				  .arg = 100};
	lodger_put(&lodger, &entry, 0);
	entry = lodger_take(&lodger, &payload);
	assert_int_equal(entry.kind, RC_READ_DATA);
	assert_int_equal(entry.flags, RC_LAST);
	assert_int_equal(entry.len, 100);
	assert_true(is_all(payload, 100, 0x42));
	lodger_expect_alive(&lodger);
	lodger_close(&lodger);
}

/* ---- entries that mean nothing ---- */

static void test_entry_of_no_kind_is_refused(void **state)
{
	(void)state;
	lodger_refuse(&(struct rc_frame){.kind = RC_KINDS}, TERM_RDMAP_OPCODE);
	lodger_refuse(&(struct rc_frame){.kind = RING_PAD}, TERM_RDMAP_OPCODE);
	lodger_refuse(&(struct rc_frame){.kind = RING_NOTHING, .flags = 1}, TERM_RDMAP_OPCODE);
	lodger_refuse(&(struct rc_frame){.kind = RING_PAD, .flags = RC_LAST}, TERM_RDMAP_OPCODE);
	lodger_refuse(&(struct rc_frame){.kind = 15}, TERM_RDMAP_OPCODE);
}

/* As it would never be reserved: the first word is written by hand. */
static void refuse_length(struct lodger *lodger, uint16_t len)
{
	const uint64_t word = ring_first_word(RC_SEND, RC_LAST, len, 0);
	uint32_t at = lodger->out.tail % RING_CELLS * RING_CELL;

	memcpy(lodger->area->ring[AREA_INITIATOR] + at, &word, sizeof(word));
	lodger_ring(lodger);
	lodger_expect_terminate(lodger, TERM_RDMAP_OPCODE);
	assert_true(scene_is_untouched(&lodger->scene));
	lodger_close(lodger);
}

static void test_entry_longer_than_any_is_refused(void **state)
{
	static const uint16_t lengths[] = {RING_MAX_PAYLOAD + 1, 8191};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct lodger lodger;

		lodger_open(&lodger);
		refuse_length(&lodger, lengths[i]);
	}
}

/* Behind it there is other memory. */
static void test_entry_over_the_end_of_the_ring_is_refused(void **state)
{
	struct rc_frame write = {.kind = RC_WRITE};
	struct lodger lodger;

	(void)state;
	lodger_open(&lodger);
	write.key = lodger.scene.mr->rkey;
	write.addr = scene_to(&lodger.scene);
	while (lodger.out.tail < RING_CELLS - 1) {
		const uint8_t *payload;
		struct rc_frame read = {.kind = RC_READ, .key = write.key, .addr = write.addr};

		/* A read of nothing, and its answer: the ring goes on. */
		lodger_put(&lodger, &read, 0);
		lodger_take(&lodger, &payload);
	}
	refuse_length(&lodger, RING_CELL);
}

/* ---- messages ---- */

static void test_send_longer_than_its_receive_fails_it(void **state)
{
	struct rc_frame piece = {.kind = RC_SEND, .len = ROOM / 2 + 1};
	struct lodger lodger;
	struct ibv_wc wc;

	(void)state;
	lodger_open(&lodger);
	lodger_put(&lodger, &piece, 0x31);
	lodger_put(&lodger, &piece, 0x31);
	wc = cq_expect(lodger.scene.side.recv_cq, 0, IBV_WC_LOC_LEN_ERR);
	tally_count(&lodger.scene.recvs, &wc);
	lodger_expect_terminate(&lodger, TERM_DDP_TOO_LONG);
	lodger_close(&lodger);
}

static void refuse_ref(uint64_t length, uint32_t len, const struct ibv_sge *pieces, uint16_t code)
{
	struct rc_frame entry = {
		.kind = RC_SEND_FETCH, .flags = RC_LAST, .len = len, .arg = length};
	struct lodger lodger;

	lodger_open(&lodger);
	lodger_put_bytes(&lodger, &entry, pieces);
	lodger_expect_terminate(&lodger, code);
	lodger_close(&lodger);
}

static void test_reference_that_is_wrong_is_refused(void **state)
{
	static uint8_t here[64];
	struct ibv_sge pieces[17] = {{.addr = (uintptr_t)here, .length = 64}};
	struct ibv_sge nowhere = {.addr = 64, .length = 64};

	(void)state;
	for (unsigned i = 1; i < 17; i++)
		pieces[i] = (struct ibv_sge){.addr = (uintptr_t)here, .length = 1};
	refuse_ref(0, sizeof(*pieces), pieces, TERM_RDMAP_STREAM);
	refuse_ref(65, sizeof(*pieces), pieces, TERM_RDMAP_STREAM);
	refuse_ref(63, sizeof(*pieces), pieces, TERM_RDMAP_STREAM);
	refuse_ref(64, sizeof(*pieces) - 1, pieces, TERM_RDMAP_STREAM);
	refuse_ref((1ull << 32) + 64, sizeof(*pieces), pieces, TERM_RDMAP_STREAM);
	refuse_ref(80, 17 * sizeof(*pieces), pieces, TERM_RDMAP_STREAM);
	refuse_ref(64, 0, NULL, TERM_RDMAP_STREAM);
	refuse_ref(64, sizeof(nowhere), &nowhere, TERM_RDMAP_LOCAL);
}

static void test_reference_in_the_middle_of_a_send_is_refused(void **state)
{
	struct rc_frame piece = {.kind = RC_SEND, .len = 8};
	struct rc_frame ref = {
		.kind = RC_SEND_FETCH, .flags = RC_LAST, .len = sizeof(struct ibv_sge), .arg = 8};
	struct ibv_sge where = {.addr = (uintptr_t)&ref, .length = 8};
	struct lodger lodger;

	(void)state;
	lodger_open(&lodger);
	lodger_put(&lodger, &piece, 0x31);
	lodger_put_bytes(&lodger, &ref, &where);
	lodger_expect_terminate(&lodger, TERM_RDMAP_STREAM);
	lodger_close(&lodger);
}

/* No receive is there yet, so that both would wait for one. */
static void refuse_inside_send_that_waits(struct rc_frame entry)
{
	static const struct scene_options none = {.no_recv = 1};
	const struct ibv_sge where = {.addr = (uintptr_t)&entry, .length = 8};
	struct rc_frame piece = {.kind = RC_SEND, .len = 8};
	struct lodger lodger;

	lodger_meet(&lodger, &none);
	lodger_say_hello(&lodger);
	lodger_put(&lodger, &piece, 0x31);
	lodger_put_bytes(&lodger, &entry, &where);
	lodger_expect_terminate(&lodger, TERM_RDMAP_STREAM);
	lodger_close(&lodger);
}

static void test_other_message_inside_a_send_that_waits_is_refused(void **state)
{
	(void)state;
	refuse_inside_send_that_waits((struct rc_frame){.kind = RC_WRITE_IMM, .arg = 8});
	refuse_inside_send_that_waits((struct rc_frame){
		.kind = RC_SEND_FETCH, .flags = RC_LAST, .len = sizeof(struct ibv_sge), .arg = 8});
}

/* ---- memory ---- */

static void refuse_access(struct rc_frame entry, const struct scene_options *options,
			  uint32_t key_change, uint64_t at, uint16_t code)
{
	struct lodger lodger;

	lodger_meet(&lodger, options);
	lodger_say_hello(&lodger);
	entry.key = lodger.scene.mr->rkey ^ key_change;
	entry.addr = scene_to(&lodger.scene) + at;
	lodger_put(&lodger, &entry, 0x99);
	lodger_expect_terminate(&lodger, code);
	assert_true(scene_is_untouched(&lodger.scene));
	lodger_close(&lodger);
}

static const struct scene_options readable = {.access = IBV_ACCESS_LOCAL_WRITE |
							IBV_ACCESS_REMOTE_READ};
static const struct scene_options writable = {.access = IBV_ACCESS_LOCAL_WRITE |
							IBV_ACCESS_REMOTE_WRITE};

static void test_write_outside_what_is_offered_is_refused(void **state)
{
	static const struct rc_frame entry = {.kind = RC_WRITE, .len = 64};

	(void)state;
	refuse_access(entry, NULL, 0x100, 0, TERM_DDP_INVALID_STAG);
	refuse_access(entry, NULL, 0, REGION - 63, TERM_DDP_BOUNDS);
	refuse_access(entry, NULL, 0, (uint64_t)-1, TERM_DDP_BOUNDS);
	refuse_access(entry, &readable, 0, 0, TERM_DDP_INVALID_STAG);
}

static void test_read_outside_what_is_offered_is_refused(void **state)
{
	static const struct rc_frame entry = {.kind = RC_READ, .arg = 64};
	static const struct rc_frame whole = {.kind = RC_READ, .arg = UINT32_MAX};
	static const struct rc_frame more = {.kind = RC_READ, .arg = 1ull << 32};

	(void)state;
	refuse_access(entry, NULL, 1, 0, TERM_RDMAP_INVALID_STAG);
	refuse_access(entry, NULL, 0, REGION - 63, TERM_RDMAP_BOUNDS);
	refuse_access(whole, NULL, 0, 0, TERM_RDMAP_BOUNDS);
	refuse_access(more, NULL, 0, 0, TERM_RDMAP_STREAM);
	refuse_access(entry, &writable, 0, 0, TERM_RDMAP_ACCESS);
}

static void test_atomic_outside_what_is_offered_is_refused(void **state)
{
	static const struct rc_frame entry = {.kind = RC_ATOMIC, .len = 8};
	static const struct rc_frame empty = {.kind = RC_ATOMIC};

	(void)state;
	refuse_access(entry, NULL, 0, 0, TERM_RDMAP_ACCESS);
	refuse_access(entry, NULL, 0x4000, 0, TERM_RDMAP_INVALID_STAG);
	refuse_access(entry, NULL, 0, REGION, TERM_RDMAP_BOUNDS);
	refuse_access(empty, NULL, 0, 0, TERM_RDMAP_STREAM);
}

static void test_more_reads_than_were_agreed_on_are_refused(void **state)
{
	struct rc_frame read = {.kind = RC_READ, .arg = REGION};
	struct lodger lodger;

	(void)state;
	lodger_open(&lodger);
	read.key = lodger.scene.mr->rkey;
	read.addr = scene_to(&lodger.scene);
	/* All at once, before any can be answered. */
	for (unsigned i = 0; i < 20; i++)
		lodger_put_quietly(&lodger, &read, NULL);
	lodger_ring(&lodger);
	lodger_expect_terminate(&lodger, TERM_RDMAP_STREAM);
	lodger_close(&lodger);
}

static void test_answer_that_nobody_asked_for_is_refused(void **state)
{
	(void)state;
	lodger_refuse(&(struct rc_frame){.kind = RC_READ_DATA, .flags = RC_LAST, .len = 8},
		      TERM_RDMAP_OPCODE);
	lodger_refuse(&(struct rc_frame){.kind = RC_RESULT}, TERM_RDMAP_OPCODE);
}

static void test_acknowledgement_of_what_was_not_sent_is_refused(void **state)
{
	struct lodger lodger;

	(void)state;
	lodger_open(&lodger);
	lodger_expect_alive(&lodger);
	atomic_store(&lodger.area->side[AREA_INITIATOR].placed, RING_CELLS / 2);
	lodger_ring(&lodger);
	lodger_expect_terminate(&lodger, TERM_RDMAP_STREAM);
	lodger_close(&lodger);
}

static void test_header_that_acknowledges_what_was_not_sent_is_refused(void **state)
{
	struct rc_frame send = {.kind = RC_SEND, .flags = RC_LAST, .len = 200};
	struct lodger lodger;

	(void)state;
	lodger_open(&lodger);
	lodger_expect_alive(&lodger);
	lodger.out.placed = RING_CELLS / 2;
	lodger_put(&lodger, &send, 1);
	lodger_expect_terminate(&lodger, TERM_RDMAP_STREAM);
	lodger_close(&lodger);
}

static void test_answer_longer_than_the_read_is_refused(void **state)
{
	struct rc_frame data = {.kind = RC_READ_DATA, .len = 65}, asked;
	struct lodger lodger;
	const uint8_t *payload;

	(void)state;
	lodger_open(&lodger);
	side_post(&lodger.scene.side, &(struct request){.opcode = IBV_WR_RDMA_READ,
							.id = 5,
							.at = 40 * KIB,
							.len = 64,
							.flags = IBV_SEND_SIGNALED});
	asked = lodger_take(&lodger, &payload);
	assert_int_equal(asked.kind, RC_READ);
	lodger_put(&lodger, &data, 0x13);
	lodger_expect_terminate(&lodger, TERM_DDP_BOUNDS);
	cq_expect(lodger.scene.side.send_cq, 5, IBV_WC_WR_FLUSH_ERR);
	assert_true(is_all(lodger.scene.side.buf + 40 * KIB, 128, FRESH));
	lodger_close(&lodger);
}

/* ---- indices and words that lie ---- */

static void test_index_that_lies_ends_the_liars_connection(void **state)
{
	struct lodger lodger;
	unsigned posted = 0;

	(void)state;
	lodger_open(&lodger);
	lodger_expect_alive(&lodger);
	atomic_store(&lodger.area->side[AREA_INITIATOR].consumed, 0x40000000);
	/* The side looks at it when its ring seems full. */
	while (posted < 2 * RING_CELLS && lodger.scene.side.qp->state == IBV_QPS_RTS) {
		struct ibv_wc wc;

		side_try(&lodger.scene.side, &(struct request){.opcode = IBV_WR_SEND,
							       .id = posted++,
							       .at = 32 * KIB,
							       .len = 8 * KIB,
							       .flags = IBV_SEND_SIGNALED});
		ibv_poll_cq(lodger.scene.side.send_cq, 1, &wc);
	}
	assert_true(posted < 2 * RING_CELLS);
	lodger_expect_terminate(&lodger, TERM_RDMAP_STREAM);
	lodger_close(&lodger);
}

/* ---- deregistration ---- */

/* It says that it copies, and never that it is done: a second, then it is thrown out. */
static void test_copy_without_end_does_not_stop_deregistration(void **state)
{
	struct lodger lodger;
	struct area_hold *hold;
	uint64_t begin;

	(void)state;
	lodger_open(&lodger);
	lodger_expect_alive(&lodger);
	hold = &lodger.area->side[AREA_INITIATOR].hold;
	hold->remote = (struct iovec){.iov_base = lodger.scene.region, .iov_len = 64};
	atomic_store(&hold->key, lodger.scene.mr->rkey);
	begin = now_ms();
	assert_int_equal(ibv_dereg_mr(lodger.scene.mr), 0);
	lodger.scene.mr = NULL;
	assert_true(now_ms() - begin >= 900 && now_ms() - begin < WAIT_MS);
	assert_int_equal(hold->remote.iov_len, 0);
	scene_expect_disconnected(&lodger.scene);
	lodger_close(&lodger);
}

static void test_copy_of_other_memory_does_not_hold_up_deregistration(void **state)
{
	struct lodger lodger;
	struct area_hold *hold;

	(void)state;
	lodger_open(&lodger);
	hold = &lodger.area->side[AREA_INITIATOR].hold;
	hold->remote.iov_len = 64;
	atomic_store(&hold->key, lodger.scene.mr->rkey ^ 0x100);
	assert_int_equal(ibv_dereg_mr(lodger.scene.mr), 0);
	lodger.scene.mr = NULL;
	assert_int_equal(hold->remote.iov_len, 64);
	lodger_expect_alive(&lodger);
	lodger_close(&lodger);
}

/* ---- noise ---- */

static uint32_t noise(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

/* Somewhere in the area: the ends' words, or near where the side reads. */
static void scribble(struct lodger *lodger, uint32_t *seed)
{
	uint8_t *words = (uint8_t *)lodger->area;
	size_t at = noise(seed) % 3 ? offsetof(struct area, ring) + noise(seed) % (16 * RING_CELL)
				    : noise(seed) % (2 * sizeof(struct area_side));
	uint32_t value = noise(seed);

	/* Mostly what could pass for an entry. */
	if (noise(seed) % 2)
		value = value % RC_KINDS | (value & RC_FLAGS) << 8;
	memcpy(words + at / 4 * 4, &value, sizeof(value));
}

static void drain(struct side *side, struct tally *recvs)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(side->send_cq, 1, &wc) > 0)
		continue;
	while (ibv_poll_cq(side->recv_cq, 1, &wc) > 0)
		tally_count(recvs, &wc);
}

static void test_noise_all_over_harms_nobody_else(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < 60; round++) {
		uint32_t seed = round * 7919 + 1;
		struct lodger lodger;
		struct side *side = &lodger.scene.side;

		lodger_open(&lodger);
		for (unsigned i = 0; i < 400; i++) {
			scribble(&lodger, &seed);
			if (i % 8 == 0)
				lodger_ring(&lodger);
			if (i % 16 == 0)
				side_try(side,
					 &(struct request){.opcode = i % 32 ? IBV_WR_SEND
									    : IBV_WR_RDMA_READ,
							   .id = i,
							   .at = 32 * KIB,
							   .len = 64});
			drain(side, &lodger.scene.recvs);
		}
		close(lodger.fd);
		lodger.fd = -1;
		scene_expect_disconnected(&lodger.scene);
		lodger_close(&lodger);
	}
	house_check_newcomer();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lodger_that_behaves_is_served),
		cmocka_unit_test(test_entry_of_no_kind_is_refused),
		cmocka_unit_test(test_entry_longer_than_any_is_refused),
		cmocka_unit_test(test_entry_over_the_end_of_the_ring_is_refused),
		cmocka_unit_test(test_send_longer_than_its_receive_fails_it),
		cmocka_unit_test(test_reference_that_is_wrong_is_refused),
		cmocka_unit_test(test_reference_in_the_middle_of_a_send_is_refused),
		cmocka_unit_test(test_other_message_inside_a_send_that_waits_is_refused),
		cmocka_unit_test(test_write_outside_what_is_offered_is_refused),
		cmocka_unit_test(test_read_outside_what_is_offered_is_refused),
		cmocka_unit_test(test_atomic_outside_what_is_offered_is_refused),
		cmocka_unit_test(test_more_reads_than_were_agreed_on_are_refused),
		cmocka_unit_test(test_answer_that_nobody_asked_for_is_refused),
		cmocka_unit_test(test_acknowledgement_of_what_was_not_sent_is_refused),
		cmocka_unit_test(test_header_that_acknowledges_what_was_not_sent_is_refused),
		cmocka_unit_test(test_answer_longer_than_the_read_is_refused),
		cmocka_unit_test(test_index_that_lies_ends_the_liars_connection),
		cmocka_unit_test(test_copy_without_end_does_not_stop_deregistration),
		cmocka_unit_test(test_copy_of_other_memory_does_not_hold_up_deregistration),
		cmocka_unit_test(test_noise_all_over_harms_nobody_else),
	};

	return cmocka_run_group_tests_name("shm_ring", tests, house_open, house_close);
}
