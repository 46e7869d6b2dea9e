/* SPDX-License-Identifier: MIT */
/* Frames become FPDUs, and FPDUs frames (RFC 5040, 5041, 7306). */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "burst.h"
#include "conn.h"

/* ---- sending ---- */

static void add(struct tcp_conn *conn, const uint8_t *header, size_t header_len,
		const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, size_t len)
{
	burst_add_fpdu(conn, header, header_len, sge, num_sge, offset, len);
	conn->rc.tx.position++;
}

void tcp_put_empty_write(struct tcp_conn *conn, uint32_t stag, uint64_t to)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	size_t len = ddp_put_tagged(header, RDMAP_WRITE, true, stag, to, 0);

	add(conn, header, len, NULL, 0, 0, 0);
}

void tcp_put_acknowledgement(struct tcp_conn *conn)
{
	uint32_t placed = rc_placed(&conn->rc);

	conn->rc.rx.ack_due = false;
	if (!conn->rc.acknowledged || placed == conn->tx.told)
		return;
	tcp_put_empty_write(conn, STAG_ACKNOWLEDGE, placed);
	conn->tx.told = placed;
}

/* RFC 5040 reserves this word of Sends that invalidate nothing. Our own peers read it. */
static uint32_t acknowledge_with_send(struct tcp_conn *conn)
{
	if (!conn->rc.acknowledged)
		return 0;
	conn->rc.rx.ack_due = false;
	conn->tx.told = rc_placed(&conn->rc);
	return conn->tx.told;
}

/* What fits one FPDU of the kind, and whether that is all. */
static size_t cut(const struct tcp_conn *conn, struct rc_frame *frame, size_t header_len,
		  uint32_t left)
{
	size_t most = burst_max_payload(conn, header_len);

	frame->len = left < most ? left : (uint32_t)most;
	if (frame->len == left)
		frame->flags |= RC_LAST;
	return frame->len;
}

static enum rdmap_opcode send_opcode(const struct rc_frame *frame)
{
	bool invalidates = frame->flags & RC_INVALIDATE;

	if (frame->flags & RC_SOLICITED)
		return invalidates ? RDMAP_SEND_SE_INV : RDMAP_SEND_SE;
	return invalidates ? RDMAP_SEND_INV : RDMAP_SEND;
}

/*
 * Immediate data. With a Write it is a message of its own that takes a receive, as RFC 7306 has it.
 * The RFC has none with a Send: there a mark in the unused half says that it belongs to the Send
 * that follows.
 */
static bool put_immediate(struct tcp_conn *conn, const struct rc_frame *frame, uint64_t mark)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	size_t len;

	if (!burst_has_room(conn, 0))
		return false;
	len = ddp_put_immediate(header, frame->flags & RC_SOLICITED, conn->tx.send_msn++,
				be32toh(frame->imm) | mark);
	add(conn, header, len, NULL, 0, 0, 0);
	return true;
}

static ssize_t put_send(struct tcp_conn *conn, struct rc_frame *frame, const struct ibv_sge *sge,
			unsigned num_sge, uint64_t offset, uint32_t left)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	size_t len = cut(conn, frame, DDP_UNTAGGED_LEN, left), header_len;
	struct tcp_tx *tx = &conn->tx;

	if ((frame->flags & RC_IMMEDIATE) && !offset && !tx->immediate_put)
		tx->immediate_put = put_immediate(conn, frame, IMMEDIATE_OF_SEND);
	if (((frame->flags & RC_IMMEDIATE) && !tx->immediate_put) || !burst_has_room(conn, len))
		return -EAGAIN;
	header_len = ddp_put_send(header, send_opcode(frame), frame->flags & RC_LAST,
				  frame->flags & RC_INVALIDATE ? frame->key
							       : acknowledge_with_send(conn),
				  tx->send_msn, (uint32_t)offset, len);
	add(conn, header, header_len, sge, num_sge, offset, len);
	if (frame->flags & RC_LAST) {
		tx->send_msn++;
		tx->immediate_put = false;
	}
	return (ssize_t)len;
}

static ssize_t put_write(struct tcp_conn *conn, struct rc_frame *frame, const struct ibv_sge *sge,
			 unsigned num_sge, uint64_t offset, uint32_t left)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	size_t len = cut(conn, frame, DDP_TAGGED_LEN, left), header_len;

	if (!burst_has_room(conn, len))
		return -EAGAIN;
	header_len = ddp_put_tagged(header, RDMAP_WRITE, frame->flags & RC_LAST,
				    len ? frame->key : STAG_NOWHERE, frame->addr, len);
	add(conn, header, header_len, sge, num_sge, offset, len);
	return (ssize_t)len;
}

