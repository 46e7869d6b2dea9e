/* SPDX-License-Identifier: MIT */
/*
 * What two softrdma ends have beyond iWARP's basics, and the newer verbs: immediate data, atomics,
 * extended CQs, ibv_wr_*.
 */
#include <endian.h>
#include <time.h>

#include "pair.h"

#include <unistd.h>

#define ATOMIC_ACCESS (ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC)

static uint64_t *word(struct side *side, size_t at)
{
	return (uint64_t *)(void *)(side->buf + at);
}

/* ---- immediate data ---- */

static int post_imm(struct side *side, enum ibv_wr_opcode opcode, uint32_t len, uint32_t imm)
{
	struct ibv_sge sge = {.addr = (uintptr_t)side->buf, .length = len, .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = imm,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
		.imm_data = htobe32(imm),
		.wr.rdma = {.remote_addr = side->remote.addr + 8, .rkey = side->remote.key},
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(side->qp, &wr, &bad);
}

static void check_imm(struct side *side, uint64_t id, enum ibv_wc_opcode opcode, uint32_t len,
		      uint32_t imm)
{
	struct ibv_wc wc = cq_expect(side->recv_cq, id, IBV_WC_SUCCESS);

	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.byte_len, len);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), imm);
}

static void test_immediate_data_comes_with_its_message(void **state)
{
	static const uint32_t sizes[] = {0, 1, 4096, 200000};
	struct pair_options options = {.bytes = MIB};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		side_settle(&pair.client);
		fill(pair.client.buf, sizes[i], i);
		side_recv(&pair.server, 1, 512 * KIB, 256 * KIB);
		side_recv(&pair.server, 2, 0, 0);
		side_recv(&pair.server, 3, 0, 0);
		assert_int_equal(
			post_imm(&pair.client, IBV_WR_SEND_WITH_IMM, sizes[i], 0x80000001u + i), 0);
		assert_int_equal(
			post_imm(&pair.client, IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i], 7 + i), 0);
		/* A plain one behind them has none. */
		side_send(&pair.client, 9, 0, 0);
		check_imm(&pair.server, 1, IBV_WC_RECV, sizes[i], 0x80000001u + i);
		check_imm(&pair.server, 2, IBV_WC_RECV_RDMA_WITH_IMM, sizes[i], 7 + i);
		assert_int_equal(cq_expect(pair.server.recv_cq, 3, IBV_WC_SUCCESS).wc_flags, 0);
		side_settle(&pair.server);
		assert_true(is_filled(pair.server.buf + 512 * KIB, sizes[i], i));
		assert_true(is_filled(pair.server.buf + 8, sizes[i], i));
		cq_expect(pair.client.send_cq, 0x80000001u + i, IBV_WC_SUCCESS);
		assert_int_equal(cq_expect(pair.client.send_cq, 7 + i, IBV_WC_SUCCESS).opcode,
				 IBV_WC_RDMA_WRITE);
		cq_expect(pair.client.send_cq, 9, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

static void test_immediate_data_waits_for_a_receive(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(post_imm(&pair.client, IBV_WR_RDMA_WRITE_WITH_IMM, 100, 5), 0);
	assert_int_equal(post_imm(&pair.client, IBV_WR_SEND_WITH_IMM, 100, 6), 0);
	cq_expect_none(pair.server.recv_cq);
	side_recv(&pair.server, 1, 0, 1000);
	check_imm(&pair.server, 1, IBV_WC_RECV_RDMA_WITH_IMM, 100, 5);
	side_recv(&pair.server, 2, 0, 1000);
	check_imm(&pair.server, 2, IBV_WC_RECV, 100, 6);
	pair_close(&pair);
}

/* ---- atomics ---- */

static int post_atomic(struct side *side, enum ibv_wr_opcode opcode, uint64_t id, size_t at,
		       uint64_t remote_at, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)side->buf + at, .length = 8, .lkey = side->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = side->remote.addr + remote_at,
			      .rkey = side->remote.key,
			      .compare_add = compare_add,
			      .swap = swap},
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(side->qp, &wr, &bad);
}

