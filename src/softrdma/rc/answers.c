/* SPDX-License-Identifier: MIT */
/* Answers to the peer's reads and atomics, in the order of its requests. */
#include <errno.h>
#include <stdlib.h>

#include "../fault.h"
#include "conn.h"

bool rc_answers_wait(const struct rc_tx *tx)
{
	return tx->answers_head != tx->answers_tail;
}

static struct rc_answer *oldest(const struct rc_conn *conn)
{
	return &conn->tx.answers[conn->tx.answers_head % conn->ird];
}

bool rc_answer_is_open(const struct rc_conn *conn)
{
	return rc_answers_wait(&conn->tx) && oldest(conn)->done;
}

/* ---- memory ---- */

static unsigned access_of(const struct rc_frame *request)
{
	return request->kind == RC_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_ATOMIC;
}

static uint64_t length_of(const struct rc_frame *request)
{
	return request->kind == RC_READ ? request->arg : sizeof(uint64_t);
}

static bool is_reachable(struct rc_conn *conn, const struct rc_frame *request, uint16_t *code)
{
	struct rc_region *region;
	enum rc_fault fault;
	void *mem;

	if (!length_of(request))
		return true;
	region = rc_region_get(conn_qp(conn), request->key, request->addr, length_of(request),
			       access_of(request), &mem, &fault);
	if (region)
		rc_region_put(region);
	else
		*code = read_fault(fault);
	return region != NULL;
}

static int execute(struct rc_conn *conn, struct rc_answer *answer, uint16_t *code)
{
	const struct rc_frame *request = &answer->request;
	bool swaps = request->flags & RC_SWAP;
	const struct rc_atomic atomic = {
		.key = request->key,
		.addr = request->addr,
		.swaps = swaps,
		.compare = request->arg,
		.add_swap = swaps ? request->swap : request->arg,
	};
	enum rc_fault fault;
	int error = rc_execute_atomic(conn_qp(conn), &atomic, &answer->value, &fault);

	if (error)
		*code = read_fault(fault);
	else
		answer->kind = RC_ANSWER_RESULT;
	return error;
}

/* ---- a request arrives ---- */

static enum rc_outcome refuse(struct rc_conn *conn, uint16_t code)
{
	rc_fail(conn, code, true, NULL, IBV_WC_WR_FLUSH_ERR);
	return RC_ENDED;
}

/* 0, or what to tell the peer. */
static uint16_t check_request(struct rc_conn *conn, const struct rc_frame *request)
{
	const struct rc_tx *tx = &conn->tx;
	uint16_t code = TERM_NONE;

	if (request->arg > UINT32_MAX && request->kind == RC_READ)
		return TERM_RDMAP_STREAM;
	if (request->kind == RC_ATOMIC && request->addr % sizeof(uint64_t))
		return TERM_RDMAP_BOUNDS;
	if (tx->answers_tail - tx->answers_head >= conn->ird)
		return TERM_RDMAP_STREAM; /* more than was agreed on */
	/* Behind others it ends the connection in its turn: the peer knows which one it was. */
	if (!rc_answers_wait(tx))
		is_reachable(conn, request, &code);
	return code;
}

/*
 * An atomic takes effect when it arrives, ahead of what the peer sends after it; but behind reads
 * that are not answered yet it waits for its turn.
 */
enum rc_outcome rc_add_answer(struct rc_conn *conn, const struct rc_frame *request)
{
	struct rc_tx *tx = &conn->tx;
	uint16_t code = check_request(conn, request);
	struct rc_answer *last;

	if (code != TERM_NONE)
		return refuse(conn, code);
	if (!tx->answers)
		tx->answers = calloc(conn->ird, sizeof(*tx->answers));
	if (!tx->answers)
		return refuse(conn, TERM_RDMAP_LOCAL);
	last = &tx->answers[tx->answers_tail % conn->ird];
	*last = (struct rc_answer){
		.kind = request->kind == RC_READ ? RC_ANSWER_READ : RC_ANSWER_ATOMIC,
		.request = *request,
	};
	if (last->kind == RC_ANSWER_ATOMIC && !rc_answers_wait(tx) && execute(conn, last, &code))
		return refuse(conn, code);
	tx->answers_tail++;
	return RC_GO_ON;
}

/* ---- the answer leaves ---- */

static enum rc_step fail(struct rc_conn *conn, uint16_t code)
{
	rc_fail(conn, code, false, NULL, IBV_WC_WR_FLUSH_ERR);
	return RC_STEP_ENDED;
}

static enum rc_step outcome(struct rc_conn *conn, ssize_t taken)
{
	if (taken >= 0)
		return RC_STEP_DONE;
	return taken == -EAGAIN ? RC_STEP_NONE : fail(conn, TERM_RDMAP_STREAM);
}

static enum rc_step answer_atomic(struct rc_conn *conn, struct rc_answer *answer)
{
	struct rc_frame frame = {
		.kind = RC_RESULT,
		.sink_key = answer->request.sink_key,
		.sink_addr = answer->request.sink_addr,
	};
	ssize_t taken;
	uint16_t code;

	if (answer->kind == RC_ANSWER_ATOMIC && execute(conn, answer, &code))
		return fail(conn, code);
	frame.arg = answer->value;
	taken = conn->transport->put(conn, &frame, NULL, 0, 0, 0);
	if (taken >= 0)
		conn->tx.answers_head++;
	return outcome(conn, taken);
}

/* One frame of it; its memory is held while the transport looks at it. */
static enum rc_step answer_read(struct rc_conn *conn, struct rc_answer *answer)
{
	const struct rc_frame *request = &answer->request;
	uint32_t left = (uint32_t)request->arg - answer->done;
	struct rc_frame frame = {
		.kind = RC_READ_DATA,
		.key = request->key,
		.addr = request->addr + answer->done,
		.sink_key = request->sink_key,
		.sink_addr = request->sink_addr + answer->done,
	};
	struct ibv_sge piece = {.length = left};
	struct rc_region *region = NULL;
	enum rc_fault fault;
	void *mem = NULL;
	ssize_t taken;

	if (left) {
		region = rc_region_get(conn_qp(conn), frame.key, frame.addr, left,
				       IBV_ACCESS_REMOTE_READ, &mem, &fault);
		if (!region)
			return fail(conn, read_fault(fault));
	}
	piece.addr = (uintptr_t)mem;
	taken = conn->transport->put(conn, &frame, &piece, 1, 0, left);
	if (region)
		rc_region_put(region);
	if (taken >= 0) {
		answer->done += (uint32_t)taken;
		if (answer->done == request->arg)
			conn->tx.answers_head++;
	}
	return outcome(conn, taken);
}

enum rc_step rc_answer_step(struct rc_conn *conn)
{
	struct rc_answer *answer;

	if (!rc_answers_wait(&conn->tx))
		return RC_STEP_NONE;
	answer = oldest(conn);
	/* A tagged message that has begun is never interrupted by another. */
	if (answer->kind != RC_ANSWER_READ)
		return answer_atomic(conn, answer);
	return conn->tx.framed ? RC_STEP_NONE : answer_read(conn, answer);
}
