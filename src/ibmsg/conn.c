/* SPDX-License-Identifier: MIT */
/* The life of a connection, from its queue pair to its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../common/log.h"
#include "internal.h"

#define CLOSE_MS       10000 /* for the peer to answer the end */
#define PART_MS        500   /* for the CM's last event, which not every device gives to both */
#define FIRST_NUDGE_MS 100   /* then twice as long, and so on */
#define MAX_NUDGES     5
#define CLOSE_PATIENCE 6 /* as many times, while it reads long messages */

struct conn *conn_new(struct loop *loop, ibmsg_socket *socket, bool connector)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->loop = loop;
	conn->socket = socket;
	conn->connector = connector;
	conn->window = FIRST_WINDOW;
	conn->ours.version = PROTO_VERSION;
	conn->ours.features = PROTO_TAKES_MANY;
	conn->ours.max_send = RECV_BYTES;
	strcpy(conn->name, "?");
	list_init(&conn->due_link);
	list_init(&conn->timer.link);
	list_init(&conn->queue);
	list_init(&conn->in_flight);
	list_init(&conn->carriers);
	list_init(&conn->offered);
	list_init(&conn->finished);
	list_init(&conn->receives);
	list_init(&conn->early);
	list_init(&conn->arrivals);
	list_init(&conn->reading);
	list_add_tail(&loop->conns, &conn->link);
	loop->num_conns++;
	return conn;
}

void conn_free(struct conn *conn)
{
	timer_cancel(&conn->timer);
	list_del(&conn->due_link);
	list_del(&conn->link);
	conn->loop->num_conns--;
	if (conn->addresses)
		freeaddrinfo(conn->addresses);
	free(conn);
}

/* ---- the queue pair ---- */

static struct conn **bucket_of(struct loop *loop, uint32_t qp_num)
{
	return &loop->buckets[qp_num % QP_BUCKETS];
}

struct conn *conn_find(const struct device *device, uint32_t qp_num)
{
	struct conn *conn = *bucket_of(device->loop, qp_num);

	while (conn && (conn->device != device || conn->qp_num != qp_num))
		conn = conn->next_in_bucket;
	return conn;
}

static void hash_out(struct conn *conn)
{
	struct conn **at = bucket_of(conn->loop, conn->qp_num);

	while (*at != conn)
		at = &(*at)->next_in_bucket;
	*at = conn->next_in_bucket;
}

/* Devices differ in what they take inline. */
static int create_qp(struct conn *conn)
{
	static const uint32_t inline_bytes[] = {MAX_INLINE, 128, MIN_INLINE};
	struct ibv_qp_init_attr attr;

	for (unsigned i = 0; i < sizeof(inline_bytes) / sizeof(*inline_bytes); i++) {
		attr = (struct ibv_qp_init_attr){
			.send_cq = conn->cq->cq,
			.recv_cq = conn->cq->cq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = SEND_DEPTH,
				.max_recv_wr = RECV_DEPTH,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = inline_bytes[i]},
		};
		if (!rdma_create_qp(conn->id, conn->device->pool->pd, &attr)) {
			conn->qp = conn->id->qp;
			conn->qp_num = conn->qp->qp_num;
			conn->inline_bytes = inline_bytes[i];
			return 0;
		}
	}
	return -errno;
}

int conn_equip(struct conn *conn)
{
	struct conn **bucket;
	int error = create_qp(conn);

	if (error) {
		log_error("%s: Create QP failed: %d '%s'", conn->name, -error, strerror(-error));
		return IBMSG_CREATE_QP_FAILED;
	}
	bucket = bucket_of(conn->loop, conn->qp_num);
	conn->next_in_bucket = *bucket;
	*bucket = conn;
	error = recv_fill(conn);
	if (error || conn->posted_data < FIRST_WINDOW) {
		log_error("%s: could not allocate memory for connection receive buffer",
			  conn->name);
		conn_unequip(conn);
		return IBMSG_MEMORY_REGISTRATION_FAILED;
	}
	/* The peer hears of these by the CM. */
	conn->ours.data_credits = (uint16_t)conn->owed_data;
	conn->ours.control_credits = (uint16_t)conn->owed_control;
	conn->owed_data = 0;
	conn->owed_control = 0;
	return IBMSG_OK;
}

