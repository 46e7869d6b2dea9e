/* SPDX-License-Identifier: MIT */
/* Requests that must not succeed: keys, bounds, rights and lengths, at home and at the peer. */
#include "pair.h"

/* Memory of the server beside its buffer, with rights and a PD of the test's choice. */
struct extra {
	uint8_t bytes[3][4096]; /* the middle is registered */
	struct ibv_pd *pd;      /* NULL: the side's */
	struct ibv_mr *mr;
};

static void extra_register(struct extra *extra, struct side *side, unsigned access, bool foreign)
{
	memset(extra->bytes, 0x5a, sizeof(extra->bytes));
	extra->pd = foreign ? ibv_alloc_pd(side->id->verbs) : NULL;
	extra->mr = ibv_reg_mr(foreign ? extra->pd : side->pd, extra->bytes[1],
			       sizeof(extra->bytes[1]), (int)access);
	assert_non_null(extra->mr);
}

static void extra_check_untouched(const struct extra *extra, bool middle_too)
{
	assert_true(is_all(extra->bytes[0], sizeof(extra->bytes[0]), 0x5a));
	assert_true(is_all(extra->bytes[2], sizeof(extra->bytes[2]), 0x5a));
	if (middle_too)
		assert_true(is_all(extra->bytes[1], sizeof(extra->bytes[1]), 0x5a));
}

static void extra_drop(struct extra *extra)
{
	assert_int_equal(ibv_dereg_mr(extra->mr), 0);
	if (extra->pd)
		assert_int_equal(ibv_dealloc_pd(extra->pd), 0);
}

/* The connection ends on both sides, and what is posted there is flushed. */
static void expect_end(struct pair *pair)
{
	cm_expect(pair->client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair->server.channel, RDMA_CM_EVENT_DISCONNECTED);
	cq_expect(pair->client.recv_cq, 90, IBV_WC_WR_FLUSH_ERR);
	cq_expect(pair->server.recv_cq, 91, IBV_WC_WR_FLUSH_ERR);
	cq_expect_none(pair->client.recv_cq);
	cq_expect_none(pair->server.recv_cq);
}

static void post_watchers(struct pair *pair)
{
	side_recv(&pair->client, 90, 0, 64);
	side_recv(&pair->server, 91, 0, 64);
}

/* ---- a bad remote access ---- */

struct remote_fault {
	enum ibv_wr_opcode opcode;
	unsigned access; /* of the memory aimed at */
	bool foreign;    /* it belongs to another PD */
	bool wrong_key;
	bool stale_key; /* it is deregistered by then */
	int64_t at;     /* relative to its beginning */
	uint32_t len;
};

static void aim(const struct remote_fault *fault, const struct extra *extra, struct ibv_send_wr *wr)
{
	wr->wr.rdma.remote_addr = (uint64_t)((intptr_t)extra->bytes[1] + fault->at);
	wr->wr.rdma.rkey = fault->wrong_key ? extra->mr->rkey ^ 0x01000100 : extra->mr->rkey;
}

static void post_fault(struct pair *pair, const struct remote_fault *fault,
		       const struct extra *extra)
{
	struct ibv_sge piece = {.addr = (uintptr_t)pair->client.buf,
				.length = fault->len,
				.lkey = pair->client.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &piece,
				 .num_sge = 1,
				 .opcode = fault->opcode,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	aim(fault, extra, &wr);
	assert_int_equal(ibv_post_send(pair->client.qp, &wr, &bad), 0);
}

static void run_fault(const struct remote_fault *fault)
{
	struct pair_options options = {0};
	struct extra *extra = calloc(1, sizeof(*extra));
	enum ibv_wc_status status;
	struct pair pair;

	pair_open(&pair, &options);
	memset(pair.client.buf, 0xc3, pair.client.size);
	extra_register(extra, &pair.server, fault->access, fault->foreign);
	post_watchers(&pair);
	if (fault->stale_key) {
		struct ibv_mr stale = *extra->mr, *old = extra->mr;

		extra_drop(extra);
		extra->mr = &stale;
		post_fault(&pair, fault, extra);
		(void)old;
	} else {
		post_fault(&pair, fault, extra);
	}
	expect_end(&pair);
	status = cq_next(pair.client.send_cq).status;
	if (fault->opcode == IBV_WR_RDMA_READ) {
		assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
		assert_true(is_all(pair.client.buf, pair.client.size, 0xc3));
	} else { /* on iWARP a write may have succeeded by then, as far as its sender knows */
		assert_true(status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR);
	}
	cq_expect_none(pair.client.send_cq);
	extra_check_untouched(extra, fault->at == 0 || fault->opcode == IBV_WR_RDMA_READ);
	if (!fault->stale_key)
		extra_drop(extra);
	pair_close(&pair);
	free(extra);
}

static void test_write_with_a_wrong_key_touches_nothing(void **state)
{
	(void)state;
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, ALL_ACCESS, .wrong_key = true,
					 .len = 64});
}

