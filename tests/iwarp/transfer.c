/* SPDX-License-Identifier: MIT */
/* Sends, writes and reads: by region and by list, of every length, signalled and not. */
#include "link.h"

#define BYTES ((size_t)256 * KIB)

/* A link, a buffer at each end, and the server's as the client knows it. */
struct stage {
	struct link link;
	struct iw_lmr mine, theirs;
	struct iw_rmr rmr;
};

static void stage_open_as(struct stage *stage, int capacity, size_t bytes)
{
	memset(stage, 0, sizeof(*stage));
	stage->link.capacity = capacity;
	link_open_as(&stage->link);
	link_offer(&stage->link.server, &stage->link.client, bytes, BOTH, &stage->theirs,
		   &stage->rmr);
	must(iw_lmr_create(bytes, LOCAL, &stage->mine, &stage->link.client));
}

static void stage_open(struct stage *stage)
{
	stage_open_as(stage, 0, BYTES);
}

static void stage_close(struct stage *stage)
{
	must(iw_lmr_destroy(&stage->mine, 1));
	must(iw_lmr_destroy(&stage->theirs, 1));
	link_close(&stage->link);
}

/* ---- messages ---- */

static void test_message_arrives_at_its_offset(void **state)
{
	struct stage stage;
	struct ibv_wc wc;

	(void)state;
	stage_open(&stage);
	fill(stage.mine.addr, BYTES, 1);
	must(post_recv_lmr(&stage.theirs, 100, 1000, &stage.link.server));
	must(post_send_lmr(&stage.mine, 0, 500, SIGNAL, &stage.link.client));
	wc = link_await(&stage.link.client, IW_SCQ, 1);
	assert_int_equal(wc.wr_id, stage.link.client.last_wr_id);
	wc = link_await(&stage.link.server, IW_RCQ, 1);
	assert_int_equal(wc.wr_id, stage.link.server.last_wr_id);
	assert_int_equal(wc.byte_len, 500);
	assert_true(is_all(stage.theirs.addr, 100, 0));
	assert_true(is_filled((uint8_t *)stage.theirs.addr + 100, 500, 1));
	assert_true(is_all((uint8_t *)stage.theirs.addr + 600, BYTES - 600, 0));
	stage_close(&stage);
}

/* Three pieces here, two there. */
static void test_message_is_gathered_and_scattered(void **state)
{
	struct iw_sgl from, to;
	struct stage stage;
	uint8_t *bytes;

	(void)state;
	stage_open(&stage);
	fill(stage.mine.addr, 300, 2);
	iw_sgl_init(&from);
	must(iw_sgl_add(&from, &stage.mine, 0, 100));
	must(iw_sgl_add(&from, &stage.mine, 100, 50));
	must(iw_sgl_add(&from, &stage.mine, 150, 150));
	iw_sgl_init(&to);
	must(iw_sgl_add(&to, &stage.theirs, 1000, 200));
	must(iw_sgl_add(&to, &stage.theirs, 5000, 100));
	must(post_recv_sgl(&to, &stage.link.server));
	must(post_send_sgl(&from, SIGNAL, &stage.link.client));
	link_await(&stage.link.client, IW_SCQ, 1);
	assert_int_equal(link_await(&stage.link.server, IW_RCQ, 1).byte_len, 300);
	bytes = stage.theirs.addr;
	memmove(bytes + 1200, bytes + 5000, 100);
	assert_true(is_filled(bytes + 1000, 300, 2));
	stage_close(&stage);
}

static void test_message_beyond_the_devices_limits_is_refused(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct iw_sgl list;
	struct stage stage;

	(void)state;
	stage_open(&stage);
	assert_int_equal(ibv_query_device(stage.link.client.cm_id->verbs, &attr), 0);
	iw_sgl_init(&list);
	for (unsigned i = 0; i < IW_MAX_SGE; i++)
		must(iw_sgl_add(&list, &stage.mine, i, 1));
	if (attr.max_sge < IW_MAX_SGE) {
		must_fail(post_send_sgl(&list, 0, &stage.link.client), E2BIG);
		must_fail(post_recv_sgl(&list, &stage.link.client), E2BIG);
	} else {
		must(post_recv_sgl(&list, &stage.link.client));
	}
	assert_int_equal(ibv_query_port(stage.link.client.cm_id->verbs, 1, &port), 0);
	if (port.max_msg_sz < 16 * MIB) {
		struct iw_lmr large;

		must(iw_lmr_create(port.max_msg_sz + 1u, LOCAL, &large, &stage.link.client));
		must_fail(post_send_lmr(&large, 0, large.length, 0, &stage.link.client), EMSGSIZE);
		must(iw_lmr_destroy(&large, 1));
	}
	stage_close(&stage);
}

