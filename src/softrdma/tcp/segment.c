/* SPDX-License-Identifier: MIT */
/*
 * What arriving segments mean: where their payload goes, and what they do when they are complete.
 */
#include "segment.h"

#include <errno.h>

#include "../../common/log.h"
#include "../fault.h"
#include "../strict.h"
#include "answers.h"
#include "held.h"

/* ---- what ends a connection ---- */

enum outcome segment_fail(struct tcp_conn *conn, uint16_t code)
{
	conn_fail(conn, code, true, NULL, IBV_WC_WR_FLUSH_ERR);
	return ENDED;
}

/* The receive in progress is to blame: it completes with its own status. */
static enum outcome fail_recv(struct tcp_conn *conn, struct rc_recv *recv,
			      enum ibv_wc_status status, uint16_t code)
{
	const struct rc_arrival arrival = {.status = status, .opcode = IBV_WC_RECV};

	rc_recv_done(conn_qp(conn), recv, &arrival);
	conn->rx.recv = NULL;
	return segment_fail(conn, code);
}

uint16_t segment_read_fault(enum rc_fault fault)
{
	switch (fault) {
	case RC_FAULT_BOUNDS:
		return TERM_RDMAP_BOUNDS;
	case RC_FAULT_PD:
		return TERM_RDMAP_FOREIGN_STAG;
	case RC_FAULT_WRAP:
		return TERM_RDMAP_TO_WRAP;
	case RC_FAULT_ACCESS:
		return TERM_RDMAP_ACCESS;
	default:
		return TERM_RDMAP_INVALID_STAG;
	}
}

/* ---- a segment begins: where does its payload go? ---- */

/* What comes of holding a message: nothing would tell when there is memory again. */
static enum outcome held_outcome(struct tcp_conn *conn, int error)
{
	if (!error)
		return GO_ON;
	return error == -ENOMEM ? segment_fail(conn, TERM_DDP_NO_BUFFER) : BLOCKED;
}

/* A message that takes a receive begins. Without one it is held. */
static enum outcome begin_recv(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	enum outcome outcome = GO_ON;

	if (rx->recv_begun)
		return GO_ON;
	/* Messages keep their order: behind a held one, all are held. */
	rx->recv = list_is_empty(&rx->held) ? rc_recv_begin(conn_qp(conn)) : NULL;
	if (!rx->recv && is_strict()) {
		log_error("strict: %s: a message found no receive", conn->name);
		return segment_fail(conn, TERM_DDP_NO_BUFFER);
	}
	if (!rx->recv)
		outcome = held_outcome(conn, held_begin(conn));
	if (outcome != GO_ON)
		return outcome;
	rx->recv_begun = true;
	rx->recv_done = 0;
	return GO_ON;
}

static enum outcome begin_send(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	const struct ddp_header *segment = &rx->segment;
	enum outcome outcome = begin_recv(conn);

	if (outcome != GO_ON)
		return outcome;
	if (!rx->recv) {
		rx->sink = SINK_HELD;
		return held_outcome(conn, held_make_room(conn, segment->payload_len));
	}
	if (rx->recv->status != IBV_WC_SUCCESS)
		return fail_recv(conn, rx->recv, rx->recv->status, TERM_DDP_NO_BUFFER);
	if ((uint64_t)rx->recv_done + segment->payload_len > rx->recv->length)
		return fail_recv(conn, rx->recv, IBV_WC_LOC_LEN_ERR, TERM_DDP_TOO_LONG);
	rx->sink = SINK_RECV;
	return GO_ON;
}

static enum outcome begin_write(struct tcp_conn *conn)
{
	const struct ddp_header *segment = &conn->rx.segment;
	struct rc_region *region;
	enum rc_fault fault;
	void *mem;

	if (!conn->rx.write_open)
		conn->rx.write_done = 0;
	conn->rx.write_open = !segment->last;
	if (!segment->payload_len)
		return GO_ON;
	region = rc_region_get(conn_qp(conn), segment->stag, segment->to, segment->payload_len,
			       IBV_ACCESS_REMOTE_WRITE, &mem, &fault);
	if (!region)
		return segment_fail(conn, write_fault(fault));
	rc_region_put(region);
	conn->rx.sink = SINK_REGION;
	return GO_ON;
}

