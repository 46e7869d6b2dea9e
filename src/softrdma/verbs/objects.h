/* SPDX-License-Identifier: MIT */
/* The verbs objects: each embeds its public struct first. */
#ifndef SOFTRDMA_VERBS_OBJECTS_H
#define SOFTRDMA_VERBS_OBJECTS_H

#include <stdatomic.h>

#include "../../common/list.h"
#include "../progress/progress.h"
#include "../rc.h"
#include "deferred.h"
#include "qp_owner.h"
#include "verbs.h"

/* What the device offers; at least siw's limits. */
#define SOFT_MAX_WR       32768
#define SOFT_MAX_CQE      (4 * 1024 * 1024)
#define SOFT_MAX_RD       128
#define SOFT_MAX_MSG      0xffffffffu
#define SOFT_MAX_QP       65536
#define SOFT_MAX_MR       (1 << 20)
/* What siw offers, for programs that are to be ready for hardware. */
#define STRICT_MAX_SGE    6
#define STRICT_MAX_INLINE 64
#define SOFT_PORT         1
/* No vendor has this number. rxe says the same. */
#define SOFT_VENDOR_ID    0xffffff
#define SOFT_PART_ID      1
#define SOFT_PKEY         0xffff

/* ---- device and context ---- */

struct soft_device {
	struct ibv_device device;
	char room[1024]; /* zeros: vendor libraries look behind an ibv_device for a verbs_device */
	unsigned ifindex;
	char ifname[IF_NAMESIZE];
	struct ibv_context *shared; /* opened once, under the device lock */
	struct list link;
};

struct soft_context {
	struct list link;         /* among all that are open */
	struct list async_events; /* under async_lock */
	pthread_mutex_t async_lock;
	pthread_cond_t async_acked;
	atomic_int objects;         /* PDs, CQs and channels that need this context */
	struct verbs_context verbs; /* last: it grows upward */
};

static inline struct soft_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct soft_context, verbs.context);
}

/* Fill in the operations of a new context. */
void context_set_ops(struct verbs_context *verbs);
int soft_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t size);

/* ---- asynchronous events ---- */

/*
 * What an object needs so that its destruction can wait for its events to be acknowledged. Under
 * the context's async_lock.
 */
struct async_count {
	unsigned taken; /* by ibv_get_async_event */
	unsigned acked;
};

/* Queue @event; drops it with a line in the log if memory is short. */
void async_raise(struct ibv_context *context, const struct ibv_async_event *event);
/* In a forked child: a descriptor, a lock and a list of its own, empty. */
void async_renew(struct ibv_context *context);
/* Drop the object's queued events and wait until those taken are acknowledged. */
void async_retire(struct ibv_context *context, const void *object, struct async_count *count);

/* ---- memory ---- */

#define PD_NUMBERS 0x3fffffffu /* as many as fit a table of regions */

struct soft_pd {
	struct ibv_pd pd;
	uint32_t number;  /* never 0 */
	atomic_int users; /* MRs, QPs, SRQs */
};

/* A region as it was seen last: a queue's pieces mostly lie in the one of before. All zero: none.
 */
struct region_sight {
	unsigned version; /* of the table */
	uint32_t key;
	uint64_t iova, length;
	uint64_t shift; /* from an address in a request to the one in memory; modulo 2^64 */
	unsigned access;
};

/*
 * Check a local scatter/gather list: every key known here, of @pd, within bounds and with @access.
 * A region may have been registered under other addresses than its memory's (ibv_reg_mr_iova); so
 * @to, with room for as many pieces, gets them with the addresses in memory.
 *
 * Returns how many pieces are good, up to the first that is not: @num_sge if all are. What @to has
 * behind those is undefined. @last belongs to a queue, whose lock is held, and is for this @pd
 * alone.
 */
unsigned region_resolve(struct region_sight *last, const struct ibv_pd *pd,
			const struct ibv_sge *sge, unsigned num_sge, unsigned access,
			struct ibv_sge *to);