static void test_write_with_a_stale_key_touches_nothing(void **state)
{
	(void)state;
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, ALL_ACCESS, .stale_key = true,
					 .len = 64});
}

static void test_write_to_a_foreign_pd_touches_nothing(void **state)
{
	(void)state;
	run_fault(
		&(struct remote_fault){IBV_WR_RDMA_WRITE, ALL_ACCESS, .foreign = true, .len = 64});
}

static void test_write_to_read_only_memory_touches_nothing(void **state)
{
	(void)state;
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_READ, .len = 64});
}

static void test_write_to_local_memory_touches_nothing(void **state)
{
	(void)state;
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE, .len = 64});
}

static void test_write_past_the_end_touches_nothing_beyond(void **state)
{
	(void)state;
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, ALL_ACCESS, .at = 4095, .len = 2});
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, ALL_ACCESS, .at = 1, .len = 4096});
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, ALL_ACCESS, .at = 4096, .len = 1});
	run_fault(&(struct remote_fault){IBV_WR_RDMA_WRITE, ALL_ACCESS, .at = -1, .len = 64});
}

static void test_write_around_the_address_space_touches_nothing(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	post_watchers(&pair);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_WRITE,
						  .remote_at = UINT64_MAX - pair.client.remote.addr,
						  .len = 64});
	expect_end(&pair);
	assert_true(is_all(pair.server.buf, pair.server.size, 0));
	pair_close(&pair);
}

static void test_read_with_a_wrong_key_fails_with_remote_access_error(void **state)
{
	(void)state;
	run_fault(
		&(struct remote_fault){IBV_WR_RDMA_READ, ALL_ACCESS, .wrong_key = true, .len = 64});
	run_fault(
		&(struct remote_fault){IBV_WR_RDMA_READ, ALL_ACCESS, .stale_key = true, .len = 64});
	run_fault(&(struct remote_fault){IBV_WR_RDMA_READ, ALL_ACCESS, .foreign = true, .len = 64});
}

static void test_read_from_write_only_memory_fails_with_remote_access_error(void **state)
{
	(void)state;
	run_fault(&(struct remote_fault){
		IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, .len = 64});
}

static void test_read_past_the_end_fails_with_remote_access_error(void **state)
{
	(void)state;
	run_fault(&(struct remote_fault){IBV_WR_RDMA_READ, ALL_ACCESS, .at = 4095, .len = 2});
	run_fault(&(struct remote_fault){IBV_WR_RDMA_READ, ALL_ACCESS, .at = 1, .len = 4096});
	run_fault(&(struct remote_fault){IBV_WR_RDMA_READ, ALL_ACCESS, .at = -1, .len = 64});
}

/* Three reads in one list, the second with a wrong key. */
static void post_three_reads(struct side *side)
{
	struct ibv_sge piece = {.addr = (uintptr_t)side->buf, .length = 64, .lkey = side->mr->lkey};
	struct ibv_send_wr wr[3], *bad;

	for (unsigned i = 0; i < 3; i++) {
		wr[i] = (struct ibv_send_wr){.wr_id = i,
					     .next = i < 2 ? &wr[i + 1] : NULL,
					     .sg_list = &piece,
					     .num_sge = 1,
					     .opcode = IBV_WR_RDMA_READ,
					     .send_flags = IBV_SEND_SIGNALED};
		wr[i].wr.rdma.remote_addr = side->remote.addr;
		wr[i].wr.rdma.rkey = i == 1 ? side->remote.key ^ 0x01000100 : side->remote.key;
	}
	assert_int_equal(ibv_post_send(side->qp, wr, &bad), 0);
}

