/* SPDX-License-Identifier: MIT */
/* The life of an iWARP connection: attached to its queue pair, then waiting for its end alone. */
#include <errno.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/log.h"
#include "conn.h"
#include "held.h"
#include "near.h"

/*
 * siw's receive side is not in place yet when its reply arrives, and what comes before it is lies
 * in the socket until something else comes. Waiting a little mostly avoids that. Where it was too
 * short, and the peer is silent, a nudge follows, and others after twice the time of the last.
 */
#define SETTLE_MS  20
#define NUDGE_MS   100
#define MAX_NUDGES 5
#define FIRST_FPDU_MS                                                                              \
	100 /* a foreign initiator that says nothing: its acceptor speaks first after all */
#define RTR_MS    10000 /* it agreed to speak first */
#define LINGER_MS 2000  /* for the peer to see our end and to close its own */

static void free_conn(struct tcp_conn *conn)
{
	progress_timer_cancel(&conn->open_timer);
	progress_timer_cancel(&conn->recv_timer);
	progress_timer_cancel(&conn->linger_timer);
	progress_unwatch(&conn->source);
	close(conn->source.fd);
	tx_fini(conn);
	rx_fini(conn);
	free(conn);
}

void conn_watch(struct tcp_conn *conn, uint32_t events)
{
	if (events != conn->source.events)
		progress_rewatch(&conn->source, events);
}

/* ---- after the queue pair ---- */

/*
 * Read and drop until the peer has closed too: closing with bytes unread would destroy what it has
 * not read yet.
 */
static void drain(struct tcp_conn *conn)
{
	char scrap[16384];
	ssize_t got;

	for (int i = 0; i < 64; i++) {
		got = recv(conn->source.fd, scrap, sizeof(scrap), MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			free_conn(conn);
			return;
		}
	}
}

