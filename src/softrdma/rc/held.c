/* SPDX-License-Identifier: MIT */
/*
 * Waits for a receive, and for the rest of a message. A bounded amount of frames is kept for a
 * bounded time, and a message that has begun must go on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/log.h"
#include "conn.h"

#define HELD_MAX_BYTES (256 << 10)
/* In this share of the time that a message may wait for a receive, one that has begun must grow. */
#define STALL_SHARE    2
#define STALL_BYTES    4096u

int rc_hold(struct rc_conn *conn, const struct rc_frame *frame)
{
	struct rc_rx *rx = &conn->rx;
	size_t size = sizeof(struct rc_held) + frame->len;
	struct rc_held *held;

	if (rx->held_bytes + size > HELD_MAX_BYTES)
		return -EAGAIN;
	held = malloc(size);
	if (!held)
		return -ENOMEM;
	held->frame = *frame;
	held->position = rx->position;
	held->complete = false;
	list_add_tail(&rx->held, &held->link);
	rx->held_bytes += size;
	return 0;
}

void rc_drop_held(struct rc_conn *conn, struct rc_held *held)
{
	conn->rx.held_bytes -= sizeof(*held) + held->frame.len;
	list_del(&held->link);
	free(held);
}

/* ---- deadlines ---- */

static void arm(struct rc_conn *conn, uint64_t ns)
{
	conn->rx.timed = true;
	progress_timer_arm(&conn->recv_timer, (unsigned)(ns / 1000000u + 1));
}

static uint64_t recv_limit(void)
{
	return (uint64_t)rc_recv_timeout() * 1000000u;
}

void rc_starve(struct rc_conn *conn)
{
	struct rc_rx *rx = &conn->rx;

	rx->starved = true;
	rx->starved_since = progress_now();
	if (rx->timed)
		return;
	log_debug("%s: a message waits for a receive", conn->name);
	arm(conn, recv_limit());
}

static bool is_message_open(const struct rc_rx *rx)
{
	return rx->recv != NULL;
}

static void watch_message(struct rc_conn *conn)
{
	conn->rx.seen_taken = conn->rx.taken;
	conn->rx.seen_done = conn->rx.recv_done;
	arm(conn, recv_limit() / STALL_SHARE);
}

void rc_watch_message(struct rc_conn *conn)
{
	if (!conn->rx.timed && is_message_open(&conn->rx))
		watch_message(conn);
}

/*
 * The peer holds a receive with the message that it has begun, and others may want that receive. So
 * the message has to grow from one look to the next.
 */
static bool has_stalled(const struct rc_rx *rx)
{
	return is_message_open(rx) && rx->seen_taken == rx->taken &&
	       rx->recv_done - rx->seen_done < STALL_BYTES;
}

static void check_deadlines(struct rc_conn *conn)
{
	struct rc_rx *rx = &conn->rx;
	uint64_t limit = recv_limit(), waited = 0;

	rx->timed = false;
	if (has_stalled(rx)) {
		log_warn("%s: a message has begun and does not go on", conn->name);
		rc_fail(conn, TERM_DDP_NO_BUFFER, false, NULL, IBV_WC_WR_FLUSH_ERR);
		return;
	}
	if (rx->starved)
		waited = progress_now() - rx->starved_since;
	if (waited >= limit) {
		log_warn("%s: a message found no receive for %u ms", conn->name, rc_recv_timeout());
		rc_fail(conn, TERM_DDP_NO_BUFFER, false, NULL, IBV_WC_WR_FLUSH_ERR);
		return;
	}
	if (is_message_open(rx))
		watch_message(conn);
	else if (rx->starved)
		arm(conn, limit - waited);
}

void rc_recv_expired(struct progress_timer *timer)
{
	rc_on_timer(container_of(timer, struct rc_conn, recv_timer), check_deadlines);
}