/*
 * The socket copies a long answer out of memory that may be deregistered while the burst waits. So
 * the burst remembers it, and has room for one such piece.
 */
static bool note_memory(struct tcp_conn *conn, const struct rc_frame *frame)
{
	struct tcp_tx *tx = &conn->tx;

	if (burst_is_copied(conn, frame->len))
		return true;
	if (tx->burst_len &&
	    (tx->burst_stag != frame->key || tx->burst_to + tx->burst_len != frame->addr))
		return false;
	if (!tx->burst_len) {
		tx->burst_stag = frame->key;
		tx->burst_to = frame->addr;
	}
	tx->burst_len += frame->len;
	return true;
}

static ssize_t put_read_data(struct tcp_conn *conn, struct rc_frame *frame,
			     const struct ibv_sge *sge, uint64_t offset, uint32_t left)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	size_t len = cut(conn, frame, DDP_TAGGED_LEN, left), header_len;

	if (!burst_has_room(conn, len) || !note_memory(conn, frame))
		return -EAGAIN;
	header_len = ddp_put_tagged(header, RDMAP_READ_RESPONSE, frame->flags & RC_LAST,
				    frame->sink_key, frame->sink_addr, len);
	add(conn, header, header_len, sge, 1, offset, len);
	return (ssize_t)len;
}

static size_t encode_read(uint8_t *header, uint32_t msn, const struct rc_frame *frame)
{
	const struct rdmap_read_request read = {
		.sink_stag = frame->sink_key ? frame->sink_key : STAG_NOWHERE,
		.sink_to = frame->sink_addr,
		.size = (uint32_t)frame->arg,
		.source_stag = frame->key,
		.source_to = frame->addr,
	};

	return ddp_put_read_request(header, msn, &read);
}

static size_t encode_atomic(uint8_t *header, uint32_t msn, const struct rc_frame *frame)
{
	bool swaps = frame->flags & RC_SWAP;
	const struct rdmap_atomic_request atomic = {
		.op = swaps ? RDMAP_CMP_SWAP : RDMAP_FETCH_ADD,
		.id = msn,
		.stag = frame->key,
		.to = frame->addr,
		.add_swap = swaps ? frame->swap : frame->arg,
		.add_swap_mask = swaps ? UINT64_MAX : 0, /* an add: no carry stops */
		.compare = swaps ? frame->arg : 0,
		.compare_mask = swaps ? UINT64_MAX : 0,
	};

	return ddp_put_atomic_request(header, msn, &atomic);
}

static ssize_t put_request(struct tcp_conn *conn, const struct rc_frame *frame)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	uint32_t msn = conn->tx.request_msn;
	size_t len;

	if (!burst_has_room(conn, 0))
		return -EAGAIN;
	len = frame->kind == RC_READ ? encode_read(header, msn, frame)
				     : encode_atomic(header, msn, frame);
	conn->tx.request_msn++;
	add(conn, header, len, NULL, 0, 0, 0);
	return 0;
}

static ssize_t put_result(struct tcp_conn *conn, const struct rc_frame *frame)
{
	const struct rdmap_atomic_response result = {.id = frame->sink_key, .value = frame->arg};
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	size_t len;

	if (!burst_has_room(conn, 0))
		return -EAGAIN;
	len = ddp_put_atomic_response(header, conn->tx.result_msn++, &result);
	add(conn, header, len, NULL, 0, 0, 0);
	return 0;
}

ssize_t tcp_put(struct rc_conn *rc, struct rc_frame *frame, const struct ibv_sge *sge,
		unsigned num_sge, uint64_t offset, uint32_t left)
{
	struct tcp_conn *conn = to_tcp(rc);

	switch (frame->kind) {
	case RC_SEND:
		return put_send(conn, frame, sge, num_sge, offset, left);
	case RC_WRITE:
		return put_write(conn, frame, sge, num_sge, offset, left);
	case RC_WRITE_IMM:
		return put_immediate(conn, frame, 0) ? 0 : -EAGAIN;
	case RC_READ_DATA:
		return put_read_data(conn, frame, sge, offset, left);
	case RC_RESULT:
		return put_result(conn, frame);
	default:
		return put_request(conn, frame);
	}
}

/* ---- receiving ---- */

static enum rc_outcome fail(struct tcp_conn *conn, uint16_t code)
{
	rc_fail(&conn->rc, code, true, NULL, IBV_WC_WR_FLUSH_ERR);
	return RC_ENDED;
}

