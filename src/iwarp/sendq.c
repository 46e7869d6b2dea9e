/* SPDX-License-Identifier: MIT */
/*
 * The send queue. The device tells of signalled requests alone, and of those that fail; one that is
 * told of frees all before it. So now and then a request is signalled for the library's own sake.
 */
#include <stdlib.h>

#include "../libs/post.h"
#include "internal.h"

int sendq_init(struct sendq *sendq, unsigned depth)
{
	sendq->ring = calloc(depth, sizeof(*sendq->ring));
	if (!sendq->ring)
		return error_of(ENOMEM, "a send queue");
	sendq->depth = depth;
	return 0;
}

/* The @i-th place of those in use, or the first that is not. */
static unsigned place_of(const struct sendq *sendq, unsigned i)
{
	unsigned place = sendq->first + i;

	return place < sendq->depth ? place : place - sendq->depth;
}

static struct sent *sent_at(const struct sendq *sendq, unsigned i)
{
	return &sendq->ring[place_of(sendq, i)];
}

/* An application that is interrupted here could not tell what has been posted. */
static int wait_for_room(struct conn *conn)
{
	struct sendq *sendq = &conn->sendq;
	int error = 0;

	if (conn->ended)
		return conn_say_ended(conn);
	while (sendq->count == sendq->depth && (!error || error == -EINTR))
		error = queue_wait(conn, IW_SCQ, NEVER);
	return sendq->count < sendq->depth ? 0 : error;
}

/* Half a queue that is not signalled is all that must be waited for. */
static bool is_signal_due(const struct sendq *sendq)
{
	return sendq->unsignalled + 1 >= (sendq->depth + 1) / 2;
}

/* There is room. */
static int post_now(struct conn *conn, struct ibv_send_wr *wr, uint64_t *op, enum sent_kind kind)
{
	struct sendq *sendq = &conn->sendq;
	int error;

	if (is_signal_due(sendq))
		wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr_id = sendq->last + 2;
	error = post_sends(conn->id->qp, wr);
	if (error)
		return error_of(error, "the device did not take the request");
	sendq->last = wr->wr_id;
	if (!*op)
		*op = wr->wr_id;
	*sent_at(sendq, sendq->count++) = (struct sent){wr->wr_id, *op, kind};
	sendq->unsignalled = wr->send_flags & IBV_SEND_SIGNALED ? 0 : sendq->unsignalled + 1;
	return 0;
}

int sendq_post(struct conn *conn, struct ibv_send_wr *wr, uint64_t *op, enum sent_kind kind)
{
	int error = wait_for_room(conn);

	return error ? error : post_now(conn, wr, op, kind);
}

/* Each place of the ring has a slot for a record. */
int sendq_post_record(struct conn *conn, const struct record *record, enum sent_kind kind,
		      uint64_t *op)
{
	struct sendq *sendq = &conn->sendq;
	struct ibv_sge piece = {.length = RECORD_LEN, .lkey = conn->records_mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &piece,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = conn->max_inline >= RECORD_LEN ? IBV_SEND_INLINE : 0,
	};
	uint8_t *slot;
	int error = wait_for_room(conn);

	if (error)
		return error;
	slot = conn->records +
	       RECORD_LEN * ((size_t)conn->recvq.depth + place_of(sendq, sendq->count));
	record_put(slot, record);
	piece.addr = (uintptr_t)slot;
	return post_now(conn, &wr, op, kind);
}

int sendq_post_empty_write(struct conn *conn, int flags)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = (unsigned)flags};
	uint64_t op = 0;

	return sendq_post(conn, &wr, &op, SENT_HIDDEN);
}

/* ---- completions ---- */

/* The place of a request in the ring; false: it is not there. */
static bool find(const struct sendq *sendq, uint64_t number, unsigned *place)
{
	for (unsigned i = 0; i < sendq->count; i++) {
		if (sent_at(sendq, i)->number == number) {
			*place = i;
			return true;
		}
	}
	return false;
}

/* One completion for all requests of an operation: the first that failed tells why. */
static void sent_failed(struct conn *conn, const struct sent *sent, const struct ibv_wc *wc)
{
	conn_fail(conn, wc->status);
	if (sent->kind == SENT_HIDDEN || conn->sendq.failed_op == sent->op)
		return;
	conn->sendq.failed_op = sent->op;
	queue_keep(&conn->queues[IW_SCQ], wc);
}

void sendq_completed(struct conn *conn, struct ibv_wc *wc)
{
	struct sendq *sendq = &conn->sendq;
	struct sent sent;
	unsigned place;

	if (!find(sendq, wc->wr_id, &place)) {
		/* The application has posted it itself. */
		queue_keep(&conn->queues[IW_SCQ], wc);
		return;
	}
	sent = *sent_at(sendq, place);
	wc->wr_id = sent.op;
	if (wc->status != IBV_WC_SUCCESS) {
		/* What fails is told of one by one, and not by every device in order: all stay. */
		sent_failed(conn, &sent, wc);
		return;
	}
	sendq->first = place_of(sendq, place + 1);
	sendq->count -= place + 1;
	if (sent.kind == SENT_WANTED)
		queue_keep(&conn->queues[IW_SCQ], wc);
}

void sendq_drain(struct conn *conn, uint64_t deadline)
{
	struct sendq *sendq = &conn->sendq;
	int error = 0;

	if (sendq->unsignalled && sendq->count && sendq->count < sendq->depth)
		sendq_post_empty_write(conn, IBV_SEND_SIGNALED);
	while (sendq->count && (!error || error == -EINTR))
		error = queue_wait(conn, IW_SCQ, deadline);
}