/* A peer that does not read would never see an orderly end behind what it has not read: reset. */
static void abort_unread(int fd)
{
	const struct linger at_once = {.l_onoff = 1};
	int unread = 0;

	if (!ioctl(fd, SIOCOUTQ, &unread) && unread)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

static void linger_expired(struct progress_timer *timer)
{
	struct tcp_conn *conn = container_of(timer, struct tcp_conn, linger_timer);

	if (atomic_load(&conn->qp)) {
		progress_timer_arm(timer, 1); /* leave() has not finished */
		return;
	}
	abort_unread(conn->source.fd);
	free_conn(conn);
}

/* The queue pair and its connection part. */
static void detach(struct tcp_conn *conn, bool linger)
{
	struct rc_qp *qp = conn_qp(conn);

	qp->transport = NULL;
	qp->conn = NULL;
	progress_timer_cancel(&conn->open_timer);
	progress_timer_cancel(&conn->recv_timer);
	conn->detached = true;
	conn->lingers = linger && !shutdown(conn->source.fd, SHUT_WR);
	if (conn->lingers)
		conn_watch(conn, EPOLLIN);
	else
		progress_unwatch(&conn->source);
}

/*
 * Every function that verbs, the socket or the clock calls ends with this. A connection that was
 * detached meanwhile is let go, to be freed by the progress thread; nothing of it may be touched
 * after this.
 */
static void leave(struct tcp_conn *conn)
{
	if (!conn->detached)
		return;
	progress_timer_arm(&conn->linger_timer, conn->lingers ? LINGER_MS : 0);
	atomic_store(&conn->qp, NULL);
}

/* ---- ends ---- */

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

void conn_fail(struct tcp_conn *conn, uint16_t code, bool offending, struct rc_send *send,
	       enum ibv_wc_status status)
{
	struct rc_qp *qp = conn_qp(conn);
	const struct rx *rx = &conn->rx;

	log_warn("%s: ends: %s", conn->name,
		 code == TERM_NONE ? local_fault_text(status) : terminate_text(code));
	if (code != TERM_NONE)
		tx_terminate(conn, code, offending ? rx->header + FPDU_LENGTH_LEN : NULL,
			     rx->segment.header_len, rx->ulpdu_len);
	rc_failed(qp, send, status, EPROTO);
	detach(conn, true);
}

void conn_end(struct tcp_conn *conn, int error)
{
	if (error)
		log_info("%s: lost: %s", conn->name, strerror(error));
	else
		log_info("%s: closed by the peer", conn->name);
	rc_failed(conn_qp(conn), NULL, IBV_WC_WR_FLUSH_ERR, error);
	detach(conn, !error);
}

void conn_terminated(struct tcp_conn *conn, uint16_t code, struct rc_send *send)
{
	log_warn("%s: the peer ends the connection: %s", conn->name, terminate_text(code));
	rc_failed(conn_qp(conn), send, IBV_WC_REM_ACCESS_ERR, EPROTO);
	detach(conn, true);
}

/* ---- what the socket and the clock say ---- */

static void drive(struct tcp_conn *conn)
{
	rx_run(conn);
	if (conn_is_attached(conn))
		tx_run(conn);
}

static void ready(struct progress_source *source, uint32_t events)
{
	struct tcp_conn *conn = container_of(source, struct tcp_conn, source);
	struct rc_qp *qp = atomic_load(&conn->qp);

	if (!qp) {
		drain(conn);
		return;
	}
	lock_take(&qp->lock);
	if (qp->conn == conn) {
		if (events & ~(uint32_t)EPOLLIN)
			tx_unblock(conn);
		/* While the stream is not read, only this tells of its end. */
		if (conn->rx.blocked && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
			conn_end(conn, 0);
		else
			drive(conn);
		leave(conn);
	}
	lock_give(&qp->lock);
}

/* A timer's callback on an attached connection. */
static void on_timer(struct tcp_conn *conn, void (*action)(struct tcp_conn *conn))
{
	struct rc_qp *qp = atomic_load(&conn->qp);

	if (!qp)
		return;
	lock_take(&qp->lock);
	if (qp->conn == conn) {
		action(conn);
		leave(conn);
	}
	lock_give(&qp->lock);
}

/* A foreign acceptor has replied, and has had time to get ready. Later: or has it not? */
static void go_ahead(struct tcp_conn *conn)
{
	if (!conn->tx.open) {
		tx_open(conn);
	} else if (conn->heard) {
		return;
	} else {
		tx_nudge(conn);
		conn->nudges++;
	}
	if (conn_is_attached(conn) && conn->nudges < MAX_NUDGES)
		progress_timer_arm(&conn->open_timer, NUDGE_MS << conn->nudges);
}

static void may_open(struct tcp_conn *conn)
{
	if (conn->initiator)
		go_ahead(conn);
	else if (!conn->rtr)
		tx_open(conn);
	else
		conn_fail(conn, TERM_MPA_RTR, false, NULL, IBV_WC_WR_FLUSH_ERR);
}

static void open_expired(struct progress_timer *timer)
{
	on_timer(container_of(timer, struct tcp_conn, open_timer), may_open);
}

static void give_up_waiting(struct tcp_conn *conn)
{
	if (held_too_long(conn))
		conn_fail(conn, TERM_DDP_NO_BUFFER, false, NULL, IBV_WC_WR_FLUSH_ERR);
}

static void recv_expired(struct progress_timer *timer)
{
	on_timer(container_of(timer, struct tcp_conn, recv_timer), give_up_waiting);
}

/* ---- the transport's operations ---- */

static void op_send(struct rc_qp *qp)
{
	struct tcp_conn *conn = qp->conn;

	tx_run(conn);
	leave(conn);
}

static bool op_drive(struct rc_qp *qp, unsigned looks)
{
	struct tcp_conn *conn = qp->conn;
	bool any = rx_run(conn);

	(void)looks; /* each would be a system call */
	if (conn_is_attached(conn))
		progress_looked(&conn->source, any);
	if (conn_is_attached(conn) && tx_is_pending(conn))
		any |= tx_run(conn);
	leave(conn);
	return any;
}

static void op_rest(struct rc_qp *qp)
{
	struct tcp_conn *conn = qp->conn;

	progress_take_back(&conn->source);
}

static void op_recv_posted(struct rc_qp *qp)
{
	struct tcp_conn *conn = qp->conn;

	rx_resume(conn);
	if (conn_is_attached(conn) && tx_is_pending(conn))
		tx_run(conn);
	leave(conn);
}

static void op_disconnect(struct rc_qp *qp)
{
	struct tcp_conn *conn = qp->conn;

	tx_unblock(conn);
	tx_run(conn);
	if (conn_is_attached(conn)) {
		log_info("%s: disconnected", conn->name);
		detach(conn, true);
	}
	leave(conn);
}

static void op_close(struct rc_qp *qp)
{
	struct tcp_conn *conn = qp->conn;

	detach(conn, true);
	leave(conn);
}

static const struct rc_transport tcp_transport = {
	.name = "tcp",
	.send = op_send,
	.drive = op_drive,
	.rest = op_rest,
	.recv_posted = op_recv_posted,
	.disconnect = op_disconnect,
	.close = op_close,
};

/* ---- attaching ---- */

/* "address:port" of one end; @get is getsockname or getpeername. */
static void name_end(int fd, int (*get)(int fd, struct sockaddr *addr, socklen_t *len), char *out,
		     size_t size)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE] = "?", port[6] = "?";

	if (!get(fd, (struct sockaddr *)&addr, &len))
		getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
			    NI_NUMERICHOST | NI_NUMERICSERV);
	if (strchr(host, ':'))
		snprintf(out, size, "[%s]:%s", host, port);
	else
		snprintf(out, size, "%s:%s", host, port);
}

