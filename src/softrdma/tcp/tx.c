/* SPDX-License-Identifier: MIT */
/* Sending: frames gathered in bursts leave by sendmsg. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../../common/log.h"
#include "../tuning.h"
#include "../wire/crc32c.h"
#include "burst.h"
#include "conn.h"

#define ALL_THAT_FITS UINT32_MAX /* frames of a burst: its room is the bound */

int tcp_tx_init(struct tcp_conn *conn)
{
	struct tcp_tx *tx = &conn->tx;

	tx->send_msn = tx->request_msn = tx->result_msn = 1;
	return burst_init(conn);
}

void tcp_tx_fini(struct tcp_conn *conn)
{
	burst_fini(conn);
}

/* ---- leaving ---- */

static void advance(struct tcp_tx *tx, size_t bytes)
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
	struct tcp_tx *tx = &conn->tx;
	struct msghdr message = {
		.msg_iov = tx->iov + tx->iov_first,
		.msg_iovlen = (size_t)(tx->iov_end - tx->iov_first),
	};
	ssize_t sent;

	do
		sent = send_pieces(conn->rc.source.fd, &message);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

/* All of the burst has left. Towards peers that do not acknowledge, its requests are over. */
static void burst_has_left(struct tcp_conn *conn)
{
	conn->rc.tx.unsent = false;
	if (!conn->rc.acknowledged)
		rc_settle(&conn->rc, conn->rc.tx.position);
}

/*
 * Hand the burst to the socket; memory of the peer's reads is held meanwhile. Bytes taken or
 * -errno.
 */
static ssize_t transmit(struct tcp_conn *conn)
{
	struct tcp_tx *tx = &conn->tx;
	struct rc_region *region = NULL;
	enum rc_fault fault;
	ssize_t sent;
	void *mem;

	if (tx->burst_len) {
		region = rc_region_get(conn_qp(&conn->rc), tx->burst_stag, tx->burst_to,
				       tx->burst_len, IBV_ACCESS_REMOTE_READ, &mem, &fault);
		if (!region)
			return -EFAULT;
	}
	if (tx->left >= PROGRESS_LONG_MOVE_BYTES)
		progress_begin_long();
	sent = send_burst(conn);
	if (tx->left >= PROGRESS_LONG_MOVE_BYTES)
		progress_end_long();
	if (region)
		rc_region_put(region);
	if (sent > 0) {
		tx->spoken = true;
		advance(tx, (size_t)sent);
		if (!tx->left)
			burst_has_left(conn);
	}
	return sent;
}

/* The next burst. False: there is nothing to send, or the connection has ended. */
static bool build(struct tcp_conn *conn)
{
	burst_reset(&conn->tx);
	/* Acknowledgements ride along: in a Send, or before all else. */
	if (conn->rc.rx.ack_due && !rc_sends_next(&conn->rc))
		tcp_put_acknowledgement(conn);
	rc_fill(&conn->rc, ALL_THAT_FITS);
	if (!conn_is_attached(&conn->rc))
		return false;
	if (conn->rc.rx.ack_due && burst_has_room(conn, 0))
		tcp_put_acknowledgement(conn);
	if (!conn->tx.left)
		return false;
	conn->rc.tx.unsent = true;
	return true;
}

static void handle_error(struct tcp_conn *conn, int error)
{
	if (error == EFAULT)
		rc_fail(&conn->rc, TERM_NONE, false, NULL, IBV_WC_LOC_PROT_ERR);
	else
		conn->tx.broken = error; /* what the socket still holds is read before the end */
}

/*
 * EPOLLOUT is left on until it is found to be of no use: a stream that fills the socket again and
 * again costs no system call for this.
 */
static void watch_for_room(struct tcp_conn *conn, bool more, bool any)
{
	struct progress_source *source = &conn->rc.source;

	if (more) {
		tcp_watch(conn, source->events | EPOLLOUT);
		conn->tx.full = conn->tx.left && (source->events & EPOLLOUT);
	} else if ((source->events & EPOLLOUT) && !any) {
		tcp_watch(conn, source->events & ~(uint32_t)EPOLLOUT);
	}
}

bool tcp_tx_run(struct tcp_conn *conn)
{
	struct tcp_tx *tx = &conn->tx;
	bool any = false, more = false;

	if (!conn->rc.tx.open || tx->full || tx->broken)
		return false;
	for (int i = 0; i < TCP_BURSTS_AT_ONCE; i++) {
		ssize_t sent;

		more = tx->left || build(conn);
		if (!conn_is_attached(&conn->rc))
			return any;
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
	watch_for_room(conn, more, any);
	return any;
}

/* ---- the first and the last FPDU ---- */

static void add_ready_to_receive(struct tcp_conn *conn)
{
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER] = {0};
	const struct rdmap_read_request nothing = {.sink_stag = STAG_NOWHERE,
						   .source_stag = STAG_NOWHERE};
	size_t len = FPDU_LENGTH_LEN; /* an empty FPDU */

	burst_reset(&conn->tx);
	if (conn->rtr == MPA_RTR_WRITE) {
		tcp_put_empty_write(conn, STAG_NOWHERE, 0);
		return;
	}
	if (conn->rtr == MPA_RTR_READ) {
		len = ddp_put_read_request(header, conn->tx.request_msn++, &nothing);
		conn->rtr_read = true;
	}
	burst_add_fpdu(conn, header, len, NULL, 0, 0, 0);
	conn->rc.tx.position++;
}

void tcp_tx_open(struct tcp_conn *conn)
{
	if (conn->rc.tx.open)
		return;
	conn->rc.tx.open = true;
	if (conn->rc.initiator && conn->rtr)
		add_ready_to_receive(conn);
	tcp_tx_run(conn);
}

void tcp_tx_nudge(struct tcp_conn *conn)
{
	const struct rc_tx *tx = &conn->rc.tx;

	if (!conn->tx.spoken || conn->tx.left || tx->framed || tx->offset)
		return;
	log_info("%s: the peer is silent: sent an empty Write", conn->rc.name);
	burst_reset(&conn->tx);
	tcp_put_empty_write(conn, STAG_NOWHERE, 0);
	tcp_tx_run(conn);
}

void tcp_tx_terminate(struct tcp_conn *conn, uint16_t code, bool offending)
{
	const struct tcp_rx *rx = &conn->rx;
	uint8_t fpdu[TERMINATE_MAX_FPDU];
	struct iovec iov = {.iov_base = fpdu};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	uint32_t crc = 0;

	/* What was built before goes first, and so does word of what was placed. */
	if (!conn->tx.left) {
		burst_reset(&conn->tx);
		tcp_put_acknowledgement(conn);
	}
	if (conn->tx.left)
		transmit(conn);
	if (conn->tx.left)
		return; /* in the middle of an FPDU it would be taken for payload */
	iov.iov_len = terminate_build(fpdu, code, offending ? rx->header + FPDU_LENGTH_LEN : NULL,
				      rx->segment.header_len, rx->ulpdu_len);
	if (conn->crc)
		crc = crc32c(0, fpdu, iov.iov_len);
	fpdu_put_crc(fpdu + iov.iov_len, crc);
	iov.iov_len += FPDU_CRC_LEN;
	sendmsg(conn->rc.source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}