static void test_atomics_change_the_word_and_return_what_was(void **state)
{
	struct pair_options options = {.access = ATOMIC_ACCESS};
	struct side *client, *server;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	client = &pair.client;
	server = &pair.server;
	*word(server, 64) = 40;
	assert_int_equal(post_atomic(client, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 64, 2, 0), 0);
	assert_int_equal(post_atomic(client, IBV_WR_ATOMIC_CMP_AND_SWP, 2, 8, 64, 42, ~0ull), 0);
	assert_int_equal(post_atomic(client, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 16, 64, 42, 1), 0);
	/* Wraps around, and is ordered with a read. */
	assert_int_equal(post_atomic(client, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 24, 64, 6, 0), 0);
	side_post(client, &(struct request){.opcode = IBV_WR_RDMA_READ,
					    .id = 5,
					    .at = 32,
					    .len = 8,
					    .remote_at = 64,
					    .flags = IBV_SEND_SIGNALED});
	assert_int_equal(cq_expect(client->send_cq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(cq_expect(client->send_cq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
	for (uint64_t id = 3; id <= 5; id++)
		cq_expect(client->send_cq, id, IBV_WC_SUCCESS);
	assert_int_equal(*word(client, 0), 40);
	assert_int_equal(*word(client, 8), 42);
	assert_true(*word(client, 16) == ~0ull);
	assert_true(*word(client, 24) == ~0ull);
	assert_int_equal(*word(client, 32), 5);
	side_settle(server);
	assert_int_equal(*word(server, 64), 5);
	pair_close(&pair);
}

/* Both ends add to one word at once, behind more of them than may be open. */
static void test_atomics_from_two_connections_lose_nothing(void **state)
{
	enum { EACH = 500 };
	struct pair_options options = {.access = ATOMIC_ACCESS, .depth = 32, .reads = 4};
	struct pair pairs[2];
	uint64_t sum = 0;
	uint64_t *counter;

	(void)state;
	pair_open(&pairs[0], &options);
	pair_open(&pairs[1], &options);
	counter = word(&pairs[0].server, 0);
	*counter = 0;
	/* The second client reaches into the first server by a region of its own server's PD. */
	pairs[1].server.mr = (ibv_dereg_mr(pairs[1].server.mr),
			      ibv_reg_mr(pairs[1].server.pd, counter, 64, ATOMIC_ACCESS));
	pairs[1].client.remote = (struct offer){
		.addr = (uintptr_t)counter, .key = pairs[1].server.mr->rkey, .len = 64};
	for (unsigned i = 0; i < EACH; i += 20) {
		for (unsigned k = 0; k < 20; k++)
			for (unsigned p = 0; p < 2; p++)
				assert_int_equal(post_atomic(&pairs[p].client,
							     IBV_WR_ATOMIC_FETCH_AND_ADD, k, 8, 0,
							     1 + p, 0),
						 0);
		for (unsigned k = 0; k < 20; k++)
			for (unsigned p = 0; p < 2; p++)
				cq_expect(pairs[p].client.send_cq, k, IBV_WC_SUCCESS);
		sum += 60;
	}
	side_settle(&pairs[0].server);
	side_settle(&pairs[1].server);
	assert_int_equal(*counter, sum);
	pair_close(&pairs[1]);
	pair_close(&pairs[0]);
}

static void atomic_fails(size_t at, unsigned access)
{
	struct pair_options options = {.access = access};
	struct pair pair;

	pair_open(&pair, &options);
	memset(pair.server.buf, 0x11, 256);
	assert_int_equal(post_atomic(&pair.client, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, at, 1, 0), 0);
	cq_expect(pair.client.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	side_settle(&pair.server);
	assert_true(is_all(pair.server.buf, 256, 0x11));
	pair_close(&pair);
}

static void test_atomic_without_right_or_alignment_fails(void **state)
{
	(void)state;
	atomic_fails(0, ALL_ACCESS);
	atomic_fails(4, ATOMIC_ACCESS);
	atomic_fails(64 * KIB, ATOMIC_ACCESS);
}

static void test_atomic_of_another_length_is_refused(void **state)
{
	struct pair_options options = {.access = ATOMIC_ACCESS};
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct ibv_send_wr *bad;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	sge = (struct ibv_sge){
		.addr = (uintptr_t)pair.client.buf, .length = 4, .lkey = pair.client.mr->lkey};
	assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), EINVAL);
	pair_close(&pair);
}

/* ---- extended CQs, ibv_wr_* ---- */

/* A side whose queue pair has the ibv_wr_* interface, on an extended CQ with time stamps. */
static void equip_extended(struct side *side)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_qp_init_attr_ex qp_attr = {
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_cq_ex *cq;

	side->pd = ibv_alloc_pd(side->id->verbs);
	side->comp = ibv_create_comp_channel(side->id->verbs);
	assert_non_null(side->comp);
	cq_attr.channel = side->comp;
	cq = ibv_create_cq_ex(side->id->verbs, &cq_attr);
	assert_non_null(cq);
	side->send_cq = side->recv_cq = ibv_cq_ex_to_cq(cq);
	qp_attr.pd = side->pd;
	qp_attr.send_cq = qp_attr.recv_cq = side->send_cq;
	assert_int_equal(rdma_create_qp_ex(side->id, &qp_attr), 0);
	side->qp = side->id->qp;
	side->size = 64 * KIB;
	side->buf = calloc(1, side->size);
	side->mr = ibv_reg_mr(side->pd, side->buf, side->size, ATOMIC_ACCESS);
	assert_non_null(side->mr);
}

/* An extended client against a plain server. */
static void open_extended(struct pair *pair)
{
	struct pair_options options = {.access = ATOMIC_ACCESS};
	struct sockaddr_storage at;

	memset(pair, 0, sizeof(*pair));
	pair->channel = rdma_create_event_channel();
	assert_non_null(pair->channel);
	test_address(&at, 0);
	pair->listener = listen_at(pair->channel, &at, 4);
	side_resolve(&pair->client, rdma_get_src_port(pair->listener));
	equip_extended(&pair->client);
	side_connect(&pair->client, &options);
	side_accept(&pair->server, pair->channel, &options);
	side_await_established(&pair->client);
}

/* The next completion by the extended interface; it must be @id's. */
static void expect_ex(struct ibv_cq_ex *cq, uint64_t id, enum ibv_wc_opcode opcode)
{
	struct ibv_poll_cq_attr attr = {0};
	uint64_t end = now_ms() + WAIT_MS;
	int result;

	do
		result = ibv_start_poll(cq, &attr);
	while (result == ENOENT && now_ms() < end);
	assert_int_equal(result, 0);
	assert_int_equal(cq->wr_id, id);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(cq), opcode);
	ibv_end_poll(cq);
}

static void test_wr_interface_posts_every_kind(void **state)
{
	struct ibv_data_buf pieces[2];
	struct pair pair;
	struct side *client = &pair.client;
	struct ibv_qp_ex *qp;
	struct ibv_cq_ex *cq;

	(void)state;
	open_extended(&pair);
	qp = ibv_qp_to_qp_ex(client->qp);
	assert_non_null(qp);
	assert_null(ibv_qp_to_qp_ex(pair.server.qp));
	cq = (struct ibv_cq_ex *)client->send_cq;
	fill(client->buf, 1000, 3);
	*word(&pair.server, 4096) = 10;
	for (uint64_t i = 1; i <= 3; i++)
		side_recv(&pair.server, i, i * 1000, 1000);
	pieces[0] = (struct ibv_data_buf){.addr = (char[]){"inline "}, .length = 7};
	pieces[1] = (struct ibv_data_buf){.addr = (char[]){"list"}, .length = 4};

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, client->mr->lkey, (uintptr_t)client->buf, 1000);
	qp->wr_id = 2;
	ibv_wr_send_imm(qp, htobe32(77));
	ibv_wr_set_inline_data_list(qp, 2, pieces);
	qp->wr_id = 3;
	ibv_wr_rdma_write(qp, client->remote.key, client->remote.addr + 5000);
	ibv_wr_set_sge(qp, client->mr->lkey, (uintptr_t)client->buf, 500);
	qp->wr_id = 4;
	ibv_wr_atomic_fetch_add(qp, client->remote.key, client->remote.addr + 4096, 5);
	ibv_wr_set_sge(qp, client->mr->lkey, (uintptr_t)client->buf + 2048, 8);
	qp->wr_id = 5;
	ibv_wr_rdma_read(qp, client->remote.key, client->remote.addr + 5000);
	ibv_wr_set_sge(qp, client->mr->lkey, (uintptr_t)client->buf + 3000, 500);
	qp->wr_id = 6;
	ibv_wr_send(qp); /* without data */
	assert_int_equal(ibv_wr_complete(qp), 0);

	expect_ex(cq, 1, IBV_WC_SEND);
	expect_ex(cq, 2, IBV_WC_SEND);
	expect_ex(cq, 3, IBV_WC_RDMA_WRITE);
	expect_ex(cq, 4, IBV_WC_FETCH_ADD);
	expect_ex(cq, 5, IBV_WC_RDMA_READ);
	expect_ex(cq, 6, IBV_WC_SEND);
	assert_int_equal(*word(client, 2048), 10);
	assert_true(is_filled(client->buf + 3000, 500, 3));
	assert_int_equal(cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS).byte_len, 1000);
	check_imm(&pair.server, 2, IBV_WC_RECV, 11, 77);
	assert_int_equal(cq_expect(pair.server.recv_cq, 3, IBV_WC_SUCCESS).byte_len, 0);
	side_settle(&pair.server);
	assert_memory_equal(pair.server.buf + 2000, "inline list", 11);
	pair_close(&pair);
}

