/* SPDX-License-Identifier: MIT */
/* The life of an iWARP connection's socket: from the handshake's end until the peer has closed. */
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
#include "../tuning.h"
#include "conn.h"
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
	progress_unwatch(&conn->rc.source);
	close(conn->rc.source.fd);
	tcp_tx_fini(conn);
	tcp_rx_fini(conn);
	rc_conn_fini(&conn->rc);
	free(conn);
}

void tcp_watch(struct tcp_conn *conn, uint32_t events)
{
	if (events != conn->rc.source.events)
		progress_rewatch(&conn->rc.source, events);
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

	for (int i = 0; i < TCP_DRAINS_AT_ONCE; i++) {
		got = recv(conn->rc.source.fd, scrap, sizeof(scrap), MSG_DONTWAIT);
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

static void op_free(struct rc_conn *rc)
{
	abort_unread(rc->source.fd);
	free_conn(to_tcp(rc));
}

static void op_detach(struct rc_conn *rc, bool linger)
{
	struct tcp_conn *conn = to_tcp(rc);
	bool lingers = linger && !shutdown(rc->source.fd, SHUT_WR);

	progress_timer_cancel(&conn->open_timer);
	rc->linger_ms = lingers ? LINGER_MS : 0;
	if (lingers)
		tcp_watch(conn, EPOLLIN);
	else
		progress_unwatch(&rc->source);
}

/* ---- when the first FPDUs may leave ---- */

/* A foreign acceptor has replied, and has had time to get ready. Later: or has it not? */
static void go_ahead(struct tcp_conn *conn)
{
	if (!conn->rc.tx.open) {
		tcp_tx_open(conn);
	} else if (conn->heard) {
		return;
	} else {
		tcp_tx_nudge(conn);
		conn->nudges++;
	}
	if (conn_is_attached(&conn->rc) && conn->nudges < MAX_NUDGES)
		progress_timer_arm(&conn->open_timer, NUDGE_MS << conn->nudges);
}

static void finish_broken(struct tcp_conn *conn);

static void may_open(struct rc_conn *rc)
{
	struct tcp_conn *conn = to_tcp(rc);

	if (rc->initiator)
		go_ahead(conn);
	else if (!conn->rtr)
		tcp_tx_open(conn);
	else
		rc_fail(rc, TERM_MPA_RTR, false, NULL, IBV_WC_WR_FLUSH_ERR);
	finish_broken(conn);
}

static void open_expired(struct progress_timer *timer)
{
	rc_on_timer(&container_of(timer, struct tcp_conn, open_timer)->rc, may_open);
}

void tcp_hear_first(struct tcp_conn *conn)
{
	conn->heard = true;
	conn->rc.waits_for_first = false;
	if (conn->rc.initiator)
		return;
	progress_timer_cancel(&conn->open_timer);
	rc_opened(conn_qp(&conn->rc));
	tcp_tx_open(conn);
}

/* ---- what the engine asks ---- */

/* The socket takes no more; it may still have messages for us, or a reason. */
static void finish_broken(struct tcp_conn *conn)
{
	if (!conn_is_attached(&conn->rc) || !conn->tx.broken)
		return;
	while (conn_is_attached(&conn->rc) && tcp_rx_run(conn))
		continue;
	if (conn_is_attached(&conn->rc))
		rc_end(&conn->rc, conn->tx.broken);
}

static bool op_send(struct rc_conn *rc)
{
	struct tcp_conn *conn = to_tcp(rc);
	bool any = tcp_tx_run(conn);

	finish_broken(conn);
	return any;
}

static bool op_poll(struct rc_conn *rc, unsigned looks)
{
	struct tcp_conn *conn = to_tcp(rc);
	bool any = tcp_rx_run(conn);

	(void)looks; /* each would be a system call */
	finish_broken(conn);
	return any;
}

static void op_ready(struct rc_conn *rc, uint32_t events)
{
	struct tcp_conn *conn = to_tcp(rc);

	if (rc->detached) {
		drain(conn);
		return;
	}
	if (events & EPOLLOUT)
		conn->tx.full = false;
	/* Nothing is read while a frame is blocked, but an end is noticed. */
	if (rc->rx.blocked && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
		rc_end(rc, 0);
		return;
	}
	tcp_rx_run(conn);
	/* An acknowledgement alone can wait for company. */
	if (conn_is_attached(rc) && (rc_is_pending(rc) || (events & EPOLLOUT)))
		tcp_tx_run(conn);
	finish_broken(conn);
}

static void op_acknowledge(struct rc_conn *rc)
{
	op_send(rc);
}

static void op_say_goodbye(struct rc_conn *rc)
{
	struct tcp_conn *conn = to_tcp(rc);

	conn->tx.full = false;
	tcp_tx_run(conn);
}

static void op_terminate(struct rc_conn *rc, uint16_t code, bool at_hand)
{
	tcp_tx_terminate(to_tcp(rc), code, at_hand);
}

static const struct rc_transport tcp_transport = {
	.put = tcp_put,
	.send = op_send,
	.poll = op_poll,
	.ready = op_ready,
	.resume = tcp_rx_resume,
	.acknowledge = op_acknowledge,
	.say_goodbye = op_say_goodbye,
	.terminate = op_terminate,
	.detach = op_detach,
	.free = op_free,
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

static void name_conn(struct rc_conn *conn)
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

	if (conn->soft || getsockopt(conn->rc.source.fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) ||
	    mss < 128)
		return FPDU_MAX_ULPDU;
	return fpdu_max_ulpdu((size_t)mss);
}

/* When may the first FPDU leave? */
static void schedule_open(struct tcp_conn *conn)
{
	bool initiator = conn->rc.initiator;

	if (conn->soft && (initiator || !conn->rtr))
		tcp_tx_open(conn);
	else if (initiator)
		progress_timer_arm(&conn->open_timer, SETTLE_MS);
	else
		progress_timer_arm(&conn->open_timer, conn->rtr ? RTR_MS : FIRST_FPDU_MS);
}

static void describe(struct tcp_conn *conn, const struct mpa_agreed *agreed, bool initiator)
{
	conn->rc.transport = &tcp_transport;
	conn->rc.initiator = initiator;
	conn->rc.waits_for_first = !initiator && !agreed->rtr && !agreed->either_first;
	conn->rc.acknowledged = agreed->acks;
	conn->rc.ird = agreed->ird;
	conn->rc.ord = agreed->ord;
	conn->crc = agreed->crc;
	conn->soft = agreed->soft;
	conn->rtr = agreed->rtr;
}

int tcp_attach(struct rc_qp *qp, int fd, const struct mpa_agreed *agreed, bool initiator)
{
	struct tcp_conn *conn = calloc(1, sizeof(*conn));
	struct rc_conn *rc = &conn->rc;
	int error, one = 1;

	if (!conn)
		return -ENOMEM;
	describe(conn, agreed, initiator);
	rc->source.fd = fd;
	conn->max_ulpdu = choose_max_ulpdu(conn);
	progress_timer_init(&conn->open_timer, PROGRESS_DATA, open_expired);
	name_conn(rc);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	near_shorten_queue(fd);
	tcp_rx_init(conn);
	error = tcp_tx_init(conn);
	if (!error)
		error = rc_conn_init(rc, qp, fd);
	if (error) {
		tcp_tx_fini(conn);
		free(conn);
		return error;
	}
	rc_conn_attach(rc, conn->soft);
	log_info("%s: connected by TCP, QP 0x%x, %s, crc %s, peer %s, ird %u ord %u", rc->name,
		 qp->qp_num, initiator ? "initiator" : "responder", conn->crc ? "on" : "off",
		 conn->soft ? "softrdma" : "foreign", rc->ird, rc->ord);
	schedule_open(conn);
	finish_broken(conn);
	rc_leave(rc);
	return 0;
}
