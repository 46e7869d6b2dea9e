/* SPDX-License-Identifier: MIT */
/* Sending: requests become entries of the ring, or copies. */
#include <errno.h>
#include <string.h>

#include "conn.h"
#include "fence.h"

#define STEPS_AT_ONCE 64          /* then others have their turn */
#define STEP_BYTES    (64u << 10) /* of a copy: it counts as so many steps */
#define REF_MIN       (16u << 10) /* Sends from here on may be fetched by the peer */

static struct rc_send *next_send(const struct shm_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	return sq->next == sq->tail ? NULL : rc_send_at(sq, sq->next);
}

bool shm_tx_is_pending(const struct shm_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	return sq->next != sq->tail || conn->tx.refs_due || shm_answers_wait(&conn->tx);
}

bool shm_tx_is_unfinished(const struct shm_conn *conn)
{
	const struct tx *tx = &conn->tx;

	return tx->spent || (atomic_load_explicit(&tx->waits, memory_order_relaxed) &&
			     ring_has_moved(&tx->ring));
}

/* ---- entries ---- */

/* The peer rings when it has made room, if it sees the wish or we see the room. */
static void ask_for_room(struct shm_conn *conn)
{
	atomic_store(&conn->tx.waits, true);
	atomic_store(&conn->own->wants_room, 1);
	full_fence();
}

static void stop_waiting(struct shm_conn *conn)
{
	if (!atomic_load_explicit(&conn->tx.waits, memory_order_relaxed))
		return;
	atomic_store(&conn->tx.waits, false);
	atomic_store(&conn->own->wants_room, 0);
}

static void note_put(struct shm_conn *conn)
{
	stop_waiting(conn);
	conn->tx.wrote = true;
}

static int put_short(struct shm_conn *conn, uint8_t flags, const struct ibv_sge *sge,
		     unsigned num_sge, uint64_t offset, uint32_t len)
{
	uint8_t bytes[RING_SHORT];

	before_put();
	if (num_sge == 1)
		return ring_put_short(&conn->tx.ring, flags,
				      (const uint8_t *)(uintptr_t)sge->addr + offset, len);
	rc_sge_gather(sge, num_sge, offset, bytes, len);
	return ring_put_short(&conn->tx.ring, flags, bytes, len);
}

/* Any other entry. */
static int put_long(struct shm_conn *conn, const struct ring_entry *entry,
		    const struct ibv_sge *sge, unsigned num_sge, uint64_t offset)
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
	before_put();
	ring_commit(&conn->tx.ring, entry);
	return 0;
}

static int put(struct shm_conn *conn, const struct ring_entry *entry, const struct ibv_sge *sge,
	       unsigned num_sge, uint64_t offset)
{
	return ring_is_short(entry->kind, entry->flags, entry->len)
		       ? put_short(conn, entry->flags, sge, num_sge, offset, entry->len)
		       : put_long(conn, entry, sge, num_sge, offset);
}

int shm_tx_put(struct shm_conn *conn, const struct ring_entry *entry, const struct ibv_sge *sge,
	       unsigned num_sge, uint64_t offset)
{
	int error = put(conn, entry, sge, num_sge, offset);

	if (error == -EAGAIN) {
		ask_for_room(conn);
		error = put(conn, entry, sge, num_sge, offset);
	}
	if (!error)
		note_put(conn);
	return error;
}

/* ---- requests ---- */

static enum step outcome(struct shm_conn *conn, int error)
{
	if (!error)
		return STEP_DONE;
	if (error == -EAGAIN)
		return STEP_NONE;
	shm_fail(conn, TERM_RDMAP_STREAM, NULL, IBV_WC_WR_FLUSH_ERR);
	return STEP_ENDED;
}

/* The request at hand has left; the next one may begin. */
static void advance(struct shm_conn *conn, struct rc_send *send)
{
	conn->tx.offset = 0;
	send->state = RC_SEND_BEGUN;
	conn_qp(conn)->sq.next++;
}

