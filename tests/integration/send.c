/* SPDX-License-Identifier: MIT */
/* Two-sided transfers: sizes, pieces, inline data, signalling, one CQ, invalidation. */
#include "pair.h"

static uint32_t largest_message(const struct side *side)
{
	struct ibv_port_attr port;

	assert_int_equal(ibv_query_port(side->id->verbs, side->id->port_num, &port), 0);
	return port.max_msg_sz;
}

/* One message of @len bytes from @from to @to. */
static void transfer(struct side *from, struct side *to, uint32_t len, unsigned seed)
{
	struct ibv_wc wc;

	fill(from->buf, len, seed);
	memset(to->buf, 0xee, to->size);
	side_recv(to, 100 + seed, 0, (uint32_t)to->size);
	side_send(from, 200 + seed, 0, len);
	wc = cq_expect(to->recv_cq, 100 + seed, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, len);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.qp_num, to->qp->qp_num);
	assert_int_equal(wc.wc_flags, 0);
	wc = cq_expect(from->send_cq, 200 + seed, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_SEND);
	assert_int_equal(wc.qp_num, from->qp->qp_num);
	assert_true(is_filled(to->buf, len, seed));
	assert_true(is_all(to->buf + len, to->size - len, 0xee));
}

static void test_send_of_every_size_arrives_whole(void **state)
{
	static const uint32_t sizes[] = {0,     1,     3,     4,    511,     512,
					 513,   2047,  2048,  4096, 4097,    64734,
					 64768, 65535, 65536, MIB,  MIB + 1, 3 * MIB + 5};
	struct pair_options options = {.bytes = 3 * MIB + 64};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		transfer(&pair.client, &pair.server, sizes[i], i);
		transfer(&pair.server, &pair.client, sizes[i], i + 50);
	}
	cq_expect_none(pair.client.send_cq);
	pair_close(&pair);
}

static void test_send_of_64_mib_arrives_whole(void **state)
{
	struct pair_options options = {.bytes = 64 * MIB + 1};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	if (largest_message(&pair.client) >= 64 * MIB)
		transfer(&pair.client, &pair.server, 64 * MIB, 1);
	pair_close(&pair);
}

/* ---- pieces ---- */

/* @count pieces of unequal length, from the end of the buffer to its beginning. */
static uint32_t make_pieces(const struct side *side, struct ibv_sge *sge, unsigned count)
{
	uint32_t total = 0;

	for (unsigned i = 0; i < count; i++) {
		uint32_t len = i % 3 == 1 ? 0 : 100 * i + 700 * (i % 2) + 1;

		sge[i] = (struct ibv_sge){.addr = (uintptr_t)side->buf +
						  (size_t)(count - 1 - i) * 4096,
					  .length = len,
					  .lkey = side->mr->lkey};
		total += len;
	}
	return total;
}

static void copy_pieces(uint8_t *flat, const struct ibv_sge *sge, unsigned count, bool gather)
{
	for (unsigned i = 0; i < count; i++) {
		void *piece = (void *)(uintptr_t)sge[i].addr;

		memcpy(gather ? flat : piece, gather ? piece : flat, sge[i].length);
		flat += sge[i].length;
	}
}

static unsigned max_pieces(void)
{
	struct side probe = {0};
	struct ibv_device_attr attr;

	side_resolve(&probe, unused_port());
	assert_int_equal(ibv_query_device(probe.id->verbs, &attr), 0);
	rdma_destroy_id(probe.id);
	rdma_destroy_event_channel(probe.channel);
	return attr.max_sge < 32 ? (unsigned)attr.max_sge : 32;
}

