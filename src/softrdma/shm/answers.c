/* SPDX-License-Identifier: MIT */
/* Answers to a peer's reads and atomics, in the order in which they came. */
#include <errno.h>
#include <stdlib.h>

#include "conn.h"

bool shm_answers_wait(const struct tx *tx)
{
	return tx->answers_head != tx->answers_tail;
}

uint16_t shm_answer_fault(enum rc_fault fault)
{
	switch (fault) {
	case RC_FAULT_BOUNDS:
		return TERM_RDMAP_BOUNDS;
	case RC_FAULT_PD:
		return TERM_RDMAP_FOREIGN_STAG;
	case RC_FAULT_WRAP:
		return TERM_RDMAP_TO_WRAP;
	case RC_FAULT_ACCESS:
		return TERM_RDMAP_ACCESS;
	default:
		return TERM_RDMAP_INVALID_STAG;
	}
}

static int execute(struct shm_conn *conn, struct answer *answer, enum rc_fault *fault)
{
	const struct rc_atomic atomic = {
		.key = answer->key,
		.addr = answer->addr,
		.swaps = answer->swaps,
		.compare = answer->arg,
		.add_swap = answer->swaps ? answer->swap : answer->arg,
	};
	int error = rc_execute_atomic(conn_qp(conn), &atomic, &answer->arg, fault);

	if (!error)
		answer->kind = ANSWER_RESULT;
	return error;
}

/*
 * An atomic takes effect when it arrives, ahead of what the peer sends after it; but behind reads
 * that are not answered yet it waits for its turn.
 */
int shm_answer_add(struct shm_conn *conn, const struct answer *answer)
{
	struct tx *tx = &conn->tx;
	struct answer *last;
	enum rc_fault fault;

	if (tx->answers_tail - tx->answers_head >= conn->ird)
		return -EPROTO;
	if (!tx->answers)
		tx->answers = calloc(conn->ird, sizeof(*tx->answers));
	if (!tx->answers)
		return -ENOMEM;
	last = &tx->answers[tx->answers_tail % conn->ird];
	*last = *answer;
	if (last->kind == ANSWER_ATOMIC && !shm_answers_wait(tx) && execute(conn, last, &fault))
		return -EFAULT;
	tx->answers_tail++;
	return 0;
}

static enum step fail(struct shm_conn *conn, enum rc_fault fault)
{
	shm_fail(conn, shm_answer_fault(fault), NULL, IBV_WC_WR_FLUSH_ERR);
	return STEP_ENDED;
}

static enum step outcome(struct shm_conn *conn, int error)
{
	if (!error)
		return STEP_DONE;
	if (error == -EAGAIN)
		return STEP_NONE;
	shm_fail(conn, TERM_RDMAP_STREAM, NULL, IBV_WC_WR_FLUSH_ERR);
	return STEP_ENDED;
}

static enum step answer_atomic(struct shm_conn *conn, struct answer *answer)
{
	struct ring_entry entry = {.kind = RING_RESULT};
	enum rc_fault fault;
	int error;

	if (answer->kind == ANSWER_ATOMIC && execute(conn, answer, &fault))
		return fail(conn, fault);
	entry.arg = answer->arg;
	error = shm_tx_put(conn, &entry, NULL, 0, 0);
	if (!error)
		conn->tx.answers_head++;
	return outcome(conn, error);
}

/* One piece of it; its memory is held while it is copied. */
static enum step answer_read(struct shm_conn *conn, struct answer *answer)
{
	uint32_t left = answer->len - answer->done;
	uint32_t len = left < RING_MAX_PAYLOAD ? left : RING_MAX_PAYLOAD;
	struct ring_entry entry = {
		.kind = RING_READ_DATA, .flags = len == left ? RING_LAST : 0, .len = len};
	struct rc_region *region = NULL;
	struct ibv_sge piece = {.length = len};
	enum rc_fault fault;
	void *mem = NULL;
	int error;

	if (answer->len) {
		region = rc_region_get(conn_qp(conn), answer->key, answer->addr + answer->done,
				       left, IBV_ACCESS_REMOTE_READ, &mem, &fault);
		if (!region)
			return fail(conn, fault);
	}
	piece.addr = (uintptr_t)mem;
	error = shm_tx_put(conn, &entry, &piece, 1, 0);
	if (region)
		rc_region_put(region);
	if (!error) {
		answer->done += len;
		if (answer->done == answer->len)
			conn->tx.answers_head++;
	}
	return outcome(conn, error);
}

enum step shm_answer_step(struct shm_conn *conn)
{
	struct tx *tx = &conn->tx;
	struct answer *answer;

	if (!shm_answers_wait(tx))
		return STEP_NONE;
	answer = &tx->answers[tx->answers_head % conn->ird];
	return answer->kind == ANSWER_READ ? answer_read(conn, answer)
					   : answer_atomic(conn, answer);
}