static enum outcome begin_read_response(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	const struct ddp_header *segment = &rx->segment;
	const struct rc_send *send = tx_oldest_request(conn);
	uint64_t end;

	if (conn->rtr_read && !segment->payload_len && segment->last)
		return GO_ON;
	if (!send || send->opcode != IBV_WR_RDMA_READ)
		return segment_fail(conn, TERM_RDMAP_OPCODE); /* nobody asked */
	end = (uint64_t)rx->read_done + segment->payload_len;
	if (segment->stag != tx_sink_stag(send))
		return segment_fail(conn, TERM_DDP_INVALID_STAG);
	if (segment->to != tx_sink_to(send) + rx->read_done || end > send->length ||
	    segment->last != (end == send->length))
		return segment_fail(conn, TERM_DDP_BOUNDS);
	rx->sink = SINK_READ;
	return GO_ON;
}

enum outcome segment_begin(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;

	rx->sink = SINK_NONE;
	switch (rx->segment.opcode) {
	case RDMAP_WRITE:
		return begin_write(conn);
	case RDMAP_READ_RESPONSE:
		return begin_read_response(conn);
	case RDMAP_SEND:
	case RDMAP_SEND_INV:
	case RDMAP_SEND_SE:
	case RDMAP_SEND_SE_INV:
		return begin_send(conn);
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		return rx->segment.immediate & IMMEDIATE_OF_SEND ? GO_ON : begin_recv(conn);
	case RDMAP_TERMINATE:
		rx->sink = SINK_TERMINATE;
		return GO_ON;
	default:
		return GO_ON;
	}
}

/* ---- a segment is complete and its CRC is right: it takes effect ---- */

/* The message in progress is whole: its receive completes, or it is kept for one. */
static void end_recv(struct tcp_conn *conn, const struct rc_arrival *arrival)
{
	struct rx *rx = &conn->rx;
	struct rc_recv *recv = rx->recv;

	rx->recv_begun = false;
	rx->recv = NULL;
	rx->delivered = recv != NULL;
	if (recv)
		rc_recv_done(conn_qp(conn), recv, arrival);
	else
		held_complete(conn, arrival);
}

static enum outcome end_send(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	const struct ddp_header *segment = &rx->segment;
	bool invalidates =
		segment->opcode == RDMAP_SEND_INV || segment->opcode == RDMAP_SEND_SE_INV;
	struct rc_arrival arrival = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.wc_flags = invalidates ? IBV_WC_WITH_INV : 0,
		.imm_or_key = invalidates ? segment->invalidate_stag : 0,
		.solicited =
			segment->opcode == RDMAP_SEND_SE || segment->opcode == RDMAP_SEND_SE_INV,
	};

	rx->recv_done += segment->payload_len;
	if (!segment->last)
		return GO_ON;
	if (invalidates && rc_region_invalidate(conn_qp(conn), segment->invalidate_stag))
		return segment_fail(conn, TERM_RDMAP_NO_INVALIDATE);
	arrival.length = rx->recv_done;
	if (rx->has_imm) {
		arrival.wc_flags = IBV_WC_WITH_IMM;
		arrival.imm_or_key = htobe32(rx->imm);
		rx->has_imm = false;
	}
	end_recv(conn, &arrival);
	return GO_ON;
}

static enum outcome end_immediate(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	const struct rc_arrival arrival = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.length = rx->write_done,
		.wc_flags = IBV_WC_WITH_IMM,
		.imm_or_key = htobe32((uint32_t)rx->segment.immediate),
		.solicited = rx->segment.opcode == RDMAP_IMMEDIATE_SE,
	};

	if (rx->segment.immediate & IMMEDIATE_OF_SEND) {
		rx->has_imm = true;
		rx->imm = (uint32_t)rx->segment.immediate;
	} else {
		end_recv(conn, &arrival);
	}
	return GO_ON;
}

static enum outcome end_read_response(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	struct rc_send *send;

	if (conn->rtr_read && rx->sink == SINK_NONE) {
		conn->rtr_read = false;
		return GO_ON;
	}
	rx->read_done += rx->segment.payload_len;
	if (!rx->segment.last)
		return GO_ON;
	send = tx_oldest_request(conn);
	rx->read_done = 0;
	conn->tx.reads_open--;
	rc_send_done(conn_qp(conn), send, IBV_WC_SUCCESS);
	return GO_ON; /* what waited for this read is sent by whoever drives */
}