/* The good one keeps its data; the bad one is to blame, not its neighbours. */
static void test_read_fault_blames_the_request_at_fault(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	post_watchers(&pair);
	fill(pair.server.buf, 64, 4);
	post_three_reads(&pair.client);
	cq_expect(pair.client.send_cq, 0, IBV_WC_SUCCESS);
	assert_true(is_filled(pair.client.buf, 64, 4));
	cq_expect(pair.client.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	cq_expect(pair.client.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	expect_end(&pair);
	pair_close(&pair);
}

/* ---- a bad local request ---- */

static void run_local_fault(enum ibv_wr_opcode opcode, const struct ibv_sge *piece)
{
	struct pair_options options = {0};
	struct ibv_sge copy = *piece;
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &copy, .num_sge = 1, .opcode = opcode};
	struct ibv_send_wr *bad;
	struct pair pair;

	pair_open(&pair, &options);
	post_watchers(&pair);
	if (!copy.addr)
		copy.addr = (uintptr_t)pair.client.buf;
	copy.lkey = copy.lkey ? pair.client.mr->lkey : pair.client.mr->lkey ^ 0x01000100;
	wr.wr.rdma.remote_addr = pair.client.remote.addr;
	wr.wr.rdma.rkey = pair.client.remote.key;
	assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), 0);
	cq_expect(pair.client.send_cq, 1, IBV_WC_LOC_PROT_ERR); /* though unsignalled */
	expect_end(&pair);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_SEND, .id = 2, .len = 8});
	cq_expect(pair.client.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_true(is_all(pair.server.buf, pair.server.size, 0));
	pair_close(&pair);
}

static void test_request_with_a_bad_local_key_fails_then_flushes(void **state)
{
	(void)state;
	run_local_fault(IBV_WR_SEND, &(struct ibv_sge){.length = 8});
	run_local_fault(IBV_WR_RDMA_WRITE, &(struct ibv_sge){.length = 8});
	run_local_fault(IBV_WR_RDMA_READ, &(struct ibv_sge){.length = 8});
}

static void test_request_beyond_its_local_region_fails_then_flushes(void **state)
{
	(void)state;
	run_local_fault(IBV_WR_SEND, &(struct ibv_sge){.length = 64 * KIB + 1, .lkey = 1});
	run_local_fault(IBV_WR_RDMA_WRITE,
			&(struct ibv_sge){.addr = UINT64_MAX - 3, .length = 8, .lkey = 1});
}

/* The sink must be writable here; that the peer's key is good does not matter. */
static void test_read_into_read_only_local_memory_fails(void **state)
{
	struct pair_options options = {.access = IBV_ACCESS_REMOTE_READ};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	side_post(&pair.client, &(struct request){.opcode = IBV_WR_RDMA_READ, .id = 1, .len = 8});
	cq_expect(pair.client.send_cq, 1, IBV_WC_LOC_PROT_ERR);
	pair_close(&pair);
}

/* A queue remembers the region that it saw last, but not beyond its end. */
static void test_request_with_the_key_of_before_fails_once_its_region_is_gone(void **state)
{
	struct pair_options options = {0};
	struct ibv_sge piece = {.length = 8};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &piece,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct extra extra;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	extra_register(&extra, &pair.client, 0, false);
	piece.addr = (uintptr_t)extra.bytes[1];
	piece.lkey = extra.mr->lkey;
	side_recv(&pair.server, 1, 0, 64);
	side_recv(&pair.server, 2, 0, 64);
	assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), 0);
	cq_expect(pair.client.send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_SUCCESS);
	extra_drop(&extra);
	wr.wr_id = 2;
	assert_int_equal(ibv_post_send(pair.client.qp, &wr, &bad), 0);
	cq_expect(pair.client.send_cq, 2, IBV_WC_LOC_PROT_ERR);
	cq_expect(pair.server.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

static void test_recv_with_a_bad_local_key_fails_when_used(void **state)
{
	struct pair_options options = {0};
	struct ibv_sge piece = {.length = 64, .lkey = 0xbad};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &piece, .num_sge = 1}, *bad;
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	piece.addr = (uintptr_t)pair.server.buf;
	assert_int_equal(ibv_post_recv(pair.server.qp, &wr, &bad), 0);
	side_recv(&pair.server, 2, 0, 64);
	side_send(&pair.client, 1, 0, 8);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_LOC_PROT_ERR);
	cq_expect(pair.server.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&pair);
}

