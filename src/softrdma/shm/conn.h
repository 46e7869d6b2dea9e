/* SPDX-License-Identifier: MIT */
/*
 * One connection in shared memory, as the files of this folder share it. Guarded by its queue
 * pair's lock but where said.
 */
#ifndef SOFTRDMA_SHM_CONN_H
#define SOFTRDMA_SHM_CONN_H

#include <stdatomic.h>

#include "../progress/progress.h"
#include "../wire/terminate.h"
#include "link.h"

/* A peer's read or atomic that is being answered. */
struct answer {
	enum { ANSWER_READ, ANSWER_ATOMIC, ANSWER_RESULT } kind;
	uint32_t key;
	uint64_t addr;
	uint32_t len;
	uint32_t done; /* bytes of a read in the ring */
	uint64_t arg;  /* add or compare; ANSWER_RESULT: what was found */
	uint64_t swap;
	bool swaps;
};

struct tx {
	struct ring_writer ring;
	bool open;         /* entries may be written */
	bool wrote;        /* some were, and the peer has not been told */
	bool spent;        /* the budget: there is more to do at once */
	atomic_bool waits; /* for room; read without the lock as a hint */
	bool answers_next; /* whose turn it is, when both requests and answers wait */
	int budget;        /* steps that may be taken before others have their turn */
	uint32_t offset;   /* bytes of the request at sq.next that are over */
	uint32_t asked;    /* the ring's tail behind the last one-sided request in it */
	uint32_t reads_open;
	uint32_t refs_open; /* Sends that the peer has not fetched yet */
	uint32_t refs_due;  /* the peer's that were fetched, and it does not know */

	struct answer *answers; /* a ring of conn.ird; made when first needed */
	uint32_t answers_head, answers_tail;
};

/* A Send that is being fetched. */
struct ref {
	bool active;
	struct ibv_sge sge[RC_MAX_SGE]; /* in the peer's memory */
	unsigned num_sge;
	uint32_t length;
	uint32_t done;
	struct rc_arrival arrival;
};

struct rx {
	struct ring_reader ring;
	struct rc_recv *recv; /* of the Send in progress */
	uint32_t recv_done;   /* its bytes that are in place */
	uint32_t read_done;   /* bytes of the answer to our oldest read */
	struct ref ref;
	bool served;   /* a one-sided request was: the peer may want to know that it is through */
	uint8_t vain;  /* polls in a row that found nothing, up to a bound */
	uint8_t ahead; /* messages in a row that pollers did not have to wait for, or so */

	struct list stash; /* entries that wait for a receive, in order */
	size_t stash_bytes;
	bool starved; /* the first of them found none */
	bool blocked; /* no more are kept: the ring is not read */
	uint64_t starved_since;
	bool timed; /* recv_timer is armed: left alone while messages come and go */
};

/* What the Unix socket has said so far. */
struct bell {
	bool closed; /* by the peer, or by its death */
	uint8_t len; /* bytes of a Terminate's code that have come, and its mark */
	uint8_t code[3];
	bool terminated;
};

struct shm_conn {
	struct progress_source source;
	_Atomic(struct rc_qp *) qp; /* NULL: about to be freed */
	atomic_bool unfinished;     /* more can be done at once; read without the lock as a hint */
	bool detached;
	struct shm_link *link;
	struct area_side *own, *peer;
	struct progress_timer recv_timer;
	struct progress_timer free_timer;
	struct regions_reader reader;
	bool initiator;
	uint16_t ird;
	uint16_t ord;
	/* The responder, until the initiator has said its hello. */
	int tcp_fd;
	struct mpa_agreed agreed;
	struct bell bell;
	struct tx tx;
	struct rx rx;
};

/* ---- conn.c ---- */

/*
 * The connection is over because of something found here: tell the peer @code (TERM_NONE: nothing),
 * flush, close. @send is the request to blame, if any.
 */
void shm_fail(struct shm_conn *conn, uint16_t code, struct rc_send *send,
	      enum ibv_wc_status status);
/* The connection is over because the peer has gone. @error 0: orderly. */
void shm_end(struct shm_conn *conn, int error);

static inline bool conn_is_attached(const struct shm_conn *conn)
{
	return !conn->detached;
}

static inline struct rc_qp *conn_qp(const struct shm_conn *conn)
{
	return atomic_load_explicit(&conn->qp, memory_order_relaxed);
}