/* Whether all pieces are good, and have the addresses in memory already. */
bool region_covers(struct region_sight *last, const struct ibv_pd *pd, const struct ibv_sge *sge,
		   unsigned num_sge, unsigned access);
/*
 * Of a piece that region_resolve found wrong: cut it down to the first bytes that are good, if any
 * are, and give it the address in memory. Whether there are.
 */
bool region_cut(struct region_sight *last, const struct ibv_pd *pd, struct ibv_sge *piece,
		unsigned access);

/* ---- completions ---- */

struct soft_channel {
	struct ibv_comp_channel channel;
	int count_fd;              /* eventfd: the events */
	atomic_bool loops;         /* the program sleeps in a loop of its own */
	atomic_bool asked_to_loop; /* once is enough */
	pthread_mutex_t lock;      /* guards events; a leaf below a CQ's lock */
	struct list events;        /* CQs with an event to be fetched */
	atomic_uint queued;        /* events in all */
	unsigned counted;          /* of them at count_fd: all, or all but one (channel.c) */
	_Atomic(pthread_t) waiter; /* a thread in ibv_get_cq_event; 0: none */
	int cqs;                   /* that use this channel */
};

struct cqe {
	struct ibv_wc wc;
	uint64_t stamp; /* CLOCK_MONOTONIC in ns, if the CQ is stamped */
};

enum cq_arming { CQ_QUIET, CQ_ARMED_SOLICITED, CQ_ARMED };

struct soft_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex; /* begins as the other does */
	};
	struct soft_channel *channel;

	struct lock lock; /* guards the ring, the arming and the event state */
	struct cqe *ring;
	uint32_t head, tail; /* free-running: consumer, producer */
	atomic_bool filled;  /* the ring is not empty; read without the lock as a hint */
	uint32_t size;
	uint32_t mask;
	_Atomic(enum cq_arming) armed; /* read without the lock as a hint */
	atomic_bool slept_at;          /* armed for a program's own loop */
	bool overrun;
	unsigned events_queued; /* on the channel, not fetched; under the channel's lock */
	unsigned events_taken;  /* fetched; under lock */
	unsigned events_acked;  /* under lock */
	struct news acked;
	struct list event_link; /* in channel->events, once per queued event run */
	struct async_count async;

	bool stamped;
	bool single;               /* the program promises one thread at a time */
	pthread_mutex_t poll_lock; /* held from start_poll to end_poll unless so; guards current */
	struct cqe current;

	atomic_bool driven; /* a lock: guards what follows; before a queue pair's lock */
	struct list qps;    /* of cq_use */
	struct cq_use *active[CQ_MAX_ACTIVE]; /* looked at on every empty poll */
	unsigned num_active;
	unsigned num_costs_syscall; /* active ones with costs_syscall */
	unsigned next_active;       /* the one that the next poll looks at first */
	unsigned num_qps;
	atomic_uint polls;
	struct deferred_list deferred; /* queue pairs with something to send */
};

/* A queue pair's link to one of its CQs. */
struct cq_use {
	struct list link; /* in soft_cq.qps */
	struct soft_qp *qp;
	struct deferral deferral; /* in soft_cq.deferred */
	atomic_bool active;       /* in soft_cq.active */
	/* Under the CQ's drive lock. */
	bool costs_syscall;   /* a look at the queue pair is a system call, or may become one */
	unsigned empty_polls; /* consecutive looks that found nothing */
};

/*
 * A poll that found its CQ empty and looks for completions itself. It lives on the stack of the
 * polling thread. While that thread drives a queue pair, soft_qp.poll points to it, and completions
 * of that queue pair go straight into the caller's array.
 */
struct cq_poll {
	struct soft_cq *cq;
	struct ibv_wc *wc; /* the caller's array */
	uint64_t *stamp;   /* NULL, or where the time stamp of the only completion goes */
	int room, count;   /* entries of the array: in all, and filled so far */
};

