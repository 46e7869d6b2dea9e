/* SPDX-License-Identifier: MIT */
/*
 * The contract between the verbs objects (above) and whatever serves a queue pair (below): a
 * reliable connection (rc/), or raw packets (raw/).
 *
 * Locks: one per queue pair. Every operation of struct rc_service and every service of verbs is
 * called with it held. None of them blocks on a peer.
 *
 * Requests: a send request is in the send queue, owned by the service, from ibv_post_send until
 * rc_send_done; the memory that it gathers from belongs to the service in that time. Requests start
 * in order; rc_send_done may be called in any order; completions appear in posting order, exactly
 * one per request (unless unsignalled and successful).
 *
 * Receives: rc_recv_begin takes the next posted receive, of the queue pair's queue or of the SRQ;
 * the service fills its pieces and gives it back with rc_recv_done. One is in progress at a time.
 * A message that is there as a whole may go into its receive by rc_recv_whole.
 *
 * Keys: local keys are checked when a request is posted, by verbs; what is wrong there is in
 * rc_send.status, or is found by rc_recv_check. Pieces have addresses in memory from then on, also
 * where their region was registered under others. Remote keys are checked by the owner of the
 * memory: the service asks rc_region_get on the side where the memory lives, for every frame,
 * and holds the region only across one copy or system call that does not block. So ibv_dereg_mr,
 * which waits for holders, waits for copies and never for peers.
 *
 * Copies: the service copies, from the gathered memory into the socket or ring, from there into
 * the receive or region. Verbs copies inline data, once, when it is posted, unless it leaves at
 * once; and whole messages into their receives.
 *
 * Wake-ups: the service never wakes a thread. rc_send_done and rc_recv_done put completions into
 * CQs, which signal their channels; rc_failed and rc_opened tell the owner of the connection.
 * Whoever sleeps, sleeps in progress/.
 *
 * Failure: whoever finds the reason calls rc_failed once; it moves the queue pair to the error
 * state and flushes. The service then tells the peer what it can and detaches (service and conn
 * become NULL). After rc_failed no request is touched. A connection may live on without its queue
 * pair until the peer has seen its end.
 */
#ifndef SOFTRDMA_RC_H
#define SOFTRDMA_RC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "../common/lock.h"
#include "tuning.h"

#define RC_MAX_SGE    16
#define RC_MAX_INLINE 512

struct rc_qp;

