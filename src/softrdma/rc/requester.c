/* SPDX-License-Identifier: MIT */
/*
 * The requester: which request may start, in which order its frames are put, and when it is over.
 * Requests start in order. One that the peer answers ends with its answer, any other when the peer
 * has placed it (or, towards peers that do not tell, when it has left).
 */
#include <errno.h>

#include "../../common/log.h"
#include "../strict.h"
#include "conn.h"

static struct rc_send *next_send(const struct rc_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	return sq->next == sq->tail ? NULL : rc_send_at(sq, sq->next);
}

bool rc_is_pending(const struct rc_conn *conn)
{
	return conn->tx.open && (conn->tx.unsent || next_send(conn) || rc_answers_wait(&conn->tx));
}

bool rc_sends_next(const struct rc_conn *conn)
{
	const struct rc_send *send = next_send(conn);

	return send && (send->opcode == IBV_WR_SEND || send->opcode == IBV_WR_SEND_WITH_IMM) &&
	       !rc_answers_wait(&conn->tx);
}

struct rc_send *rc_oldest_request(const struct rc_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	if (!conn->tx.reads_open)
		return NULL;
	for (uint32_t i = sq->head; i != sq->next; i++) {
		struct rc_send *send = rc_send_at(sq, i);

		if (rc_is_answered(send->opcode) && send->state == RC_SEND_BEGUN)
			return send;
	}
	return NULL;
}

/* ---- the end of requests ---- */

bool rc_awaits_acks(const struct rc_conn *conn)
{
	return conn->acknowledged && conn->tx.settled != conn->tx.position &&
	       conn_qp(conn)->sq.signaled;
}

/* All frames of the request at hand were put; the next one may begin. */
static void advance(struct rc_conn *conn, struct rc_send *send)
{
	struct rc_qp *qp = conn_qp(conn);

	conn->tx.offset = 0;
	conn->tx.framed = false;
	send->state = RC_SEND_BEGUN;
	send->position = conn->tx.position;
	qp->sq.next++;
}

/* It is over without having been put: its data was copied. */
static void finish(struct rc_conn *conn, struct rc_send *send)
{
	conn->tx.offset = 0;
	conn_qp(conn)->sq.next++;
	rc_send_done(conn_qp(conn), send, IBV_WC_SUCCESS);
}

int rc_settle(struct rc_conn *conn, uint32_t position)
{
	struct rc_tx *tx = &conn->tx;
	struct rc_qp *qp = conn_qp(conn);

	if (position - tx->settled > tx->position - tx->settled)
		return -EPROTO;
	tx->settled = position;
	/* Requests that ended by their answers may have left the queue. */
	if ((int32_t)(tx->unsettled - qp->sq.head) < 0)
		tx->unsettled = qp->sq.head;
	for (; tx->unsettled != qp->sq.next; tx->unsettled++) {
		struct rc_send *send = rc_send_at(&qp->sq, tx->unsettled);

		if (send->state != RC_SEND_BEGUN || rc_is_answered(send->opcode))
			continue;
		if ((int32_t)(position - send->position) < 0)
			break;
		rc_send_done(qp, send, IBV_WC_SUCCESS);
	}
	return 0;
}

/* ---- frames of a request ---- */

static enum rc_step outcome(struct rc_conn *conn, ssize_t taken)
{
	if (taken >= 0)
		return RC_STEP_DONE;
	if (taken == -EAGAIN)
		return RC_STEP_NONE;
	rc_fail(conn, TERM_RDMAP_STREAM, false, NULL, IBV_WC_WR_FLUSH_ERR);
	return RC_STEP_ENDED;
}

static ssize_t put_data(struct rc_conn *conn, struct rc_send *send, struct rc_frame *frame)
{
	struct rc_tx *tx = &conn->tx;
	ssize_t taken = conn->transport->put(conn, frame, send->sge, send->num_sge, tx->offset,
					     send->length - tx->offset);

	if (taken < 0)
		return taken;
	send->state = RC_SEND_BEGUN;
	tx->offset += (uint32_t)taken;
	return taken;
}

static uint8_t send_flags(const struct rc_send *send)
{
	uint8_t flags = send->solicited ? RC_SOLICITED : 0;

	if (send->opcode == IBV_WR_SEND_WITH_INV)
		flags |= RC_INVALIDATE;
	if (send->opcode == IBV_WR_SEND_WITH_IMM)
		flags |= RC_IMMEDIATE;
	return flags;
}

static enum rc_step step_send(struct rc_conn *conn, struct rc_send *send)
{
	struct rc_frame frame = {
		.kind = RC_SEND,
		.flags = send_flags(send),
		.key = send->opcode == IBV_WR_SEND_WITH_INV ? send->imm_or_key : 0,
		.imm = send->opcode == IBV_WR_SEND_WITH_IMM ? send->imm_or_key : 0,
	};
	ssize_t taken = put_data(conn, send, &frame);

	if (taken >= 0 && conn->tx.offset == send->length)
		advance(conn, send);
	return outcome(conn, taken);
}

/* Data by a copy past the transport's frames, if it can; one that asked before goes first. */
static ssize_t copy(struct rc_conn *conn, struct rc_send *send)
{
	ssize_t bytes;

	if (!conn->transport->copy || conn->tx.reads_open)
		return -EAGAIN;
	bytes = conn->transport->copy(conn, send, conn->tx.offset);
	if (bytes <= 0)
		return -EAGAIN;
	send->state = RC_SEND_BEGUN;
	conn->tx.offset += (uint32_t)bytes;
	return bytes;
}

