/* SPDX-License-Identifier: MIT */
/*
 * The responder: what arriving frames mean, where their payload goes, and what they do when they
 * are complete; and the completer's part for answers to our own requests.
 */
#include <errno.h>
#include <string.h>

#include "../../common/log.h"
#include "../fault.h"
#include "../strict.h"
#include "conn.h"

static enum rc_outcome fail(struct rc_conn *conn, uint16_t code)
{
	rc_fail(conn, code, !conn->rx.replaying, NULL, IBV_WC_WR_FLUSH_ERR);
	return RC_ENDED;
}

/* The receive in progress is to blame: it completes with its own status. */
static enum rc_outcome fail_recv(struct rc_conn *conn, enum ibv_wc_status status, uint16_t code)
{
	const struct rc_arrival arrival = {.status = status, .opcode = IBV_WC_RECV};
	struct rc_recv *recv = conn->rx.recv;

	conn->rx.recv = NULL;
	rc_recv_done(conn_qp(conn), recv, &arrival);
	return fail(conn, code);
}

uint32_t rc_placed(const struct rc_conn *conn)
{
	const struct rc_rx *rx = &conn->rx;

	if (rx->fetching)
		return rx->fetch_position;
	if (!list_is_empty(&rx->held))
		return list_first(&rx->held, struct rc_held, link)->position;
	return rx->position;
}

/* ---- messages that take a receive ---- */

bool rc_takes_receive(const struct rc_frame *frame)
{
	return frame->kind == RC_SEND || frame->kind == RC_WRITE_IMM ||
	       frame->kind == RC_SEND_FETCH;
}

static uint64_t data_of(const struct rc_frame *frame)
{
	return frame->kind == RC_SEND_FETCH ? frame->arg : frame->len;
}

/* The receive for the message at hand. False: there is none. */
static bool take_receive(struct rc_conn *conn)
{
	struct rc_rx *rx = &conn->rx;

	if (rx->recv)
		return true;
	rx->recv = rc_recv_begin(conn_qp(conn));
	rx->recv_done = 0;
	rx->taken += rx->recv != NULL;
	return rx->recv != NULL;
}

/* The frame has its receive. */
static enum rc_outcome begin_in_receive(struct rc_conn *conn, const struct rc_frame *frame,
					uint32_t position)
{
	struct rc_rx *rx = &conn->rx;
	enum ibv_wc_status status;

	if (frame->kind == RC_WRITE_IMM)
		return RC_GO_ON;
	status = rc_recv_check(conn_qp(conn), rx->recv, rx->recv_done + data_of(frame));
	if (status != IBV_WC_SUCCESS)
		return fail_recv(conn, status, recv_fault(status));
	if (frame->kind == RC_SEND_FETCH) {
		rx->fetching = true;
		rx->fetch_position = position;
	}
	return RC_GO_ON;
}

/* Messages keep their order: behind one that waits, all wait. */
static enum rc_outcome hold(struct rc_conn *conn, const struct rc_frame *frame)
{
	struct rc_rx *rx = &conn->rx;
	bool first = list_is_empty(&rx->held);

	if (is_strict()) {
		log_error("strict: %s: a message found no receive", conn->name);
		return fail(conn, TERM_DDP_NO_BUFFER);
	}
	switch (rc_hold(conn, frame)) {
	case 0:
		rx->sink = RC_SINK_HELD;
		break;
	case -EAGAIN:
		rx->blocked = true;
		break;
	default: /* nothing would tell when there is memory again */
		return fail(conn, TERM_DDP_NO_BUFFER);
	}
	if (first)
		rc_starve(conn);
	return rx->blocked ? RC_BLOCKED : RC_GO_ON;
}

static bool is_message_whole(const struct rc_frame *frame)
{
	return frame->kind != RC_SEND || (frame->flags & RC_LAST);
}

/* Has a Send begun of which more is to come, in a receive or among those that wait for one? */
static bool is_send_open(const struct rc_conn *conn)
{
	return list_is_empty(&conn->rx.held) ? conn->rx.recv != NULL
					     : !is_message_whole(&rc_last_held(conn)->frame);
}

static enum rc_outcome begin_message(struct rc_conn *conn, const struct rc_frame *frame)
{
	struct rc_rx *rx = &conn->rx;

	/* Only pieces of one Send may follow its first. */
	if (frame->kind != RC_SEND && is_send_open(conn))
		return fail(conn, TERM_RDMAP_STREAM);
	if (!list_is_empty(&rx->held) || !take_receive(conn))
		return hold(conn, frame);
	rx->sink = RC_SINK_RECV;
	return begin_in_receive(conn, frame, rx->position);
}

/* ---- a frame begins ---- */

static enum rc_outcome begin_write(struct rc_conn *conn, const struct rc_frame *frame)
{
	struct rc_region *region;
	enum rc_fault fault;
	void *mem;

