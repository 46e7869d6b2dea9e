/* SPDX-License-Identifier: MIT */
/*
 * Receiving: the entries of the peer's ring become frames. An entry's header was copied before it
 * is looked at; its payload is copied once, to where it belongs.
 */
#include <errno.h>
#include <string.h>

#include "../../common/log.h"
#include "../../common/spin.h"
#include "../tuning.h"
#include "conn.h"
#include "fence.h"

#define MAX_AHEAD     ((SHM_ENTRIES_AT_ONCE - 1) * SHM_MESSAGES_TO_LEAD)
#define PUBLISH_CELLS (RING_CELLS / SHM_PUBLISH_SHARE)

_Static_assert(MAX_AHEAD <= UINT8_MAX && SHM_MISSES_TO_LOOK_ONCE <= UINT8_MAX,
	       "the counters of struct shm_rx hold them");

/* The largest entry, the pad before it and the free cell behind it fit what may be unpublished. */
_Static_assert(2 * (RING_MAX_PAYLOAD + RING_HEADER) / RING_CELL + PUBLISH_CELLS <= RING_CELLS,
	       "a writer never waits for a reader that has read all");

/* What comes of a step. */
enum step { WENT_ON, FOUND_NOTHING, ENDED };

static enum step step_of(enum rc_outcome outcome)
{
	switch (outcome) {
	case RC_GO_ON:
		return WENT_ON;
	case RC_BLOCKED:
		return FOUND_NOTHING;
	default:
		return ENDED;
	}
}

static enum step fail(struct shm_conn *conn, uint16_t code)
{
	rc_fail(&conn->rc, code, true, NULL, IBV_WC_WR_FLUSH_ERR);
	return ENDED;
}

/* ---- Sends whose data is fetched ---- */

/* Where the peer has it; copied before it is checked. */
int shm_fetch(struct rc_conn *rc, const struct rc_frame *frame, const uint8_t *payload)
{
	struct shm_ref *ref = &to_shm(rc)->rx.ref;

	if (frame->len % sizeof(*ref->sge) || frame->len > sizeof(ref->sge))
		return -EPROTO;
	ref->frame = *frame;
	ref->num_sge = frame->len / (unsigned)sizeof(*ref->sge);
	memcpy(ref->sge, payload, frame->len);
	ref->done = 0;
	return frame->arg && rc_sge_length(ref->sge, ref->num_sge) == frame->arg ? 0 : -EPROTO;
}

static enum step go_on_fetching(struct shm_conn *conn)
{
	struct shm_ref *ref = &conn->rx.ref;
	ssize_t bytes = copy_ref(conn);

	if (bytes == -ESRCH) {
		rc_end(&conn->rc, ECONNRESET);
		return ENDED;
	}
	if (bytes < 0) {
		log_warn("%s: cannot fetch a message: %s", conn->rc.name, strerror((int)-bytes));
		return fail(conn, TERM_RDMAP_LOCAL);
	}
	ref->done += (uint32_t)bytes;
	if (ref->done < ref->frame.arg)
		return WENT_ON;
	return step_of(rc_end_frame(&conn->rc, &ref->frame));
}

/* It is fetched in further steps, or kept as it is until there is a receive. */
static enum rc_outcome take_fetched(struct shm_conn *conn, const struct rc_frame *frame,
				    const uint8_t *payload)
{
	struct rc_conn *rc = &conn->rc;
	enum rc_outcome outcome;

	if (!conn->link->may_copy || frame->arg > UINT32_MAX ||
	    frame->len > RC_MAX_SGE * sizeof(struct ibv_sge))
		goto wrong;
	outcome = rc_begin_frame(rc, frame);
	if (outcome != RC_GO_ON)
		return outcome;
	if (rc->rx.sink == RC_SINK_HELD) {
		memcpy(rc_last_held(rc)->payload, payload, frame->len);
		return rc_end_frame(rc, frame);
	}
	if (!shm_fetch(rc, frame, payload))
		return RC_GO_ON;
wrong:
	fail(conn, TERM_RDMAP_STREAM);
	return RC_ENDED;
}

/* ---- entries ---- */

/* A short Send that is all there is, into its receive at once. */
static bool take_whole(struct shm_conn *conn, const struct rc_frame *frame, const uint8_t *payload)
{
	struct rc_rx *rx = &conn->rc.rx;

	if ((frame->flags | RC_SOLICITED) != (RC_LAST | RC_SOLICITED) || rx->recv ||
	    !list_is_empty(&rx->held) ||
	    !rc_recv_whole(conn_qp(&conn->rc), payload, frame->len, frame->flags & RC_SOLICITED))
		return false;
	rx->ack_due = true;
	return true;
}

static bool has_payload(const struct rc_frame *frame)
{
	return frame->kind == RC_SEND || frame->kind == RC_WRITE || frame->kind == RC_READ_DATA;
}

/* Bytes of what does not fit the header. */
static uint32_t header_payload(const struct rc_frame *frame)
{
	return frame->kind == RC_ATOMIC ? sizeof(frame->swap) : 0;
}

static enum rc_outcome take_other(struct shm_conn *conn, struct rc_frame *frame,
				  const uint8_t *payload)
{
	conn->rx.served |=
		frame->kind == RC_WRITE || frame->kind == RC_READ || frame->kind == RC_ATOMIC;
	if (frame->kind == RC_SEND_FETCH)
		return take_fetched(conn, frame, payload);
	if (!has_payload(frame) && frame->len != header_payload(frame)) {
		fail(conn, TERM_RDMAP_STREAM);
		return RC_ENDED;
	}
	if (frame->kind == RC_ATOMIC) {
		memcpy(&frame->swap, payload, sizeof(frame->swap));
		frame->len = 0;
	}
	return rc_take_frame(&conn->rc, frame, payload);
}