static void test_full_receive_queue_is_told(void **state)
{
	struct stage stage;

	(void)state;
	stage_open_as(&stage, 4, 4096);
	for (unsigned i = 0; i < 4; i++)
		must(post_recv_lmr(&stage.theirs, 0, 64, &stage.link.server));
	must_fail(post_recv_lmr(&stage.theirs, 0, 64, &stage.link.server), ENOMEM);
	must_fail(iw_post_recv_adv(&stage.link.server), ENOMEM);
	must(post_send_lmr(&stage.mine, 0, 64, SIGNAL, &stage.link.client));
	link_await(&stage.link.client, IW_SCQ, 1);
	link_await(&stage.link.server, IW_RCQ, 1);
	must(post_recv_lmr(&stage.theirs, 0, 64, &stage.link.server));
	stage_close(&stage);
}

/* ---- one-sided ---- */

/* Write @len bytes of @seed from @at here to @to there, then read them back to elsewhere. */
static void there_and_back(struct stage *stage, size_t at, uint64_t to, size_t len, unsigned seed)
{
	struct iw_lmr back;

	fill((uint8_t *)stage->mine.addr + at, len, seed);
	must(post_write_lmr(&stage->mine, at, &stage->rmr, to, len, SIGNAL, &stage->link.client));
	assert_int_equal(link_await(&stage->link.client, IW_SCQ, 1).wr_id,
			 stage->link.client.last_wr_id);
	must(iw_lmr_create(len + 2, LOCAL, &back, &stage->link.client));
	must(post_read_lmr(&back, 1, &stage->rmr, to, len, SIGNAL, &stage->link.client));
	link_await(&stage->link.client, IW_SCQ, 1);
	assert_true(is_filled((uint8_t *)back.addr + 1, len, seed));
	assert_int_equal(peek(back.addr), 0);
	assert_int_equal(peek((uint8_t *)back.addr + len + 1), 0);
	assert_true(is_filled((uint8_t *)stage->theirs.addr + to, len, seed));
	must(iw_lmr_destroy(&back, 1));
}

static void test_write_and_read_of_every_kind_of_length(void **state)
{
	static const size_t lengths[] = {1, 63, 64, 65, 4095, 4096, 4097, 70001};
	struct stage stage;

	(void)state;
	stage_open(&stage);
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++)
		there_and_back(&stage, i, 17 * (uint64_t)i, lengths[i], i);
	there_and_back(&stage, 0, 0, BYTES, 40);
	there_and_back(&stage, 5, BYTES - 1, 1, 41);
	stage_close(&stage);
}

static void test_transfer_of_nothing_completes(void **state)
{
	struct iw_sgl nothing;
	struct stage stage;

	(void)state;
	stage_open(&stage);
	iw_sgl_init(&nothing);
	must(post_write_lmr(&stage.mine, 0, &stage.rmr, 0, 0, SIGNAL, &stage.link.client));
	must(post_write_sgl(&nothing, &stage.rmr, BYTES, SIGNAL, &stage.link.client));
	must(post_read_lmr(&stage.mine, BYTES, &stage.rmr, BYTES, 0, SIGNAL, &stage.link.client));
	link_await(&stage.link.client, IW_SCQ, 3);
	link_ping(&stage.link.client, &stage.link.server);
	stage_close(&stage);
}

