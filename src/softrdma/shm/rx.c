/* SPDX-License-Identifier: MIT */
/*
 * Receiving: what the entries of the peer's ring mean. An entry's header was copied before it is
 * looked at; its payload is copied once, to where it belongs.
 */
#include <errno.h>
#include <string.h>

#include "../../common/log.h"
#include "../../common/spin.h"
#include "../fault.h"
#include "conn.h"
#include "fence.h"

#define ENTRIES_AT_ONCE 16 /* then others have their turn */
#define PATIENCE        64 /* polls in vain, then there are no further looks in each */
#define AHEAD           8 /* messages in a row that need not be waited for: there may be a second */
#define MAX_AHEAD       ((ENTRIES_AT_ONCE - 1) * AHEAD)
#define PUBLISH_CELLS   (RING_CELLS / 4)

/* The largest entry, the pad before it and the free cell behind it fit what may be unpublished. */
_Static_assert(2 * (RING_MAX_PAYLOAD + RING_HEADER) / RING_CELL + PUBLISH_CELLS <= RING_CELLS,
	       "a writer never waits for a reader that has read all");

/* What comes of an entry. */
enum outcome {
	GO_ON,
	STARVED, /* it needs a receive, and there is none: it was not touched */
	NOTHING, /* there is no entry, or none that can be dealt with now */
	ENDED,
};

void shm_rx_init(struct shm_conn *conn)
{
	list_init(&conn->rx.stash);
}

void shm_rx_fini(struct shm_conn *conn)
{
	while (!list_is_empty(&conn->rx.stash))
		stash_drop(conn, list_first(&conn->rx.stash, struct stashed, link));
}

static enum outcome fail(struct shm_conn *conn, uint16_t code)
{
	shm_fail(conn, code, NULL, IBV_WC_WR_FLUSH_ERR);
	return ENDED;
}

/* ---- messages that take a receive ---- */

/* The receive in progress is to blame: it completes with its own status. */
static enum outcome fail_recv(struct shm_conn *conn, enum ibv_wc_status status, uint16_t code)
{
	const struct rc_arrival arrival = {.status = status, .opcode = IBV_WC_RECV};
	struct rc_recv *recv = conn->rx.recv;

	conn->rx.recv = NULL;
	rc_recv_done(conn_qp(conn), recv, &arrival);
	return fail(conn, code);
}

/* The receive for the message at hand, with room for @len more bytes. */
static enum outcome begin_recv(struct shm_conn *conn, uint32_t len)
{
	struct rx *rx = &conn->rx;

	if (!rx->recv) {
		rx->recv = rc_recv_begin(conn_qp(conn));
		rx->recv_done = 0;
	}
	if (!rx->recv)
		return STARVED;
	if (rx->recv->status != IBV_WC_SUCCESS)
		return fail_recv(conn, rx->recv->status, TERM_DDP_NO_BUFFER);
	if ((uint64_t)rx->recv_done + len > rx->recv->length)
		return fail_recv(conn, IBV_WC_LOC_LEN_ERR, TERM_DDP_TOO_LONG);
	return GO_ON;
}

static void end_recv(struct shm_conn *conn, const struct rc_arrival *arrival)
{
	struct rc_recv *recv = conn->rx.recv;

	conn->rx.recv = NULL;
	rc_recv_done(conn_qp(conn), recv, arrival);
}

static struct rc_arrival describe(const struct ring_entry *entry, uint32_t length)
{
	struct rc_arrival arrival = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.length = length,
		.solicited = entry->flags & RING_SOLICITED,
	};

	if (entry->flags & RING_IMMEDIATE) {
		arrival.wc_flags = IBV_WC_WITH_IMM;
		arrival.imm_or_key = entry->imm;
	} else if (entry->flags & RING_INVALIDATE) {
		arrival.wc_flags = IBV_WC_WITH_INV;
		arrival.imm_or_key = entry->key;
	}
	return arrival;
}

/* The message is whole. */
static enum outcome deliver(struct shm_conn *conn, const struct rc_arrival *arrival)
{
	if (arrival->wc_flags & IBV_WC_WITH_INV &&
	    rc_region_invalidate(conn_qp(conn), arrival->imm_or_key))
		return fail(conn, TERM_RDMAP_NO_INVALIDATE);
	end_recv(conn, arrival);
	return GO_ON;
}