static void name_conn(struct tcp_conn *conn)
{
	size_t half = sizeof(conn->name) / 2 - 1;
	size_t len;

	name_end(conn->source.fd, getsockname, conn->name, half);
	len = strlen(conn->name);
	conn->name[len++] = '-';
	name_end(conn->source.fd, getpeername, conn->name + len, half);
}

/*
 * One FPDU per segment for peers that may be hardware; another softrdma takes the largest there is.
 */
static size_t choose_max_ulpdu(const struct tcp_conn *conn)
{
	int mss = 0;
	socklen_t len = sizeof(mss);

	if (conn->soft || getsockopt(conn->source.fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) ||
	    mss < 128)
		return FPDU_MAX_ULPDU;
	return fpdu_max_ulpdu((size_t)mss);
}

/* When may the first FPDU leave? */
static void schedule_open(struct tcp_conn *conn)
{
	if (conn->soft && (conn->initiator || !conn->rtr))
		tx_open(conn);
	else if (conn->initiator)
		progress_timer_arm(&conn->open_timer, SETTLE_MS);
	else
		progress_timer_arm(&conn->open_timer, conn->rtr ? RTR_MS : FIRST_FPDU_MS);
}

int tcp_attach(struct rc_qp *qp, int fd, const struct mpa_agreed *agreed, bool initiator)
{
	struct tcp_conn *conn = calloc(1, sizeof(*conn));
	int error, one = 1;

	if (!conn)
		return -ENOMEM;
	conn->source = (struct progress_source){.fd = fd, .set = PROGRESS_DATA, .ready = ready};
	conn->initiator = initiator;
	conn->crc = agreed->crc;
	conn->soft = agreed->soft;
	conn->rtr = agreed->rtr;
	conn->ird = agreed->ird;
	conn->ord = agreed->ord;
	conn->max_ulpdu = choose_max_ulpdu(conn);
	atomic_init(&conn->qp, qp);
	progress_timer_init(&conn->open_timer, PROGRESS_DATA, open_expired);
	progress_timer_init(&conn->recv_timer, PROGRESS_DATA, recv_expired);
	progress_timer_init(&conn->linger_timer, PROGRESS_DATA, linger_expired);
	name_conn(conn);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	near_shorten_queue(fd);
	rx_init(conn);
	error = tx_init(conn);
	if (!error)
		error = progress_watch(&conn->source, EPOLLIN);
	if (error) {
		tx_fini(conn);
		rx_fini(conn);
		free(conn);
		return error;
	}
	qp->transport = &tcp_transport;
	qp->conn = conn;
	qp->extended = conn->soft;
	log_info("%s: connected by TCP, QP 0x%x, %s, crc %s, peer %s, ird %u ord %u", conn->name,
		 qp->qp_num, initiator ? "initiator" : "responder", conn->crc ? "on" : "off",
		 conn->soft ? "softrdma" : "foreign", conn->ird, conn->ord);
	schedule_open(conn);
	leave(conn);
	return 0;
}