/* What the requests have in common. */
static inline bool rc_is_atomic(unsigned opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool rc_is_write(unsigned opcode)
{
	return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Requests that complete when the peer has answered. */
static inline bool rc_is_answered(unsigned opcode)
{
	return opcode == IBV_WR_RDMA_READ || rc_is_atomic(opcode);
}

/* ---- what verbs shows a service ---- */

enum rc_send_state {
	RC_SEND_POSTED, /* not begun */
	RC_SEND_BEGUN,  /* the service is at it, or waits for the peer */
	RC_SEND_DONE,   /* waits for earlier requests to complete */
};

/* One send request in the queue. */
struct rc_send {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add; /* atomics */
	uint64_t swap;
	uint32_t rkey;
	uint32_t imm_or_key; /* immediate data (network order) or the key to invalidate */
	uint32_t length;     /* of all pieces together */
	uint32_t position;   /* the service's: how far it had come behind this request */
	uint8_t opcode;      /* enum ibv_wr_opcode */
	uint8_t status;      /* enum ibv_wc_status: what was wrong when posted; then the outcome */
	uint8_t state;       /* enum rc_send_state */
	uint8_t num_sge;
	bool signaled;
	bool solicited;
	bool fence;
	struct ibv_sge *sge; /* inline data: one piece, inside the queue */
};

/* The send queue: indices run freely; slot = index & mask. head <= next <= tail. */
struct rc_sendq {
	uint32_t head;     /* oldest request that has not completed */
	uint32_t next;     /* first request that the service has not finished putting */
	uint32_t tail;     /* where the next one is posted */
	uint32_t signaled; /* requests in it that give a completion */
	uint32_t mask;
	uint32_t depth;  /* as the user asked */
	uint32_t stride; /* bytes per slot */
	uint8_t *slots;
};

static inline struct rc_send *rc_send_at(const struct rc_sendq *sq, uint32_t index)
{
	return (struct rc_send *)(sq->slots + (size_t)(index & sq->mask) * sq->stride);
}

/*
 * The receive in progress. A piece that is wrong matters only to a message that reaches it, as with
 * siw and rxe: see rc_recv_check.
 */
struct rc_recv {
	uint64_t wr_id;
	uint32_t length; /* room */
	uint32_t good;   /* of it: the bytes before the first that a message must not reach */
	uint8_t num_sge;
	uint8_t good_sge;               /* pieces that are good as a whole */
	struct ibv_sge sge[RC_MAX_SGE]; /* the good bytes */
	struct ibv_sge wrong;           /* if good < length: the piece that is to blame */
};

/* The shared part of a queue pair; embedded in verbs' own. */
struct rc_qp {
	struct lock lock;
	uint32_t qp_num;
	enum ibv_qp_state state;
	unsigned access; /* what the peer may do: IBV_ACCESS_REMOTE_* */
	struct rc_sendq sq;
	const atomic_bool *slept_for[2];  /* somebody sleeps for completions of either CQ */
	const struct rc_service *service; /* NULL while not connected */
	bool extended;                    /* the peer takes immediate data and atomics */
	void *conn;                       /* the service's */
};

/* ---- what a service offers; all with the queue pair's lock held, none blocks ---- */

struct rc_service {
	/*
	 * It takes no system call to send or to look: nothing is gained by gathering requests, or
	 * by looking at few. Where send_now and drive make one all the same, they hold a
	 * cancellation off themselves.
	 */
	bool memory_only;
	/* Begin and move as many requests as the peer takes now. */
	void (*send)(struct rc_qp *qp);
	/*
	 * NULL, or: a Send that no other request waits before. Whether it has left; then its memory
	 * is not needed any more, and its request, with *@position, is in the queue as begun.
	 */
	bool (*send_now)(struct rc_qp *qp, const struct ibv_sge *sge, unsigned num_sge,
			 uint32_t length, bool solicited, uint32_t *position);
	/*
	 * Look for what arrived, @looks times if a look is cheap and there is nothing, and go on
	 * with what could not be sent; a bounded amount. RC_LOOKS: the poller has nothing else to
	 * look at. Whether something was done.
	 */
	bool (*drive)(struct rc_qp *qp, unsigned looks);
	/* NULL, or: send what is queued, and what the peer is to be told. */
	void (*flush)(struct rc_qp *qp);
	/* It will not be called again and again from now on: what arrives must be noticed. */
	void (*rest)(struct rc_qp *qp);
	/* A receive was posted, and rc_recv_begin had found none. */
	void (*recv_posted)(struct rc_qp *qp);
	/* NULL, or: rc_qp.access has changed. */
	void (*rights_changed)(struct rc_qp *qp);
	/* NULL, or: the send queue is full; perhaps the peer has told that requests are over. */
	void (*look_for_acks)(struct rc_qp *qp);
	/*
	 * Say goodbye: what was posted and can leave now leaves, then the peer sees an orderly end.
	 * Detaches.
	 */
	void (*disconnect)(struct rc_qp *qp);
	/*
	 * The queue pair goes, or has been moved to the error state: drop the connection. Detaches.
	 */
	void (*close)(struct rc_qp *qp);
};

/* ---- services of verbs ---- */

/*
 * An acknowledgement waits for company. Pollers that drive the queue pair see to it. Where nobody
 * does, flush is called soon, by a thread that goes to sleep for events or by the progress thread.
 * @hurry: the thread is to come by soon. Else this was found in a callback of the DATA set, and
 * whoever ran that sees to it.
 */
void rc_defer_ack(struct rc_qp *qp, bool hurry);

/* @send has ended with @status; completes it and its predecessors' successors in order. */
void rc_send_done(struct rc_qp *qp, struct rc_send *send, enum ibv_wc_status status);

/* The next receive, or NULL: none is posted. It is the queue pair's until rc_recv_done. */
struct rc_recv *rc_recv_begin(struct rc_qp *qp);

/*
 * Whether the first @end bytes of a message go into @recv: IBV_WC_SUCCESS; IBV_WC_LOC_PROT_ERR for
 * a wrong piece that they reach, with a line in the log; or IBV_WC_LOC_LEN_ERR.
 */
enum ibv_wc_status rc_recv_fault(const struct rc_qp *qp, const struct rc_recv *recv);
static inline enum ibv_wc_status rc_recv_check(const struct rc_qp *qp, const struct rc_recv *recv,
					       uint64_t end)
{
	return end <= recv->good ? IBV_WC_SUCCESS : rc_recv_fault(qp, recv);
}

/*
 * The receive that rc_recv_begin will return after @ahead others, as long as the lock is held.
 * False: there is none, a piece of it is wrong, or it is of an SRQ.
 */
struct rc_recv_view {
	uint64_t wr_id;
	const struct ibv_sge *sge;
	unsigned num_sge;
	uint32_t length; /* room */
};
bool rc_recv_peek(const struct rc_qp *qp, unsigned ahead, struct rc_recv_view *view);

/* What a finished receive tells its program. */
struct rc_arrival {
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t length;
	unsigned wc_flags; /* IBV_WC_WITH_IMM, IBV_WC_WITH_INV */
	uint32_t imm_or_key;
	bool solicited;
};
void rc_recv_done(struct rc_qp *qp, struct rc_recv *recv, const struct rc_arrival *arrival);

/*
 * All of that at once, for a Send that is here as a whole. False, and nothing has happened: there
 * is no receive that takes it without further ado.
 */
bool rc_recv_whole(struct rc_qp *qp, const void *bytes, uint32_t length, bool solicited);

/*
 * All completions of @qp between these two calls have the time stamp of the first one, because
 * reading the clock costs as much as a small frame. The lock stays held in between.
 */
void rc_begin_batch(struct rc_qp *qp);
void rc_end_batch(struct rc_qp *qp);

/* Bytes of all pieces together. */
static inline uint64_t rc_sge_length(const struct ibv_sge *sge, unsigned num_sge)
{
	uint64_t length = 0;

	if (num_sge == 1) /* mostly */
		return sge->length;
	for (unsigned i = 0; i < num_sge; i++)
		length += sge[i].length;
	return length;
}

/*
 * Pieces of @sge from @offset on, at most @len bytes, into @iov; returns their number (at most
 * @max), bytes in *@bytes.
 */
int rc_sge_slice(const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, size_t len,
		 struct iovec *iov, int max, size_t *bytes);
/* Copy into, or out of, a scatter list at @offset. The caller has checked that it fits. */
void rc_sge_scatter(const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, const void *data,
		    size_t len);
void rc_sge_gather(const struct ibv_sge *sge, unsigned num_sge, uint64_t offset, void *data,
		   size_t len);

enum rc_fault { RC_FAULT_KEY, RC_FAULT_PD, RC_FAULT_BOUNDS, RC_FAULT_WRAP, RC_FAULT_ACCESS };

struct rc_region;
/*
 * The region that @key names, if it belongs to the queue pair's PD, holds [@addr, @addr + @len) and
 * grants all of @access (IBV_ACCESS_*); NULL with the reason in *@fault. *@mem is where the bytes
 * are.
 */
struct rc_region *rc_region_get(struct rc_qp *qp, uint32_t key, uint64_t addr, uint64_t len,
				unsigned access, void **mem, enum rc_fault *fault);
void rc_region_put(struct rc_region *region);
/*
 * A peer's SEND with invalidate: 0, or -EINVAL if the key is not of this PD or may not be
 * invalidated.
 */
int rc_region_invalidate(struct rc_qp *qp, uint32_t key);

/* What a peer asks of 8 bytes of memory. */
struct rc_atomic {
	uint32_t key;
	uint64_t addr;
	bool swaps; /* if it is as compared; else adds */
	uint64_t compare;
	uint64_t add_swap;
};
/* 0 with what was found in *@value, or -EFAULT with the reason in *@fault. */
int rc_execute_atomic(struct rc_qp *qp, const struct rc_atomic *atomic, uint64_t *value,
		      enum rc_fault *fault);

/* The number of the queue pair's protection domain; never 0. */
uint32_t rc_domain(const struct rc_qp *qp);
/* Call regions_add for every region that is there. */
void rc_regions_show(void);

/* How long a message may wait for a receive, in milliseconds. */
unsigned rc_recv_timeout(void);

/* The responder has heard the initiator's first FPDU. */
void rc_opened(struct rc_qp *qp);

/*
 * The connection is over. @send, if not NULL, is the request to blame and completes with @status;
 * every other one and every posted receive is flushed. @error 0 for an orderly end by the peer. The
 * owner is told.
 */
void rc_failed(struct rc_qp *qp, struct rc_send *send, enum ibv_wc_status status, int error);

/*
 * The connection is over because the peer has gone, or has closed it (@error 0). A queue pair that
 * the CM has connected fails. One that was connected by number stays as it is, without a service.
 */
void rc_parted(struct rc_qp *qp, int error);

#endif
