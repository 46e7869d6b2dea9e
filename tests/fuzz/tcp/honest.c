/* SPDX-License-Identifier: MIT */
#include "honest.h"

#include <sched.h>

#include "../fuzz.h"

#define GUARD       4096u
#define STRIDE      (ROOM + GAP)
#define MAX_PIECES  4u
#define SOURCE_GAP  64u /* between the pieces of what is sent, so that they are not one */
#define END_MS      3000
#define ALL_REMOTE  (ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC)
#define REMOTE_ADDR 0x5000 /* the stranger has no memory: any address will do */
#define REMOTE_KEY  0x1234

#define RECV_SLOTS SOURCE
#define READ_SLOTS (RECV_SLOTS + HONEST_DEPTH * STRIDE)

static struct {
	uint8_t before[GUARD];
	uint8_t window[WINDOW];
	uint8_t between[GUARD];
	uint8_t readonly[WINDOW];
	uint8_t behind[GUARD];
} memory;

uint8_t *honest_window(void)
{
	return memory.window;
}

uint8_t *honest_readonly(void)
{
	return memory.readonly;
}

/* ---- life ---- */

static struct ibv_mr *register_memory(struct honest *honest, uint8_t *at, unsigned access)
{
	struct ibv_mr *mr = ibv_reg_mr(honest->side.pd, at, WINDOW, (int)access);

	CHECK(mr);
	return mr;
}

/* Nobody has written to the window since it was deregistered. */
static void check_secret(void)
{
	CHECK(is_only(memory.window, WINDOW, SECRET_BYTE));
}

void honest_register(struct honest *honest)
{
	if (honest->window)
		return;
	check_secret();
	memset(memory.window, FRESH_BYTE, WINDOW);
	honest->window = register_memory(honest, memory.window, ALL_REMOTE);
	honest->window_key = honest->window->rkey;
}

void honest_deregister(struct honest *honest)
{
	if (!honest->window)
		return;
	CHECK(!ibv_dereg_mr(honest->window));
	honest->window = NULL;
	/* As a program that needs it for something else. */
	memset(memory.window, SECRET_BYTE, WINDOW);
}