/* ---- bell.c: waking the peer, and being woken ---- */

/* If the peer sleeps, ring. */
void bell_ring(struct shm_conn *conn);
/* The last word. Best effort. */
void bell_terminate(struct shm_conn *conn, uint16_t code);
/* Take what the socket has said. */
void bell_hear(struct shm_conn *conn);
/* Tell the peer how far its ring was read, if it waits for that or @cells have been. */
void bell_publish(struct shm_conn *conn, uint32_t cells);
/* Nobody looks at the ring by itself from now on; what has come meanwhile is looked at again. */
void bell_arm(struct shm_conn *conn);
/* For struct progress_source. */
bool bell_set_lent(struct progress_source *source, bool lent);

/* ---- tx.c ---- */

/* Begin and move what there is, within a budget. Whether anything moved. May end the connection. */
bool shm_tx_run(struct shm_conn *conn);
/* A Send that no request is before: whether it has left. */
bool shm_tx_send_now(struct shm_conn *conn, const struct ibv_sge *sge, unsigned num_sge,
		     uint32_t length, bool solicited);
bool shm_tx_is_pending(const struct shm_conn *conn);
/* There is something to go on with, and nothing will tell. */
bool shm_tx_is_unfinished(const struct shm_conn *conn);
/* Our oldest read or atomic that is unanswered, NULL if there is none. */
struct rc_send *shm_tx_oldest_request(const struct shm_conn *conn);
/* The peer has fetched our oldest Send that it was to. -EPROTO: there is none. */
int shm_tx_ref_done(struct shm_conn *conn);
/*
 * Write an entry; @sge has the payload, or none. 0; -EAGAIN: no room, and it will be told when
 * there is; -EPROTO.
 */
int shm_tx_put(struct shm_conn *conn, const struct ring_entry *entry, const struct ibv_sge *sge,
	       unsigned num_sge, uint64_t offset);

/* ---- answers.c ---- */

enum step { STEP_NONE, STEP_DONE, STEP_ENDED };

/* 0; -EPROTO: more than was agreed on; -ENOMEM; -EFAULT: that memory may not be reached. */
int shm_answer_add(struct shm_conn *conn, const struct answer *answer);
bool shm_answers_wait(const struct tx *tx);
/* Move on with the oldest. */
enum step shm_answer_step(struct shm_conn *conn);
uint16_t shm_answer_fault(enum rc_fault fault);

/* ---- copy.c: straight between the two processes' memory ---- */

/*
 * Move some of @send's data, from @offset on, to or from the peer's region that it names. Bytes;
 * -EAGAIN: not by this way; another -errno.
 */
ssize_t copy_onesided(struct shm_conn *conn, const struct rc_send *send, uint32_t offset);
/* Fetch more of the Send at hand into its receive. Bytes, or -errno. */
ssize_t copy_ref(struct shm_conn *conn);

/* ---- rx.c ---- */

void shm_rx_init(struct shm_conn *conn);
void shm_rx_fini(struct shm_conn *conn);
/* Deal with what the ring has, within a budget. Whether anything was. May end the connection. */
bool shm_rx_run(struct shm_conn *conn);
/*
 * The same for a poller, who wants the first message before the last: looking for what is behind it
 * means to wait for a line that the peer has just written.
 */
bool shm_rx_poll(struct shm_conn *conn, unsigned looks);
/* There is something to go on with that no bell will ring for; apart from what the ring has. */
bool shm_rx_is_unfinished(const struct shm_conn *conn);
/* There is something in the ring that could be dealt with. */
bool shm_rx_is_waiting(const struct shm_conn *conn);
/* Is nothing half done? */
bool shm_rx_is_whole(const struct shm_conn *conn);

/* ---- stash.c: entries that wait for a receive ---- */

struct stashed {
	struct list link;
	struct ring_entry entry;
	uint8_t payload[];
};

/* 0; -EAGAIN: no more is kept; -ENOMEM. */
int stash_add(struct shm_conn *conn, const struct ring_entry *entry, const uint8_t *payload);
void stash_drop(struct shm_conn *conn, struct stashed *stashed);
/* The first has found no receive. */
void stash_starve(struct shm_conn *conn);
/* The time for it has run out. */
bool stash_is_too_old(struct shm_conn *conn);

#endif
