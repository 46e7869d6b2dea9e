/* SPDX-License-Identifier: MIT */
/* Sending: frames become entries of the ring, or copies. */
#include <errno.h>
#include <string.h>

#include "../tuning.h"
#include "conn.h"
#include "fence.h"

bool shm_tx_is_unfinished(const struct shm_conn *conn)
{
	const struct shm_tx *tx = &conn->tx;

	return tx->more || (tx->waits && ring_has_moved(&tx->ring));
}

void shm_look_for_acks(struct rc_conn *rc)
{
	struct shm_conn *conn = to_shm(rc);
	uint32_t placed = atomic_load_explicit(&conn->peer->placed, memory_order_acquire);

	/* A header may have told of more. */
	if (!rc_is_news(rc, placed))
		return;
	if (rc_settle(rc, placed))
		rc_fail(rc, TERM_RDMAP_STREAM, false, NULL, IBV_WC_WR_FLUSH_ERR);
}

/* ---- entries ---- */

/* The peer rings when it has made room, if it sees the wish or we see the room. */
static void ask_for_room(struct shm_conn *conn)
{
	conn->tx.waits = true;
	atomic_store(&conn->own->wants_room, 1);
	full_fence();
}

static void stop_waiting(struct shm_conn *conn)
{
	if (!conn->tx.waits)
		return;
	conn->tx.waits = false;
	atomic_store(&conn->own->wants_room, 0);
}

/* What was placed is told with what is sent. An entry without a header cannot. */
static void note_put(struct shm_conn *conn)
{
	stop_waiting(conn);
	conn->tx.wrote = true;
	conn->rc.tx.position = conn->tx.ring.tail;
	if (conn->rc.rx.ack_due && conn->tx.ring.told != conn->tx.ring.placed)
		bell_publish(conn);
	conn->rc.rx.ack_due = false;
}

static int put_short(struct shm_conn *conn, uint8_t flags, const struct ibv_sge *sge,
		     unsigned num_sge, uint64_t offset, uint32_t len)
{
	uint8_t bytes[RING_SHORT];

	conn->tx.ring.placed = rc_placed(&conn->rc);
	before_put();
	if (num_sge == 1)
		return ring_put_short(&conn->tx.ring, flags,
				      (const uint8_t *)(uintptr_t)sge->addr + offset, len);
	rc_sge_gather(sge, num_sge, offset, bytes, len);
	return ring_put_short(&conn->tx.ring, flags, bytes, len);
}

/* Any other entry. */
static int put_long(struct shm_conn *conn, const struct rc_frame *entry, const struct ibv_sge *sge,
		    unsigned num_sge, uint64_t offset)
{
	uint8_t *payload;
	int error = ring_reserve(&conn->tx.ring, entry, &payload);

	if (error)
		return error;
	if (entry->len > RING_FIRST)
		rc_sge_gather(sge, num_sge, offset + RING_FIRST, payload + RING_FIRST,
			      entry->len - RING_FIRST);
	rc_sge_gather(sge, num_sge, offset, payload,
		      entry->len < RING_FIRST ? entry->len : RING_FIRST);
	conn->tx.ring.placed = rc_placed(&conn->rc);
	before_put();
	ring_commit(&conn->tx.ring, entry);
	return 0;
}

static int try_put(struct shm_conn *conn, const struct rc_frame *entry, const struct ibv_sge *sge,
		   unsigned num_sge, uint64_t offset)
{
	return ring_is_short(entry->kind, entry->flags, entry->len)
		       ? put_short(conn, entry->flags, sge, num_sge, offset, entry->len)
		       : put_long(conn, entry, sge, num_sge, offset);
}

static int put_entry(struct shm_conn *conn, const struct rc_frame *entry, const struct ibv_sge *sge,
		     unsigned num_sge, uint64_t offset)
{
	int error = try_put(conn, entry, sge, num_sge, offset);

	if (error == -EAGAIN) {
		ask_for_room(conn);
		error = try_put(conn, entry, sge, num_sge, offset);
	}
	if (!error)
		note_put(conn);
	return error;
}

/* ---- frames ---- */

/*
 * A peer that is awake takes out of the ring while more is put in: with both at it two copies are
 * faster than one. One that sleeps would have to be woken for every ring that is full.
 */
static bool is_fetched(const struct shm_conn *conn, uint64_t offset, uint32_t left)
{
	return left >= SHM_FETCH_MIN && !offset &&
	       atomic_load_explicit(&conn->peer->asleep, memory_order_relaxed) &&
	       atomic_load_explicit(&conn->peer->may_copy, memory_order_relaxed);
}