static void test_one_byte_past_is_refused_here(void **state)
{
	struct iw_rmr shifted;
	struct stage stage;

	(void)state;
	stage_open(&stage);
	struct iw_ctx_conn *client = &stage.link.client;

	must_fail(post_write_lmr(&stage.mine, 0, &stage.rmr, 1, BYTES, SIGNAL, client), EINVAL);
	must_fail(post_read_lmr(&stage.mine, 0, &stage.rmr, 1, BYTES, SIGNAL, client), EINVAL);
	must_fail(post_write_lmr(&stage.mine, 1, &stage.rmr, 0, BYTES, SIGNAL, client), EINVAL);
	must_fail(post_read_lmr(&stage.mine, 1, &stage.rmr, 0, BYTES, SIGNAL, client), EINVAL);
	must_fail(post_write_lmr(&stage.mine, 0, &stage.rmr, BYTES + 1, 0, SIGNAL, client), EINVAL);
	must_fail(post_write_lmr(&stage.mine, 0, &stage.rmr, UINT64_MAX, 2, SIGNAL, client),
		  EINVAL);
	must_fail(post_read_lmr(&stage.mine, SIZE_MAX, &stage.rmr, 0, 2, SIGNAL, client), EINVAL);
	must_fail(post_send_lmr(&stage.mine, 1, BYTES, SIGNAL, client), EINVAL);
	must_fail(post_recv_lmr(&stage.mine, 1, BYTES, client), EINVAL);
	shifted = stage.rmr;
	shifted.length = 0;
	must_fail(post_write_lmr(&stage.mine, 0, &shifted, 0, 1, SIGNAL, client), EINVAL);
	must_fail(post_write_lmr(&stage.mine, 0, NULL, 0, 1, SIGNAL, client), EINVAL);
	/* Nothing of it has harmed the connection. */
	there_and_back(&stage, 0, 0, BYTES, 5);
	stage_close(&stage);
}

static void test_rights_are_checked_here(void **state)
{
	struct iw_lmr to, from;
	struct iw_rmr readable, writable;
	struct stage stage;

	(void)state;
	stage_open(&stage);
	struct iw_ctx_conn *client = &stage.link.client;

	link_offer(&stage.link.server, client, 64, READ, &to, &readable);
	must_fail(post_write_lmr(&stage.mine, 0, &readable, 0, 1, 0, client), EACCES);
	must(iw_lmr_destroy(&to, 1));
	link_offer(&stage.link.server, client, 64, WRITE, &to, &writable);
	must_fail(post_read_lmr(&stage.mine, 0, &writable, 0, 1, 0, client), EACCES);
	must(iw_lmr_create(64, 0, &from, client));
	must(post_write_lmr(&from, 0, &writable, 0, 64, SIGNAL, client));
	link_await(client, IW_SCQ, 1);
	must_fail(post_read_lmr(&from, 0, &stage.rmr, 0, 1, 0, client), EACCES);
	must_fail(post_recv_lmr(&from, 0, 1, client), EACCES);
	link_ping(client, &stage.link.server);
	must(iw_lmr_destroy(&from, 1));
	must(iw_lmr_destroy(&to, 1));
	stage_close(&stage);
}

/* More pieces than some devices take at once, some of them empty. */
static void test_lists_of_many_pieces_are_written_and_read(void **state)
{
	uint8_t *bytes, *back;
	struct iw_sgl list;
	struct stage stage;
	size_t total = 0;

	(void)state;
	stage_open(&stage);
	bytes = stage.mine.addr;
	fill(bytes, BYTES, 6);
	iw_sgl_init(&list);
	for (unsigned i = 0; i < IW_MAX_SGE; i++) {
		must(iw_sgl_add(&list, &stage.mine, total, (size_t)i % 5 * 1000));
		total += (size_t)i % 5 * 1000;
	}
	must(post_write_sgl(&list, &stage.rmr, 77, SIGNAL, &stage.link.client));
	assert_int_equal(link_await(&stage.link.client, IW_SCQ, 1).wr_id,
			 stage.link.client.last_wr_id);
	link_ping(&stage.link.client, &stage.link.server);
	assert_true(is_filled((uint8_t *)stage.theirs.addr + 77, total, 6));
	assert_int_equal(peek((uint8_t *)stage.theirs.addr + 77 + total), 0);

	/* Back into pieces that lie 100 apart. */
	back = bytes + BYTES / 2;
	memset(back, 0, BYTES / 2);
	iw_sgl_init(&list);
	for (unsigned i = 0; i < 10; i++)
		must(iw_sgl_add(&list, &stage.mine, BYTES / 2 + (size_t)i * 1100, 1000));
	must(post_read_sgl(&list, &stage.rmr, 77, SIGNAL, &stage.link.client));
	assert_int_equal(link_await(&stage.link.client, IW_SCQ, 1).wr_id,
			 stage.link.client.last_wr_id);
	for (unsigned i = 0; i < 10; i++) {
		assert_memory_equal(back + (size_t)i * 1100, bytes + (size_t)i * 1000, 1000);
		assert_true(is_all(back + (size_t)i * 1100 + 1000, 100, 0));
	}
	stage_close(&stage);
}

