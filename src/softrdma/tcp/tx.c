/* SPDX-License-Identifier: MIT */
/* Sending: requests and answers become FPDUs, FPDUs become bursts, bursts leave by sendmsg. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../../common/log.h"
#include "../strict.h"
#include "../wire/crc32c.h"
#include "answers.h"
#include "burst.h"
#include "conn.h"
#include "segment.h"

#define LONG_MOVE      (32 << 10)
#define BURSTS_AT_ONCE 2 /* then others have their turn */

int tx_init(struct tcp_conn *conn)
{
	struct tx *tx = &conn->tx;

	tx->send_msn = tx->request_msn = tx->result_msn = 1;
	tx->settled = conn_qp(conn)->sq.next;
	return burst_init(conn);
}

void tx_fini(struct tcp_conn *conn)
{
	burst_fini(conn);
	free(conn->tx.answers);
}

/* ---- requests ---- */

static enum rdmap_opcode send_opcode(const struct rc_send *send)
{
	bool invalidates = send->opcode == IBV_WR_SEND_WITH_INV;

	if (send->solicited)
		return invalidates ? RDMAP_SEND_SE_INV : RDMAP_SEND_SE;
	return invalidates ? RDMAP_SEND_INV : RDMAP_SEND;
}

/*
 * Immediate data. With a Write it is a message of its own that takes a receive, as RFC 7306 has it.
 * The RFC has none with a Send: there a mark in the unused half says that it belongs to the Send
 * that follows.
 */
static bool add_immediate(struct tcp_conn *conn, const struct rc_send *send)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	uint64_t immediate = be32toh(send->imm_or_key);
	size_t header_len;

	if (!burst_has_room(conn, 0))
		return false;
	if (send->opcode == IBV_WR_SEND_WITH_IMM)
		immediate |= IMMEDIATE_OF_SEND;
	header_len = ddp_put_immediate(header, send->solicited, conn->tx.send_msn++, immediate);
	burst_add_fpdu(conn, header, header_len, NULL, 0, 0, 0);
	return true;
}

/* As much of a Send's or Write's data as the burst has room for. Whether all of it is in. */
static bool add_data(struct tcp_conn *conn, const struct rc_send *send)
{
	bool is_write = rc_is_write(send->opcode);
	size_t most = burst_max_payload(conn, is_write ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN);
	struct tx *tx = &conn->tx;
	bool last;

	do {
		uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
		size_t len = send->length - tx->offset, header_len;

		last = len <= most;
		if (!last)
			len = most;
		if (!burst_has_room(conn, len))
			return false;
		if (is_write)
			header_len = ddp_put_tagged(header, RDMAP_WRITE, last, send->rkey,
						    send->remote_addr + tx->offset, len);
		else
			header_len = ddp_put_send(
				header, send_opcode(send), last,
				send->opcode == IBV_WR_SEND_WITH_INV ? send->imm_or_key : 0,
				tx->send_msn, tx->offset, len);
		burst_add_fpdu(conn, header, header_len, send->sge, send->num_sge, tx->offset, len);
		tx->offset += (uint32_t)len;
	} while (!last);
	if (!is_write)
		tx->send_msn++;
	return true;
}

/* As much of a Send or Write as the burst has room for. Whether all of it is in. */
static bool add_message(struct tcp_conn *conn, const struct rc_send *send)
{
	struct tx *tx = &conn->tx;

	if (tx->phase == TX_HEAD) {
		if (send->opcode == IBV_WR_SEND_WITH_IMM && !add_immediate(conn, send))
			return false;
		tx->phase = TX_DATA;
	}
	if (tx->phase == TX_DATA) {
		if (!add_data(conn, send))
			return false;
		tx->phase = TX_TAIL;
	}
	return send->opcode != IBV_WR_RDMA_WRITE_WITH_IMM || add_immediate(conn, send);
}

uint32_t tx_sink_stag(const struct rc_send *send)
{
	return send->num_sge && send->sge[0].lkey ? send->sge[0].lkey : 1;
}