static void finish(struct shm_conn *conn, struct rc_send *send)
{
	advance(conn, send);
	rc_send_done(conn_qp(conn), send, IBV_WC_SUCCESS);
}

static uint8_t send_flags(const struct rc_send *send)
{
	uint8_t flags = send->solicited ? RING_SOLICITED : 0;

	if (send->opcode == IBV_WR_SEND_WITH_INV)
		flags |= RING_INVALIDATE;
	if (send->opcode == IBV_WR_SEND_WITH_IMM)
		flags |= RING_IMMEDIATE;
	return flags;
}

static enum step put_send(struct shm_conn *conn, struct rc_send *send)
{
	uint32_t left = send->length - conn->tx.offset;
	uint32_t len = left < RING_MAX_PAYLOAD ? left : RING_MAX_PAYLOAD;
	struct ring_entry entry = {
		.kind = RING_SEND,
		.flags = send_flags(send) | (len == left ? RING_LAST : 0),
		.len = len,
		.key = send->opcode == IBV_WR_SEND_WITH_INV ? send->imm_or_key : 0,
		.imm = send->opcode == IBV_WR_SEND_WITH_IMM ? send->imm_or_key : 0,
	};
	int error = shm_tx_put(conn, &entry, send->sge, send->num_sge, conn->tx.offset);

	if (error)
		return outcome(conn, error);
	send->state = RC_SEND_BEGUN;
	conn->tx.offset += len;
	if (len == left)
		finish(conn, send);
	return STEP_DONE;
}

/* The peer fetches it, and says when it has; until then the memory is the transport's. */
static enum step put_send_ref(struct shm_conn *conn, struct rc_send *send)
{
	struct ibv_sge pieces[RC_MAX_SGE] = {0};
	const struct ibv_sge list = {.addr = (uintptr_t)pieces,
				     .length = (uint32_t)(send->num_sge * sizeof(*pieces))};
	struct ring_entry entry = {
		.kind = RING_SEND_REF,
		.flags = send_flags(send) | RING_LAST,
		.len = list.length,
		.key = send->opcode == IBV_WR_SEND_WITH_INV ? send->imm_or_key : 0,
		.imm = send->opcode == IBV_WR_SEND_WITH_IMM ? send->imm_or_key : 0,
		.arg = send->length,
	};
	int error;

	for (unsigned i = 0; i < send->num_sge; i++) {
		pieces[i].addr = send->sge[i].addr;
		pieces[i].length = send->sge[i].length;
	}
	error = shm_tx_put(conn, &entry, &list, 1, 0);
	if (!error) {
		conn->tx.refs_open++;
		advance(conn, send);
	}
	return outcome(conn, error);
}

/* A Send that is not short, in one piece. */
static int put_whole(struct shm_conn *conn, uint8_t flags, const struct ibv_sge *sge,
		     unsigned num_sge, uint32_t length)
{
	const struct ring_entry entry = {.kind = RING_SEND, .flags = flags, .len = length};

	return length <= RING_MAX_PAYLOAD ? put_long(conn, &entry, sge, num_sge, 0) : -EAGAIN;
}

bool shm_tx_send_now(struct shm_conn *conn, const struct ibv_sge *sge, unsigned num_sge,
		     uint32_t length, bool solicited)
{
	const struct tx *tx = &conn->tx;
	uint8_t flags = RING_LAST | (solicited ? RING_SOLICITED : 0);

	if (!tx->open || tx->refs_due || shm_answers_wait(tx))
		return false;
	if (length <= RING_SHORT ? put_short(conn, flags, sge, num_sge, 0, length)
				 : put_whole(conn, flags, sge, num_sge, length))
		return false;
	note_put(conn);
	return true;
}

/*
 * A peer that is awake takes out of the ring while more is put in: with both at it two copies are
 * faster than one. One that sleeps would have to be woken for every ring that is full.
 */
