/* SPDX-License-Identifier: MIT */
/* The CM: names, events and what they mean, private data, and the hello. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

#define RETRIES           6 /* 7 would be for ever on some devices */
#define RNR_FOREVER       7
#define REJECT_NO_SERVICE 8 /* InfiniBand's reason when nobody listens */
#define FIRST_NUDGE_US    20000
#define MAX_NUDGES        6

/* ---- names ---- */

int cm_resolve(const char *host, int port, struct addrinfo **out)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | (host ? 0 : AI_PASSIVE),
	};
	char service[8];
	int error;

	if (port < 0 || port > UINT16_MAX)
		return error_say(EINVAL, "%d is not a port", port);
	snprintf(service, sizeof(service), "%d", port);
	error = getaddrinfo(host, service, &hints, out);
	if (error)
		return error_say(error == EAI_MEMORY ? ENOMEM : EHOSTUNREACH, "%s: %s",
				 host ? host : "*", gai_strerror(error));
	return 0;
}

/* ---- events ---- */

int cm_open_channel(struct rdma_event_channel **out)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	int flags, error;

	if (!channel)
		return error_say(errno,
				 "no RDMA device can be used: %s; SOFTRDMA=on uses the "
				 "software device",
				 strerror(errno));
	flags = fcntl(channel->fd, F_GETFL);
	if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK)) {
		error = error_of(errno, "cannot set up an event channel");
		rdma_destroy_event_channel(channel);
		return error;
	}
	*out = channel;
	return 0;
}

int cm_next(struct rdma_event_channel *channel, uint64_t deadline, struct rdma_cm_event **out)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};

	while (rdma_get_cm_event(channel, out)) {
		if (errno != EAGAIN && errno != EINTR)
			return error_of(errno, "cannot fetch an event");
		if (poll(&fd, 1, ms_until(deadline)) < 0)
			return error_of(errno, "waiting for an event");
		if (!fd.revents)
			return error_say(ETIMEDOUT, "the peer did not answer in time");
	}
	return 0;
}

static int rejected(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	const uint8_t *user;
	size_t len;

	/* A reason of ours says that somebody is there. */
	if (record_get_private(param->private_data, param->private_data_len, &user, &len) ==
		    PEER_BARE &&
	    (event->status == REJECT_NO_SERVICE || event->status == -ECONNREFUSED))
		return error_say(ECONNREFUSED, "nobody listens at that address and port");
	if (event->status == -ETIMEDOUT)
		return error_say(ETIMEDOUT, "the peer did not answer in time");
	return error_say(EACCES, "the peer rejected the connection");
}

static int error_of_event(const struct rdma_cm_event *event)
{
	int error = abs(event->status);

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return rejected(event);
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return error_say(error == ENODEV || error == ETIMEDOUT ? error : EHOSTUNREACH,
				 "the host cannot be reached: %s", strerror(error));
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return error_say(error ? error : ECONNRESET, "cannot connect: %s", strerror(error));
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return error_say(ENODEV, "the device was removed");
	default:
		return error_say(ECONNRESET, "the connection ended before it was open: %s",
				 rdma_event_str(event->event));
	}
}

int cm_expect(struct conn *conn, enum rdma_cm_event_type type, uint64_t deadline)
{
	struct rdma_cm_event *event;
	int error;

	do
		error = cm_next(conn->channel, deadline, &event);
	while (error == -EINTR);
	if (error)
		return error;
	if (event->event == RDMA_CM_EVENT_ESTABLISHED || event->event == RDMA_CM_EVENT_REJECTED)
		cm_keep_param(conn, &event->param.conn);
	if (event->event != type || event->status)
		error = error_of_event(event);
	rdma_ack_cm_event(event);
	return error;
}

static void note_event(struct conn *conn, enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_DISCONNECTED:
		conn_end(conn, ECONNRESET);
		/* The peer's CM waits for this answer. On iWARP there is none. */
		if (!conn->is_iwarp)
			rdma_disconnect(conn->id);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		conn_end(conn, ENODEV);
		break;
	default:
		break; /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing to do */
	}
}