uint64_t tx_sink_to(const struct rc_send *send)
{
	return send->num_sge ? send->sge[0].addr : 0;
}

static size_t put_atomic(uint8_t *header, uint32_t msn, const struct rc_send *send)
{
	bool swaps = send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct rdmap_atomic_request atomic = {
		.op = swaps ? RDMAP_CMP_SWAP : RDMAP_FETCH_ADD,
		.id = msn,
		.stag = send->rkey,
		.to = send->remote_addr,
		.add_swap = swaps ? send->swap : send->compare_add,
		.add_swap_mask = swaps ? UINT64_MAX : 0, /* an add: no carry stops */
		.compare = swaps ? send->compare_add : 0,
		.compare_mask = swaps ? UINT64_MAX : 0,
	};

	return ddp_put_atomic_request(header, msn, &atomic);
}

static size_t put_read(uint8_t *header, uint32_t msn, const struct rc_send *send)
{
	struct rdmap_read_request read = {
		.sink_stag = tx_sink_stag(send),
		.sink_to = tx_sink_to(send),
		.size = send->length,
		.source_stag = send->rkey,
		.source_to = send->remote_addr,
	};

	return ddp_put_read_request(header, msn, &read);
}

static bool add_request(struct tcp_conn *conn, const struct rc_send *send)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	uint32_t msn = conn->tx.request_msn;
	size_t header_len;

	if (!burst_has_room(conn, 0))
		return false;
	header_len = rc_is_atomic(send->opcode) ? put_atomic(header, msn, send)
						: put_read(header, msn, send);
	conn->tx.request_msn++;
	burst_add_fpdu(conn, header, header_len, NULL, 0, 0, 0);
	conn->tx.reads_open++;
	return true;
}

static bool is_write_open(const struct tcp_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	return conn->tx.phase == TX_DATA && conn->tx.offset &&
	       rc_is_write(rc_send_at(sq, sq->next)->opcode);
}

/* On iWARP the acceptor must not speak before the initiator has. */
static bool is_out_of_turn(const struct tcp_conn *conn)
{
	return is_strict() && !conn->initiator && !conn->heard && !conn->rtr;
}

/* May the next request begin? */
static bool may_begin(const struct tcp_conn *conn, const struct rc_send *send)
{
	if (send->status != IBV_WC_SUCCESS || is_out_of_turn(conn))
		return false;
	if (rc_is_write(send->opcode) && answer_is_open(conn))
		return false;
	if (send->fence && conn->tx.reads_open)
		return false;
	return !rc_is_answered(send->opcode) || conn->tx.reads_open < conn->ord;
}

static void build_from_queue(struct tcp_conn *conn)
{
	struct rc_sendq *sq = &conn_qp(conn)->sq;

	while (sq->next != sq->tail) {
		struct rc_send *send = rc_send_at(sq, sq->next);
		size_t before = conn->tx.left;
		bool whole;

		if (send->state == RC_SEND_POSTED && !may_begin(conn, send))
			return;
		whole = rc_is_answered(send->opcode) ? add_request(conn, send)
						     : add_message(conn, send);
		/*
		 * A request has begun when something of it is in a burst. Until then answers may
		 * begin before it, so may_begin must be asked again.
		 */
		if (conn->tx.left != before)
			send->state = RC_SEND_BEGUN;
		if (!whole)
			return;
		conn->tx.phase = TX_HEAD;
		conn->tx.offset = 0;
		sq->next++;
	}
}

/* The burst has left: what was whole in it is done, except what waits for its answer. */
static void settle(struct tcp_conn *conn)
{
	struct rc_qp *qp = conn_qp(conn);

	/* Reads whose answers overtook the rest of the burst: their slots may be others' by now. */
	if ((int32_t)(conn->tx.settled - qp->sq.head) < 0)
		conn->tx.settled = qp->sq.head;
	while (conn->tx.settled != qp->sq.next) {
		struct rc_send *send = rc_send_at(&qp->sq, conn->tx.settled++);

		if (!rc_is_answered(send->opcode))
			rc_send_done(qp, send, IBV_WC_SUCCESS);
	}
}