/* Ends the queue pair: after this the device touches no memory of the connection. */
void conn_unequip(struct conn *conn)
{
	if (!conn->qp)
		return;
	rdma_destroy_qp(conn->id);
	/* What is still in the CQ is taken out before the connection is forgotten. */
	while (loop_poll_cq(conn->cq))
		continue;
	hash_out(conn);
	conn->qp = NULL;
	recv_drop_all(conn);
	conn->posted_data = 0;
	conn->posted_control = 0;
	conn->owed_data = 0;
	conn->owed_control = 0;
}

/* ---- life ---- */

/* siw may overlook what comes first until something else comes. */
static bool awaits_hello(const struct conn *conn)
{
	return conn->peer == PEER_IBMSG && conn->connector && !conn->has_word &&
	       conn->nudges < MAX_NUDGES;
}

void conn_start_timer(struct conn *conn)
{
	struct loop *loop = conn->loop;
	unsigned ms = 0;

	if (conn->state != CONN_OPEN)
		ms = loop->connect_ms;
	else if (conn->closing)
		ms = CLOSE_MS;
	else if (awaits_hello(conn))
		ms = FIRST_NUDGE_MS << conn->nudges;
	else if (conn->peer == PEER_IBMSG)
		ms = loop->keepalive_ms;
	timer_cancel(&conn->timer);
	if (ms)
		timer_arm(loop, &conn->timer, ms);
}

void conn_opened(struct conn *conn)
{
	struct loop *loop = conn->loop;

	conn->state = CONN_OPEN;
	conn->hello_due = conn->peer == PEER_IBMSG;
	if (conn->connector || conn->peer == PEER_ORIGINAL)
		conn->may_send = true;
	conn->data_credits = conn->theirs.data_credits;
	conn->control_credits = conn->theirs.control_credits;
	log_info("%s: established with %s", conn->name,
		 conn->peer == PEER_ORIGINAL ? "an original ibmsg" : "an ibmsg");
	conn_start_timer(conn);
	if (!conn->closing)
		set_socket_status(conn->socket, IBMSG_CONNECTED);
	/* The hello leaves before the callback: the peer may not send until it has come. */
	send_pump(conn);
	if (loop->event_loop->connection_established)
		CALLBACK(loop, loop->event_loop->connection_established(conn->socket));
	recv_early(conn);
	loop_due(conn);
}

static void expired_while_open(struct conn *conn)
{
	if (awaits_hello(conn)) {
		conn->nudges++;
		send_nudge(conn);
	} else if (conn->heard) {
		conn->heard = false;
	} else if (conn->beating) {
		log_warn("%s: the peer is silent", conn->name);
		conn_close(conn, IBMSG_PEER_SILENT);
		return;
	} else if (conn->has_word && conn->reads) {
		send_beat(conn);
	}
	conn_start_timer(conn);
}

static void expired_while_closing(struct conn *conn)
{
	bool patient = !list_is_empty(&conn->offered) && conn->patience++ < CLOSE_PATIENCE;

	if (conn->parting || conn_is_over(conn)) {
		conn_close(conn, IBMSG_OK); /* but for an event or a completion that never came */
		return;
	}
	if (!conn->heard && !patient) {
		log_warn("%s: the peer does not answer the end", conn->name);
		conn_close(conn, IBMSG_TIMED_OUT);
		return;
	}
	conn->heard = false;
	conn_start_timer(conn);
}

void conn_expired(struct conn *conn)
{
	if (conn->state != CONN_OPEN) {
		log_warn("%s: not established in time", conn->name);
		conn_close(conn, IBMSG_TIMED_OUT);
	} else if (conn->closing) {
		expired_while_closing(conn);
	} else {
		expired_while_open(conn);
	}
}

/* ---- the end ---- */