/*
 * The entry of a poll's array for the next completion of @qp, which is filled in by the caller.
 * NULL: no poll of @cq drives @qp now, or the completion has to go through cq_push. The lock of @qp
 * is held.
 */
struct ibv_wc *cq_poll_slot(struct soft_cq *cq, struct soft_qp *qp);
/*
 * Add @wc, a completion of @qp. @solicited decides whether it counts for a CQ armed for solicited
 * events only. The lock of @qp is held.
 */
void cq_push(struct soft_cq *cq, struct soft_qp *qp, const struct ibv_wc *wc, bool solicited);
void cq_attach_qp(struct soft_cq *cq, struct cq_use *use, struct soft_qp *qp);
/* Remove the queue pair and its completions that nobody polled. */
void cq_detach_qp(struct soft_cq *cq, struct cq_use *use);
/* The queue pair has traffic: it becomes active, if there is room. Its lock is held. */
void cq_note_traffic(struct soft_cq *cq, struct cq_use *use);
/* Take the oldest completion. */
bool cq_take(struct soft_cq *cq, struct cqe *out);
/* The queue was found empty: look for what arrived, and take the first of it. */
bool cq_find(struct soft_cq *cq, struct cqe *out);
int soft_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc);
struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int soft_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* An event for @cq on its channel. The CQ's lock is held. */
void channel_signal(struct soft_channel *channel, struct soft_cq *cq);
/* Drop @cq's events that nobody fetched. */
void channel_forget(struct soft_channel *channel, struct soft_cq *cq);

/* ---- receive queues ---- */

struct recv_slot {
	uint64_t wr_id;
	uint32_t length;
	uint8_t num_sge;
	uint8_t good_sge;     /* pieces before the first that is wrong; behind that is nothing */
	struct ibv_sge sge[]; /* max_sge of the queue */
};

/* A ring of receives; whoever embeds it guards it. */
struct recvq {
	uint32_t head, tail;
	uint32_t mask;
	uint32_t depth;
	uint32_t max_sge;
	uint32_t stride;
	uint8_t *slots;
	struct region_sight region;
	const struct ibv_pd *pd; /* of receives with a wrong piece */
};

int recvq_init(struct recvq *queue, uint32_t depth, uint32_t max_sge);
void recvq_fini(struct recvq *queue);
/* 0; ENOMEM when full; EINVAL for too many pieces. Errors are positive: as verbs return them. */
int recvq_post(struct recvq *queue, struct ibv_pd *pd, const struct ibv_recv_wr *wr);
/* Take the oldest receive. */
bool recvq_take(struct recvq *queue, struct rc_recv *out);
/* It was not used: it becomes the oldest again. False: the queue is full. */
bool recvq_return(struct recvq *queue, const struct rc_recv *recv);
/* See rc_recv_peek. */
bool recvq_peek(const struct recvq *queue, unsigned ahead, struct rc_recv_view *view);

/* The oldest one, as recvq_peek has shown it. */
static inline void recvq_drop(struct recvq *queue)
{
	queue->head++;
}

static inline uint32_t recvq_count(const struct recvq *queue)
{
	return queue->tail - queue->head;
}

struct soft_srq {
	struct ibv_srq srq;
	pthread_mutex_t lock; /* guards the queue and the limit; a leaf below a queue pair's lock */
	struct recvq queue;
	uint32_t limit; /* 0: not armed */
	struct async_count async;
	struct list waiting; /* queue pairs that hold a message for want of a receive */
	int users;           /* queue pairs; under lock */
	struct progress_work returned;
};

bool srq_take(struct soft_srq *srq, struct rc_recv *out);
/*
 * The message that took @recv will not end. To the program, the receive is still in the queue, so
 * it goes back there. False: the program has filled the queue meanwhile. Other queue pairs hear of
 * it later, since the caller holds the lock of one.
 */