/* Longer than rxe's longest message. */
static void test_long_transfer_is_cut_up_and_completes_once(void **state)
{
	const size_t bytes = (size_t)20 * MIB + 13;
	struct stage stage;
	struct ibv_wc wc;

	(void)state;
	stage_open_as(&stage, 2, bytes);
	fill(stage.mine.addr, bytes, 8);
	must(post_write_lmr(&stage.mine, 0, &stage.rmr, 0, bytes, SIGNAL, &stage.link.client));
	assert_int_equal(link_await(&stage.link.client, IW_SCQ, 1).wr_id,
			 stage.link.client.last_wr_id);
	link_ping(&stage.link.client, &stage.link.server);
	assert_true(is_filled(stage.theirs.addr, bytes, 8));
	memset(stage.mine.addr, 0, bytes);
	must(post_read_lmr(&stage.mine, 0, &stage.rmr, 0, bytes, SIGNAL, &stage.link.client));
	assert_int_equal(link_await(&stage.link.client, IW_SCQ, 1).wr_id,
			 stage.link.client.last_wr_id);
	assert_true(is_filled(stage.mine.addr, bytes, 8));
	must_fail(await_completions_timeout(IW_SCQ, 1, &wc, 0, &stage.link.client), ETIMEDOUT);
	stage_close(&stage);
}

/* What is read into is not thereby open to the peer: the key that it knows has its rights alone. */
static void test_read_leaves_the_sinks_rights_alone(void **state)
{
	struct iw_lmr sink;
	struct iw_rmr rmr;
	struct stage stage;

	(void)state;
	stage_open(&stage);
	fill(stage.theirs.addr, 64, 9);
	link_offer(&stage.link.client, &stage.link.server, 64, READ, &sink, &rmr);
	must(post_read_lmr(&sink, 0, &stage.rmr, 0, 64, SIGNAL, &stage.link.client));
	link_await(&stage.link.client, IW_SCQ, 1);
	assert_true(is_filled(sink.addr, 64, 9));
	/* The server writes to it all the same: it must not succeed. */
	rmr.access_flags |= IBV_ACCESS_REMOTE_WRITE;
	must(post_write_lmr(&stage.theirs, 64, &rmr, 0, 64, 0, &stage.link.server));
	must(iw_post_recv_adv(&stage.link.server));
	assert_int_equal(iw_wait_recv_adv_timeout(&rmr, WAIT_MS, &stage.link.server), -1);
	assert_int_not_equal(errno, ETIMEDOUT);
	assert_true(is_filled(sink.addr, 64, 9));
	must(iw_lmr_destroy(&sink, 1));
	must(iw_lmr_destroy(&stage.mine, 1));
	must(iw_lmr_destroy(&stage.theirs, 1));
	must(iw_ctx_free(&stage.link.client));
	must(iw_ctx_free(&stage.link.server));
	must(iw_close(&stage.link.listener));
}

/* ---- many ---- */

#define MANY 1000

static void test_thousand_signalled_writes_complete_in_order(void **state)
{
	struct ibv_wc *wc = calloc(MANY, sizeof(*wc));
	uint64_t *numbers = calloc(MANY, sizeof(*numbers));
	struct stage stage;

	(void)state;
	assert_non_null(wc);
	assert_non_null(numbers);
	stage_open_as(&stage, MANY, BYTES);
	fill(stage.mine.addr, MANY * 64, 11);
	for (size_t i = 0; i < MANY; i++) {
		must(post_write_lmr(&stage.mine, i * 64, &stage.rmr, i * 64, 64, SIGNAL,
				    &stage.link.client));
		numbers[i] = stage.link.client.last_wr_id;
	}
	must(await_completions_timeout(IW_SCQ, MANY, wc, WAIT_MS, &stage.link.client));
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(wc[i].wr_id, numbers[i]);
	link_ping(&stage.link.client, &stage.link.server);
	assert_true(is_filled(stage.theirs.addr, MANY * 64, 11));
	free(wc);
	free(numbers);
	stage_close(&stage);
}

/* The queue is far shorter than what is posted, and nothing is signalled but the last. */
static void test_unsignalled_operations_never_fill_the_queue(void **state)
{
	static const int capacities[] = {1, 2, 3, 16};
	struct stage stage;
	struct ibv_wc wc;

	(void)state;
	for (unsigned c = 0; c < ARRAY_SIZE(capacities); c++) {
		stage_open_as(&stage, capacities[c], BYTES);
		fill(stage.mine.addr, 200 * 100, c);
		for (size_t i = 0; i < 200; i++)
			must(post_write_lmr(&stage.mine, i * 100, &stage.rmr, i * 100, 100, 0,
					    &stage.link.client));
		must(post_read_lmr(&stage.mine, 50000, &stage.rmr, 0, 1, SIGNAL,
				   &stage.link.client));
		assert_int_equal(link_await(&stage.link.client, IW_SCQ, 1).wr_id,
				 stage.link.client.last_wr_id);
		must_fail(await_completions_timeout(IW_SCQ, 1, &wc, 0, &stage.link.client),
			  ETIMEDOUT);
		link_ping(&stage.link.client, &stage.link.server);
		assert_true(is_filled(stage.theirs.addr, 200 * 100, c));
		stage_close(&stage);
	}
}

