/* SPDX-License-Identifier: MIT */
/* The life of a connection in shared memory, and what verbs asks of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"
#include "conn.h"
#include "fence.h"

#define RUNS_AT_ONCE 8

/* Is there something to go on with that no bell will ring for; apart from what the ring has? */
static bool is_unfinished(const struct shm_conn *conn)
{
	return shm_rx_is_unfinished(conn) || shm_tx_is_unfinished(conn);
}

/* ---- parting ---- */

static void free_conn(struct progress_timer *timer)
{
	struct shm_conn *conn = container_of(timer, struct shm_conn, free_timer);

	if (atomic_load(&conn->qp)) {
		progress_timer_arm(timer, 1); /* leave() has not finished */
		return;
	}
	progress_timer_cancel(&conn->recv_timer);
	shm_link_free(conn->link);
	shm_rx_fini(conn);
	free(conn->tx.answers);
	free(conn);
}

/*
 * The queue pair and its connection part. What was written stays in the peer's ring though this
 * side lets go of it, so nothing has to be waited for.
 */
static void detach(struct shm_conn *conn)
{
	struct rc_qp *qp = conn_qp(conn);

	qp->transport = NULL;
	qp->conn = NULL;
	progress_timer_cancel(&conn->recv_timer);
	progress_unwatch(&conn->source);
	if (conn->reader.hold)
		regions_leave(&conn->reader);
	if (conn->tcp_fd >= 0)
		close(conn->tcp_fd);
	conn->tcp_fd = -1;
	/* At once, so that the peer sees it; the descriptor lives until the last user has left. */
	shutdown(conn->link->fd, SHUT_RDWR);
	conn->detached = true;
}

/*
 * Who takes a connection back from the pollers looks at what is unfinished after that, without the
 * lock; here it is the other way round. So one of them sees that somebody must go on.
 */
static void note_rest(struct shm_conn *conn)
{
	bool unfinished = is_unfinished(conn);

	atomic_store_explicit(&conn->unfinished, unfinished, memory_order_relaxed);
	if (!unfinished)
		return;
	full_fence();
	if (!progress_is_lent(&conn->source))
		progress_again(&conn->source);
}

/*
 * Every function that verbs, the socket or the clock calls ends with this. A connection that was
 * detached meanwhile is let go, to be freed by the progress thread; nothing of it may be touched
 * after this.
 */
static void leave(struct shm_conn *conn)
{
	if (!conn->detached) {
		if (conn->tx.wrote)
			bell_ring(conn);
		note_rest(conn);
		return;
	}
	progress_timer_arm(&conn->free_timer, 0);
	atomic_store(&conn->qp, NULL);
}

/* ---- ends ---- */

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

void shm_fail(struct shm_conn *conn, uint16_t code, struct rc_send *send, enum ibv_wc_status status)
{
	UNCANCELLABLE;
	log_warn("%s: ends: %s", conn->link->name,
		 code == TERM_NONE ? local_fault_text(status) : terminate_text(code));
	if (code != TERM_NONE)
		bell_terminate(conn, code);
	rc_failed(conn_qp(conn), send, status, EPROTO);
	detach(conn);
}

void shm_end(struct shm_conn *conn, int error)
{
	UNCANCELLABLE;
	if (error)
		log_info("%s: lost: %s", conn->link->name, strerror(error));
	else
		log_info("%s: closed by the peer", conn->link->name);
	rc_failed(conn_qp(conn), NULL, IBV_WC_WR_FLUSH_ERR, error);
	detach(conn);
}

/* The peer's last word. One about our reads has the oldest of them to blame. */
static void terminated(struct shm_conn *conn)
{
	uint16_t code = (uint16_t)(conn->bell.code[1] << 8 | conn->bell.code[2]);
	bool about_read = code >> 8 == TERM_RDMAP_INVALID_STAG >> 8;

	log_warn("%s: the peer ends the connection: %s", conn->link->name, terminate_text(code));
	rc_failed(conn_qp(conn), about_read ? shm_tx_oldest_request(conn) : NULL,
		  IBV_WC_REM_ACCESS_ERR, EPROTO);
	detach(conn);
}

/* ---- the initiator's hello ---- */