static bool is_ref(const struct shm_conn *conn, const struct rc_send *send)
{
	return send->length >= REF_MIN && !conn->tx.offset &&
	       atomic_load_explicit(&conn->peer->asleep, memory_order_relaxed) &&
	       atomic_load_explicit(&conn->peer->may_copy, memory_order_relaxed);
}

/*
 * One-sided requests keep their order: one that goes through the ring has to be through before one
 * may go past it.
 */
static ssize_t copy(struct shm_conn *conn, const struct rc_send *send)
{
	ssize_t bytes;

	if (conn->tx.reads_open || !ring_is_past(&conn->tx.ring, conn->tx.asked))
		return -EAGAIN;
	bytes = copy_onesided(conn, send, conn->tx.offset);
	if (bytes > 0) {
		conn->tx.budget -= (int)((size_t)bytes / STEP_BYTES);
		stop_waiting(conn); /* for room: it needs none any more */
	}
	return bytes;
}

static int put_write(struct shm_conn *conn, struct rc_send *send)
{
	uint32_t left = send->length - conn->tx.offset;
	uint32_t len = left < RING_MAX_PAYLOAD ? left : RING_MAX_PAYLOAD;
	struct ring_entry entry = {
		.kind = RING_WRITE,
		.len = len,
		.key = send->rkey,
		.addr = send->remote_addr + conn->tx.offset,
	};
	int error = shm_tx_put(conn, &entry, send->sge, send->num_sge, conn->tx.offset);

	if (error)
		return error;
	conn->tx.offset += len;
	conn->tx.asked = conn->tx.ring.tail;
	return 0;
}

static enum step step_write(struct shm_conn *conn, struct rc_send *send)
{
	struct ring_entry entry = {
		.kind = RING_WRITE_IMM,
		.flags = send->solicited ? RING_SOLICITED : 0,
		.imm = send->imm_or_key,
		.arg = send->length,
	};
	int error = 0;

	if (conn->tx.offset < send->length) {
		ssize_t bytes = copy(conn, send);

		if (bytes > 0)
			conn->tx.offset += (uint32_t)bytes;
		else
			error = put_write(conn, send);
		if (!error)
			send->state = RC_SEND_BEGUN;
		if (error || conn->tx.offset < send->length)
			return outcome(conn, error);
	}
	if (send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		error = shm_tx_put(conn, &entry, NULL, 0, 0);
	if (!error)
		finish(conn, send);
	return outcome(conn, error);
}

static enum step put_request(struct shm_conn *conn, struct rc_send *send, struct ring_entry *entry,
			     const struct ibv_sge *payload)
{
	int error = shm_tx_put(conn, entry, payload, 1, 0);

	if (!error) {
		conn->tx.asked = conn->tx.ring.tail;
		conn->tx.reads_open++;
		advance(conn, send);
	}
	return outcome(conn, error);
}

static bool may_ask(const struct shm_conn *conn)
{
	return conn->tx.reads_open < conn->ord;
}

/* A read that was begun by copying and cannot go on so is asked for from its start. */
static enum step step_read(struct shm_conn *conn, struct rc_send *send)
{
	struct ring_entry entry = {
		.kind = RING_READ,
		.key = send->rkey,
		.addr = send->remote_addr,
		.arg = send->length,
	};
	ssize_t bytes = send->length ? copy(conn, send) : -EAGAIN;

	if (bytes > 0) {
		send->state = RC_SEND_BEGUN;
		conn->tx.offset += (uint32_t)bytes;
		if (conn->tx.offset == send->length)
			finish(conn, send);
		return STEP_DONE;
	}
	conn->tx.offset = 0;
	return may_ask(conn) ? put_request(conn, send, &entry, NULL) : STEP_NONE;
}

static enum step step_atomic(struct shm_conn *conn, struct rc_send *send)
{
	bool swaps = send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	const struct ibv_sge payload = {.addr = (uintptr_t)&send->swap,
					.length = sizeof(send->swap)};
	struct ring_entry entry = {
		.kind = RING_ATOMIC,
		.flags = swaps ? RING_SWAP : 0,
		.len = sizeof(send->swap),
		.key = send->rkey,
		.addr = send->remote_addr,
		.arg = send->compare_add,
	};