static void send_pieces(struct pair *pair, unsigned out, unsigned in)
{
	struct ibv_sge from[32], to[32];
	uint32_t len = make_pieces(&pair->client, from, out);
	struct ibv_send_wr send = {.wr_id = 1,
				   .sg_list = from,
				   .num_sge = (int)out,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;
	struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = to, .num_sge = (int)in}, *bad_recv;
	uint8_t *flat = malloc(2 * (size_t)32 * 4096);
	uint32_t room = make_pieces(&pair->server, to, in);

	fill(flat, len, out);
	copy_pieces(flat, from, out, false);
	to[in - 1].length += len > room ? len - room : 0;
	assert_int_equal(ibv_post_recv(pair->server.qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(pair->client.qp, &send, &bad_send), 0);
	assert_int_equal(cq_expect(pair->server.recv_cq, 2, IBV_WC_SUCCESS).byte_len, len);
	cq_expect(pair->client.send_cq, 1, IBV_WC_SUCCESS);
	copy_pieces(flat, to, in, true);
	assert_true(is_filled(flat, len, out));
	free(flat);
}

static void test_send_pieces_up_to_the_limit_are_gathered_and_scattered(void **state)
{
	unsigned most = max_pieces();
	struct pair_options options = {.bytes = 2 * 32 * 4096, .sge = most};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned out = 1; out <= most; out++) {
		send_pieces(&pair, out, 1);
		send_pieces(&pair, out, most);
	}
	pair_close(&pair);
}

static void test_send_too_many_pieces_is_refused(void **state)
{
	struct ibv_sge pieces[40] = {{0}};
	struct ibv_send_wr send = {.sg_list = pieces, .num_sge = 33, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {.sg_list = pieces, .num_sge = 33}, *bad_recv;
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_not_equal(ibv_post_send(pair.client.qp, &send, &bad), 0);
	assert_ptr_equal(bad, &send);
	assert_int_not_equal(ibv_post_recv(pair.client.qp, &recv, &bad_recv), 0);
	assert_ptr_equal(bad_recv, &recv);
	transfer(&pair.client, &pair.server, 10, 1);
	pair_close(&pair);
}

/* ---- inline data ---- */

static void test_send_inline_buffer_may_be_reused_and_unregistered(void **state)
{
	struct pair_options options = {.inline_bytes = 64, .depth = 16};
	uint8_t bytes[64];
	struct ibv_sge piece = {.addr = (uintptr_t)bytes, .length = sizeof(bytes)};
	struct ibv_send_wr wr = {.sg_list = &piece,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED},
			   *bad;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 16; i++)
		side_recv(&pair.server, i, i * 64, 64);
	for (unsigned i = 0; i < 16; i++) {
		fill(bytes, sizeof(bytes), i);
		wr.wr_id = i;
		assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), 0);
	}
	memset(bytes, 0, sizeof(bytes));
	for (unsigned i = 0; i < 16; i++) {
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
		assert_true(is_filled(pair.server.buf + i * 64, 64, i));
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

static void test_send_inline_above_the_limit_is_refused(void **state)
{
	struct pair_options options = {.inline_bytes = 64};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_query_qp(pair.client.qp, &attr, IBV_QP_CAP, &init), 0);
	assert_true(init.cap.max_inline_data >= 64);
	assert_int_not_equal(
		side_try(&pair.client, &(struct request){.opcode = IBV_WR_SEND,
							 .len = init.cap.max_inline_data + 1,
							 .flags = IBV_SEND_INLINE}),
		0);
	transfer(&pair.client, &pair.server, 10, 1);
	pair_close(&pair);
}

/* ---- signalling and slots ---- */

static void test_send_unsignalled_completes_in_silence_and_frees_its_slot(void **state)
{
	struct pair_options options = {.depth = 8};
	struct request quiet = {.opcode = IBV_WR_SEND, .id = 9, .len = 16};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned round = 0; round < 32; round++) {
		for (unsigned i = 0; i < 8; i++)
			side_recv(&pair.server, i, 0, 64);
		for (unsigned i = 0; i < 7; i++)
			side_post(&pair.client, &quiet);
		side_send(&pair.client, round, 0, 16);
		for (unsigned i = 0; i < 8; i++)
			cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(pair.client.send_cq, round, IBV_WC_SUCCESS);
	}
	cq_expect_none(pair.client.send_cq);
	pair_close(&pair);
}

static void test_send_all_signalled_completes_each(void **state)
{
	struct pair_options options = {.depth = 8, .signal_all = true};
	struct request request = {.opcode = IBV_WR_SEND, .len = 16};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 8; i++) {
		side_recv(&pair.server, i, 0, 64);
		request.id = i;
		side_post(&pair.client, &request);
	}
	for (unsigned i = 0; i < 8; i++)
		cq_expect(pair.client.send_cq, i, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void test_recv_posted_to_a_full_queue_gives_enomem(void **state)
{
	struct pair_options options = {.depth = 8};
	struct ibv_recv_wr recv = {0}, *bad;
	struct pair pair;
	int error = 0;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 1024 && !error; i++)
		error = ibv_post_recv(pair.client.qp, &recv, &bad);
	assert_int_equal(error, ENOMEM);
	assert_ptr_equal(bad, &recv);
	pair_close(&pair);
}