static enum outcome end_atomic_response(struct tcp_conn *conn)
{
	const struct rdmap_atomic_response *result = &conn->rx.segment.atomic_response;
	struct rc_send *send = tx_oldest_request(conn);

	/* The oldest of those that are open has the number of the next one less them all. */
	if (!send || !rc_is_atomic(send->opcode) ||
	    result->id != conn->tx.request_msn - conn->tx.reads_open)
		return segment_fail(conn, TERM_RDMAP_OPCODE);
	rc_sge_scatter(send->sge, send->num_sge, 0, &result->value, sizeof(result->value));
	conn->tx.reads_open--;
	rc_send_done(conn_qp(conn), send, IBV_WC_SUCCESS);
	return GO_ON;
}

static enum outcome add_answer(struct tcp_conn *conn, const struct answer *answer)
{
	switch (answer_add(conn, answer)) {
	case 0:
		return GO_ON;
	case -EPROTO:
		return segment_fail(conn, TERM_RDMAP_STREAM);
	case -EFAULT:
		return segment_fail(conn, TERM_RDMAP_INVALID_STAG);
	default:
		return segment_fail(conn, TERM_RDMAP_LOCAL);
	}
}

static enum outcome end_atomic_request(struct tcp_conn *conn)
{
	const struct rdmap_atomic_request *request = &conn->rx.segment.atomic;
	const struct answer answer = {.kind = ANSWER_ATOMIC, .atomic = *request};
	struct rc_region *region;
	enum rc_fault fault;
	void *mem;

	if (request->op != RDMAP_FETCH_ADD && request->op != RDMAP_CMP_SWAP)
		return segment_fail(conn, TERM_RDMAP_OPCODE);
	region = rc_region_get(conn_qp(conn), request->stag, request->to, sizeof(uint64_t),
			       IBV_ACCESS_REMOTE_ATOMIC, &mem, &fault);
	if (!region && !answers_or_bytes_wait(conn))
		return segment_fail(conn, segment_read_fault(fault));
	if (region)
		rc_region_put(region);
	if (request->to % sizeof(uint64_t))
		return segment_fail(conn, TERM_RDMAP_BOUNDS);
	return add_answer(conn, &answer);
}

static enum outcome end_read_request(struct tcp_conn *conn)
{
	const struct rdmap_read_request *read = &conn->rx.segment.read;
	const struct answer answer = {.kind = ANSWER_READ, .read = *read};
	struct rc_region *region;
	enum rc_fault fault;
	void *mem;

	if (read->size) {
		region = rc_region_get(conn_qp(conn), read->source_stag, read->source_to,
				       read->size, IBV_ACCESS_REMOTE_READ, &mem, &fault);
		/*
		 * Behind others it ends the connection in its turn: the peer knows which one it
		 * was.
		 */
		if (!region && !answers_or_bytes_wait(conn))
			return segment_fail(conn, segment_read_fault(fault));
		if (region)
			rc_region_put(region);
	}
	return add_answer(conn, &answer);
}

/* A Terminate about one of our reads has that read to blame. */
static enum outcome end_terminate(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	uint16_t code = terminate_parse(rx->terminate, rx->done);
	bool about_read = code >> 8 == TERM_RDMAP_INVALID_STAG >> 8;

	conn_terminated(conn, code, about_read ? tx_oldest_request(conn) : NULL);
	return ENDED;
}

enum outcome segment_end(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;

	if (rx->rtr)
		return GO_ON;
	switch (rx->segment.opcode) {
	case RDMAP_WRITE:
		rx->write_done += rx->segment.payload_len;
		return GO_ON;
	case RDMAP_READ_RESPONSE:
		return end_read_response(conn);
	case RDMAP_READ_REQUEST:
		return end_read_request(conn);
	case RDMAP_SEND:
	case RDMAP_SEND_INV:
	case RDMAP_SEND_SE:
	case RDMAP_SEND_SE_INV:
		return end_send(conn);
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		return end_immediate(conn);
	case RDMAP_ATOMIC_REQUEST:
		return end_atomic_request(conn);
	case RDMAP_ATOMIC_RESPONSE:
		return end_atomic_response(conn);
	case RDMAP_TERMINATE:
		return end_terminate(conn);
	default:
		return GO_ON;
	}
}