	return may_ask(conn) ? put_request(conn, send, &entry, &payload) : STEP_NONE;
}

/* A request that was wrong when it was posted has its turn: it ends the connection. */
static enum step fail_bad_request(struct shm_conn *conn, struct rc_send *send)
{
	if (conn->tx.refs_open)
		return STEP_NONE; /* what was posted before is not over yet */
	if (send->status == IBV_WC_SUCCESS)
		send->status = IBV_WC_LOC_QP_OP_ERR;
	shm_fail(conn, TERM_NONE, send, send->status);
	return STEP_ENDED;
}

static enum step request_step(struct shm_conn *conn)
{
	struct rc_send *send = next_send(conn);

	if (!send)
		return STEP_NONE;
	/* A read that none was agreed on could never leave. */
	if (send->status != IBV_WC_SUCCESS || (rc_is_answered(send->opcode) && !conn->ord))
		return fail_bad_request(conn, send);
	if (send->fence && conn->tx.reads_open)
		return STEP_NONE;
	if (rc_is_write(send->opcode))
		return step_write(conn, send);
	if (send->opcode == IBV_WR_RDMA_READ)
		return step_read(conn, send);
	if (rc_is_atomic(send->opcode))
		return step_atomic(conn, send);
	return is_ref(conn, send) ? put_send_ref(conn, send) : put_send(conn, send);
}

struct rc_send *shm_tx_oldest_request(const struct shm_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	for (uint32_t i = sq->head; i != sq->next; i++) {
		struct rc_send *send = rc_send_at(sq, i);

		if (rc_is_answered(send->opcode) && send->state == RC_SEND_BEGUN)
			return send;
	}
	return NULL;
}

int shm_tx_ref_done(struct shm_conn *conn)
{
	const struct rc_sendq *sq = &conn_qp(conn)->sq;

	if (!conn->tx.refs_open)
		return -EPROTO;
	for (uint32_t i = sq->head; i != sq->next; i++) {
		struct rc_send *send = rc_send_at(sq, i);

		if (rc_is_answered(send->opcode) || send->state != RC_SEND_BEGUN)
			continue;
		conn->tx.refs_open--;
		rc_send_done(conn_qp(conn), send, IBV_WC_SUCCESS);
		return 0;
	}
	return -EPROTO;
}

/* ---- in turns ---- */

static enum step put_ref_done(struct shm_conn *conn)
{
	struct ring_entry entry = {.kind = RING_REF_DONE};
	int error = shm_tx_put(conn, &entry, NULL, 0, 0);

	if (!error)
		conn->tx.refs_due--;
	return outcome(conn, error);
}

static enum step tx_step(struct shm_conn *conn)
{
	struct tx *tx = &conn->tx;
	enum step step;

	if (tx->refs_due)
		return put_ref_done(conn);
	tx->answers_next = !tx->answers_next;
	step = tx->answers_next ? shm_answer_step(conn) : request_step(conn);
	if (step == STEP_NONE)
		step = tx->answers_next ? request_step(conn) : shm_answer_step(conn);
	return step;
}

bool shm_tx_run(struct shm_conn *conn)
{
	bool any = false;

	if (!conn->tx.open)
		return false;
	conn->tx.spent = false;
	for (conn->tx.budget = STEPS_AT_ONCE; conn->tx.budget > 0; conn->tx.budget--) {
		enum step step = tx_step(conn);

		if (step == STEP_NONE)
			return any;
		any = true;
		if (step == STEP_ENDED)
			return true;
	}
	conn->tx.spent = true;
	return any;
}