static void test_post_list_with_a_bad_one_posts_those_before_it(void **state)
{
	struct ibv_send_wr wr[3] = {
		{.wr_id = 1,
		 .opcode = IBV_WR_SEND,
		 .send_flags = IBV_SEND_SIGNALED,
		 .next = &wr[1]},
		{.wr_id = 2, .opcode = IBV_WR_SEND, .num_sge = 1000, .next = &wr[2]},
		{.wr_id = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
	};
	struct pair_options options = {0};
	struct ibv_send_wr *bad;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 3; i++)
		side_recv(&pair.server, i, 0, 64);
	assert_int_not_equal(ibv_post_send(pair.client.qp, wr, &bad), 0);
	assert_ptr_equal(bad, &wr[1]);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(pair.server.recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect_none(pair.client.send_cq);
	cq_expect_none(pair.server.recv_cq);
	pair_close(&pair);
}

/* ---- one CQ ---- */

static void test_one_cq_for_both_queues_takes_all(void **state)
{
	struct pair_options options = {.one_cq = true, .depth = 32};
	struct tally tally = {.posted = 32};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 16; i++) {
		side_recv(&pair.server, 16 + i, 0, 64);
		side_recv(&pair.client, 16 + i, 0, 64);
	}
	for (unsigned i = 0; i < 16; i++) {
		side_send(&pair.client, i, 0, 64);
		side_send(&pair.server, i, 0, 64);
	}
	tally_drain(&tally, pair.client.send_cq);
	tally = (struct tally){.posted = 32};
	tally_drain(&tally, pair.server.send_cq);
	assert_int_equal(tally.failed + tally.flushed, 0);
	pair_close(&pair);
}

/* ---- invalidation ---- */

static void test_send_with_invalidate_ends_remote_access(void **state)
{
	struct pair_options options = {0};
	struct ibv_device_attr attr;
	struct ibv_wc wc;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_query_device(pair.client.id->verbs, &attr), 0);
	side_recv(&pair.server, 1, 0, 64);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_SEND_WITH_INV,
						  .id = 2,
						  .len = 5,
						  .key = pair.client.remote.key,
						  .flags = IBV_SEND_SIGNALED});
	wc = cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, pair.server.mr->rkey);
	cq_expect(pair.client.send_cq, 2, IBV_WC_SUCCESS);
	memset(pair.server.buf, 0x55, 64);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE, .id = 3, .len = 64});
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_true(is_all(pair.server.buf, 64, 0x55));
	pair_close(&pair);
}

static void test_send_with_invalidate_of_an_unknown_key_ends_the_connection(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_recv(&pair.server, 1, 0, 64);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_SEND_WITH_INV,
						  .len = 5,
						  .key = pair.client.remote.key ^ 0x5a5a5a5a});
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_not_equal(cq_next(pair.server.recv_cq).status, IBV_WC_SUCCESS);
	cq_expect_none(pair.server.recv_cq);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_send_of_every_size_arrives_whole),
		cmocka_unit_test(test_send_of_64_mib_arrives_whole),
		cmocka_unit_test(test_send_pieces_up_to_the_limit_are_gathered_and_scattered),
		cmocka_unit_test(test_send_too_many_pieces_is_refused),
		cmocka_unit_test(test_send_inline_buffer_may_be_reused_and_unregistered),
		cmocka_unit_test(test_send_inline_above_the_limit_is_refused),
		cmocka_unit_test(test_send_unsignalled_completes_in_silence_and_frees_its_slot),
		cmocka_unit_test(test_send_all_signalled_completes_each),
		cmocka_unit_test(test_recv_posted_to_a_full_queue_gives_enomem),
		cmocka_unit_test(test_post_list_with_a_bad_one_posts_those_before_it),
		cmocka_unit_test(test_one_cq_for_both_queues_takes_all),
		cmocka_unit_test(test_send_with_invalidate_ends_remote_access),
		cmocka_unit_test(test_send_with_invalidate_of_an_unknown_key_ends_the_connection),
	};

	return cmocka_run_group_tests_name("send", tests, NULL, NULL);
}
