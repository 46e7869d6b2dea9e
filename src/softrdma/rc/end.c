/* SPDX-License-Identifier: MIT */
/* How a connection ends: what the program is told, what the peer is told, and what is logged. */
#include <string.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"
#include "conn.h"

/* What was wrong with one of our own requests. */
static const char *local_fault_text(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return "a request is too long";
	case IBV_WC_LOC_PROT_ERR:
		return "a request names memory that is not registered, or not for this use";
	case IBV_WC_LOC_QP_OP_ERR:
		return "a read was posted, and none was agreed on (initiator_depth)";
	default:
		return "a request failed";
	}
}

/* The transport's part comes last: it lets go of the queue pair. */
static void part(struct rc_conn *conn, bool linger)
{
	struct rc_qp *qp = conn_qp(conn);

	qp->service = NULL;
	qp->conn = NULL;
	progress_timer_cancel(&conn->recv_timer);
	conn->detached = true;
	conn->transport->detach(conn, linger);
}

void rc_fail(struct rc_conn *conn, uint16_t code, bool at_hand, struct rc_send *send,
	     enum ibv_wc_status status)
{
	UNCANCELLABLE;
	log_warn("%s: ends: %s", conn->name,
		 code == TERM_NONE ? local_fault_text(status) : terminate_text(code));
	if (code != TERM_NONE)
		conn->transport->terminate(conn, code, at_hand);
	rc_failed(conn_qp(conn), send, status, EPROTO);
	part(conn, true);
}

void rc_end(struct rc_conn *conn, int error)
{
	UNCANCELLABLE;
	if (error)
		log_info("%s: lost: %s", conn->name, strerror(error));
	else
		log_info("%s: closed by the peer", conn->name);
	rc_parted(conn_qp(conn), error);
	part(conn, !error);
}

void rc_peer_gone(struct rc_conn *conn, bool between_frames)
{
	const struct rc_rx *rx = &conn->rx;
	bool whole = between_frames && !rx->recv && !rx->read_done && !conn->tx.reads_open;

	rc_end(conn, whole ? 0 : ECONNRESET);
}

/* ---- the peer's last word ---- */

enum about { ABOUT_NOTHING, ABOUT_ANSWERED, ABOUT_WRITE, ABOUT_SEND };

/* Which of our requests a Terminate is about, by the layer and type of its error (RFC 5040, 4.8).
 */
static enum about what_about(uint16_t code)
{
	if (code == TERM_RDMAP_NO_INVALIDATE || code == TERM_DDP_LOCAL)
		return ABOUT_SEND;
	switch (code >> 8) {
	case TERM_RDMAP_INVALID_STAG >> 8:
		return ABOUT_ANSWERED;
	case TERM_DDP_INVALID_STAG >> 8:
		return ABOUT_WRITE;
	case TERM_DDP_NO_BUFFER >> 8:
		return ABOUT_SEND;
	default:
		return ABOUT_NOTHING;
	}
}

static enum ibv_wc_status status_of(uint16_t code)
{
	switch (code) {
	case TERM_DDP_TOO_LONG:
	case TERM_RDMAP_NO_INVALIDATE:
		return IBV_WC_REM_INV_REQ_ERR;
	case TERM_DDP_NO_BUFFER:
		return IBV_WC_RNR_RETRY_EXC_ERR;
	case TERM_DDP_LOCAL:
		return IBV_WC_REM_OP_ERR;
	default:
		return IBV_WC_REM_ACCESS_ERR;
	}
}

static bool is_about(enum about about, unsigned opcode)
{
	switch (about) {
	case ABOUT_ANSWERED:
		return rc_is_answered(opcode);
	case ABOUT_WRITE:
		return rc_is_write(opcode);
	case ABOUT_SEND: /* immediate data takes a receive too */
		return !rc_is_answered(opcode) && opcode != IBV_WR_RDMA_WRITE;
	default:
		return false;
	}
}

/* The oldest such request that is in flight: all before it have been acknowledged or answered. */
static struct rc_send *find_blamed(const struct rc_conn *conn, uint16_t code)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;
	enum about about = what_about(code);

	for (uint32_t i = sq->head; i != sq->tail; i++) {
		struct rc_send *send = rc_send_at(sq, i);

		if (send->state == RC_SEND_BEGUN && is_about(about, send->opcode))
			return send;
	}
	return NULL;
}

void rc_terminated(struct rc_conn *conn, uint16_t code)
{
	UNCANCELLABLE;
	log_warn("%s: the peer ends the connection: %s", conn->name, terminate_text(code));
	rc_failed(conn_qp(conn), find_blamed(conn, code), status_of(code), EPROTO);
	part(conn, true);
}

/* ---- this side's ---- */

void rc_disconnect(struct rc_conn *conn)
{
	log_info("%s: disconnected", conn->name);
	part(conn, true);
}

void rc_close(struct rc_conn *conn)
{
	part(conn, true);
}
