/* SPDX-License-Identifier: MIT */
/* A connection's life, and what verbs asks of it. */
#include "conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

/* ---- entries and exits ---- */

/*
 * Every entry from outside ends with this. A connection that was detached meanwhile is let go, to
 * be freed by the progress thread; nothing of it may be touched after this.
 */
void rc_leave(struct rc_conn *conn)
{
	if (!conn->detached) {
		if (conn->transport->leave)
			conn->transport->leave(conn);
		return;
	}
	progress_timer_arm(&conn->free_timer, conn->linger_ms);
	atomic_store(&conn->qp, NULL);
}

static void free_expired(struct progress_timer *timer)
{
	struct rc_conn *conn = container_of(timer, struct rc_conn, free_timer);

	if (atomic_load(&conn->qp))
		progress_timer_arm(timer, 1); /* rc_leave has not finished */
	else
		conn->transport->free(conn);
}

void rc_on_timer(struct rc_conn *conn, void (*action)(struct rc_conn *conn))
{
	struct rc_qp *qp = atomic_load(&conn->qp);

	if (!qp)
		return;
	lock_take(&qp->lock);
	if (qp->conn == conn) {
		action(conn);
		rc_leave(conn);
	}
	lock_give(&qp->lock);
}

static void ready(struct progress_source *source, uint32_t events)
{
	struct rc_conn *conn = container_of(source, struct rc_conn, source);
	struct rc_qp *qp = atomic_load(&conn->qp);

	if (!qp) { /* it lingers */
		conn->transport->ready(conn, events);
		return;
	}
	lock_take(&qp->lock);
	if (qp->conn == conn) {
		conn->transport->ready(conn, events);
		if (conn_is_attached(conn) && conn->rx.ack_due)
			rc_defer_ack(qp, false);
		rc_leave(conn);
	}
	lock_give(&qp->lock);
}

/* ---- what verbs asks ---- */

static void op_send(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;

	conn->transport->send(conn);
	rc_leave(conn);
}

static bool op_send_now(struct rc_qp *qp, const struct ibv_sge *sge, unsigned num_sge,
			uint32_t length, bool solicited, uint32_t *position)
{
	struct rc_conn *conn = qp->conn;

	if (!conn->tx.open || rc_answers_wait(&conn->tx) ||
	    !conn->transport->put_now(conn, sge, num_sge, length, solicited))
		return false;
	*position = conn->tx.position;
	rc_leave(conn);
	return true;
}

/*
 * What arrived is acknowledged with what is sent next. If the program has not replied when more
 * arrives, it is a stream, and the sender may wait for this. If nothing more arrives, a poller has
 * to look more than once: a program may poll again before it posts its reply.
 */
static bool has_company_stayed_away(struct rc_conn *conn, bool was_due, bool any)
{
	if (!was_due)
		conn->rx.lone_polls = 0;
	else
		conn->rx.lone_polls += any ? RC_ACK_POLLS : 1;
	return conn->rx.lone_polls >= RC_ACK_POLLS;
}

static bool op_drive(struct rc_qp *qp, unsigned looks)
{
	struct rc_conn *conn = qp->conn;
	bool was_due = conn->rx.ack_due;
	bool any = conn->transport->poll(conn, looks);

	if (conn_is_attached(conn) && conn->tx.open)
		progress_looked(&conn->source, any, qp->slept_for);
	if (conn_is_attached(conn) && rc_is_pending(conn))
		any |= conn->transport->send(conn);
	if (conn_is_attached(conn) && conn->rx.ack_due) {
		if (has_company_stayed_away(conn, was_due, any))
			conn->transport->acknowledge(conn);
		else if (any && (!progress_is_poller_owned(&conn->source) ||
				 !conn->source.set_poller_owned))
			rc_defer_ack(qp, true);
	}
	rc_leave(conn);
	return any;
}

/* Nobody has come back so far: let everything go. */
static void op_flush(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;

	if (rc_is_pending(conn))
		conn->transport->send(conn);
	if (conn_is_attached(conn) && conn->rx.ack_due)
		conn->transport->acknowledge(conn);
	rc_leave(conn);
}

static void op_rest(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;

	progress_reclaim(&conn->source);
}

static void op_recv_posted(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;
	struct rc_rx *rx = &conn->rx;

	if (rc_deliver_held(conn) && rx->blocked) {
		rx->blocked = false;
		conn->transport->resume(conn);
	}
	if (conn_is_attached(conn) && rc_is_pending(conn))
		conn->transport->send(conn);
	if (conn_is_attached(conn) && rx->ack_due)
		rc_defer_ack(qp, true);
	rc_leave(conn);
}

static void op_rights_changed(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;

	if (conn->transport->rights_changed)
		conn->transport->rights_changed(conn);
}

static void op_look_for_acks(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;

	if (conn->transport->look_for_acks)
		conn->transport->look_for_acks(conn);
	rc_leave(conn);
}

static void op_disconnect(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;

	conn->transport->say_goodbye(conn);
	if (conn_is_attached(conn))
		rc_disconnect(conn);
	rc_leave(conn);
}

static void op_close(struct rc_qp *qp)
{
	struct rc_conn *conn = qp->conn;

	if (conn->rx.ack_due)
		conn->transport->acknowledge(conn);
	if (conn_is_attached(conn))
		rc_close(conn);
	rc_leave(conn);
}

#define OPERATIONS                                                                                 \
	.send = op_send, .drive = op_drive, .flush = op_flush, .rest = op_rest,                    \
	.recv_posted = op_recv_posted, .look_for_acks = op_look_for_acks,                          \
	.rights_changed = op_rights_changed, .disconnect = op_disconnect, .close = op_close

static const struct rc_service by_system_calls = {OPERATIONS};
static const struct rc_service by_memory = {OPERATIONS, .memory_only = true,
					    .send_now = op_send_now};

/* ---- attaching ---- */

int rc_conn_init(struct rc_conn *conn, struct rc_qp *qp, int fd)
{
	conn->source.fd = fd;
	conn->source.set = PROGRESS_DATA;
	conn->source.ready = ready;
	atomic_init(&conn->qp, qp);
	list_init(&conn->rx.held);
	conn->tx.unsettled = qp->sq.next;
	progress_timer_init(&conn->recv_timer, PROGRESS_DATA, rc_recv_expired);
	progress_timer_init(&conn->free_timer, PROGRESS_DATA, free_expired);
	return progress_watch(&conn->source, EPOLLIN);
}

void rc_conn_fini(struct rc_conn *conn)
{
	progress_timer_cancel(&conn->recv_timer);
	progress_timer_cancel(&conn->free_timer);
	while (!list_is_empty(&conn->rx.held))
		rc_drop_held(conn, list_first(&conn->rx.held, struct rc_held, link));
	free(conn->tx.answers);
}

void rc_conn_attach(struct rc_conn *conn, bool extended)
{
	struct rc_qp *qp = conn_qp(conn);

	qp->service = conn->transport->memory_only ? &by_memory : &by_system_calls;
	qp->conn = conn;
	qp->extended = extended;
}
