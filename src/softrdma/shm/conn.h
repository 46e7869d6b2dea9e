/* SPDX-License-Identifier: MIT */
/*
 * One connection in shared memory, as the files of this folder share it. Guarded by its queue
 * pair's lock but where said.
 */
#ifndef SOFTRDMA_SHM_CONN_H
#define SOFTRDMA_SHM_CONN_H

#include "../rc/conn.h"
#include "link.h"

/* A Send that is being fetched. */
struct shm_ref {
	struct rc_frame frame;
	struct ibv_sge sge[RC_MAX_SGE]; /* in the peer's memory */
	unsigned num_sge;
	uint32_t done;
};

struct shm_tx {
	struct ring_writer ring;
	bool wrote;     /* entries, and the peer has not been told */
	bool more;      /* the budget is used up: there is more to do at once */
	bool waits;     /* for room */
	int budget;     /* steps that may be taken before others have their turn */
	uint32_t asked; /* the ring's tail behind the last one-sided request in it */
	uint32_t told;  /* what was last published as placed */
};

struct shm_rx {
	struct ring_reader ring;
	struct shm_ref ref;
	bool served;    /* a one-sided request was: the peer may want to know that it is through */
	uint8_t misses; /* consecutive empty polls, up to a bound */
	uint8_t ahead;  /* messages found without waiting: see SHM_MESSAGES_TO_LEAD */
};

/* What the Unix socket has said so far. */
struct bell {
	bool closed; /* by the peer, or by its death */
	uint8_t len; /* bytes of a Terminate's code that have come, and its mark */
	uint8_t code[3];
	bool terminated;
};

struct shm_conn {
	struct rc_conn rc; /* first */
	struct shm_link *link;
	struct area_side *own, *peer;
	struct regions_reader reader;
	/* The responder, until the initiator has said its hello. */
	int tcp_fd;
	struct mpa_agreed agreed;
	struct bell bell;
	struct shm_tx tx;
	struct shm_rx rx;
};

static inline struct shm_conn *to_shm(struct rc_conn *conn)
{
	return container_of(conn, struct shm_conn, rc);
}

/* ---- bell.c: waking the peer, and being woken ---- */

/* If the peer sleeps, ring. */
void bell_ring(struct shm_conn *conn);
/* The last word. Best effort. */
void bell_terminate(struct shm_conn *conn, uint16_t code);
/* Take what the socket has said. */
void bell_hear(struct shm_conn *conn);
/* Let the peer see how far its ring was read, and what was placed. No wake-up. */
void bell_publish(struct shm_conn *conn);
/* The same, if it waits for room or @cells were read; then it is woken. */
void bell_publish_room(struct shm_conn *conn, uint32_t cells);
/* Has the peer placed more than is known? */
bool shm_has_acks(const struct shm_conn *conn);
/* Nobody looks at the ring by itself from now on; what has come meanwhile is looked at again. */
void bell_arm(struct shm_conn *conn);
/* For struct progress_source. */
bool bell_set_poller_owned(struct progress_source *source, bool poller_owned, bool locked);

/* Is there something to go on with that no bell will ring for; apart from what the ring has? */
bool shm_is_unfinished(const struct shm_conn *conn);

/* ---- tx.c ---- */

/* Begin and move what there is, within a budget. Whether anything moved. May end the connection. */
bool shm_tx_run(struct shm_conn *conn);
/* There is something to go on with, and nothing will tell. */
bool shm_tx_is_unfinished(const struct shm_conn *conn);
/* Look at what the peer has placed. May end the connection. */
void shm_look_for_acks(struct rc_conn *conn);
/* For struct rc_transport. */
ssize_t shm_put(struct rc_conn *conn, struct rc_frame *frame, const struct ibv_sge *sge,
		unsigned num_sge, uint64_t offset, uint32_t left);
bool shm_put_now(struct rc_conn *conn, const struct ibv_sge *sge, unsigned num_sge, uint32_t length,
		 bool solicited);
ssize_t shm_copy(struct rc_conn *conn, const struct rc_send *send, uint32_t offset);

/* ---- copy.c: straight between the two processes' memory ---- */

/*
 * Move some of @send's data, from @offset on, to or from the peer's region that it names. Bytes;
 * -EAGAIN: not by this way; another -errno.
 */
ssize_t copy_onesided(struct shm_conn *conn, const struct rc_send *send, uint32_t offset);
/* Fetch more of the Send at hand into its receive. Bytes, or -errno. */
ssize_t copy_ref(struct shm_conn *conn);

/* ---- rx.c ---- */

/* Deal with what the ring has, within a budget. Whether anything was. May end the connection. */
bool shm_rx_run(struct shm_conn *conn);
/*
 * The same for a poller, who wants the first message before the last: looking for what is behind it
 * means to wait for a line that the peer has just written.
 */
bool shm_rx_poll(struct shm_conn *conn, unsigned looks);
/* For struct rc_transport. */
int shm_fetch(struct rc_conn *conn, const struct rc_frame *frame, const uint8_t *payload);
/* There is something to go on with that no bell will ring for; apart from what the ring has. */
bool shm_rx_is_unfinished(const struct shm_conn *conn);
/* There is something in the ring that could be dealt with. */
bool shm_rx_is_waiting(const struct shm_conn *conn);

#endif
