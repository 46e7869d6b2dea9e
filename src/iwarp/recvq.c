/* SPDX-License-Identifier: MIT */
/* The receive queue: the application's receives, and those for records among them. */
#include "internal.h"

/* On which the device must have a queue pair that will be connected. */
static int post_now(struct conn *conn, const struct early *receive)
{
	struct ibv_recv_wr wr = {.wr_id = receive->number,
				 .sg_list = (struct ibv_sge *)(uintptr_t)receive->sge,
				 .num_sge = receive->count};
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(conn->id->qp, &wr, &bad);

	return error ? error_of(error, "the device did not take the receive") : 0;
}

/* With the room that each half is to have. The hello's is beyond it. */
static int check_room(struct conn *conn)
{
	unsigned limit = conn->capacity + (conn->awaits_hello ? 1 : 0);

	if (conn->ended)
		return conn_say_ended(conn);
	if (conn->recvq.outstanding >= limit)
		return error_say(ENOMEM, "%u receives are posted: await completions first",
				 conn->capacity);
	return 0;
}

static int post(struct conn *conn, const struct early *receive)
{
	int error = check_room(conn);

	if (error)
		return error;
	if (conn->is_early) {
		if (fifo_reserve(&conn->recvq.early, 1))
			return error_of(ENOMEM, "a receive");
		*(struct early *)fifo_push(&conn->recvq.early) = *receive;
	} else {
		error = post_now(conn, receive);
	}
	if (!error)
		conn->recvq.outstanding++;
	return error;
}

int recvq_post(struct conn *conn, const struct ibv_sge *sge, int count, uint64_t *number)
{
	struct early receive;
	int error;

	receive.number = conn->recvq.last ? conn->recvq.last + 2 : 1;
	receive.count = count;
	memcpy(receive.sge, sge, (size_t)count * sizeof(*sge));
	error = post(conn, &receive);
	if (error)
		return error;
	*number = conn->recvq.last = receive.number;
	return 0;
}

int recvq_post_record(struct conn *conn, bool is_hello)
{
	struct recvq *recvq = &conn->recvq;
	uint64_t slot = recvq->last_record % recvq->depth;
	struct early receive = {.number = NUMBER_RECORD | slot, .count = 1};
	int error;

	receive.sge[0] = (struct ibv_sge){.addr = (uintptr_t)conn->records + RECORD_LEN * slot,
					  .length = RECORD_LEN,
					  .lkey = conn->records_mr->lkey};
	conn->awaits_hello |= is_hello;
	error = post(conn, &receive);
	if (error)
		return error;
	recvq->last_record++;
	recvq->records += !is_hello;
	return 0;
}

/* They stay in the list, in case another address is tried. */
int recvq_post_early(struct conn *conn)
{
	int error = 0;

	for (size_t i = 0; i < conn->recvq.early.count && !error; i++)
		error = post_now(conn, fifo_at(&conn->recvq.early, i));
	return error;
}

void recvq_completed(struct conn *conn, struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		conn_fail(conn, wc->status);
	if (wc->wr_id & NUMBER_FOREIGN) {
		queue_keep(&conn->queues[IW_RCQ], wc);
		return;
	}
	conn->recvq.outstanding--;
	if (wc->wr_id & NUMBER_RECORD)
		adv_arrived(conn, wc);
	else
		queue_keep(&conn->queues[IW_RCQ], wc);
}
