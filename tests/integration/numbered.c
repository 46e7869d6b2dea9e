/* SPDX-License-Identifier: MIT */
#include "numbered.h"

static struct ibv_context *verbs;
static struct ibv_pd *pd;
static int gid_index;
union ibv_gid numbered_gid;

/* ---- ends ---- */

static int find_gid(void)
{
	const uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};

	for (gid_index = 0; !ibv_query_gid(verbs, 1, gid_index, &numbered_gid); gid_index++)
		if (!memcmp(numbered_gid.raw, wanted, sizeof(wanted)))
			return 0;
	return -1;
}

int numbered_setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	(void)state;
	for (int i = 0; list && list[i] && !verbs; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "soft_lo"))
			verbs = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	pd = verbs ? ibv_alloc_pd(verbs) : NULL;
	return pd ? find_gid() : -1;
}

int numbered_teardown(void **state)
{
	(void)state;
	return ibv_dealloc_pd(pd) || ibv_close_device(verbs);
}

void numbered_init(struct numbered *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC};

	assert_int_equal(
		ibv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

struct numbered *numbered_open(void)
{
	struct numbered *end = calloc(1, sizeof(*end));
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 16,
						.max_recv_wr = 16,
						.max_send_sge = 1,
						.max_recv_sge = 1}};

	assert_non_null(end);
	end->cq = ibv_create_cq(verbs, 64, NULL, NULL, 0);
	assert_non_null(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(pd, &init);
	assert_non_null(end->qp);
	end->mr = ibv_reg_mr(pd, end->buf, sizeof(end->buf), ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(end->mr);
	numbered_init(end);
	return end;
}

void numbered_close(struct numbered *end)
{
	if (end->qp)
		assert_int_equal(ibv_destroy_qp(end->qp), 0);
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	free(end);
}

struct ibv_qp_attr numbered_rtr_attr(uint32_t dest, uint32_t psn)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.rq_psn = psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = numbered_gid,
				    .sgid_index = (uint8_t)gid_index,
				    .hop_limit = 1}},
	};
}

void numbered_rtr(struct numbered *end, const struct numbered *peer, uint32_t psn)
{
	struct ibv_qp_attr attr = numbered_rtr_attr(peer->qp->qp_num, psn);

	assert_int_equal(ibv_modify_qp(end->qp, &attr, NUMBERED_RTR_MASK), 0);
}

void numbered_rts(struct numbered *end, uint32_t psn, uint8_t timeout)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = timeout,
		.retry_cnt = 1,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	assert_int_equal(ibv_modify_qp(end->qp, &attr, NUMBERED_RTS_MASK), 0);
}

void numbered_connect(struct numbered *a, uint32_t a_psn, struct numbered *b, uint32_t b_psn,
		      uint8_t timeout)
{
	numbered_rtr(a, b, b_psn);
	numbered_rtr(b, a, a_psn);
	numbered_rts(a, a_psn, timeout);
	numbered_rts(b, b_psn, timeout);
}

void numbered_set_state(struct numbered *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	assert_int_equal(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

void numbered_assert_state(const struct numbered *end, enum ibv_qp_state state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, state);
}

/* ---- traffic ---- */

void numbered_post_recv(struct numbered *end, uint64_t id)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)end->buf, .length = NUMBERED_BYTES / 2, .lkey = end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

void numbered_post(struct numbered *end, const struct numbered *peer, enum ibv_wr_opcode opcode,
		   uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)end->buf + NUMBERED_BYTES / 2,
			      .length = len,
			      .lkey = end->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)peer->buf, .rkey = peer->mr->rkey},
	};
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)peer->buf;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 5;
	}
	assert_int_equal(ibv_post_send(end->qp, &wr, &bad), 0);
}

void numbered_await(struct numbered *end, uint64_t id, enum ibv_wc_status status)
{
	uint64_t limit = now_ms() + WAIT_MS;
	struct ibv_wc wc;
	int got;

	while (!(got = ibv_poll_cq(end->cq, 1, &wc)))
		assert_true(now_ms() < limit);
	assert_int_equal(got, 1);
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.wr_id, id);
}

void numbered_exchange(struct numbered *from, struct numbered *to)
{
	fill(from->buf + NUMBERED_BYTES / 2, 1000, 7);
	memset(to->buf, 0, 1000);
	numbered_post_recv(to, 100);
	numbered_post(from, to, IBV_WR_SEND, 1000);
	numbered_await(from, IBV_WR_SEND, IBV_WC_SUCCESS);
	numbered_await(to, 100, IBV_WC_SUCCESS);
	assert_true(is_filled(to->buf, 1000, 7));
}