/* The peer fetches all of it. Until it has been placed the memory is the transport's. */
static ssize_t put_fetched(struct shm_conn *conn, struct rc_frame *frame, const struct ibv_sge *sge,
			   unsigned num_sge, uint32_t length)
{
	struct ibv_sge pieces[RC_MAX_SGE] = {0};
	const struct ibv_sge list = {.addr = (uintptr_t)pieces,
				     .length = (uint32_t)(num_sge * sizeof(*pieces))};
	int error;

	for (unsigned i = 0; i < num_sge; i++) {
		pieces[i].addr = sge[i].addr;
		pieces[i].length = sge[i].length;
	}
	frame->kind = RC_SEND_FETCH;
	frame->flags |= RC_LAST;
	frame->len = list.length;
	frame->arg = length;
	error = put_entry(conn, frame, &list, 1, 0);
	return error ? error : (ssize_t)length;
}

static ssize_t put_data(struct shm_conn *conn, struct rc_frame *frame, const struct ibv_sge *sge,
			unsigned num_sge, uint64_t offset, uint32_t left)
{
	int error;

	frame->len = left < RING_MAX_PAYLOAD ? left : RING_MAX_PAYLOAD;
	if (frame->len == left)
		frame->flags |= RC_LAST;
	error = put_entry(conn, frame, sge, num_sge, offset);
	return error ? error : (ssize_t)frame->len;
}

static ssize_t put_atomic(struct shm_conn *conn, struct rc_frame *frame)
{
	const struct ibv_sge payload = {.addr = (uintptr_t)&frame->swap,
					.length = sizeof(frame->swap)};

	frame->len = payload.length;
	return put_entry(conn, frame, &payload, 1, 0);
}

static bool is_one_sided(const struct rc_frame *frame)
{
	return frame->kind == RC_WRITE || frame->kind == RC_READ || frame->kind == RC_ATOMIC;
}

ssize_t shm_put(struct rc_conn *rc, struct rc_frame *frame, const struct ibv_sge *sge,
		unsigned num_sge, uint64_t offset, uint32_t left)
{
	struct shm_conn *conn = to_shm(rc);
	ssize_t taken;

	if (frame->kind == RC_SEND && is_fetched(conn, offset, left))
		return put_fetched(conn, frame, sge, num_sge, left);
	taken = frame->kind == RC_ATOMIC ? put_atomic(conn, frame)
					 : put_data(conn, frame, sge, num_sge, offset, left);
	if (taken >= 0 && is_one_sided(frame))
		conn->tx.asked = conn->tx.ring.tail;
	return taken;
}

/* A Send that is not short, in one piece. */
static int put_whole(struct shm_conn *conn, uint8_t flags, const struct ibv_sge *sge,
		     unsigned num_sge, uint32_t length)
{
	const struct rc_frame entry = {.kind = RC_SEND, .flags = flags, .len = length};

	return length <= RING_MAX_PAYLOAD ? put_long(conn, &entry, sge, num_sge, 0) : -EAGAIN;
}

/* Where nobody may come back for what the ring has, somebody must. */
static void see_to_the_ring(struct shm_conn *conn)
{
	if (!progress_is_poller_owned(&conn->rc.source) && shm_rx_is_waiting(conn))
		progress_again(&conn->rc.source);
}

bool shm_put_now(struct rc_conn *rc, const struct ibv_sge *sge, unsigned num_sge, uint32_t length,
		 bool solicited)
{
	struct shm_conn *conn = to_shm(rc);
	uint8_t flags = RC_LAST | (solicited ? RC_SOLICITED : 0);

	if (length <= RING_SHORT ? put_short(conn, flags, sge, num_sge, 0, length)
				 : put_whole(conn, flags, sge, num_sge, length))
		return false;
	note_put(conn);
	see_to_the_ring(conn);
	return true;
}

/*
 * One-sided requests keep their order: one that goes through the ring has to be through before one
 * may go past it.
 */
ssize_t shm_copy(struct rc_conn *rc, const struct rc_send *send, uint32_t offset)
{
	struct shm_conn *conn = to_shm(rc);
	ssize_t bytes;

	if (!ring_is_past(&conn->tx.ring, conn->tx.asked))
		return -EAGAIN;
	bytes = copy_onesided(conn, send, offset);
	if (bytes > 0) {
		conn->tx.budget -= (int)((size_t)bytes / SHM_STEP_BYTES);
		stop_waiting(conn); /* for room: it needs none any more */
	}
	return bytes;
}

bool shm_tx_run(struct shm_conn *conn)
{
	struct shm_tx *tx = &conn->tx;
	bool any = false;

	tx->more = false;
	if (!conn->rc.tx.open)
		return false;
	for (tx->budget = SHM_STEPS_AT_ONCE; tx->budget > 0; tx->budget--) {
		if (!rc_fill(&conn->rc, 1))
			goto out;
		any = true;
		if (!conn_is_attached(&conn->rc))
			return true;
	}
	tx->more = true;
out:
	see_to_the_ring(conn);
	return any;
}