void conn_disconnect(struct conn *conn)
{
	set_socket_status(conn->socket, IBMSG_DISCONNECTING);
	if (conn->closing)
		return;
	conn->closing = true;
	if (conn->state != CONN_OPEN) {
		conn->cancelled = true;
	} else {
		conn->heard = false;
		conn_start_timer(conn);
	}
	loop_due(conn);
}

void conn_doom(struct conn *conn, int error)
{
	if (!conn->doom)
		conn->doom = error;
	loop_due(conn);
}

/* Nothing is left to be said. The CM's event is the last to come, if it comes. */
static void part(struct conn *conn)
{
	conn->parting = true;
	rdma_disconnect(conn->id);
	timer_arm(conn->loop, &conn->timer, PART_MS);
}

void conn_check_end(struct conn *conn)
{
	bool done = conn->peer == PEER_ORIGINAL
			    ? send_is_idle(conn)
			    : conn_is_over(conn) && conn->seen_sent && !conn->controls;

	if (conn->closing && conn->state == CONN_OPEN && !conn->parting && done)
		part(conn);
}

void conn_attend(struct conn *conn)
{
	if (conn->cancelled && conn->state != CONN_OPEN) {
		conn_close(conn, list_is_empty(&conn->queue) ? IBMSG_OK : IBMSG_CLOSED);
		return;
	}
	if (!conn->doom && conn->state == CONN_OPEN && !conn->parting) {
		/*
		 * Answers leave first, also those of an application that has waited for its buffer.
		 * Then receives, which may be worth a word of their own.
		 */
		send_pump(conn);
		send_tell_finished(conn);
		if (recv_fill(conn))
			conn_doom(conn, IBMSG_MEMORY_REGISTRATION_FAILED);
		send_owed(conn);
	}
	if (conn->doom)
		conn_close(conn, conn->doom);
	else
		conn_check_end(conn);
}

void stats_add(ibmsg_stats *to, const ibmsg_stats *from)
{
	to->messages_sent += from->messages_sent;
	to->messages_received += from->messages_received;
	to->bytes_sent += from->bytes_sent;
	to->bytes_received += from->bytes_received;
	to->messages_failed += from->messages_failed;
	to->rendezvous_sent += from->rendezvous_sent;
	to->rendezvous_received += from->rendezvous_received;
	to->stalls += from->stalls;
}

/* The socket is the application's from the callback on. */
static void tell_closed(struct conn *conn, bool was_open, int error)
{
	struct loop *loop = conn->loop;
	ibmsg_socket *socket = conn->socket;

	send_tell_finished(conn);
	stats_add(&loop->stats, &conn->stats);
	socket_private(socket)->conn = NULL;
	socket->cmid = NULL;
	socket->error = error;
	set_socket_status(socket, was_open || conn->cancelled ? IBMSG_UNCONNECTED : IBMSG_ERROR);
	log_debug("Connection closed");
	if (loop->event_loop->connection_closed) {
		loop->ending = conn;
		loop->ending_socket = socket;
		CALLBACK(loop, loop->event_loop->connection_closed(socket, error));
		loop->ending = NULL;
		loop->ending_socket = NULL;
	}
	conn->socket = NULL;
}

void conn_close(struct conn *conn, int error)
{
	bool was_open = conn->state == CONN_OPEN;

	if (conn->state == CONN_CLOSED)
		return;
	if (error)
		log_info("%s: ends: %s", conn->name, ibmsg_strerror(error));
	else
		log_info("%s: closed", conn->name);
	timer_cancel(&conn->timer);
	conn->state = CONN_CLOSED;
	if (conn->qp)
		rdma_disconnect(conn->id); /* it may have ended already: no error */
	conn_unequip(conn);
	send_fail_all(conn, error ? error : IBMSG_CLOSED);
	tell_closed(conn, was_open, error);
	if (conn->id)
		rdma_destroy_id(conn->id);
	if (conn->device)
		device_put(conn->device, conn->cq);
	conn_free(conn);
}

void conn_end(struct conn *conn, int otherwise)
{
	conn_close(conn, conn->parting || conn_is_over(conn) ? IBMSG_OK : otherwise);
}
