/* SPDX-License-Identifier: MIT */
/* Messages without a receive. */
#include "held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/log.h"

#define HELD_MAX_BYTES (256 << 10)
#define HELD_OVERHEAD  256 /* counted per message, so that empty ones are bounded too */

static struct held *last(struct tcp_conn *conn)
{
	return container_of(conn->rx.held.prev, struct held, link);
}

int held_begin(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	struct held *held;

	if (rx->held_bytes + HELD_OVERHEAD > HELD_MAX_BYTES)
		return -EAGAIN;
	held = calloc(1, sizeof(*held));
	if (!held)
		return -ENOMEM;
	if (list_is_empty(&rx->held)) {
		log_debug("%s: a message waits for a receive", conn->name);
		rx->held_since = progress_now();
		if (!rx->timed)
			progress_timer_arm(&conn->recv_timer, rc_recv_timeout());
		rx->timed = true;
	}
	rx->held_bytes += HELD_OVERHEAD;
	list_add_tail(&rx->held, &held->link);
	return 0;
}

int held_make_room(struct tcp_conn *conn, uint32_t len)
{
	struct held *held = last(conn);
	uint8_t *data;

	if (len <= held->room - held->len)
		return 0;
	if (conn->rx.held_bytes + len > HELD_MAX_BYTES)
		return -EAGAIN;
	data = realloc(held->data, (size_t)held->len + len);
	if (!data)
		return -ENOMEM;
	conn->rx.held_bytes += held->len + len - held->room;
	held->data = data;
	held->room = held->len + len;
	return 0;
}

uint8_t *held_end(struct tcp_conn *conn)
{
	struct held *held = last(conn);

	return held->data + held->len;
}

void held_placed(struct tcp_conn *conn, uint32_t len)
{
	last(conn)->len += len;
}

void held_complete(struct tcp_conn *conn, const struct rc_arrival *arrival)
{
	struct held *held = last(conn);

	held->arrival = *arrival;
	held->complete = true;
}

static void drop(struct tcp_conn *conn, struct held *held)
{
	conn->rx.held_bytes -= held->room + HELD_OVERHEAD;
	list_del(&held->link);
	free(held->data);
	free(held);
}

/*
 * What has come so far goes into @recv. False: with the segment at hand it does not fit, and the
 * connection has ended.
 */
static bool fill(struct tcp_conn *conn, struct held *held, struct rc_recv *recv)
{
	struct rc_arrival bad = {.opcode = IBV_WC_RECV};

	if (recv->status == IBV_WC_SUCCESS && held->room <= recv->length) {
		rc_sge_scatter(recv->sge, recv->num_sge, 0, held->data, held->len);
		return true;
	}
	bad.status = recv->status != IBV_WC_SUCCESS ? recv->status : IBV_WC_LOC_LEN_ERR;
	rc_recv_done(conn_qp(conn), recv, &bad);
	conn_fail(conn, bad.status == IBV_WC_LOC_LEN_ERR ? TERM_DDP_TOO_LONG : TERM_DDP_NO_BUFFER,
		  false, NULL, IBV_WC_WR_FLUSH_ERR);
	return false;
}

bool held_deliver(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;

	while (!list_is_empty(&rx->held)) {
		struct held *held = list_first(&rx->held, struct held, link);
		struct rc_recv *recv = rc_recv_begin(conn_qp(conn));

		if (!recv) {
			conn->rx.held_since = progress_now();
			return false;
		}
		if (!fill(conn, held, recv))
			return false;
		if (held->complete) {
			rc_recv_done(conn_qp(conn), recv, &held->arrival);
		} else {
			/* recv_done counts whole segments; the one at hand goes on where it is. */
			rx->recv = recv;
			if (rx->sink == SINK_HELD)
				rx->sink = SINK_RECV;
		}
		drop(conn, held);
	}
	return true;
}

bool held_too_long(struct tcp_conn *conn)
{
	struct rx *rx = &conn->rx;
	uint64_t limit = (uint64_t)rc_recv_timeout() * 1000000u, waited;

	rx->timed = false;
	if (list_is_empty(&rx->held))
		return false;
	waited = progress_now() - rx->held_since;
	if (waited >= limit)
		return true;
	rx->timed = true;
	progress_timer_arm(&conn->recv_timer, (unsigned)((limit - waited) / 1000000u + 1));
	return false;
}

void held_drop_all(struct tcp_conn *conn)
{
	while (!list_is_empty(&conn->rx.held))
		drop(conn, list_first(&conn->rx.held, struct held, link));
}