/* Between start and complete the queue pair is free for everything but other sends. */
static void test_wr_start_leaves_the_rest_of_the_queue_pair_alone(void **state)
{
	struct pair pair;
	struct ibv_qp_ex *qp;
	struct ibv_wc wc;

	(void)state;
	open_extended(&pair);
	qp = ibv_qp_to_qp_ex(pair.client.qp);
	alarm(WAIT_MS / 1000);
	side_recv(&pair.server, 1, 0, 64);
	side_send(&pair.server, 9, 0, 8);
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, pair.client.mr->lkey, (uintptr_t)pair.client.buf, 8);
	side_recv(&pair.client, 2, 0, 64);
	assert_true(cq_poll(pair.client.recv_cq, &wc, WAIT_MS));
	assert_int_equal(wc.wr_id, 2);
	cq_expect_none(pair.server.recv_cq);
	assert_int_equal(ibv_wr_complete(qp), 0);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	alarm(0);
	pair_close(&pair);
}

static void test_wr_abort_and_errors_post_nothing(void **state)
{
	struct pair pair;
	struct ibv_qp_ex *qp;

	(void)state;
	open_extended(&pair);
	qp = ibv_qp_to_qp_ex(pair.client.qp);
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, pair.client.mr->lkey, (uintptr_t)pair.client.buf, 10);
	ibv_wr_abort(qp);
	/* One of two is wrong: too much inline. None is posted. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, pair.client.mr->lkey, (uintptr_t)pair.client.buf, 10);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, pair.client.buf, 5000);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	cq_expect_none(pair.client.send_cq);
	cq_expect_none(pair.server.recv_cq);
	pair_close(&pair);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void test_extended_poll_walks_and_stamps(void **state)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct ibv_poll_cq_attr attr = {0};
	uint64_t before, after, wall, last = 0, end = now_ms() + WAIT_MS;
	struct pair pair;
	struct ibv_cq_ex *cq;

	(void)state;
	open_extended(&pair);
	cq = (struct ibv_cq_ex *)pair.client.recv_cq;
	assert_int_equal(ibv_start_poll(cq, &attr), ENOENT);
	wall = clock_ns(CLOCK_REALTIME);
	assert_int_equal(ibv_query_rt_values_ex(pair.client.id->verbs, &values), 0);
	before = (uint64_t)values.raw_clock.tv_sec * 1000000000u +
		 (uint64_t)values.raw_clock.tv_nsec;
	for (uint64_t i = 1; i <= 3; i++)
		side_recv(&pair.client, i, 0, 100);
	for (uint64_t i = 1; i <= 3; i++)
		side_send(&pair.server, i, 0, (uint32_t)i);
	for (uint64_t i = 1; i <= 3; i++)
		cq_expect(pair.server.send_cq, i, IBV_WC_SUCCESS);
	for (uint64_t i = 1; i <= 3;) {
		int result = ibv_start_poll(cq, &attr);

		assert_true(now_ms() < end);
		if (result == ENOENT)
			continue;
		do {
			assert_int_equal(cq->wr_id, i);
			assert_int_equal(ibv_wc_read_byte_len(cq), i);
			assert_int_equal(ibv_wc_read_qp_num(cq), pair.client.qp->qp_num);
			assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
			assert_true(ibv_wc_read_completion_ts(cq) >= before);
			assert_true(ibv_wc_read_completion_ts(cq) >= last);
			last = ibv_wc_read_completion_ts(cq);
			assert_true(ibv_wc_read_completion_wallclock_ns(cq) + 1000000 >= wall);
			i++;
			result = ibv_next_poll(cq);
		} while (!result);
		ibv_end_poll(cq);
	}
	after = clock_ns(CLOCK_MONOTONIC);
	assert_true(last <= after);
	pair_close(&pair);
}

/* ---- CQs: size and overrun ---- */