static enum step step_ring(struct shm_conn *conn)
{
	struct shm_rx *rx = &conn->rx;
	enum rc_outcome outcome;
	struct rc_frame frame;
	const uint8_t *payload;
	int got;

	if (conn->rc.rx.blocked)
		return FOUND_NOTHING;
	got = ring_peek(&rx->ring, &frame, &payload);
	if (got < 0)
		return fail(conn, TERM_RDMAP_OPCODE);
	if (!got)
		return FOUND_NOTHING;
	after_peek();
	if (rc_is_news(&conn->rc, rx->ring.placed) && rc_settle(&conn->rc, rx->ring.placed))
		return fail(conn, TERM_RDMAP_STREAM);
	if (frame.kind == RC_SEND && take_whole(conn, &frame, payload))
		outcome = RC_GO_ON;
	else
		outcome = take_other(conn, &frame, payload);
	if (outcome == RC_GO_ON) {
		ring_pop(&rx->ring);
		conn->rc.rx.position = atomic_load_explicit(&rx->ring.head, memory_order_relaxed);
	}
	return step_of(outcome);
}

static bool has_deliverable(const struct rc_rx *rx)
{
	return !list_is_empty(&rx->held) && !rx->starved;
}

static enum step step(struct shm_conn *conn)
{
	if (conn->rc.rx.fetching)
		return go_on_fetching(conn);
	if (has_deliverable(&conn->rc.rx)) {
		rc_deliver_held(&conn->rc);
		return conn_is_attached(&conn->rc) ? WENT_ON : ENDED;
	}
	return step_ring(conn);
}

/* How many entries were dealt with. */
static unsigned run(struct shm_conn *conn, unsigned most)
{
	unsigned count;

	for (count = 0; count < most; count++) {
		enum step result = step(conn);

		if (result == ENDED)
			return count + 1;
		if (result == FOUND_NOTHING)
			break;
	}
	/* A sender that waits for its buffer hears of it while the reply is being made. */
	if (conn->rc.rx.ack_due)
		bell_publish(conn);
	bell_publish_room(conn, conn->rx.served ? 1 : PUBLISH_CELLS);
	conn->rx.served = false;
	return count;
}

bool shm_rx_run(struct shm_conn *conn)
{
	return conn->rc.tx.open && run(conn, SHM_ENTRIES_AT_ONCE);
}

/* Whether something came without having to be waited for. @awaits: acknowledgements count too. */
static bool is_there(struct shm_conn *conn, unsigned looks, bool awaits)
{
	for (unsigned i = 0; i < looks; i++) {
		if (i && looks == RC_LOOKS)
			spin_pause(); /* else others wait for their turn */
		if (!ring_is_empty(&conn->rx.ring)) {
			ring_fetch(&conn->rx.ring);
			return !i;
		}
		if (shm_rx_is_unfinished(conn))
			return !i;
		/* Every look takes the line away from the peer, and mostly a message comes first.
		 */
		if (awaits && i % SHM_LOOKS_PER_ACK == SHM_LOOKS_PER_ACK - 1 && shm_has_acks(conn))
			return false;
	}
	return false;
}

/* A peer that is ahead: how far was seen by what was found of the @most that were looked for. */
static void note_lead(struct shm_rx *rx, unsigned found, unsigned most)
{
	unsigned ahead = found == most ? rx->ahead + found : (found - 1) * SHM_MESSAGES_TO_LEAD;

	rx->ahead = (uint8_t)(ahead < MAX_AHEAD ? ahead : MAX_AHEAD);
}

/* Whether there was any. */
static bool take_acks(struct shm_conn *conn)
{
	uint32_t before = conn->rc.tx.settled;

	shm_look_for_acks(&conn->rc);
	return !conn_is_attached(&conn->rc) || conn->rc.tx.settled != before;
}

bool shm_rx_poll(struct shm_conn *conn, unsigned looks)
{
	struct shm_rx *rx = &conn->rx;
	bool awaits = rc_awaits_acks(&conn->rc);
	unsigned most, found;

	if (!conn->rc.tx.open)
		return false;
	/*
	 * Another look from here is quicker than the poller's next poll. But a connection that has
	 * been silent for a while may be one of many that the poller looks at, and one that waits
	 * to send goes on with that first.
	 */
	if (rx->misses == SHM_MISSES_TO_LOOK_ONCE || rc_is_pending(&conn->rc))
		looks = 1;
	if (!is_there(conn, looks, awaits))
		rx->ahead = 0;
	most = 1 + rx->ahead / SHM_MESSAGES_TO_LEAD;
	found = run(conn, most);
	if (!found) {
		rx->misses += rx->misses < SHM_MISSES_TO_LOOK_ONCE;
		return awaits && take_acks(conn);
	}
	rx->misses = 0;
	note_lead(rx, found, most);
	return true;
}

bool shm_rx_is_unfinished(const struct shm_conn *conn)
{
	return conn->rc.rx.fetching || has_deliverable(&conn->rc.rx);
}

bool shm_rx_is_waiting(const struct shm_conn *conn)
{
	return conn->rc.tx.open && !conn->rc.rx.blocked && !ring_is_empty(&conn->rx.ring);
}
