/* SPDX-License-Identifier: MIT */
/* How the client waits: for events of the connection manager, for completions, and for neither in
 * vain. */
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

#define NO_SUCH_SERVICE 8 /* why InfiniBand and RoCE reject where nobody listens */

/* ---- waiting: the connection manager's events ---- */

/* Why the server, or its machine, does not want us. */
static int explain_reject(const struct rdma_cm_event *event)
{
	if (event->status == NO_SUCH_SERVICE || event->status == -ECONNREFUSED)
		return -ECONNREFUSED; /* main() may try again, and reports it */
	report_error("The server rejected the connection, status : (%d)", event->status);
	if (event->param.conn.private_data_len) {
		fputs("The server says: ", stderr);
		common_print_safely(event->param.conn.private_data,
				    event->param.conn.private_data_len);
		fputc('\n', stderr);
	}
	return -ECONNRESET;
}

/* 0 if @event is what was @expected. */
static int judge_event(const struct rdma_cm_event *event, enum rdma_cm_event_type expected)
{
	int error = event->status < 0 ? event->status : -EHOSTUNREACH;

	if (event->event == RDMA_CM_EVENT_REJECTED)
		return explain_reject(event);
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		return expected == event->event ? 0 : -ECONNRESET;
	if (event->event == expected && !event->status)
		return 0;
	report_error("%s in place of %s, status : (%d)", rdma_event_str(event->event),
		     rdma_event_str(expected), event->status);
	if (event->event == RDMA_CM_EVENT_ADDR_ERROR)
		common_hint_device();
	return error;
}

static int take_event(struct client *client, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event;
	int error;

	if (rdma_get_cm_event(client->events, &event)) {
		error = -errno;
		report_error("Taking a cm event failed with errno : (%d)", error);
		return error;
	}
	error = judge_event(event, expected);
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		client->is_connected = false;
	/* Each event is acked once, when all of it has been read. */
	rdma_ack_cm_event(event);
	if (error == -ECONNRESET && !client->is_connected && client->was_connected)
		report_error("The server has ended the connection");
	return error;
}

int client_await_event(struct client *client, enum rdma_cm_event_type expected, int ms)
{
	struct pollfd fds[] = {{0}, {.fd = client->events->fd, .events = POLLIN}};
	int ready = common_wait(fds, 2, ms);

	if (ready < 0)
		return ready;
	return ready ? take_event(client, expected) : -ETIMEDOUT;
}

int client_expect_event(struct client *client, enum rdma_cm_event_type expected)
{
	int error = client_await_event(client, expected, client->options->timeout_ms);

	if (error == -ETIMEDOUT)
		report_error("No %s came in time, errno : (%d)", rdma_event_str(expected), error);
	return error;
}

/* ---- waiting: completions ---- */

static int judge_completion(const struct ibv_wc *wc, const char *what)
{
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	/* So requests come back when a connection ends. */
	report_error("%s failed: %s (%d)%s", what, ibv_wc_status_str(wc->status), wc->status,
		     wc->status == IBV_WC_WR_FLUSH_ERR ? ": the connection has ended" : "");
	switch (wc->status) {
	case IBV_WC_REM_ACCESS_ERR:
		fputs("HINT : the server does not offer the memory that it told us of.\n", stderr);
		return -EACCES;
	case IBV_WC_LOC_LEN_ERR:
		fputs("HINT : the server's message is longer than a record.\n", stderr);
		return -EBADMSG;
	case IBV_WC_RETRY_EXC_ERR:
		return -ETIMEDOUT;
	default:
		return -ECONNRESET;
	}
}

/*
 * A write of nothing, to nowhere. The kernel's siw may overlook the first message of a connection
 * until something else comes: it answers the connect before it watches its socket.
 */
static void nudge(struct client *client)
{
	struct ibv_send_wr wr = {.wr_id = WR_NUDGE, .opcode = IBV_WR_RDMA_WRITE};
	struct ibv_send_wr *bad;

	/* If it fails, the connection has, and that is noticed elsewhere. */
	(void)ibv_post_send(client->id->qp, &wr, &bad);
}

/* Sleep until there may be a completion; @ms at most. 0, -ETIMEDOUT, or how the connection ended.
 */
static int await_more(struct client *client, int ms)
{
	struct pollfd fds[] = {
		{0},
		{.fd = client->endpoint.channel->fd, .events = POLLIN},
		{.fd = client->events->fd, .events = POLLIN},
	};
	int ready = common_wait(fds, 3, ms);

	if (ready < 0)
		return ready;
	if (!ready)
		return -ETIMEDOUT;
	/* What has completed comes first: the server may have gone after all was done. */
	if (fds[1].revents)
		return endpoint_take_event(&client->endpoint);
	/* Nothing good is expected of the connection manager here. */
	return take_event(client, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

/* Polled for, waited for, and polled for again: in this order none is missed. */
int client_await_completion(struct client *client, const char *what, int nudges, struct ibv_wc *wc)
{
	uint64_t deadline = common_now_ms() + (uint64_t)client->options->timeout_ms;
	int pause_ms = 20, error;

	for (;;) {
		int count = endpoint_poll(&client->endpoint, wc), left;

		if (count)
			return count < 0 ? count : judge_completion(wc, what);
		left = common_ms_until(deadline);
		error = await_more(client, nudges && left > pause_ms ? pause_ms : left);
		if (error == -ETIMEDOUT && nudges && left > pause_ms) {
			nudge(client);
			nudges--;
			pause_ms *= 4;
		} else if (error) {
			if (error == -ETIMEDOUT)
				report_error("%s: nothing came in time, errno : (%d)", what, error);
			return error;
		}
	}
}