static void await_solicited(struct side *side)
{
	struct ibv_cq *cq;
	void *context;

	assert_true(fd_is_readable(side->comp->fd, WAIT_MS));
	assert_int_equal(ibv_get_cq_event(side->comp, &cq, &context), 0);
	assert_ptr_equal(cq, side->recv_cq);
	ibv_ack_cq_events(cq, 1);
}

static void test_resized_cq_keeps_its_completions(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (uint64_t i = 0; i < 5; i++)
		side_recv(&pair.server, i, 0, 100);
	assert_int_equal(ibv_req_notify_cq(pair.server.recv_cq, 1), 0);
	for (uint64_t i = 0; i < 4; i++)
		side_send(&pair.client, i, 0, 1);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_SEND,
						  .id = 4,
						  .len = 1,
						  .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED});
	/* The event of the last one says that the completions of all are in the CQ. */
	await_solicited(&pair.server);
	cq_expect(pair.server.recv_cq, 0, IBV_WC_SUCCESS);
	assert_int_equal(ibv_resize_cq(pair.server.recv_cq, 1000), 0);
	assert_true(pair.server.recv_cq->cqe >= 1000);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_resize_cq(pair.server.recv_cq, 1), EINVAL);
	for (uint64_t i = 2; i < 5; i++)
		cq_expect(pair.server.recv_cq, i, IBV_WC_SUCCESS);
	assert_int_equal(ibv_resize_cq(pair.server.recv_cq, 0), EINVAL);
	pair_close(&pair);
}