static enum outcome take_send(struct shm_conn *conn, const struct ring_entry *entry,
			      const uint8_t *payload)
{
	struct rx *rx = &conn->rx;
	struct rc_arrival arrival;
	enum outcome outcome;

	if (!rx->recv && (entry->flags | RING_SOLICITED) == (RING_LAST | RING_SOLICITED) &&
	    rc_recv_whole(conn_qp(conn), payload, entry->len, entry->flags & RING_SOLICITED))
		return GO_ON;
	outcome = begin_recv(conn, entry->len);
	if (outcome != GO_ON)
		return outcome;
	rc_sge_scatter(rx->recv->sge, rx->recv->num_sge, rx->recv_done, payload, entry->len);
	rx->recv_done += entry->len;
	if (!(entry->flags & RING_LAST))
		return GO_ON;
	arrival = describe(entry, rx->recv_done);
	return deliver(conn, &arrival);
}

/* Where the peer has it; copied before it is checked. */
static bool parse_ref(const struct ring_entry *entry, const uint8_t *payload, struct ref *ref)
{
	if (entry->len % sizeof(*ref->sge) || entry->len > sizeof(ref->sge) ||
	    entry->arg > UINT32_MAX || !entry->arg)
		return false;
	ref->num_sge = entry->len / (unsigned)sizeof(*ref->sge);
	memcpy(ref->sge, payload, entry->len);
	ref->length = (uint32_t)entry->arg;
	ref->done = 0;
	return rc_sge_length(ref->sge, ref->num_sge) == entry->arg;
}

static enum outcome go_on_fetching(struct shm_conn *conn)
{
	struct ref *ref = &conn->rx.ref;
	ssize_t bytes = copy_ref(conn);

	if (bytes == -ESRCH) {
		shm_end(conn, ECONNRESET);
		return ENDED;
	}
	if (bytes < 0) {
		log_warn("%s: cannot fetch a message: %s", conn->link->name, strerror((int)-bytes));
		return fail(conn, TERM_RDMAP_LOCAL);
	}
	ref->done += (uint32_t)bytes;
	if (ref->done < ref->length)
		return GO_ON;
	ref->active = false;
	conn->tx.refs_due++;
	return deliver(conn, &ref->arrival);
}

static enum outcome take_ref(struct shm_conn *conn, const struct ring_entry *entry,
			     const uint8_t *payload)
{
	struct rx *rx = &conn->rx;
	enum outcome outcome;

	if (rx->recv || !conn->link->may_copy || !parse_ref(entry, payload, &rx->ref))
		return fail(conn, TERM_RDMAP_STREAM);
	outcome = begin_recv(conn, rx->ref.length);
	if (outcome != GO_ON)
		return outcome;
	rx->ref.arrival = describe(entry, rx->ref.length);
	rx->ref.active = true;
	return GO_ON;
}

static enum outcome take_write_imm(struct shm_conn *conn, const struct ring_entry *entry)
{
	const struct rc_arrival arrival = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.length = (uint32_t)entry->arg,
		.wc_flags = IBV_WC_WITH_IMM,
		.imm_or_key = entry->imm,
		.solicited = entry->flags & RING_SOLICITED,
	};

	if (conn->rx.recv || entry->len)
		return fail(conn, TERM_RDMAP_STREAM);
	conn->rx.recv = rc_recv_begin(conn_qp(conn));
	if (!conn->rx.recv)
		return STARVED;
	end_recv(conn, &arrival);
	return GO_ON;
}

static bool takes_receive(const struct ring_entry *entry)
{
	return entry->kind == RING_SEND || entry->kind == RING_SEND_REF ||
	       entry->kind == RING_WRITE_IMM;
}

/* ---- one-sided requests ---- */

static enum outcome take_write(struct shm_conn *conn, const struct ring_entry *entry,
			       const uint8_t *payload)
{
	struct rc_region *region;
	enum rc_fault fault;
	void *mem;

	region = rc_region_get(conn_qp(conn), entry->key, entry->addr, entry->len,
			       IBV_ACCESS_REMOTE_WRITE, &mem, &fault);
	if (!region)
		return fail(conn, write_fault(fault));
	memcpy(mem, payload, entry->len);
	rc_region_put(region);
	conn->rx.served = true;
	return GO_ON;
}

/* May that memory be reached? Behind others it ends the connection in its turn. */
static bool is_reachable(struct shm_conn *conn, const struct answer *answer, uint16_t *code)
{
	bool atomic = answer->kind == ANSWER_ATOMIC;
	struct rc_region *region;
	enum rc_fault fault;
	void *mem;

	if (shm_answers_wait(&conn->tx) || (!atomic && !answer->len))
		return true;
	region = rc_region_get(conn_qp(conn), answer->key, answer->addr, answer->len,
			       atomic ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_READ, &mem,
			       &fault);
	if (region)
		rc_region_put(region);
	else
		*code = shm_answer_fault(fault);
	return region != NULL;
}

