/* SPDX-License-Identifier: MIT */
/*
 * What the parts of libiwarp share. Inside, calls return 0 or -errno and have said why by
 * error_say; the public calls translate once, by error_return.
 *
 *   context.c   what a connection consists of, and giving it back
 *   cm.c        the CM's events, and what they mean
 *   connect.c listen.c   the initiator, the responder; the hello of both
 *   domain.c memory.c    protection domains; regions, lists
 *   sendq.c recvq.c      what is posted, and what becomes of it
 *   post.c adv.c         the operations; advertisements
 *   queue.c     completions: polling, sleeping, what nobody has asked for yet
 *   record.c cut.c fifo.c error.c   the wire format, the cutting of requests, a queue, words
 */
#ifndef IWARP_INTERNAL_H
#define IWARP_INTERNAL_H

#include "../softrdma/interpose/redirect.h"

#pragma GCC visibility push(default)
#include <iwarp.h>
#pragma GCC visibility pop
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "../common/list.h"
#include "../common/lock.h"
#include "cut.h"
#include "fifo.h"
#include "record.h"

#define NEVER        UINT64_MAX /* as a deadline */
#define HANDSHAKE_US 10000000   /* from established to the hello */
#define POLL_BATCH   16
#define MAX_CAPACITY (1 << 24)
#define DEFAULT_BUSY 20 /* microseconds */

/* Numbers of requests: of sends even, of receives odd. These bits say more. */
#define NUMBER_RECORD  (UINT64_C(1) << 63) /* a receive for a record, and the slot that it is in */
#define NUMBER_FOREIGN (UINT64_C(1) << 62) /* posted by the application itself */

/* ---- error.c ---- */