void cm_look(struct conn *conn)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(conn->channel, &event)) {
		enum rdma_cm_event_type type = event->event;

		rdma_ack_cm_event(event);
		note_event(conn, type);
	}
}

int cm_await_end(struct conn *conn, uint64_t deadline)
{
	struct pollfd fd = {.fd = conn->channel->fd, .events = POLLIN};

	for (;;) {
		bool has_ended;

		conn_lock(conn);
		cm_look(conn);
		has_ended = conn->ended;
		conn_unlock(conn);
		if (has_ended)
			return 0;
		if (poll(&fd, 1, ms_until(deadline)) < 0)
			return error_of(errno, "waiting for the end of a connection");
		if (!fd.revents)
			return error_say(ETIMEDOUT, "the connection did not end in time");
	}
}

/* ---- what peers say when they connect ---- */

int cm_make_private(const void *data, size_t len, uint8_t out[RECORD_PRIVATE_MAX])
{
	if (len > IW_MAX_PRIVATE_DATA || (len && !data))
		return error_say(EINVAL, "private data of %zu bytes: there is room for %d", len,
				 IW_MAX_PRIVATE_DATA);
	return (int)record_put_private(out, data, len);
}

static uint8_t least(uint8_t ours, uint8_t theirs)
{
	return theirs && theirs < ours ? theirs : ours;
}

void cm_keep_param(struct conn *conn, const struct rdma_conn_param *param)
{
	const uint8_t *user;
	size_t len = 0;

	/* An acceptor's ESTABLISHED has nothing to add to the request. */
	if (conn->state == CONN_REQUESTED)
		return;
	conn->peer = record_get_private(param->private_data, param->private_data_len, &user, &len);
	if (conn->peer == PEER_UNKNOWN)
		return;
	conn->peer_len = len;
	if (len)
		memcpy(conn->peer_data, user, len);
	conn->reads = least(least(conn->reads, param->initiator_depth), param->responder_resources);
}

struct rdma_conn_param cm_param(const struct conn *conn, const uint8_t *data, size_t len)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = (uint8_t)len,
		.responder_resources = conn->reads,
		.initiator_depth = conn->reads,
		.retry_count = RETRIES,
		.rnr_retry_count = RNR_FOREVER,
	};
}

/* ---- the hello ---- */

/*
 * siw answers a request before it is ready to receive, and overlooks what comes in between until
 * something else comes.
 */
static int await_hello(struct conn *conn, bool may_nudge)
{
	uint64_t begin = now_us(), wait = FIRST_NUDGE_US, next = begin + wait;
	unsigned nudges = may_nudge ? MAX_NUDGES : 0;

	while (conn->awaits_hello) {
		int error = queue_wait(conn, IW_RCQ, nudges ? next : begin + HANDSHAKE_US);

		if (!error || error == -EINTR)
			continue;
		if (error != -ETIMEDOUT || !nudges)
			return error;
		error = sendq_post_empty_write(conn, 0);
		if (error)
			return error;
		nudges--;
		wait *= 2;
		next += wait;
	}
	return conn->ended ? conn_say_ended(conn) : 0;
}

int cm_greet(struct conn *conn, bool is_connector)
{
	static const struct record hello = {.type = RECORD_HELLO};
	uint64_t op = 0;
	int error = 0;

	if (!conn->is_iwarp || conn->peer != PEER_OURS)
		return 0;
	conn_lock(conn);
	if (is_connector)
		error = sendq_post_record(conn, &hello, SENT_HIDDEN, &op);
	if (!error)
		error = await_hello(conn, is_connector);
	if (!error && !is_connector)
		error = sendq_post_record(conn, &hello, SENT_HIDDEN, &op);
	conn_unlock(conn);
	return error;
}