static struct rc_frame send_frame(const struct tcp_rx *rx)
{
	const struct ddp_header *segment = &rx->segment;
	struct rc_frame frame = {.kind = RC_SEND};

	if (segment->opcode == RDMAP_SEND_SE || segment->opcode == RDMAP_SEND_SE_INV)
		frame.flags |= RC_SOLICITED;
	if (segment->opcode == RDMAP_SEND_INV || segment->opcode == RDMAP_SEND_SE_INV) {
		frame.flags |= RC_INVALIDATE;
		frame.key = segment->ulp_word;
	}
	if (rx->has_imm) {
		frame.flags |= RC_IMMEDIATE;
		frame.imm = htobe32(rx->imm);
	}
	return frame;
}

static struct rc_frame immediate_frame(const struct tcp_rx *rx)
{
	if (rx->segment.immediate & IMMEDIATE_OF_SEND)
		return (struct rc_frame){.kind = RC_NONE};
	return (struct rc_frame){
		.kind = RC_WRITE_IMM,
		.flags = RC_IMMEDIATE |
			 (rx->segment.opcode == RDMAP_IMMEDIATE_SE ? RC_SOLICITED : 0),
		.imm = htobe32((uint32_t)rx->segment.immediate),
		.arg = rx->write_done,
	};
}

static struct rc_frame atomic_frame(const struct rdmap_atomic_request *request)
{
	bool swaps = request->op == RDMAP_CMP_SWAP;

	return (struct rc_frame){
		.kind = RC_ATOMIC,
		.flags = swaps ? RC_SWAP : 0,
		.key = request->stag,
		.addr = request->to,
		.arg = swaps ? request->compare : request->add_swap,
		.swap = request->add_swap,
		.sink_key = request->id,
	};
}

static struct rc_frame frame_of(const struct tcp_rx *rx)
{
	const struct ddp_header *segment = &rx->segment;

	switch (segment->opcode) {
	case RDMAP_WRITE:
		return (struct rc_frame){
			.kind = RC_WRITE, .key = segment->stag, .addr = segment->to};
	case RDMAP_READ_RESPONSE:
		return (struct rc_frame){
			.kind = RC_READ_DATA, .sink_key = segment->stag, .sink_addr = segment->to};
	case RDMAP_READ_REQUEST:
		return (struct rc_frame){
			.kind = RC_READ,
			.key = segment->read.source_stag,
			.addr = segment->read.source_to,
			.arg = segment->read.size,
			.sink_key = segment->read.sink_stag,
			.sink_addr = segment->read.sink_to,
		};
	case RDMAP_SEND:
	case RDMAP_SEND_INV:
	case RDMAP_SEND_SE:
	case RDMAP_SEND_SE_INV:
		return send_frame(rx);
	case RDMAP_IMMEDIATE:
	case RDMAP_IMMEDIATE_SE:
		return immediate_frame(rx);
	case RDMAP_ATOMIC_REQUEST:
		return atomic_frame(&segment->atomic);
	case RDMAP_ATOMIC_RESPONSE:
		return (struct rc_frame){
			.kind = RC_RESULT,
			.arg = segment->atomic_response.value,
			.sink_key = segment->atomic_response.id,
		};
	default:
		return (struct rc_frame){.kind = RC_NONE};
	}
}

/* An answer must repeat what its request has said. */
static uint16_t check_read_response(const struct tcp_conn *conn)
{
	const struct rc_send *send = rc_oldest_request(&conn->rc);
	const struct ddp_header *segment = &conn->rx.segment;
	uint32_t key =
		send && send->num_sge && send->sge[0].lkey ? send->sge[0].lkey : STAG_NOWHERE;
	uint64_t to = send && send->num_sge ? send->sge[0].addr : 0;

	if (!send)
		return TERM_RDMAP_OPCODE; /* nobody asked */
	if (segment->stag != key)
		return TERM_DDP_INVALID_STAG;
	return segment->to == to + conn->rc.rx.read_done ? TERM_NONE : TERM_DDP_BOUNDS;
}

/* The oldest of those that are open has the number of the next one less them all. */
static uint16_t check_result(const struct tcp_conn *conn)
{
	uint32_t oldest = conn->tx.request_msn - conn->rc.tx.reads_open;

	return conn->rc.tx.reads_open && conn->rx.segment.atomic_response.id == oldest
		       ? TERM_NONE
		       : TERM_RDMAP_OPCODE;
}

static bool is_known_atomic(const struct rdmap_atomic_request *request)
{
	return request->op == RDMAP_FETCH_ADD || request->op == RDMAP_CMP_SWAP;
}

