/* SPDX-License-Identifier: MIT */
/* Advertisements: buffers that peers tell each other of. */
#include "internal.h"

/* ---- sending ---- */

static int send_adv(struct conn *conn, const struct iw_lmr *lmr, uint64_t *number)
{
	struct record record = {.type = RECORD_ADVERTISEMENT};
	uint64_t op = 0;
	int error;

	if (!lmr || !lmr->mr || lmr->private_[0] != conn->domain)
		return error_say(EINVAL, "this is not a buffer of the connection's domain");
	if (lmr->access_flags & IBV_ACCESS_REMOTE_READ)
		record.rights |= RECORD_READ;
	if (lmr->access_flags & IBV_ACCESS_REMOTE_WRITE)
		record.rights |= RECORD_WRITE;
	if (!record.rights)
		return error_say(EACCES, "the buffer was registered for neither remote read nor "
					 "remote write");
	record.address = (uintptr_t)lmr->addr;
	record.length = lmr->length;
	record.key = lmr->mr->rkey;
	error = sendq_post_record(conn, &record, SENT_QUIET, &op);
	if (!error)
		*number = op;
	return error;
}

int iw_post_send_adv(struct iw_lmr *iw_lmr, struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of_open(iw_ctx, &conn);

	if (error)
		return error_return(error);
	conn_lock(conn);
	error = send_adv(conn, iw_lmr, &iw_ctx->last_wr_id);
	conn_unlock(conn);
	return error_return(error);
}

/* ---- receiving ---- */

int iw_post_recv_adv(struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of(iw_ctx, &conn);

	if (error)
		return error_return(error);
	conn_lock(conn);
	error = recvq_post_record(conn, false);
	conn_unlock(conn);
	return error_return(error);
}

static int access_of(uint8_t rights)
{
	return (rights & RECORD_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (rights & RECORD_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
}

static struct arrival arrival_of(const void *slot, uint32_t len)
{
	struct arrival arrival = {0};
	struct record record;

	if (record_get(slot, len, &record, &arrival.fault))
		return arrival;
	if (record.type != RECORD_ADVERTISEMENT) {
		arrival.fault = "a hello out of place";
		return arrival;
	}
	arrival.rmr = (struct iw_rmr){
		.addr = record.address,
		.length = record.length,
		.rkey = record.key,
		.access_flags = access_of(record.rights),
	};
	return arrival;
}

/* The slot is free again: what it says is copied. There is room for it. */
void adv_arrived(struct conn *conn, const struct ibv_wc *wc)
{
	const uint8_t *slot = conn->records + RECORD_LEN * (wc->wr_id & ~NUMBER_RECORD);
	bool is_hello = conn->awaits_hello;
	struct record record;
	const char *why;

	conn->awaits_hello = false;
	if (!is_hello)
		conn->recvq.records--;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (is_hello) {
		if (record_get(slot, wc->byte_len, &record, &why) || record.type != RECORD_HELLO)
			conn_end(conn, EPROTO);
		return;
	}
	*(struct arrival *)fifo_push(&conn->arrivals) = arrival_of(slot, wc->byte_len);
}

static int wait_adv(struct conn *conn, uint64_t deadline, struct iw_rmr *out)
{
	const struct arrival *arrival;
	int error = 0;

	while (!conn->arrivals.count) {
		if (!conn->recvq.records && !conn->ended)
			return error_say(EINVAL, "no receive for an advertisement is posted: call "
						 "iw_post_recv_adv first");
		if (error)
			return error;
		error = queue_wait(conn, IW_RCQ, deadline);
	}
	arrival = fifo_pop(&conn->arrivals);
	if (arrival->fault)
		return error_say(EPROTO, "the peer sent %s", arrival->fault);
	*out = arrival->rmr;
	return 0;
}

int iw_wait_recv_adv_timeout(struct iw_rmr *iw_rmr_out, int timeout_ms, struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of_open(iw_ctx, &conn);

	if (!error && !iw_rmr_out)
		error = error_say(EINVAL, "there is no place for the advertisement");
	if (error)
		return error_return(error);
	conn_lock(conn);
	error = wait_adv(conn, deadline_in(timeout_ms), iw_rmr_out);
	conn_unlock(conn);
	return error_return(error);
}

int iw_wait_recv_adv(struct iw_rmr *iw_rmr_out, struct iw_ctx_conn *iw_ctx)
{
	return iw_wait_recv_adv_timeout(iw_rmr_out, -1, iw_ctx);
}