void honest_begin(struct honest *honest)
{
	memset(&memory, GUARD_BYTE, sizeof(memory));
	memset(memory.window, SECRET_BYTE, WINDOW);
	memset(memory.readonly, READONLY_BYTE, WINDOW);
	CHECK(honest->side.size >= HONEST_BYTES);
	memset(honest->side.buf, FRESH_BYTE, honest->side.size);
	memset(honest->side.buf, SOURCE_BYTE, SOURCE);
	honest->readonly = register_memory(honest, memory.readonly,
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	honest_register(honest);
}

/* An SRQ has the receive of a message that did not end, with what had come of it. */
static void forget_unfinished(const struct honest *honest)
{
	const struct posted *oldest = &honest->recv[honest->recvs_seen];

	if (!honest->side.srq || honest->recvs_seen == honest->recvs)
		return;
	CHECK(is_only(oldest->at + oldest->length, ROOM - oldest->length, FRESH_BYTE));
	memset(oldest->at, FRESH_BYTE, ROOM);
}

static void check_memory(const struct honest *honest)
{
	const uint8_t *own = honest->side.buf;

	CHECK(is_only(memory.before, GUARD, GUARD_BYTE));
	CHECK(is_only(memory.between, GUARD, GUARD_BYTE));
	CHECK(is_only(memory.behind, GUARD, GUARD_BYTE));
	CHECK(is_only(memory.readonly, WINDOW, READONLY_BYTE));
	CHECK(is_only(own, SOURCE, SOURCE_BYTE));
	/* What has completed was looked at and made fresh again: nothing came after it. */
	CHECK(is_only(own + SOURCE, HONEST_BYTES - SOURCE, FRESH_BYTE));
}

void honest_end(struct honest *honest)
{
	honest_deregister(honest);
	CHECK(!ibv_dereg_mr(honest->readonly));
	check_secret();
	forget_unfinished(honest);
	check_memory(honest);
	side_close(&honest->side);
}

/* ---- posting ---- */

/* @length bytes at @at, in @pieces parts with @gap bytes between them. */
static int cut(const struct honest *honest, struct ibv_sge sge[MAX_PIECES], uint8_t *at,
	       uint32_t length, unsigned pieces, uint32_t gap, bool wrong_key)
{
	uint32_t done = 0;

	for (unsigned i = 0; i < pieces; i++) {
		uint32_t len = i + 1 < pieces ? length / pieces : length - done;

		sge[i] = (struct ibv_sge){.addr = (uintptr_t)at + done + i * gap,
					  .length = len,
					  .lkey = honest->side.mr->lkey};
		done += len;
	}
	if (pieces && wrong_key)
		sge[pieces - 1].lkey ^= 1;
	return (int)pieces;
}

void honest_post_recv(struct honest *honest, uint32_t room, unsigned pieces, bool wrong_key)
{
	struct ibv_sge sge[MAX_PIECES];
	uint8_t *slot = honest->side.buf + RECV_SLOTS + honest->recvs % HONEST_DEPTH * STRIDE;
	struct ibv_recv_wr wr = {.wr_id = honest->recvs, .sg_list = sge}, *bad;
	int error;

	/* A completion queue that overruns would be the program's fault. */
	if (honest->recvs == MAX_POSTED || honest->recvs - honest->recvs_seen == HONEST_DEPTH)
		return;
	wr.num_sge = cut(honest, sge, slot, room, pieces, 0, wrong_key);
	honest->recv[honest->recvs] = (struct posted){.length = pieces ? room : 0, .at = slot};
	error = honest->side.srq ? ibv_post_srq_recv(honest->side.srq, &wr, &bad)
				 : ibv_post_recv(honest->side.qp, &wr, &bad);
	CHECK(!error);
	honest->recvs++;
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Does the peer's answer go to memory of this end? */
static bool is_answered(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

static void describe_remote(struct ibv_send_wr *wr)
{
	if (is_atomic(wr->opcode)) {
		wr->wr.atomic.remote_addr = REMOTE_ADDR;
		wr->wr.atomic.rkey = REMOTE_KEY;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.swap = 2;
		return;
	}
	wr->wr.rdma.remote_addr = REMOTE_ADDR;
	wr->wr.rdma.rkey = REMOTE_KEY;
	if (wr->opcode == IBV_WR_SEND_WITH_INV)
		wr->invalidate_rkey = REMOTE_KEY;
	else
		wr->imm_data = htobe32(0x01020304);
}

void honest_post_send(struct honest *honest, const struct honest_request *request)
{
	bool answered = is_answered(request->opcode);
	uint32_t most = answered ? ROOM : SOURCE - MAX_PIECES * SOURCE_GAP;
	uint32_t length = request->length < most ? request->length : most;
	uint8_t *slot = honest->side.buf + READ_SLOTS + honest->sends % HONEST_DEPTH * STRIDE;
	uint8_t *at = answered ? slot : honest->side.buf;
	struct ibv_sge sge[MAX_PIECES];
	struct ibv_send_wr wr = {
		.wr_id = honest->sends,
		.sg_list = sge,
		.opcode = request->opcode,
		.send_flags = request->flags,
	};
	struct ibv_send_wr *bad;

	if (honest->sends == MAX_POSTED || honest->sends - honest->sends_seen >= HONEST_DEPTH)
		return;
	if (is_atomic(request->opcode))
		length = sizeof(uint64_t);
	wr.num_sge = cut(honest, sge, at, length, request->pieces, answered ? 0 : SOURCE_GAP,
			 request->wrong_key);
	describe_remote(&wr);
	honest->send[honest->sends] = (struct posted){
		.opcode = (uint8_t)request->opcode,
		.signaled = request->flags & IBV_SEND_SIGNALED,
		.length = request->pieces ? length : 0,
		.at = at,
	};
	if (!ibv_post_send(honest->side.qp, &wr, &bad))
		honest->sends++;
}

/* ---- completions ---- */

/* It is over, and not flushed: what it asked for is there, and no more. */
static void check_answer(const struct honest *honest, const struct posted *posted)
{
	if (!is_answered(posted->opcode))
		return;
	if (!honest->wild)
		CHECK(is_only(posted->at, posted->length, ANSWER_BYTE));
	CHECK(is_only(posted->at + posted->length, ROOM - posted->length, FRESH_BYTE));
}

static void make_fresh(const struct posted *posted)
{
	if (is_answered(posted->opcode))
		memset(posted->at, FRESH_BYTE, ROOM);
}

/* They come in the order of posting. Between them are only those that nobody wanted to hear of. */
static void check_send(struct honest *honest, const struct ibv_wc *wc)
{
	const struct posted *posted = &honest->send[honest->sends_seen];

	CHECK(wc->wr_id >= honest->sends_seen && wc->wr_id < honest->sends);
	for (; honest->sends_seen < wc->wr_id; honest->sends_seen++, posted++) {
		CHECK(!posted->signaled && !honest->failed);
		check_answer(honest, posted);
		make_fresh(posted);
	}
	honest->sends_seen++;
	if (wc->status == IBV_WC_SUCCESS) {
		CHECK(posted->signaled && !honest->failed);
		check_answer(honest, posted);
	} else {
		honest->failed = true;
		honest->blamed += wc->status != IBV_WC_WR_FLUSH_ERR;
		CHECK(honest->blamed <= 1);
	}
	make_fresh(posted);
}

/* A message fills the receive from its start, is not a mixture, and leaves the rest as it was. */
static void check_message(const struct honest *honest, const struct posted *posted,
			  const struct ibv_wc *wc)
{
	uint32_t length = wc->opcode == IBV_WC_RECV ? wc->byte_len : 0;

	CHECK(wc->opcode == IBV_WC_RECV || wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(length <= posted->length);
	CHECK(is_only(posted->at + length, ROOM - length, FRESH_BYTE));
	if (length && !honest->wild)
		CHECK((posted->at[0] & 0xf0) == SEND_BYTE &&
		      is_only(posted->at, length, posted->at[0]));
}

static void check_recv(struct honest *honest, const struct ibv_wc *wc)
{
	const struct posted *posted = &honest->recv[honest->recvs_seen];

	CHECK(wc->wr_id == honest->recvs_seen && wc->wr_id < honest->recvs);
	honest->recvs_seen++;
	if (wc->status == IBV_WC_SUCCESS) {
		check_message(honest, posted, wc);
		honest->messages++;
	}
	memset(posted->at, FRESH_BYTE, ROOM);
}

bool honest_poll(struct honest *honest)
{
	struct ibv_wc wc[8];
	int sends = ibv_poll_cq(honest->side.send_cq, ARRAY_SIZE(wc), wc);
	int recvs;

	CHECK(sends >= 0);
	for (int i = 0; i < sends; i++)
		check_send(honest, &wc[i]);
	recvs = ibv_poll_cq(honest->side.recv_cq, ARRAY_SIZE(wc), wc);
	CHECK(recvs >= 0);
	for (int i = 0; i < recvs; i++)
		check_recv(honest, &wc[i]);
	return sends || recvs;
}

/* ---- the end ---- */

void honest_set_state(struct honest *honest, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	ibv_modify_qp(honest->side.qp, &attr, IBV_QP_STATE);
}

static enum ibv_qp_state state_of(const struct honest *honest)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(honest->side.qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static bool is_over(const struct honest *honest)
{
	if (state_of(honest) != IBV_QPS_ERR)
		return false;
	for (unsigned i = honest->sends_seen; i < honest->sends; i++)
		if (honest->send[i].signaled || honest->failed)
			return false;
	/* What no message took stays in a shared queue. */
	return honest->side.srq || honest->recvs_seen == honest->recvs;
}

void honest_await_end(struct honest *honest)
{
	uint64_t end = now_ms() + END_MS;

	while (!is_over(honest)) {
		CHECK(now_ms() < end);
		if (!honest_poll(honest))
			sched_yield();
	}
	while (honest_poll(honest))
		continue;
	/* Those that are left have succeeded, and nobody wanted to hear of it. */
	for (unsigned i = honest->sends_seen; i < honest->sends; i++) {
		check_answer(honest, &honest->send[i]);
		make_fresh(&honest->send[i]);
	}
}
