/* SPDX-License-Identifier: MIT */
/*
 * Regions whose addresses in requests are not those of their memory: ibv_reg_mr_iova, and
 * IBV_ACCESS_ZERO_BASED. Requests name the former, at home and at the peer.
 */
#include "pair.h"

#define ACCESS (ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC)
#define HALF   (256 * KIB) /* the lower half of a buffer is a source, the upper one a sink */

/* How a region gets its address. */
enum base { BASE_ZERO, BASE_ZERO_BY_FLAG, BASE_BEHIND, BASE_COUNT };

/* A side's buffer, registered once more. */
struct zone {
	struct side *side;
	struct ibv_mr *mr;
	uint64_t iova;
};

/* What the memory's own address differs by is less than its size: a mistake stays within it. */
static void zone_register(struct zone *zone, struct side *side, enum base base)
{
	zone->side = side;
	zone->iova = base == BASE_BEHIND ? (uintptr_t)side->buf + 4096 : 0;
	zone->mr = base == BASE_ZERO_BY_FLAG
			   ? ibv_reg_mr(side->pd, side->buf, side->size,
					ACCESS | IBV_ACCESS_ZERO_BASED)
			   : ibv_reg_mr_iova(side->pd, side->buf, side->size, zone->iova, ACCESS);
	assert_non_null(zone->mr);
	assert_ptr_equal(zone->mr->addr, side->buf);
}

static struct ibv_sge piece_of(const struct zone *zone, size_t at, uint32_t len)
{
	return (struct ibv_sge){.addr = zone->iova + at, .length = len, .lkey = zone->mr->lkey};
}

/* From @at on, in two pieces if there is enough. */
static unsigned pieces_of(const struct zone *zone, size_t at, uint32_t len, struct ibv_sge *out)
{
	uint32_t first = len >= 128 ? len / 3 : len;

	out[0] = piece_of(zone, at, first);
	out[1] = piece_of(zone, at + first, len - first);
	return first < len ? 2 : 1;
}

static void zone_recv(const struct zone *zone, uint64_t id, size_t at, uint32_t len)
{
	struct ibv_sge pieces[2];
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = pieces}, *bad;
	struct side *side = zone->side;

	wr.num_sge = (int)pieces_of(zone, at, len, pieces);
	assert_int_equal(side->srq ? ibv_post_srq_recv(side->srq, &wr, &bad)
				   : ibv_post_recv(side->qp, &wr, &bad),
			 0);
}

/* A request from or to @at here, to or from @remote_at there. */
static void zone_post(const struct zone *zone, enum ibv_wr_opcode opcode, size_t at, uint32_t len,
		      const struct zone *remote, size_t remote_at)
{
	struct ibv_sge pieces[2];
	struct ibv_send_wr wr = {.wr_id = opcode,
				 .sg_list = pieces,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = remote->iova + remote_at,
					     .rkey = remote->mr->rkey}},
			   *bad;

	wr.num_sge = (int)pieces_of(zone, at, len, pieces);
	assert_int_equal(ibv_post_send(zone->side->qp, &wr, &bad), 0);
}

/* Adds 5 to the word at @remote_at; what was there comes to @at. */
static void zone_add(const struct zone *zone, size_t at, const struct zone *remote,
		     size_t remote_at)
{
	struct ibv_sge piece = piece_of(zone, at, sizeof(uint64_t));
	struct ibv_send_wr wr = {.wr_id = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .sg_list = &piece,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.atomic = {.remote_addr = remote->iova + remote_at,
					       .compare_add = 5,
					       .rkey = remote->mr->rkey}},
			   *bad;

	assert_int_equal(ibv_post_send(zone->side->qp, &wr, &bad), 0);
}

static void run_messages(const struct zone *from, const struct zone *to, uint32_t len)
{
	fill(from->side->buf, len, len);
	zone_recv(to, 1, HALF, HALF);
	zone_post(from, IBV_WR_SEND, 0, len, to, 0);
	cq_expect(from->side->send_cq, IBV_WR_SEND, IBV_WC_SUCCESS);
	assert_int_equal(cq_expect(to->side->recv_cq, 1, IBV_WC_SUCCESS).byte_len, len);
	assert_true(is_filled(to->side->buf + HALF, len, len));
	memset(to->side->buf + HALF, 0, len);
}