struct rc_send *tx_oldest_request(const struct tcp_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	for (uint32_t i = sq->head; i != sq->next; i++) {
		struct rc_send *send = rc_send_at(sq, i);

		if (rc_is_answered(send->opcode) && send->state == RC_SEND_BEGUN)
			return send;
	}
	return NULL;
}

/*
 * A request that was wrong when it was posted has its turn: it ends the connection. Whether that
 * happened.
 */
static bool fail_bad_request(struct tcp_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;
	struct rc_send *send;
	bool out_of_turn = is_out_of_turn(conn);

	if (sq->next == sq->tail)
		return false;
	send = rc_send_at(sq, sq->next);
	if (out_of_turn)
		log_error("strict: %s: the acceptor sends before the initiator's first message",
			  conn->name);
	/* A read that none was agreed on could never leave. */
	if (out_of_turn || (rc_is_answered(send->opcode) && !conn->ord))
		send->status = IBV_WC_LOC_QP_OP_ERR;
	if (send->status == IBV_WC_SUCCESS)
		return false;
	conn_fail(conn, TERM_NONE, false, send, send->status);
	return true;
}

/* ---- leaving ---- */

/* Next burst: answers and requests in turns. False: the connection has ended. */
static bool build(struct tcp_conn *conn)
{
	struct tx *tx = &conn->tx;
	const struct rc_sendq *sq = &conn_qp(conn)->sq;
	bool answers = answers_wait(tx) && !is_write_open(conn) &&
		       (tx->answers_next || sq->next == sq->tail);

	burst_reset(tx);
	tx->answers_next = !answers;
	if (answers)
		return answer_build(conn);
	build_from_queue(conn);
	if (tx->left)
		return true;
	if (fail_bad_request(conn))
		return false;
	return answers_wait(tx) ? answer_build(conn) : true;
}

static void advance(struct tx *tx, size_t bytes)
{
	tx->left -= bytes;
	while (bytes) {
		struct iovec *iov = &tx->iov[tx->iov_first];

		if (bytes < iov->iov_len) {
			iov->iov_base = (char *)iov->iov_base + bytes;
			iov->iov_len -= bytes;
			return;
		}
		bytes -= iov->iov_len;
		tx->iov_first++;
	}
}

/* The common short burst is one piece, which costs the kernel less without a message header. */
static ssize_t send_pieces(int fd, const struct msghdr *message)
{
	const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;

	if (message->msg_iovlen == 1)
		return send(fd, message->msg_iov->iov_base, message->msg_iov->iov_len, flags);
	return sendmsg(fd, message, flags);
}