static void open_conn(struct shm_conn *conn)
{
	const struct shm_link *link = conn->link;

	if (conn->tcp_fd >= 0)
		close(conn->tcp_fd);
	conn->tcp_fd = -1;
	if (link->has_ours) {
		conn->reader = (struct regions_reader){
			.hold = &conn->peer->hold, .fd = link->fd, .name = link->name};
		regions_join(&conn->reader);
	}
	atomic_store(&conn->own->may_copy, link->may_copy);
	conn->tx.open = true;
	log_info("%s: connected by shared memory, QP 0x%x, %s, %s, peer's process %d, ird %u ord "
		 "%u",
		 link->name, conn_qp(conn)->qp_num, conn->initiator ? "initiator" : "responder",
		 link->may_copy ? "single copy" : "all through the ring", (int)link->pid, conn->ird,
		 conn->ord);
	shm_tx_run(conn);
}

/* The initiator does without: on over TCP, where it is already. */
static void fall_back(struct shm_conn *conn, int error)
{
	struct rc_qp *qp = conn_qp(conn);
	struct mpa_agreed agreed = conn->agreed;
	int fd = conn->tcp_fd;

	log_info("%s: TCP, not shared memory: the peer declines (%s)", conn->link->name,
		 strerror(-error));
	conn->tcp_fd = -1;
	detach(conn);
	error = rc_use_tcp(qp, fd, &agreed, false);
	if (!error)
		return;
	close(fd);
	rc_failed(qp, NULL, IBV_WC_WR_FLUSH_ERR, -error);
}

static void await_hello(struct shm_conn *conn)
{
	int error = link_conclude(conn->link);

	if (!error)
		open_conn(conn);
	else if (error != -EAGAIN && error != -EINTR)
		fall_back(conn, error);
}

/* ---- what the socket and the clock say ---- */

/* The end has its turn behind all that the ring still has for us. */
static void end_in_turn(struct shm_conn *conn, bool moved)
{
	if (moved) {
		progress_again(&conn->source);
		return;
	}
	if (conn->bell.terminated)
		terminated(conn);
	else
		shm_end(conn, shm_rx_is_whole(conn) ? 0 : ECONNRESET);
}

/* Both directions, until nothing moves or others must have their turn. Whether it was the latter.
 */
static bool run(struct shm_conn *conn)
{
	bool moved = true;

	for (int i = 0; i < RUNS_AT_ONCE && moved; i++) {
		moved = shm_rx_run(conn);
		if (conn_is_attached(conn))
			moved |= shm_tx_run(conn);
		if (!conn_is_attached(conn))
			return false;
		if (conn->tx.wrote)
			bell_ring(conn);
	}
	return moved;
}

static void drive(struct shm_conn *conn)
{
	bool moved;

	if (!conn->tx.open) {
		await_hello(conn);
		if (!conn_is_attached(conn) || !conn->tx.open)
			return;
	}
	bell_hear(conn);
	moved = run(conn);
	if (!conn_is_attached(conn))
		return;
	if (conn->bell.closed || conn->bell.terminated)
		end_in_turn(conn, moved);
	if (conn_is_attached(conn))
		bell_arm(conn);
}

static void ready(struct progress_source *source, uint32_t events)
{
	struct shm_conn *conn = container_of(source, struct shm_conn, source);
	struct rc_qp *qp = atomic_load(&conn->qp);

	(void)events;
	if (!qp)
		return;
	lock_take(&qp->lock);
	if (qp->conn == conn) {
		drive(conn);
		leave(conn);
	}
	lock_give(&qp->lock);
}

static void recv_expired(struct progress_timer *timer)
{
	struct shm_conn *conn = container_of(timer, struct shm_conn, recv_timer);
	struct rc_qp *qp = atomic_load(&conn->qp);

	if (!qp)
		return;
	lock_take(&qp->lock);
	if (qp->conn == conn) {
		if (stash_is_too_old(conn))
			shm_fail(conn, TERM_DDP_NO_BUFFER, NULL, IBV_WC_WR_FLUSH_ERR);
		leave(conn);
	}
	lock_give(&qp->lock);
}

/* ---- what verbs asks ---- */