static ssize_t write_some(struct rc_conn *conn, struct rc_send *send)
{
	struct rc_frame frame = {
		.kind = RC_WRITE,
		.key = send->rkey,
		.addr = send->remote_addr + conn->tx.offset,
	};
	ssize_t bytes = send->length ? copy(conn, send) : -EAGAIN;

	if (bytes <= 0) {
		bytes = put_data(conn, send, &frame);
		conn->tx.framed |= bytes >= 0;
	}
	/* What began with frames may end with a copy. */
	if (conn->tx.offset == send->length)
		conn->tx.framed = false;
	return bytes;
}

static enum rc_step step_write(struct rc_conn *conn, struct rc_send *send)
{
	struct rc_frame immediate = {
		.kind = RC_WRITE_IMM,
		.flags = RC_IMMEDIATE | (send->solicited ? RC_SOLICITED : 0),
		.imm = send->imm_or_key,
		.arg = send->length,
	};
	uint32_t before = conn->tx.position;
	ssize_t taken = 0;

	if (send->state == RC_SEND_POSTED || conn->tx.offset < send->length) {
		taken = write_some(conn, send);
		if (taken < 0 || conn->tx.offset < send->length)
			return outcome(conn, taken);
		if (send->opcode == IBV_WR_RDMA_WRITE) {
			/* The last of it was copied, and frames before it may not be placed. */
			if (before == conn->tx.position)
				finish(conn, send);
			else
				advance(conn, send);
			return RC_STEP_DONE;
		}
	}
	taken = conn->transport->put(conn, &immediate, NULL, 0, 0, 0);
	if (taken >= 0)
		advance(conn, send);
	return outcome(conn, taken);
}

static enum rc_step ask(struct rc_conn *conn, struct rc_send *send, struct rc_frame *frame)
{
	ssize_t taken;

	if (conn->tx.reads_open >= conn->ord)
		return RC_STEP_NONE;
	taken = conn->transport->put(conn, frame, NULL, 0, 0, 0);
	if (taken >= 0) {
		conn->tx.reads_open++;
		advance(conn, send);
	}
	return outcome(conn, taken);
}

/* A read that was begun by copying and cannot go on so is asked for from its start. */
static enum rc_step step_read(struct rc_conn *conn, struct rc_send *send)
{
	struct rc_frame frame = {
		.kind = RC_READ,
		.key = send->rkey,
		.addr = send->remote_addr,
		.arg = send->length,
		.sink_key = send->num_sge ? send->sge[0].lkey : 0,
		.sink_addr = send->num_sge ? send->sge[0].addr : 0,
	};

	if (send->length && copy(conn, send) > 0) {
		if (conn->tx.offset == send->length)
			finish(conn, send);
		return RC_STEP_DONE;
	}
	conn->tx.offset = 0;
	return ask(conn, send, &frame);
}

static enum rc_step step_atomic(struct rc_conn *conn, struct rc_send *send)
{
	struct rc_frame frame = {
		.kind = RC_ATOMIC,
		.flags = send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? RC_SWAP : 0,
		.key = send->rkey,
		.addr = send->remote_addr,
		.arg = send->compare_add,
		.swap = send->swap,
	};

	return ask(conn, send, &frame);
}

/* ---- order ---- */

/* On iWARP the acceptor must not speak before the initiator has. */
static bool is_out_of_turn(const struct rc_conn *conn)
{
	return is_strict() && conn->waits_for_first;
}

/*
 * A request that was wrong when it was posted has its turn when all before it are over: it ends the
 * connection.
 */
static enum rc_step fail_bad_request(struct rc_conn *conn, struct rc_send *send)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	if (sq->head != sq->next)
		return RC_STEP_NONE;
	if (is_out_of_turn(conn))
		log_error("strict: %s: the acceptor sends before the initiator's first message",
			  conn->name);
	if (send->status == IBV_WC_SUCCESS)
		send->status = IBV_WC_LOC_QP_OP_ERR;
	rc_fail(conn, TERM_NONE, false, send, send->status);
	return RC_STEP_ENDED;
}

static bool is_bad(const struct rc_conn *conn, const struct rc_send *send)
{
	/* A read that none was agreed on could never leave. */
	return send->status != IBV_WC_SUCCESS || is_out_of_turn(conn) ||
	       (rc_is_answered(send->opcode) && !conn->ord);
}

/* Two tagged messages, a Write and the answer to a read, are never interleaved. */
static bool may_begin(const struct rc_conn *conn, const struct rc_send *send)
{
	if (rc_is_write(send->opcode) && rc_answer_is_open(conn))
		return false;
	return !send->fence || !conn->tx.reads_open;
}

static enum rc_step request_step(struct rc_conn *conn)
{
	struct rc_send *send = next_send(conn);

	if (!send)
		return RC_STEP_NONE;
	if (send->state == RC_SEND_POSTED) {
		if (conn_qp(conn)->state == IBV_QPS_SQD)
			return RC_STEP_NONE;
		if (is_bad(conn, send))
			return fail_bad_request(conn, send);
		if (!may_begin(conn, send))
			return RC_STEP_NONE;
	}
	if (rc_is_write(send->opcode))
		return step_write(conn, send);
	if (send->opcode == IBV_WR_RDMA_READ)
		return step_read(conn, send);
	return rc_is_atomic(send->opcode) ? step_atomic(conn, send) : step_send(conn, send);
}

unsigned rc_fill(struct rc_conn *conn, unsigned frames)
{
	struct rc_tx *tx = &conn->tx;

	for (unsigned i = 0; i < frames; i++) {
		enum rc_step step;

		tx->answers_next = !tx->answers_next;
		step = tx->answers_next ? rc_answer_step(conn) : request_step(conn);
		if (step == RC_STEP_NONE)
			step = tx->answers_next ? request_step(conn) : rc_answer_step(conn);
		if (step != RC_STEP_DONE)
			return i + (step == RC_STEP_ENDED);
	}
	return frames;
}