static enum outcome take_request(struct shm_conn *conn, const struct answer *answer)
{
	uint16_t code;

	if (!is_reachable(conn, answer, &code))
		return fail(conn, code);
	conn->rx.served = true;
	switch (shm_answer_add(conn, answer)) {
	case 0:
		return GO_ON;
	case -EPROTO:
		return fail(conn, TERM_RDMAP_STREAM);
	case -EFAULT:
		return fail(conn, TERM_RDMAP_INVALID_STAG);
	default:
		return fail(conn, TERM_RDMAP_LOCAL);
	}
}

static enum outcome take_read(struct shm_conn *conn, const struct ring_entry *entry)
{
	const struct answer answer = {
		.kind = ANSWER_READ,
		.key = entry->key,
		.addr = entry->addr,
		.len = (uint32_t)entry->arg,
	};

	if (entry->arg > UINT32_MAX || entry->len)
		return fail(conn, TERM_RDMAP_STREAM);
	return take_request(conn, &answer);
}

static enum outcome take_atomic(struct shm_conn *conn, const struct ring_entry *entry,
				const uint8_t *payload)
{
	struct answer answer = {
		.kind = ANSWER_ATOMIC,
		.key = entry->key,
		.addr = entry->addr,
		.len = sizeof(answer.swap),
		.arg = entry->arg,
		.swaps = entry->flags & RING_SWAP,
	};

	if (entry->len != sizeof(answer.swap))
		return fail(conn, TERM_RDMAP_STREAM);
	memcpy(&answer.swap, payload, sizeof(answer.swap));
	if (entry->addr % sizeof(answer.swap))
		return fail(conn, TERM_RDMAP_BOUNDS);
	return take_request(conn, &answer);
}

/* ---- answers ---- */

static void end_request(struct shm_conn *conn, struct rc_send *send)
{
	conn->tx.reads_open--;
	rc_send_done(conn_qp(conn), send, IBV_WC_SUCCESS);
}

static enum outcome take_read_data(struct shm_conn *conn, const struct ring_entry *entry,
				   const uint8_t *payload)
{
	struct rc_send *send = shm_tx_oldest_request(conn);
	uint64_t end = (uint64_t)conn->rx.read_done + entry->len;
	bool last = entry->flags & RING_LAST;

	if (!send || send->opcode != IBV_WR_RDMA_READ)
		return fail(conn, TERM_RDMAP_OPCODE); /* nobody asked */
	if (end > send->length || last != (end == send->length))
		return fail(conn, TERM_DDP_BOUNDS);
	rc_sge_scatter(send->sge, send->num_sge, conn->rx.read_done, payload, entry->len);
	conn->rx.read_done = last ? 0 : (uint32_t)end;
	if (last)
		end_request(conn, send);
	return GO_ON;
}

static enum outcome take_result(struct shm_conn *conn, const struct ring_entry *entry)
{
	struct rc_send *send = shm_tx_oldest_request(conn);

	if (!send || !rc_is_atomic(send->opcode))
		return fail(conn, TERM_RDMAP_OPCODE);
	rc_sge_scatter(send->sge, send->num_sge, 0, &entry->arg, sizeof(entry->arg));
	end_request(conn, send);
	return GO_ON;
}

static enum outcome take_other(struct shm_conn *conn, const struct ring_entry *entry,
			       const uint8_t *payload)
{
	switch (entry->kind) {
	case RING_SEND_REF:
		return take_ref(conn, entry, payload);
	case RING_REF_DONE:
		return shm_tx_ref_done(conn) ? fail(conn, TERM_RDMAP_STREAM) : GO_ON;
	case RING_WRITE:
		return take_write(conn, entry, payload);
	case RING_WRITE_IMM:
		return take_write_imm(conn, entry);
	case RING_READ:
		return take_read(conn, entry);
	case RING_READ_DATA:
		return take_read_data(conn, entry, payload);
	case RING_ATOMIC:
		return take_atomic(conn, entry, payload);
	case RING_RESULT:
		return take_result(conn, entry);
	default:
		return fail(conn, TERM_RDMAP_OPCODE);
	}
}

/* Mostly it is a Send. */
static enum outcome take(struct shm_conn *conn, const struct ring_entry *entry,
			 const uint8_t *payload)
{
	return entry->kind == RING_SEND ? take_send(conn, entry, payload)
					: take_other(conn, entry, payload);
}