/* ---- lengths ---- */

static void run_too_long(uint32_t room, uint32_t len)
{
	struct pair_options options = {.bytes = 2 * MIB};
	struct pair pair;

	pair_open(&pair, &options);
	memset(pair.server.buf, 0x5a, pair.server.size);
	side_recv(&pair.server, 1, 4096, room);
	side_recv(&pair.server, 2, 0, 64);
	side_send(&pair.client, 3, 0, len);
	cq_expect(pair.server.recv_cq, 1, IBV_WC_LOC_LEN_ERR);
	cq_expect(pair.server.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	cm_expect(pair.client.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_expect(pair.server.channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(cq_next(pair.client.send_cq).wr_id, 3);
	cq_expect_none(pair.client.send_cq);
	assert_true(is_all(pair.server.buf, 4096, 0x5a));
	assert_true(is_all(pair.server.buf + 4096 + room, pair.server.size - 4096 - room, 0x5a));
	pair_close(&pair);
}

static void test_message_longer_than_its_receive_fails_it(void **state)
{
	(void)state;
	run_too_long(0, 1);
	run_too_long(64, 65);
	run_too_long(64, MIB);
	run_too_long(70000, 70001);
	run_too_long(MIB - 1, MIB);
}

/* ---- memory ---- */

static void test_registration_with_remote_write_but_not_local_is_refused(void **state)
{
	struct pair_options options = {0};
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	assert_null(ibv_reg_mr(pair.client.pd, pair.client.buf, 64, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(pair.client.pd), EBUSY);
	pair_close(&pair);
}

static void test_keys_differ_between_registrations(void **state)
{
	struct pair_options options = {0};
	struct ibv_mr *mrs[64];
	struct pair pair;

	(void)state;
	pair_open(&pair, &options);
	for (unsigned i = 0; i < 64; i++) {
		mrs[i] = ibv_reg_mr(pair.client.pd, pair.client.buf, 64, ALL_ACCESS);
		assert_non_null(mrs[i]);
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(mrs[i]->rkey, mrs[j]->rkey);
	}
	for (unsigned i = 0; i < 64; i++)
		ibv_dereg_mr(mrs[i]);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_with_a_wrong_key_touches_nothing),
		cmocka_unit_test(test_write_with_a_stale_key_touches_nothing),
		cmocka_unit_test(test_write_to_a_foreign_pd_touches_nothing),
		cmocka_unit_test(test_write_to_read_only_memory_touches_nothing),
		cmocka_unit_test(test_write_to_local_memory_touches_nothing),
		cmocka_unit_test(test_write_past_the_end_touches_nothing_beyond),
		cmocka_unit_test(test_write_around_the_address_space_touches_nothing),
		cmocka_unit_test(test_read_with_a_wrong_key_fails_with_remote_access_error),
		cmocka_unit_test(test_read_from_write_only_memory_fails_with_remote_access_error),
		cmocka_unit_test(test_read_past_the_end_fails_with_remote_access_error),
		cmocka_unit_test(test_read_fault_blames_the_request_at_fault),
		cmocka_unit_test(test_request_with_a_bad_local_key_fails_then_flushes),
		cmocka_unit_test(test_request_beyond_its_local_region_fails_then_flushes),
		cmocka_unit_test(test_read_into_read_only_local_memory_fails),
		cmocka_unit_test(test_request_with_the_key_of_before_fails_once_its_region_is_gone),
		cmocka_unit_test(test_recv_with_a_bad_local_key_fails_when_used),
		cmocka_unit_test(test_message_longer_than_its_receive_fails_it),
		cmocka_unit_test(test_registration_with_remote_write_but_not_local_is_refused),
		cmocka_unit_test(test_keys_differ_between_registrations),
	};

	return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