	if (!frame->len)
		return RC_GO_ON;
	region = rc_region_get(conn_qp(conn), frame->key, frame->addr, frame->len,
			       IBV_ACCESS_REMOTE_WRITE, &mem, &fault);
	if (!region)
		return fail(conn, write_fault(fault));
	rc_region_put(region);
	conn->rx.sink = RC_SINK_REGION;
	return RC_GO_ON;
}

static enum rc_outcome begin_read_data(struct rc_conn *conn, const struct rc_frame *frame)
{
	const struct rc_send *send = rc_oldest_request(conn);
	uint64_t end = (uint64_t)conn->rx.read_done + frame->len;
	bool last = frame->flags & RC_LAST;

	if (!send || send->opcode != IBV_WR_RDMA_READ)
		return fail(conn, TERM_RDMAP_OPCODE); /* nobody asked */
	if (end > send->length || last != (end == send->length))
		return fail(conn, TERM_DDP_BOUNDS);
	conn->rx.sink = RC_SINK_READ;
	return RC_GO_ON;
}

enum rc_outcome rc_begin_frame(struct rc_conn *conn, const struct rc_frame *frame)
{
	conn->rx.sink = RC_SINK_NONE;
	switch (frame->kind) {
	case RC_SEND:
	case RC_WRITE_IMM:
	case RC_SEND_FETCH:
		return begin_message(conn, frame);
	case RC_WRITE:
		return begin_write(conn, frame);
	case RC_READ_DATA:
		return begin_read_data(conn, frame);
	default:
		return RC_GO_ON;
	}
}

/* ---- its payload ---- */

int rc_place(struct rc_conn *conn, const struct rc_frame *frame, uint32_t done, size_t most,
	     struct iovec *iov, struct rc_region **region)
{
	struct rc_rx *rx = &conn->rx;
	const struct rc_send *send;
	enum rc_fault fault;
	size_t bytes;
	void *mem;

	*region = NULL;
	switch (rx->sink) {
	case RC_SINK_RECV:
		return rc_sge_slice(rx->recv->sge, rx->recv->num_sge,
				    (uint64_t)rx->recv_done + done, most, iov, RC_MAX_SGE, &bytes);
	case RC_SINK_READ:
		send = rc_oldest_request(conn);
		return rc_sge_slice(send->sge, send->num_sge, (uint64_t)rx->read_done + done, most,
				    iov, RC_MAX_SGE, &bytes);
	case RC_SINK_REGION:
		*region = rc_region_get(conn_qp(conn), frame->key, frame->addr + done, most,
					IBV_ACCESS_REMOTE_WRITE, &mem, &fault);
		if (!*region)
			return -EFAULT;
		iov[0] = (struct iovec){.iov_base = mem, .iov_len = most};
		return 1;
	case RC_SINK_HELD:
		iov[0] = (struct iovec){.iov_base = rc_last_held(conn)->payload + done,
					.iov_len = most};
		return 1;
	default:
		return 0;
	}
}

/* ---- a frame is complete: it takes effect ---- */

static struct rc_arrival describe(const struct rc_frame *frame, uint32_t length)
{
	struct rc_arrival arrival = {
		.status = IBV_WC_SUCCESS,
		.opcode = frame->kind == RC_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.length = length,
		.solicited = frame->flags & RC_SOLICITED,
	};

	if (frame->flags & RC_IMMEDIATE) {
		arrival.wc_flags = IBV_WC_WITH_IMM;
		arrival.imm_or_key = frame->imm;
	} else if (frame->flags & RC_INVALIDATE) {
		arrival.wc_flags = IBV_WC_WITH_INV;
		arrival.imm_or_key = frame->key;
	}
	return arrival;
}

/* The message is whole: its receive completes. */
static enum rc_outcome deliver(struct rc_conn *conn, const struct rc_arrival *arrival)
{
	struct rc_rx *rx = &conn->rx;
	struct rc_recv *recv = rx->recv;

	if (arrival->wc_flags & IBV_WC_WITH_INV &&
	    rc_region_invalidate(conn_qp(conn), arrival->imm_or_key))
		return fail(conn, TERM_RDMAP_NO_INVALIDATE);
	rx->recv = NULL;
	rx->delivered = true;
	rx->ack_due = conn->acknowledged;
	rc_recv_done(conn_qp(conn), recv, arrival);
	return RC_GO_ON;
}

static enum rc_outcome end_message(struct rc_conn *conn, const struct rc_frame *frame)
{
	struct rc_rx *rx = &conn->rx;
	struct rc_arrival arrival;

	rx->fetching = false;
	rx->recv_done += (uint32_t)data_of(frame);
	if (!is_message_whole(frame))
		return RC_GO_ON;
	arrival =
		describe(frame, frame->kind == RC_WRITE_IMM ? (uint32_t)frame->arg : rx->recv_done);
	return deliver(conn, &arrival);
}