/* More signalled ones than the queue holds: their completions are kept for whoever asks. */
static void test_completions_wait_until_they_are_asked_for(void **state)
{
	struct ibv_wc wc[100];
	struct stage stage;

	(void)state;
	stage_open_as(&stage, 4, BYTES);
	for (unsigned i = 0; i < 100; i++)
		must(post_read_lmr(&stage.mine, i, &stage.rmr, i, 1, SIGNAL, &stage.link.client));
	must(await_completions_timeout(IW_SCQ, 40, wc, WAIT_MS, &stage.link.client));
	must(await_completions_timeout(IW_SCQ, 60, wc + 40, WAIT_MS, &stage.link.client));
	for (unsigned i = 1; i < 100; i++)
		assert_true(wc[i].wr_id > wc[i - 1].wr_id);
	assert_int_equal(wc[99].wr_id, stage.link.client.last_wr_id);
	stage_close(&stage);
}

static void test_flags_are_understood_or_refused(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage);
	must_fail(post_send_lmr(&stage.mine, 0, 8, 1 << 20, &stage.link.client), EINVAL);
	must_fail(post_send_lmr(&stage.mine, 0, 65536, IBV_SEND_INLINE, &stage.link.client),
		  EINVAL);
	must_fail(post_read_lmr(&stage.mine, 0, &stage.rmr, 0, 8, IBV_SEND_INLINE,
				&stage.link.client),
		  EINVAL);
	must(post_recv_lmr(&stage.theirs, 0, 64, &stage.link.server));
	must(post_send_lmr(&stage.mine, 0, 8, SIGNAL | IBV_SEND_FENCE | IBV_SEND_SOLICITED,
			   &stage.link.client));
	link_await(&stage.link.client, IW_SCQ, 1);
	link_await(&stage.link.server, IW_RCQ, 1);
	stage_close(&stage);
}

/* A request of the application's own, beside the library's. */
static void test_verbs_may_be_used_beside_the_library(void **state)
{
	struct ibv_send_wr wr = {.wr_id = (UINT64_C(1) << 62) + 5,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct stage stage;
	struct ibv_wc wc[2];

	(void)state;
	stage_open(&stage);
	must(post_write_lmr(&stage.mine, 0, &stage.rmr, 0, 8, SIGNAL, &stage.link.client));
	assert_int_equal(ibv_post_send(stage.link.client.qp, &wr, &bad), 0);
	must(await_completions_timeout(IW_SCQ, 2, wc, WAIT_MS, &stage.link.client));
	assert_int_equal(wc[0].wr_id, stage.link.client.last_wr_id);
	assert_int_equal(wc[1].wr_id, wr.wr_id);
	stage_close(&stage);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message_arrives_at_its_offset),
		cmocka_unit_test(test_message_is_gathered_and_scattered),
		cmocka_unit_test(test_message_beyond_the_devices_limits_is_refused),
		cmocka_unit_test(test_full_receive_queue_is_told),
		cmocka_unit_test(test_write_and_read_of_every_kind_of_length),
		cmocka_unit_test(test_transfer_of_nothing_completes),
		cmocka_unit_test(test_one_byte_past_is_refused_here),
		cmocka_unit_test(test_rights_are_checked_here),
		cmocka_unit_test(test_lists_of_many_pieces_are_written_and_read),
		cmocka_unit_test(test_long_transfer_is_cut_up_and_completes_once),
		cmocka_unit_test(test_read_leaves_the_sinks_rights_alone),
		cmocka_unit_test(test_thousand_signalled_writes_complete_in_order),
		cmocka_unit_test(test_unsignalled_operations_never_fill_the_queue),
		cmocka_unit_test(test_completions_wait_until_they_are_asked_for),
		cmocka_unit_test(test_flags_are_understood_or_refused),
		cmocka_unit_test(test_verbs_may_be_used_beside_the_library),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