void error_put(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* -errno of what may be negative, as some drivers have it, but is no success. */
static inline int error_negative(int error)
{
	if (error > 0)
		error = -error;
	return error < 0 ? error : -EIO;
}

/* Keep the text for the application; -@error. The compiler is to see that it is not 0. */
#define error_say(error, ...)                                                                      \
	({                                                                                         \
		int negative_ = error_negative(error);                                             \
		error_put(__VA_ARGS__);                                                            \
		negative_;                                                                         \
	})
/* "@what: " and the text of @error, which may be negative. */
static inline int error_of(int error, const char *what)
{
	error = error_negative(error);
	error_put("%s: %s", what, strerror(-error));
	return error;
}

/* What a public call returns. */
static inline int error_return(int error)
{
	if (!error)
		return 0;
	errno = -error;
	return -1;
}

/* ---- domain.c ---- */

struct domain {
	struct list link;
	struct ibv_pd *pd;
	bool is_ours;
	unsigned refs;
	pthread_mutex_t sink_lock; /* guards making the second region of a buffer in it */
};

/* @shared NULL: a new one. */
int domain_get(struct ibv_context *verbs, struct ibv_pd *shared, struct domain **out);
void domain_hold(struct domain *domain);
void domain_put(struct domain *domain);

/* ---- memory.c ---- */

int sge_check(const struct iw_sge *piece);
/* A key of it that iWARP can read into. */
int lmr_find_sink(struct iw_lmr *lmr, uint32_t *lkey);

/* ---- a connection ---- */

enum conn_state {
	CONN_PREPARED,  /* a connector's: has a device and all else */
	CONN_REQUESTED, /* an acceptor's, likewise */
	CONN_OPEN,
	CONN_FAILED, /* could not be established */
};

struct queue {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct fifo kept;  /* struct ibv_wc: not asked for yet */
	unsigned failures; /* of the kept */
};

enum sent_kind {
	SENT_HIDDEN, /* the library's own */
	SENT_QUIET,  /* not to be told of unless it fails */
	SENT_WANTED,
};

struct sent {
	uint64_t number;
	uint64_t op; /* what the application knows it by: the number of the first request of it */
	enum sent_kind kind;
};

/* The send queue: a ring of what the device has not completed, as far as is known. */
struct sendq {
	struct sent *ring;
	unsigned depth, first, count;
	unsigned unsignalled; /* the last ones */
	uint64_t last;        /* number */
	uint64_t failed_op;   /* that was told of last */
};

/* A receive that was posted before there was a connection. */
struct early {
	uint64_t number;
	int count;
	struct ibv_sge sge[IW_MAX_SGE];
};

struct recvq {
	unsigned depth, outstanding;
	uint64_t last;        /* number */
	uint64_t last_record; /* likewise, of those for records */
	unsigned records;     /* of the outstanding: for advertisements */
	struct fifo early;
};

/* An advertisement that came. */
struct arrival {
	const char *fault; /* NULL: it is well */
	struct iw_rmr rmr;
};

struct conn {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct addrinfo *addresses, *address; /* of a connector until it is open; in use */
	struct domain *domain;
	enum conn_state state;
	bool is_iwarp;
	enum record_peer peer;
	bool awaits_hello;
	bool is_early; /* receives are kept until there is a connection */
	uint8_t reads; /* outstanding, at most */

	unsigned capacity;
	unsigned max_sge, max_read_sge, max_inline;
	uint32_t max_request; /* bytes of a write or read */
	uint32_t max_message; /* of a send or receive */

	struct queue queues[2]; /* by enum iw_cq_type */
	struct sendq sendq;
	struct recvq recvq;
	struct fifo arrivals; /* struct arrival */
	uint8_t *records;     /* slots: recvq.depth to receive, sendq.depth to send */
	struct ibv_mr *records_mr;
	unsigned busy_us;

	/*
	 * The lock guards all of the above but what never changes, from when it is open. It is not
	 * held by who sleeps. One thread, the watcher, sleeps on the descriptors; the others wait
	 * for it to tell them.
	 */
	struct lock lock;
	unsigned changes; /* times that something has completed */
	bool is_watched;
	struct news news; /* of changes, of the end, and that nobody watches */
	int ended;        /* 0, or the errno of why */
	int end_fd;       /* readable from then on, for the watcher */

	uint8_t peer_data[256];
	size_t peer_len;
};

/* ---- context.c ---- */

int conn_new(struct conn **out);
void conn_free(struct conn *conn);
/* All but the connection; the id knows its device. */
int conn_equip(struct conn *conn, int capacity, struct ibv_pd *shared);
int conn_make_qp(struct conn *conn);
void conn_show(const struct conn *conn, struct iw_ctx_conn *ctx);
void ctx_clear(struct iw_ctx_conn *ctx);
/* The context's connection, in any state. */
int conn_of(const struct iw_ctx_conn *ctx, struct conn **out);
/* Likewise, which is or was open. */
int conn_of_open(const struct iw_ctx_conn *ctx, struct conn **out);

static inline void conn_lock(struct conn *conn)
{
	lock_take(&conn->lock);
}

static inline void conn_unlock(struct conn *conn)
{
	lock_give(&conn->lock);
}

/* What follows, here and below, is called with the lock held unless it says otherwise. */

/* The end has come, by @error; only the first time counts. */
void conn_end(struct conn *conn, int error);
/* A request has completed so that nothing more will. */
void conn_fail(struct conn *conn, enum ibv_wc_status status);
/* -errno of a connection that has ended. */
int conn_say_ended(const struct conn *conn);

/* ---- time ---- */

uint64_t now_us(void);
/* @ms from now; -1: NEVER. */
uint64_t deadline_in(int ms);
/* What poll() takes. */
int ms_until(uint64_t deadline);

/* ---- cm.c; those that wait are called without the lock ---- */

int cm_open_channel(struct rdma_event_channel **out);
/* The next event, to be acked. -ETIMEDOUT, -EINTR. */
int cm_next(struct rdma_event_channel *channel, uint64_t deadline, struct rdma_cm_event **out);
/* Wait for @type; any other event is a failure. Keeps the peer's private data. */
int cm_expect(struct conn *conn, enum rdma_cm_event_type type, uint64_t deadline);
/* Whether the connection has ended, without waiting. */
void cm_look(struct conn *conn);
/* Until it has. -ETIMEDOUT, -EINTR. */
int cm_await_end(struct conn *conn, uint64_t deadline);
int cm_resolve(const char *host, int port, struct addrinfo **out);
/* Of rdma_connect and rdma_accept. */
struct rdma_conn_param cm_param(const struct conn *conn, const uint8_t *data, size_t len);
/* Say hello, and wait for the peer's. The connector speaks first. */
int cm_greet(struct conn *conn, bool is_connector);
/* What the CM brought of the peer: its private data, and how many reads it bears. */
void cm_keep_param(struct conn *conn, const struct rdma_conn_param *param);
/* The private data of ours: its length, or -EINVAL. */
int cm_make_private(const void *data, size_t len, uint8_t out[RECORD_PRIVATE_MAX]);

/* ---- sendq.c ---- */

int sendq_init(struct sendq *sendq, unsigned depth);
/* Post @wr as a part of *@op, or of a new one if that is 0, waiting for room. Its wr_id is set
 * here. */
int sendq_post(struct conn *conn, struct ibv_send_wr *wr, uint64_t *op, enum sent_kind kind);
int sendq_post_record(struct conn *conn, const struct record *record, enum sent_kind kind,
		      uint64_t *op);
int sendq_post_empty_write(struct conn *conn, int flags);
void sendq_completed(struct conn *conn, struct ibv_wc *wc);
/* Wait until all has left, or the deadline. */
void sendq_drain(struct conn *conn, uint64_t deadline);

/* ---- recvq.c ---- */

int recvq_post(struct conn *conn, const struct ibv_sge *sge, int count, uint64_t *number);
/* A receive for an advertisement, or for the hello. */
int recvq_post_record(struct conn *conn, bool is_hello);
int recvq_post_early(struct conn *conn);
void recvq_completed(struct conn *conn, struct ibv_wc *wc);

/* ---- adv.c ---- */

void adv_arrived(struct conn *conn, const struct ibv_wc *wc);

/* ---- queue.c ---- */

int queue_open(struct queue *queue, struct ibv_context *verbs, unsigned entries);
void queue_close(struct queue *queue);
/* Keep a completion for who asks; there is room. */
void queue_keep(struct queue *queue, const struct ibv_wc *wc);
/*
 * Until something may have changed. The error of the connection's end, when nothing more can come
 * in that queue; -ETIMEDOUT, -EINTR. The lock is given up while it sleeps.
 */
int queue_wait(struct conn *conn, enum iw_cq_type type, uint64_t deadline);

#endif
