/* SPDX-License-Identifier: MIT */
/* The life of a connection in shared memory: the hello, the bell, the end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../rc/attach.h"
#include "../tuning.h"
#include "conn.h"

bool shm_is_unfinished(const struct shm_conn *conn)
{
	return shm_rx_is_unfinished(conn) || shm_tx_is_unfinished(conn);
}

/* ---- the initiator's hello ---- */

static void close_tcp(struct shm_conn *conn)
{
	if (conn->tcp_fd >= 0)
		close(conn->tcp_fd);
	conn->tcp_fd = -1;
}

static void open_conn(struct shm_conn *conn)
{
	const struct shm_link *link = conn->link;
	const struct rc_conn *rc = &conn->rc;

	close_tcp(conn);
	if (link->has_ours) {
		conn->reader = (struct regions_reader){
			.hold = &conn->peer->hold, .fd = link->fd, .name = rc->name};
		regions_join(&conn->reader);
	}
	atomic_store(&conn->own->may_copy, link->may_copy);
	conn->rc.tx.open = true;
	log_info("%s: connected by shared memory, QP 0x%x, %s, %s, peer's process %d, ird %u ord "
		 "%u",
		 rc->name, conn_qp(rc)->qp_num, rc->initiator ? "initiator" : "responder",
		 link->may_copy ? "single copy" : "all through the ring", (int)link->pid, rc->ird,
		 rc->ord);
	shm_tx_run(conn);
}