/* ---- in order ---- */

/* Messages keep their order: behind one that waits, all wait. */
static enum outcome put_aside(struct shm_conn *conn, const struct ring_entry *entry,
			      const uint8_t *payload)
{
	switch (stash_add(conn, entry, payload)) {
	case 0:
		return GO_ON;
	case -EAGAIN:
		conn->rx.blocked = true;
		return NOTHING;
	default: /* nothing would tell when there is memory again */
		return fail(conn, TERM_DDP_NO_BUFFER);
	}
}

static enum outcome step_ring(struct shm_conn *conn)
{
	struct rx *rx = &conn->rx;
	enum outcome outcome = STARVED;
	struct ring_entry entry;
	const uint8_t *payload;
	int got;

	if (rx->blocked)
		return NOTHING;
	got = ring_peek(&rx->ring, &entry, &payload);
	if (got < 0)
		return fail(conn, TERM_RDMAP_OPCODE);
	if (!got)
		return NOTHING;
	after_peek();
	if (list_is_empty(&rx->stash) || !takes_receive(&entry)) {
		outcome = take(conn, &entry, payload);
		if (outcome == STARVED)
			stash_starve(conn);
	}
	if (outcome == STARVED)
		outcome = put_aside(conn, &entry, payload);
	if (outcome == GO_ON)
		ring_pop(&rx->ring);
	return outcome;
}

static enum outcome step_stash(struct shm_conn *conn)
{
	struct stashed *first = list_first(&conn->rx.stash, struct stashed, link);
	enum outcome outcome = take(conn, &first->entry, first->payload);

	if (outcome == STARVED) {
		stash_starve(conn);
		return NOTHING;
	}
	if (outcome == GO_ON)
		stash_drop(conn, first);
	return outcome;
}

static enum outcome step(struct shm_conn *conn)
{
	const struct rx *rx = &conn->rx;

	if (rx->ref.active)
		return go_on_fetching(conn);
	if (!list_is_empty(&rx->stash) && !rx->starved)
		return step_stash(conn);
	return step_ring(conn);
}

/* How many entries were dealt with. */
static unsigned run(struct shm_conn *conn, unsigned most)
{
	unsigned count;

	for (count = 0; count < most; count++) {
		enum outcome outcome = step(conn);

		if (outcome == ENDED)
			return count + 1;
		if (outcome == NOTHING)
			break;
	}
	bell_publish(conn, conn->rx.served ? 1 : PUBLISH_CELLS);
	conn->rx.served = false;
	return count;
}

bool shm_rx_run(struct shm_conn *conn)
{
	return conn->tx.open && run(conn, ENTRIES_AT_ONCE);
}

/* Whether something came without having to be waited for. */
static bool is_there(struct shm_conn *conn, unsigned looks)
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
	}
	return false;
}

/* A peer that is ahead: how far was seen by what was found of the @most that were looked for. */
static void note_lead(struct rx *rx, unsigned found, unsigned most)
{
	unsigned ahead = found == most ? rx->ahead + found : (found - 1) * AHEAD;

	rx->ahead = (uint8_t)(ahead < MAX_AHEAD ? ahead : MAX_AHEAD);
}

bool shm_rx_poll(struct shm_conn *conn, unsigned looks)
{
	struct rx *rx = &conn->rx;
	unsigned most, found;

	if (!conn->tx.open)
		return false;
	/*
	 * Somebody who looks again and again: from here the way to the next look is shorter. But a
	 * connection that has been silent for a while may be one of many that are looked at, and
	 * one that has to send has something better to do.
	 */
	if (rx->vain == PATIENCE || shm_tx_is_pending(conn))
		looks = 1;
	if (!is_there(conn, looks))
		rx->ahead = 0;
	most = 1 + rx->ahead / AHEAD;
	found = run(conn, most);
	if (!found) {
		rx->vain += rx->vain < PATIENCE;
		return false;
	}
	rx->vain = 0;
	note_lead(rx, found, most);
	return true;
}

bool shm_rx_is_unfinished(const struct shm_conn *conn)
{
	const struct rx *rx = &conn->rx;

	return rx->ref.active || (!list_is_empty(&rx->stash) && !rx->starved);
}

bool shm_rx_is_waiting(const struct shm_conn *conn)
{
	return conn->tx.open && !conn->rx.blocked && !ring_is_empty(&conn->rx.ring);
}

bool shm_rx_is_whole(const struct shm_conn *conn)
{
	return !conn->rx.recv && !conn->rx.read_done && !conn->tx.reads_open;
}