static uint16_t check_segment(const struct tcp_conn *conn)
{
	const struct ddp_header *segment = &conn->rx.segment;

	switch (segment->opcode) {
	case RDMAP_READ_RESPONSE:
		return check_read_response(conn);
	case RDMAP_ATOMIC_RESPONSE:
		return check_result(conn);
	case RDMAP_ATOMIC_REQUEST:
		return is_known_atomic(&segment->atomic) ? TERM_NONE : TERM_RDMAP_OPCODE;
	default:
		return TERM_NONE;
	}
}

/* The answer to the read that only said that we are ready to receive. */
static bool is_rtr_answer(const struct tcp_conn *conn)
{
	const struct ddp_header *segment = &conn->rx.segment;

	return conn->rtr_read && segment->opcode == RDMAP_READ_RESPONSE && !segment->payload_len &&
	       segment->last;
}

bool tcp_is_acknowledgement(const struct tcp_conn *conn)
{
	const struct ddp_header *segment = &conn->rx.segment;

	return conn->rc.acknowledged && segment->opcode == RDMAP_WRITE && !segment->payload_len &&
	       segment->stag == STAG_ACKNOWLEDGE;
}

enum rc_outcome tcp_begin_segment(struct tcp_conn *conn)
{
	struct tcp_rx *rx = &conn->rx;
	uint16_t code;

	if (is_rtr_answer(conn) || tcp_is_acknowledgement(conn)) {
		rx->frame = (struct rc_frame){.kind = RC_NONE};
		return rc_begin_frame(&conn->rc, &rx->frame);
	}
	code = check_segment(conn);
	if (code != TERM_NONE)
		return fail(conn, code);
	rx->frame = frame_of(rx);
	rx->frame.len = rx->segment.payload_len;
	rx->frame.flags |= rx->segment.last ? RC_LAST : 0;
	if (rx->frame.kind == RC_WRITE) {
		if (!rx->write_open)
			rx->write_done = 0;
		rx->write_open = !rx->segment.last;
	}
	return rc_begin_frame(&conn->rc, &rx->frame);
}

static enum rc_outcome take_acknowledgement(struct tcp_conn *conn, uint64_t position)
{
	if (position > UINT32_MAX || rc_settle(&conn->rc, (uint32_t)position))
		return fail(conn, TERM_RDMAP_STREAM);
	return RC_GO_ON;
}

/* Does the Send at hand tell of more than is known? */
static bool send_acknowledges(const struct tcp_conn *conn)
{
	return conn->rc.acknowledged && !(conn->rx.frame.flags & RC_INVALIDATE) &&
	       rc_is_news(&conn->rc, conn->rx.segment.ulp_word);
}

/* What concerns the framing alone. */
static enum rc_outcome end_of_framing(struct tcp_conn *conn)
{
	struct tcp_rx *rx = &conn->rx;

	if (tcp_is_acknowledgement(conn))
		return take_acknowledgement(conn, rx->segment.to);
	if (is_rtr_answer(conn)) {
		conn->rtr_read = false;
	} else if (rx->segment.opcode == RDMAP_TERMINATE) {
		rc_terminated(&conn->rc, terminate_parse(rx->terminate, rx->done));
		return RC_ENDED;
	} else if (rx->segment.opcode == RDMAP_IMMEDIATE ||
		   rx->segment.opcode == RDMAP_IMMEDIATE_SE) {
		rx->has_imm = true;
		rx->imm = (uint32_t)rx->segment.immediate;
	}
	return RC_GO_ON;
}

enum rc_outcome tcp_end_segment(struct tcp_conn *conn)
{
	struct tcp_rx *rx = &conn->rx;
	enum rc_outcome outcome = RC_GO_ON;

	if (rx->rtr)
		goto out;
	if (rx->frame.kind == RC_NONE) {
		outcome = end_of_framing(conn);
		goto out;
	}
	if (rx->frame.kind == RC_WRITE)
		rx->write_done += rx->frame.len;
	if (rx->frame.kind == RC_SEND && (rx->frame.flags & RC_LAST))
		rx->has_imm = false;
	/* The program hears of its own requests before it hears of the reply to them. */
	if (rx->frame.kind == RC_SEND && send_acknowledges(conn))
		outcome = take_acknowledgement(conn, rx->segment.ulp_word);
	if (outcome == RC_GO_ON)
		outcome = rc_end_frame(&conn->rc, &rx->frame);
out:
	conn->rc.rx.position++;
	return outcome;
}