/* The initiator does without: on over TCP, where it is already. */
static void fall_back(struct shm_conn *conn, int error)
{
	struct rc_qp *qp = conn_qp(&conn->rc);
	struct mpa_agreed agreed = conn->agreed;
	int fd = conn->tcp_fd;

	log_info("%s: TCP, not shared memory: the peer declines (%s)", conn->rc.name,
		 strerror(-error));
	conn->tcp_fd = -1;
	rc_close(&conn->rc);
	error = rc_fall_back(qp, fd, &agreed, false);
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

/* ---- what the socket says ---- */

/* The end has its turn behind all that the ring still has for us. */
static void end_in_turn(struct shm_conn *conn, bool moved)
{
	struct rc_conn *rc = &conn->rc;

	if (moved) {
		progress_again(&rc->source);
		return;
	}
	shm_look_for_acks(rc);
	if (!conn_is_attached(rc))
		return;
	if (conn->bell.terminated)
		rc_terminated(rc, (uint16_t)(conn->bell.code[1] << 8 | conn->bell.code[2]));
	else
		rc_peer_gone(rc, true);
}

/* Both directions, until nothing moves or others must have their turn. Whether it was the latter.
 */
static bool run(struct shm_conn *conn)
{
	bool moved = true;

	for (int i = 0; i < SHM_RUNS_AT_ONCE && moved; i++) {
		moved = shm_rx_run(conn);
		if (conn_is_attached(&conn->rc))
			shm_look_for_acks(&conn->rc);
		if (conn_is_attached(&conn->rc))
			moved |= shm_tx_run(conn);
		if (!conn_is_attached(&conn->rc))
			return false;
		if (conn->tx.wrote)
			bell_ring(conn);
	}
	return moved;
}

static void op_ready(struct rc_conn *rc, uint32_t events)
{
	struct shm_conn *conn = to_shm(rc);
	bool moved;

	(void)events;
	if (rc->detached)
		return;
	if (!rc->tx.open) {
		await_hello(conn);
		if (!conn_is_attached(rc) || !rc->tx.open)
			return;
	}
	bell_hear(conn);
	moved = run(conn);
	if (!conn_is_attached(rc))
		return;
	if (conn->bell.closed || conn->bell.terminated)
		end_in_turn(conn, moved);
	if (conn_is_attached(rc))
		bell_arm(conn);
}

/* ---- what the engine asks ---- */

static void op_leave(struct rc_conn *rc)
{
	struct shm_conn *conn = to_shm(rc);

	if (conn->tx.wrote)
		bell_ring(conn);
	if (!progress_is_poller_owned(&rc->source) && shm_is_unfinished(conn))
		progress_again(&rc->source);
}

static bool op_send(struct rc_conn *rc)
{
	return shm_tx_run(to_shm(rc));
}

static bool op_poll(struct rc_conn *rc, unsigned looks)
{
	return shm_rx_poll(to_shm(rc), looks);
}

static void op_resume(struct rc_conn *rc)
{
	shm_rx_run(to_shm(rc));
}

/* A peer that sleeps may sleep for this. */
static void op_acknowledge(struct rc_conn *rc)
{
	struct shm_conn *conn = to_shm(rc);

	rc->rx.ack_due = false;
	bell_publish(conn);
	bell_ring(conn);
}

static void op_say_goodbye(struct rc_conn *rc)
{
	struct shm_conn *conn = to_shm(rc);

	shm_tx_run(conn);
	if (conn_is_attached(rc) && rc->tx.open)
		bell_publish(conn);
}

static void op_terminate(struct rc_conn *rc, uint16_t code, bool at_hand)
{
	(void)at_hand;
	bell_publish(to_shm(rc));
	bell_terminate(to_shm(rc), code);
}

/*
 * What was written stays in the peer's ring though this side lets go of it, so nothing has to be
 * waited for.
 */
static void op_detach(struct rc_conn *rc, bool linger)
{
	struct shm_conn *conn = to_shm(rc);

	(void)linger;
	progress_unwatch(&rc->source);
	if (conn->reader.hold)
		regions_leave(&conn->reader);
	close_tcp(conn);
	/* At once, so that the peer sees it; the descriptor lives until the last user has left. */
	shutdown(conn->link->fd, SHUT_RDWR);
}

static void op_free(struct rc_conn *rc)
{
	struct shm_conn *conn = to_shm(rc);

	shm_link_free(conn->link);
	rc_conn_fini(rc);
	free(conn);
}

/*
 * A peer that copies by itself looks at the rights of regions, not of this queue pair. So it may do
 * so only where the queue pair grants both; else it has to ask.
 */
static void op_rights_changed(struct rc_conn *rc)
{
	const unsigned both = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct rc_qp *qp = conn_qp(rc);

	atomic_store(&to_shm(rc)->own->domain, (qp->access & both) == both ? rc_domain(qp) : 0);
}

static const struct rc_transport shm_transport = {
	.memory_only = true,
	.put = shm_put,
	.copy = shm_copy,
	.put_now = shm_put_now,
	.send = op_send,
	.poll = op_poll,
	.ready = op_ready,
	.fetch = shm_fetch,
	.resume = op_resume,
	.acknowledge = op_acknowledge,
	.rights_changed = op_rights_changed,
	.look_for_acks = shm_look_for_acks,
	.say_goodbye = op_say_goodbye,
	.terminate = op_terminate,
	.detach = op_detach,
	.leave = op_leave,
	.free = op_free,
};

/* ---- attaching ---- */

static void describe(struct shm_conn *conn, const struct mpa_agreed *agreed, bool initiator)
{
	struct rc_conn *rc = &conn->rc;

	rc->transport = &shm_transport;
	rc->source.set_poller_owned = bell_set_poller_owned;
	rc->initiator = initiator;
	rc->acknowledged = true;
	rc->ird = agreed->ird;
	rc->ord = agreed->ord;
	memcpy(rc->name, conn->link->name, sizeof(rc->name));
	conn->agreed = *agreed;
}

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
	describe(conn, agreed, initiator);
	conn->own = &area->side[end];
	conn->peer = &area->side[1 - end];
	ring_writer_init(&conn->tx.ring, area->ring[end], &conn->peer->consumed);
	ring_reader_init(&conn->rx.ring, area->ring[1 - end], &conn->own->consumed);
	atomic_store(&conn->own->asleep, 1);
	error = rc_conn_init(&conn->rc, qp, link->fd);
	if (error) {
		free(conn);
		return error;
	}
	conn->tcp_fd = tcp_fd;
	rc_conn_attach(&conn->rc, true);
	op_rights_changed(&conn->rc);
	if (initiator)
		open_conn(conn);
	if (conn_is_attached(&conn->rc) && shm_rx_is_waiting(conn))
		progress_again(&conn->rc.source);
	rc_leave(&conn->rc);
	return 0;
}