/* Where nobody may come back for what the ring has, somebody must. */
static void see_to_the_ring(struct shm_conn *conn)
{
	if (conn_is_attached(conn) && !progress_is_lent(&conn->source) && shm_rx_is_waiting(conn))
		progress_again(&conn->source);
}

static void op_send(struct rc_qp *qp)
{
	struct shm_conn *conn = qp->conn;

	shm_tx_run(conn);
	see_to_the_ring(conn);
	leave(conn);
}

static bool op_send_now(struct rc_qp *qp, const struct ibv_sge *sge, unsigned num_sge,
			uint32_t length, bool solicited)
{
	struct shm_conn *conn = qp->conn;

	if (!shm_tx_send_now(conn, sge, num_sge, length, solicited))
		return false;
	see_to_the_ring(conn);
	leave(conn);
	return true;
}

static bool op_drive(struct rc_qp *qp, unsigned looks)
{
	struct shm_conn *conn = qp->conn;
	bool any = shm_rx_poll(conn, looks);

	if (conn_is_attached(conn) && conn->tx.open)
		progress_looked(&conn->source, any);
	if (conn_is_attached(conn) && shm_tx_is_pending(conn))
		any |= shm_tx_run(conn);
	leave(conn);
	return any;
}

static void op_rest(struct rc_qp *qp)
{
	struct shm_conn *conn = qp->conn;

	progress_take_back(&conn->source);
}

static void op_recv_posted(struct rc_qp *qp)
{
	struct shm_conn *conn = qp->conn;

	conn->rx.starved = false;
	conn->rx.blocked = false;
	shm_rx_run(conn);
	if (conn_is_attached(conn))
		shm_tx_run(conn);
	see_to_the_ring(conn);
	leave(conn);
}

static void op_disconnect(struct rc_qp *qp)
{
	struct shm_conn *conn = qp->conn;

	shm_tx_run(conn);
	if (conn_is_attached(conn)) {
		log_info("%s: disconnected", conn->link->name);
		detach(conn);
	}
	leave(conn);
}

static void op_close(struct rc_qp *qp)
{
	struct shm_conn *conn = qp->conn;

	detach(conn);
	leave(conn);
}

static const struct rc_transport shm_transport = {
	.name = "shm",
	.at_once = true,
	.send = op_send,
	.send_now = op_send_now,
	.drive = op_drive,
	.rest = op_rest,
	.recv_posted = op_recv_posted,
	.disconnect = op_disconnect,
	.close = op_close,
};

/* ---- attaching ---- */

int shm_attach(struct rc_qp *qp, struct shm_link *link, int tcp_fd, const struct mpa_agreed *agreed,
	       bool initiator)
{
	enum area_end end = initiator ? AREA_INITIATOR : AREA_RESPONDER;
	struct shm_conn *conn = calloc(1, sizeof(*conn));
	struct area *area = link->area;
	int error;

	if (!conn)
		return -ENOMEM;
	conn->link = link;
	conn->source = (struct progress_source){
		.fd = link->fd, .set = PROGRESS_DATA, .ready = ready, .set_lent = bell_set_lent};
	conn->initiator = initiator;
	conn->ird = agreed->ird;
	conn->ord = agreed->ord;
	conn->agreed = *agreed;
	conn->tcp_fd = tcp_fd;
	conn->own = &area->side[end];
	conn->peer = &area->side[1 - end];
	atomic_init(&conn->qp, qp);
	progress_timer_init(&conn->recv_timer, PROGRESS_DATA, recv_expired);
	progress_timer_init(&conn->free_timer, PROGRESS_DATA, free_conn);
	ring_writer_init(&conn->tx.ring, area->ring[end], &conn->peer->consumed);
	ring_reader_init(&conn->rx.ring, area->ring[1 - end], &conn->own->consumed);
	shm_rx_init(conn);
	atomic_store(&conn->own->asleep, 1);
	error = progress_watch(&conn->source, EPOLLIN);
	if (error) {
		free(conn);
		return error;
	}
	qp->transport = &shm_transport;
	qp->conn = conn;
	qp->extended = true;
	atomic_store(&conn->own->domain, rc_domain(qp));
	if (initiator)
		open_conn(conn);
	see_to_the_ring(conn);
	leave(conn);
	return 0;
}