bool srq_return(struct soft_srq *srq, const struct rc_recv *recv);
int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- queue pairs ---- */

/* The request that ibv_wr_* calls are describing. */
struct wr_draft {
	struct lock
		lock; /* held from wr_start to wr_complete or wr_abort; before the queue pair's */
	struct ibv_send_wr wr;
	bool open;
	int error;      /* the first since wr_start */
	uint32_t first; /* where the queue ended then */
	uint32_t tail;  /* behind the requests since then */
};

/* In the state SQD: no request begins, and those that have begun are waited for. */
enum qp_drain { QP_NOT_DRAINING, QP_DRAINING, QP_DRAINING_TELLS /* by an event */ };

/* Completions that share one time stamp: see rc_begin_batch. */
struct stamp_batch {
	bool open;
	uint64_t stamp; /* 0: the clock has not been read yet */
};

struct soft_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex; /* begins with the other */
	};
	struct wr_draft draft;
	struct rc_qp rc; /* its lock guards all of this but where said */
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	struct ibv_qp_attr attr; /* as the program or the connection set them */
	enum qp_drain drain;
	struct recvq rq;
	struct region_sight send_region;
	struct soft_cq *send_cq, *recv_cq;
	struct cq_poll *poll; /* the one that qp_drive works for; NULL outside of it */
	struct stamp_batch batch;
	struct cq_use send_use, recv_use;
	struct soft_srq *srq;
	bool wants_recv;         /* a message waits for a receive */
	struct list srq_waiting; /* in soft_srq.waiting, under the SRQ's lock */
	struct rc_recv recv;     /* the one in progress */
	bool recv_busy;
	struct qp_owner *owner;
	/* By number: see by_number.h. */
	bool numbered;           /* its number says where it listens */
	bool has_met;            /* since the last reset */
	bool awaits_peer;        /* peer_timer is armed */
	struct meeting *meeting; /* guarded by the CM's lock as well */
	struct progress_timer peer_timer;
	atomic_int refs; /* the user's, and one per lookup by number */
	struct async_count async;
	struct list link;         /* in the table of queue pairs, under its lock */
	struct deferral deferral; /* among all of the process */
	atomic_bool owes;         /* something was deferred and not looked at since */
	unsigned sent_at;         /* the CQs' poll count at the last send: see soft_post_send */
	unsigned held_back;       /* requests queued since then */
};

static inline struct soft_qp *to_qp(struct rc_qp *rc)
{
	return container_of(rc, struct soft_qp, rc);
}

int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Rules of raw packet queue pairs. */
struct ibv_flow *soft_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int soft_destroy_flow(struct ibv_flow *flow);

static inline bool qp_is_raw(const struct soft_qp *qp)
{
	return qp->qp.qp_type == IBV_QPT_RAW_PACKET;
}

/* By number; with a reference, to be put. NULL: there is none. */
struct soft_qp *qp_get(uint32_t num);
void qp_put(struct soft_qp *qp);

/* ibv_wr_*: can these be offered (enum ibv_qp_create_send_ops_flags)? Offer them. */
bool wr_can_offer(uint64_t send_ops);
void wr_set_ops(struct soft_qp *qp);

/* A request has left the send queue: perhaps it was the last that a drain waits for. */
void qp_note_retired(struct soft_qp *qp);
/* Complete every request with a flush error; the lock is held and the state is ERR. */
void qp_flush(struct soft_qp *qp);
/* A receive of an SRQ whose message will not end goes back there, if there is room. */
void qp_return_receive(struct soft_qp *qp);
/*
 * Let a queue pair's queued sends go and look for what arrived, for @poll; locks it. Whether
 * something was done.
 */
bool qp_drive(struct soft_qp *qp, unsigned looks, struct cq_poll *poll);
/* Pollers will not drive it for a while. False: it is busy. */
bool qp_rest(struct soft_qp *qp);
/* Send what is queued; locks it. */
void qp_send_queued(struct soft_qp *qp);

#endif