static enum rc_outcome end_answer(struct rc_conn *conn, struct rc_send *send)
{
	conn->tx.reads_open--;
	rc_send_done(conn_qp(conn), send, IBV_WC_SUCCESS);
	return RC_GO_ON; /* what waited for it is sent by whoever drives */
}

static enum rc_outcome end_read_data(struct rc_conn *conn, const struct rc_frame *frame)
{
	struct rc_rx *rx = &conn->rx;

	rx->read_done += frame->len;
	if (!(frame->flags & RC_LAST))
		return RC_GO_ON;
	rx->read_done = 0;
	return end_answer(conn, rc_oldest_request(conn));
}

static enum rc_outcome end_result(struct rc_conn *conn, const struct rc_frame *frame)
{
	struct rc_send *send = rc_oldest_request(conn);

	if (!send || !rc_is_atomic(send->opcode))
		return fail(conn, TERM_RDMAP_OPCODE);
	rc_sge_scatter(send->sge, send->num_sge, 0, &frame->arg, sizeof(frame->arg));
	return end_answer(conn, send);
}

enum rc_outcome rc_end_frame(struct rc_conn *conn, const struct rc_frame *frame)
{
	switch (frame->kind) {
	case RC_SEND:
	case RC_WRITE_IMM:
	case RC_SEND_FETCH:
		if (conn->rx.sink != RC_SINK_HELD)
			return end_message(conn, frame);
		rc_last_held(conn)->complete = true;
		/* A receive may have come for those before it while it was on its way. */
		if (!conn->rx.starved)
			rc_deliver_held(conn);
		return conn_is_attached(conn) ? RC_GO_ON : RC_ENDED;
	case RC_WRITE:
		conn->rx.ack_due |= conn->acknowledged && (frame->flags & RC_LAST);
		return RC_GO_ON;
	case RC_READ:
	case RC_ATOMIC:
		return rc_add_answer(conn, frame);
	case RC_READ_DATA:
		return end_read_data(conn, frame);
	case RC_RESULT:
		return end_result(conn, frame);
	default:
		return RC_GO_ON;
	}
}

/* ---- whole frames ---- */

static enum rc_outcome place_all(struct rc_conn *conn, const struct rc_frame *frame,
				 const uint8_t *payload)
{
	struct iovec iov[RC_MAX_SGE];
	struct rc_region *region;
	int count = rc_place(conn, frame, 0, frame->len, iov, &region);

	if (count < 0)
		return fail(conn, TERM_DDP_INVALID_STAG); /* deregistered in between */
	for (int i = 0; i < count; i++) {
		memcpy(iov[i].iov_base, payload, iov[i].iov_len);
		payload += iov[i].iov_len;
	}
	if (region)
		rc_region_put(region);
	return RC_GO_ON;
}

enum rc_outcome rc_take_frame(struct rc_conn *conn, const struct rc_frame *frame,
			      const uint8_t *payload)
{
	enum rc_outcome outcome = rc_begin_frame(conn, frame);

	if (outcome == RC_GO_ON && frame->len)
		outcome = place_all(conn, frame, payload);
	return outcome == RC_GO_ON ? rc_end_frame(conn, frame) : outcome;
}

/* ---- frames that waited ---- */

static enum rc_outcome replay(struct rc_conn *conn, struct rc_held *held)
{
	const struct rc_frame *frame = &held->frame;
	enum rc_outcome outcome = begin_in_receive(conn, frame, held->position);

	if (outcome != RC_GO_ON)
		return outcome;
	if (frame->kind == RC_SEND_FETCH) {
		conn->rx.sink = RC_SINK_RECV;
		return conn->transport->fetch(conn, frame, held->payload)
			       ? fail(conn, TERM_RDMAP_STREAM)
			       : RC_GO_ON;
	}
	if (frame->len)
		rc_sge_scatter(conn->rx.recv->sge, conn->rx.recv->num_sge, conn->rx.recv_done,
			       held->payload, frame->len);
	return end_message(conn, frame);
}

bool rc_deliver_held(struct rc_conn *conn)
{
	struct rc_rx *rx = &conn->rx;

	rx->starved = false;
	while (!list_is_empty(&rx->held) && !rx->fetching) {
		struct rc_held *held = list_first(&rx->held, struct rc_held, link);
		enum rc_outcome outcome;

		if (!held->complete)
			return true; /* its end comes back here */
		if (!take_receive(conn)) {
			rc_starve(conn);
			return false;
		}
		rx->replaying = true;
		outcome = replay(conn, held);
		rx->replaying = false;
		rc_drop_held(conn, held);
		if (outcome == RC_ENDED)
			return false;
	}
	return true;
}