/* Two more are on their way whenever one is taken. */
static void test_a_cq_that_is_never_empty_goes_round(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_resize_cq(pair.client.send_cq, 4), 0);
	assert_int_equal(ibv_resize_cq(pair.server.recv_cq, 4), 0);
	for (uint64_t i = 0; i < 50; i++) {
		side_recv(&pair.server, i, 0, 100);
		side_send(&pair.client, i, 0, 1);
		if (i < 2)
			continue;
		cq_expect(pair.server.recv_cq, i - 2, IBV_WC_SUCCESS);
		cq_expect(pair.client.send_cq, i - 2, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

static void test_overrun_of_a_cq_raises_an_event(void **state)
{
	struct pair_options options = {0};
	struct ibv_async_event event;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct pair pair;
	int size;

	(void)state;
	pair_open(&pair, &options);
	assert_int_equal(ibv_resize_cq(pair.client.send_cq, 4), 0);
	size = pair.client.send_cq->cqe;
	for (int i = 0; i < size + 3; i++)
		side_recv(&pair.server, (uint64_t)i, 0, 0);
	for (int i = 0; i < size + 3; i++) {
		wr.wr_id = (uint64_t)i;
		assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), 0);
	}
	assert_true(fd_is_readable(pair.client.id->verbs->async_fd, WAIT_MS));
	assert_int_equal(ibv_get_async_event(pair.client.id->verbs, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, pair.client.send_cq);
	ibv_ack_async_event(&event);
	for (int i = 0; i < size; i++)
		cq_expect(pair.client.send_cq, (uint64_t)i, IBV_WC_SUCCESS);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_immediate_data_comes_with_its_message),
		cmocka_unit_test(test_immediate_data_waits_for_a_receive),
		cmocka_unit_test(test_atomics_change_the_word_and_return_what_was),
		cmocka_unit_test(test_atomics_from_two_connections_lose_nothing),
		cmocka_unit_test(test_atomic_without_right_or_alignment_fails),
		cmocka_unit_test(test_atomic_of_another_length_is_refused),
		cmocka_unit_test(test_wr_interface_posts_every_kind),
		cmocka_unit_test(test_wr_start_leaves_the_rest_of_the_queue_pair_alone),
		cmocka_unit_test(test_wr_abort_and_errors_post_nothing),
		cmocka_unit_test(test_extended_poll_walks_and_stamps),
		cmocka_unit_test(test_resized_cq_keeps_its_completions),
		cmocka_unit_test(test_a_cq_that_is_never_empty_goes_round),
		cmocka_unit_test(test_overrun_of_a_cq_raises_an_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