static ssize_t send_burst(struct tcp_conn *conn)
{
	struct tx *tx = &conn->tx;
	struct msghdr message = {
		.msg_iov = tx->iov + tx->iov_first,
		.msg_iovlen = (size_t)(tx->iov_end - tx->iov_first),
	};
	ssize_t sent;

	do
		sent = send_pieces(conn->source.fd, &message);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

/*
 * Hand the burst to the socket; memory of the peer's reads is held meanwhile. Bytes taken or
 * -errno.
 */
static ssize_t transmit(struct tcp_conn *conn)
{
	struct tx *tx = &conn->tx;
	struct rc_region *region = NULL;
	enum rc_fault fault;
	ssize_t sent;
	void *mem;

	if (tx->burst_len) {
		region = rc_region_get(conn_qp(conn), tx->burst_stag, tx->burst_to, tx->burst_len,
				       IBV_ACCESS_REMOTE_READ, &mem, &fault);
		if (!region)
			return -EFAULT;
	}
	if (tx->left >= LONG_MOVE)
		progress_begin_long();
	sent = send_burst(conn);
	if (tx->left >= LONG_MOVE)
		progress_end_long();
	if (region)
		rc_region_put(region);
	if (sent > 0) {
		tx->spoken = true;
		advance(tx, (size_t)sent);
		if (!tx->left)
			settle(conn);
	}
	return sent;
}

static void handle_error(struct tcp_conn *conn, int error)
{
	if (error == EFAULT)
		conn_fail(conn, TERM_NONE, false, NULL, IBV_WC_LOC_PROT_ERR);
	else
		conn_end(conn, error);
}

void tx_unblock(struct tcp_conn *conn)
{
	conn->tx.full = false;
}

bool tx_is_pending(const struct tcp_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	return conn->tx.open && (conn->tx.left || sq->next != sq->tail || answers_wait(&conn->tx));
}

bool tx_run(struct tcp_conn *conn)
{
	struct tx *tx = &conn->tx;
	bool any = false, more = false;

	if (!tx->open || tx->full)
		return false;
	for (int i = 0; i < BURSTS_AT_ONCE; i++) {
		ssize_t sent;

		if (!tx->left && !build(conn))
			return any;
		more = tx->left != 0;
		if (!more)
			break;
		sent = transmit(conn);
		if (sent < 0 && sent != -EAGAIN) {
			handle_error(conn, (int)-sent);
			return any;
		}
		any |= sent > 0;
		if (tx->left)
			break; /* the socket is full */
	}
	/*
	 * Left on until it is found in vain: a stream that fills the socket again and again costs
	 * no system call for this.
	 */
	if (more) {
		conn_watch(conn, conn->source.events | EPOLLOUT);
		tx->full = tx->left && (conn->source.events & EPOLLOUT);
	} else if ((conn->source.events & EPOLLOUT) && !any) {
		conn_watch(conn, conn->source.events & ~(uint32_t)EPOLLOUT);
	}
	return any;
}

/* ---- the first and the last FPDU ---- */

/* A key other than 0: some hardware refuses that even where nothing is written. */
static size_t put_empty_write(uint8_t *header)
{
	return ddp_put_tagged(header, RDMAP_WRITE, true, 1, 0, 0);
}

static void add_ready_to_receive(struct tcp_conn *conn)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER] = {0};
	struct rdmap_read_request nothing = {.sink_stag = 1, .source_stag = 1};
	size_t len = FPDU_LENGTH_LEN; /* an empty FPDU */

	if (conn->rtr == MPA_RTR_WRITE) {
		len = put_empty_write(header);
	} else if (conn->rtr == MPA_RTR_READ) {
		len = ddp_put_read_request(header, conn->tx.request_msn++, &nothing);
		conn->rtr_read = true;
	}
	burst_reset(&conn->tx);
	burst_add_fpdu(conn, header, len, NULL, 0, 0, 0);
}

void tx_open(struct tcp_conn *conn)
{
	if (conn->tx.open)
		return;
	conn->tx.open = true;
	if (conn->initiator && conn->rtr)
		add_ready_to_receive(conn);
	tx_run(conn);
}

void tx_nudge(struct tcp_conn *conn)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER] = {0};
	size_t len = put_empty_write(header);

	if (!conn->tx.spoken || conn->tx.left || conn->tx.phase != TX_HEAD)
		return;
	log_info("%s: the peer is silent: sent an empty Write", conn->name);
	burst_reset(&conn->tx);
	burst_add_fpdu(conn, header, len, NULL, 0, 0, 0);
	tx_run(conn);
}

void tx_terminate(struct tcp_conn *conn, uint16_t code, const uint8_t *offending, size_t len,
		  uint16_t segment_len)
{
	uint8_t fpdu[TERMINATE_MAX_FPDU];
	struct iovec iov = {.iov_base = fpdu};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	uint32_t crc = 0;

	if (conn->tx.left)
		return; /* in the middle of an FPDU it would be taken for payload */
	iov.iov_len = terminate_build(fpdu, code, offending, len, segment_len);
	if (conn->crc)
		crc = crc32c(0, fpdu, iov.iov_len);
	fpdu_put_crc(fpdu + iov.iov_len, crc);
	iov.iov_len += FPDU_CRC_LEN;
	sendmsg(conn->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}