static void run_onesided(const struct zone *here, const struct zone *there, uint32_t len)
{
	fill(here->side->buf, len, len + 1);
	zone_post(here, IBV_WR_RDMA_WRITE, 0, len, there, HALF);
	zone_post(here, IBV_WR_RDMA_READ, HALF, len, there, HALF);
	cq_expect(here->side->send_cq, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS);
	cq_expect(here->side->send_cq, IBV_WR_RDMA_READ, IBV_WC_SUCCESS);
	side_settle(there->side);
	assert_true(is_filled(there->side->buf + HALF, len, len + 1));
	assert_true(is_filled(here->side->buf + HALF, len, len + 1));
	memset(here->side->buf + HALF, 0, len);
	memset(there->side->buf + HALF, 0, len);
}

static void run_atomic(const struct zone *here, const struct zone *there)
{
	uint64_t *there_word = (uint64_t *)(void *)(there->side->buf + 4096);
	uint64_t *here_word = (uint64_t *)(void *)(here->side->buf + HALF);

	*there_word = 37;
	zone_add(here, HALF, there, 4096);
	cq_expect(here->side->send_cq, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_SUCCESS);
	side_settle(there->side);
	assert_int_equal(*here_word, 37);
	assert_int_equal(*there_word, 42);
}

static void run_all(enum base base, bool shared_receives)
{
	static const uint32_t lengths[] = {8, 64, 4000, 200000};
	struct pair_options options = {
		.bytes = 2 * HALF, .sge = 2, .shared_receives = shared_receives};
	struct zone client, server;
	struct pair pair;

	pair_open(&pair, &options);
	zone_register(&client, &pair.client, base);
	zone_register(&server, &pair.server, base);
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		run_messages(&client, &server, lengths[i]);
		run_messages(&server, &client, lengths[i]);
		run_onesided(&client, &server, lengths[i]);
	}
	run_atomic(&client, &server);
	assert_int_equal(ibv_dereg_mr(client.mr), 0);
	assert_int_equal(ibv_dereg_mr(server.mr), 0);
	pair_close(&pair);
}

static void test_requests_reach_memory_under_other_addresses(void **state)
{
	(void)state;
	for (enum base base = 0; base < BASE_COUNT; base++)
		run_all(base, false);
}

static void test_shared_receives_reach_memory_under_other_addresses(void **state)
{
	(void)state;
	for (enum base base = 0; base < BASE_COUNT; base++)
		run_all(base, true);
}

/* Inline data is where the program says, whatever is registered. */
static void test_inline_data_is_taken_from_memory(void **state)
{
	struct pair_options options = {.inline_bytes = 64};
	uint8_t bytes[64];
	struct ibv_sge piece = {.addr = (uintptr_t)bytes, .length = sizeof(bytes)};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &piece,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
			   *bad;
	struct zone client;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	zone_register(&client, &pair.client, BASE_ZERO);
	piece.lkey = client.mr->lkey;
	fill(bytes, sizeof(bytes), 3);
	side_recv(&pair.server, 2, 0, 64);
	assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), 0);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(pair.server.recv_cq, 2, IBV_WC_SUCCESS);
	assert_true(is_filled(pair.server.buf, sizeof(bytes), 3));
	assert_int_equal(ibv_dereg_mr(client.mr), 0);
	pair_close(&pair);
}

/* The address in memory is not one of the region's. */
static void test_memory_address_is_out_of_bounds_at_home(void **state)
{
	struct pair_options options = {0};
	struct zone client;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	zone_register(&client, &pair.client, BASE_ZERO);
	client.iova = (uintptr_t)pair.client.buf;
	zone_post(&client, IBV_WR_SEND, 0, 8, &client, 0);
	cq_expect(pair.client.send_cq, IBV_WR_SEND, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(client.mr), 0);
	pair_close(&pair);
}

static void test_memory_address_is_out_of_bounds_at_the_peer(void **state)
{
	struct pair_options options = {0};
	struct zone client, server;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	zone_register(&client, &pair.client, BASE_ZERO);
	zone_register(&server, &pair.server, BASE_ZERO);
	server.iova = (uintptr_t)pair.server.buf;
	zone_post(&client, IBV_WR_RDMA_READ, 0, 8, &server, 0);
	cq_expect(pair.client.send_cq, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(client.mr), 0);
	assert_int_equal(ibv_dereg_mr(server.mr), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests_reach_memory_under_other_addresses),
		cmocka_unit_test(test_shared_receives_reach_memory_under_other_addresses),
		cmocka_unit_test(test_inline_data_is_taken_from_memory),
		cmocka_unit_test(test_memory_address_is_out_of_bounds_at_home),
		cmocka_unit_test(test_memory_address_is_out_of_bounds_at_the_peer),
	};

	return cmocka_run_group_tests_name("soft_iova", tests, NULL, NULL);
}
