/* SPDX-License-Identifier: MIT */
/*
 * The library's objects, and who does what:
 *   api.c      the public calls: arguments checked, the loop locked, errors translated
 *   loop.c     waiting, timers, what is due; calls the callbacks
 *   device.c   what a loop shares on one device: completion channel, CQs, memory
 *   cm.c       from connect or accept to established: the CM's events
 *   conn.c     the life of a connection, and its end
 *   send.c     posted messages, credits, what is said to the peer
 *   recv.c     what the peer says; long messages are read; delivery in order
 *   many.c     short messages that travel together
 *   pool.c, proto.c, errors.c
 *
 * Locks: one per loop guards everything of it, and is not held during callbacks. Only the thread
 * that dispatches frees connections, so they stay across a callback. The pool's lock is a leaf.
 */
#ifndef IBMSG_INTERNAL_H
#define IBMSG_INTERNAL_H

#include <netdb.h>
#include <pthread.h>

#include "pool.h"

/* ---- sizes ---- */

#define FIRST_WINDOW     4   /* data receives of a quiet connection */
#define MAX_WINDOW       128 /* of a busy one */
#define CONTROL_RECEIVES 8
#define CONTROL_SENDS    16
#define MAX_OFFERS       64 /* long messages that a peer may have to read at a time */
#define MAX_READS        8
#define READ_BYTES       (1u << 20) /* of one read */
#define MAX_INLINE       256
#define MIN_INLINE       64 /* every control message fits */
#define SEND_DEPTH       (MAX_WINDOW + CONTROL_SENDS + MAX_READS + 1)
#define RECV_DEPTH       (MAX_WINDOW + CONTROL_RECEIVES)
#define RECV_BYTES       (PROTO_HEADER_LEN + SLOT_BYTES)
#define QP_BUCKETS       256
#define LISTENER_IDS     2 /* for both families */

/* ---- objects ---- */

struct loop;
struct conn;

struct timer {
	uint64_t deadline; /* CLOCK_MONOTONIC, ns */
	struct list link;
	bool armed;
};

struct cq {
	struct ibv_cq *cq;
	struct device *device;
	uint32_t size, reserved; /* entries; a connection reserves what it can use at most */
	bool armed;
	unsigned misses;     /* looks in vain, in a row, while not armed */
	struct list link;    /* in device->cqs */
	struct list unarmed; /* in loop->unarmed while not armed */
};

/* What the connections of a loop on one device share. */
struct device {
	struct loop *loop;
	struct ibv_context *verbs;
	struct ibv_comp_channel *channel;
	struct pool *pool;
	struct list cqs;
	unsigned users; /* connections */
	bool removed;
	bool iwarp;
	uint32_t cq_size;
	uint8_t max_reads; /* as initiator and as responder */
	uint64_t word;     /* the sign of life that peers may read */
	uint64_t sink;     /* where theirs is read to */
	struct ibv_mr *word_mr, *sink_mr;
	struct list link; /* in loop->devices */
};

enum conn_state {
	CONN_RESOLVING,  /* address or route */
	CONN_CONNECTING, /* requested, or accepted: not yet established */
	CONN_OPEN,
	CONN_CLOSED, /* nothing of it is used any more but its memory */
};

struct conn {
	struct loop *loop;
	ibmsg_socket *socket; /* NULL once its end has been told */
	enum conn_state state;
	struct list link; /* in loop->conns */
	bool connector;
	int doom;             /* it is to end for this reason; IBMSG_OK: it is not */
	bool cancelled;       /* by the user, before it was established */
	struct list due_link; /* in loop->due: to be looked at by the dispatcher */

	/* CM */
	struct rdma_cm_id *id;
	struct addrinfo *addresses, *address; /* all, and the one that is tried */
	enum proto_peer peer;
	struct proto_private ours, theirs;
	struct timer timer; /* for being established, then for a sign of life, then for the end */
	unsigned patience;
	char name[64];

	/* device */
	struct device *device;
	struct cq *cq;
	struct ibv_qp *qp;
	uint32_t qp_num; /* also while what is left of it in the CQ is taken out */
	struct conn *next_in_bucket;
	uint32_t inline_bytes;
	uint8_t reads; /* that may be outstanding */

	/* sending */
	bool may_send; /* the connector's hello is the first message on the wire */
	bool hello_due;
	struct list queue;     /* buffers that wait */
	struct list in_flight; /* given to the device as DATA or MANY, in order */
	struct list carriers;  /* blocks with the copies of those in a MANY, in order */
	struct list offered;   /* to be read by the peer */
	struct list finished;  /* to be told */
	unsigned num_offered;
	uint32_t next_number;
	uint32_t data_credits, control_credits;
	bool stalled;      /* messages wait for the peer */
	unsigned sends;    /* in the send queue: data and offers */
	unsigned controls; /* and control messages */
	struct {
		uint32_t number;
		enum proto_status status;
	} dones[MAX_OFFERS]; /* to be sent: a ring */
	unsigned first_done, num_dones;

	/* receiving */
	struct list receives; /* blocks that are posted */
	struct list early;    /* messages that were faster than the CM's event */
	unsigned window;
	unsigned posted_data, posted_control;
	bool is_short;                    /* of memory: fewer receives than the window are posted */
	uint32_t owed_data, owed_control; /* receives posted that the peer does not know of */
	struct list arrivals;             /* in order, not yet delivered */
	struct list reading;          /* of them: with reads still to be asked for or answered */
	unsigned num_arriving_offers; /* not yet answered by DONE */
	unsigned num_reads;           /* outstanding */
	struct {                      /* of the reads outstanding, in order: they complete so */
		struct block *block;
		uint32_t bytes;
	} read_ring[MAX_READS];
	unsigned first_read;

	/* life and end */
	bool heard;      /* from the peer, since the timer's last tick */
	bool beating;    /* a sign of life is being read */
	bool has_word;   /* the peer has named its word */
	unsigned nudges; /* of a peer that has not said hello yet */
	uint64_t word_address;
	uint32_t word_key;
	bool closing; /* no more is posted; the end is agreed on when all has arrived */
	bool end_sent, seen_sent, end_received, seen_received;
	bool parting; /* all is said: only the CM's event is waited for */

	ibmsg_stats stats; /* what counts up */
};

struct listener {
	struct loop *loop;
	ibmsg_socket *socket;
	struct rdma_cm_id *ids[LISTENER_IDS];
	unsigned num_ids;
	struct list link;
};

struct loop {
	ibmsg_event_loop *event_loop;
	struct lock lock; /* a spinning dispatcher makes room for those who want it */
	struct rdma_event_channel *channel;
	int epoll_fd, wake_fd, timer_fd;
	bool fd_is_shared; /* somebody else waits for epoll_fd */
	bool dispatching;
	bool ended; /* by ibmsg_destroy_event_loop: nothing new begins */
	pthread_t dispatcher;

	struct list devices, conns, listeners;
	struct list timers;  /* by deadline */
	uint64_t timer_set;  /* deadline that timer_fd is armed for; 0: none */
	struct list due;     /* connections with something to be done by the dispatcher */
	struct list unarmed; /* CQs */
	struct conn *buckets[QP_BUCKETS];
	struct conn *ending; /* its connection_closed is running */
	ibmsg_socket *ending_socket;

	unsigned busy_poll_us, connect_ms, keepalive_ms;
	uint64_t max_message, max_memory;
	ibmsg_stats stats; /* of connections that are gone */
	unsigned num_conns;
};

/* The private part of an ibmsg_buffer. */
struct buffer_private {
	struct block *block;
	struct conn *conn; /* while posted */
	struct list link;  /* in one of its lists */
	uint32_t number;   /* of an offer */
	int outcome;       /* in conn->finished: the error, or IBMSG_OK */
};
_Static_assert(sizeof(struct buffer_private) <= sizeof(((ibmsg_buffer *)0)->private_),
	       "the reserve is used up");
_Static_assert(sizeof(ibmsg_buffer) == 104, "part of the ABI");
_Static_assert(sizeof(ibmsg_connection_request) == 72, "part of the ABI");

static inline struct buffer_private *buffer_private(ibmsg_buffer *msg)
{
	return (struct buffer_private *)msg->private_;
}

static inline ibmsg_buffer *buffer_of(struct list *link)
{
	char *private = (char *)container_of(link, struct buffer_private, link);

	return (ibmsg_buffer *)(private - offsetof(ibmsg_buffer, private_));
}

/* The private part of an ibmsg_socket. */
struct socket_private {
	struct loop *loop;
	struct conn *conn; /* one of these, or none */
	struct listener *listener;
};
_Static_assert(sizeof(struct socket_private) <= sizeof(((ibmsg_socket *)0)->private_),
	       "the reserve is used up");
_Static_assert(sizeof(ibmsg_socket) == 232, "part of the ABI");

static inline struct socket_private *socket_private(const ibmsg_socket *socket)
{
	return (struct socket_private *)(uintptr_t)socket->private_;
}

/* The private part of an ibmsg_event_loop is one pointer. */
static inline struct loop *loop_of(const ibmsg_event_loop *event_loop)
{
	return event_loop->private_[0];
}
_Static_assert(sizeof(ibmsg_event_loop) == 144, "part of the ABI");

/* ---- loop.c ---- */

int loop_open(ibmsg_event_loop *event_loop);
void loop_close(struct loop *loop);
int loop_dispatch(struct loop *loop, int timeout_ms);
void loop_wake(const struct loop *loop);

static inline void loop_lock(struct loop *loop)
{
	lock_take(&loop->lock);
}

static inline void loop_unlock(struct loop *loop)
{
	lock_give(&loop->lock);
}

bool loop_is_dispatcher(const struct loop *loop);     /* this thread, inside a callback */
int loop_watch(struct loop *loop, int fd, void *who); /* 0 or -errno */
void loop_unwatch(struct loop *loop, int fd);
uint64_t loop_now(void);
void timer_arm(struct loop *loop, struct timer *timer, unsigned milliseconds);
void timer_cancel(struct timer *timer);
/* The dispatcher is to look at @conn: soon, if it is asleep. */
void loop_due(struct conn *conn);
/* Process what is in @cq. Whether there was anything. */
bool loop_poll_cq(struct cq *cq);

#define CALLBACK(loop, call)                                                                       \
	do {                                                                                       \
		loop_unlock(loop);                                                                 \
		call;                                                                              \
		loop_lock(loop);                                                                   \
	} while (0)

static inline void set_socket_status(ibmsg_socket *socket, enum ibmsg_socket_status status)
{
	__atomic_store_n(&socket->status, status, __ATOMIC_RELEASE);
}

static inline void set_buffer_status(ibmsg_buffer *msg, enum ibmsg_buffer_status status)
{
	__atomic_store_n(&msg->status, status, __ATOMIC_RELEASE);
}

/* ---- device.c ---- */

/* The loop's device behind @verbs, with room for one more connection in *@cq. 0 or -errno. */
int device_get(struct loop *loop, struct ibv_context *verbs, struct device **device,
	       struct cq **cq);
void device_put(struct device *device, struct cq *cq);
/* Bytes for arriving messages on the loop's other devices. */
uint64_t device_arriving_elsewhere(const struct device *device);
/* Somebody waits for memory: the bound is the loop's, so what is freed on any device counts. */
void device_starve_all(struct loop *loop);
/* It is gone: nothing new is done with it. */
void device_removed(struct loop *loop, const struct ibv_context *verbs);
/* Let go of devices that are gone, while no event of theirs is at hand. */
void device_reap(struct loop *loop);
/* No connection uses it; messages that are out stay valid. */
void device_free(struct device *device);
/* The channel is readable. Whether anything was done. */
bool device_ready(struct device *device);
/* Ask for an event. Whether something had arrived meanwhile, and was processed. */
bool cq_arm(struct cq *cq);

/* ---- cm.c ---- */

/* Errors are of the public enum. */
/* Addresses of a host, or with NULL to listen at all of this one's. May block: no lock is held. */
int cm_resolve(const char *host, unsigned short port, struct addrinfo **out);
/* Take @addresses over. */
int cm_connect(struct loop *loop, ibmsg_socket *socket, struct addrinfo *addresses,
	       const void *user_data, size_t len);
/* @all: at each of them, not just the first. */
int cm_listen(struct loop *loop, ibmsg_socket *socket, struct addrinfo *addresses, bool all,
	      int backlog);
int cm_accept(ibmsg_connection_request *request, ibmsg_socket *socket, const void *user_data,
	      size_t len);
int cm_reject(ibmsg_connection_request *request, const void *reason, size_t len);
void cm_close_listener(struct listener *listener);
/* Fetch and handle one event. Whether there was one. */
bool cm_dispatch(struct loop *loop);

/* ---- conn.c ---- */

/* Add what counts up. */
void stats_add(ibmsg_stats *to, const ibmsg_stats *from);
struct conn *conn_new(struct loop *loop, ibmsg_socket *socket, bool connector);
void conn_free(struct conn *conn); /* one that was never told of */
/* The queue pair, in its id's device, with receives posted. An error of the public enum. */
int conn_equip(struct conn *conn);
void conn_unequip(struct conn *conn);
struct conn *conn_find(const struct device *device, uint32_t qp_num);
/* It is established: tell the application, and let messages go. By the dispatcher. */
void conn_opened(struct conn *conn);
/* It is to end: by the dispatcher, soon. From anywhere. */
void conn_doom(struct conn *conn, int error);
/* End it now: by the dispatcher. */
void conn_close(struct conn *conn, int error);
/* The same, but well if both sides have said all. */
void conn_end(struct conn *conn, int otherwise);
/* What a dispatcher does with a connection that is due. */
void conn_attend(struct conn *conn);
void conn_expired(struct conn *conn);
/* Begin a graceful close, or cancel what is not established. */
void conn_disconnect(struct conn *conn);
/* All is said? Then it ends. By the dispatcher. */
void conn_check_end(struct conn *conn);
void conn_start_timer(struct conn *conn);

/* Both sides have posted their last, and both have seen that of the other. */
static inline bool conn_is_over(const struct conn *conn)
{
	return conn->end_sent && conn->seen_received;
}

/* ---- send.c ---- */

enum wr_kind { WR_RECV, WR_DATA, WR_MANY, WR_OFFER, WR_CONTROL, WR_READ, WR_BEAT };

static inline uint64_t wr_id(enum wr_kind kind, const void *ptr)
{
	return (uint64_t)(uintptr_t)ptr | (uint64_t)kind << 56;
}

static inline enum wr_kind wr_kind(uint64_t id)
{
	return (enum wr_kind)(id >> 56);
}

static inline void *wr_ptr(uint64_t id)
{
	return (void *)(uintptr_t)(id & 0x00ffffffffffffff);
}

/* @msg is of the connection's device. An error of the public enum. */
int send_post(struct conn *conn, ibmsg_buffer *msg);
/* Give the device all that may leave now. */
void send_pump(struct conn *conn);
/* Tell the peer of receives, if it is time and no other message did. */
void send_owed(struct conn *conn);
/* A work request of sending has completed well. */
void send_completed(struct conn *conn, enum wr_kind kind);
/* The peer is done with an offer. False: there is none of that number. */
bool send_offer_done(struct conn *conn, uint32_t number, enum proto_status status);
void send_credits(struct conn *conn, const struct proto_message *message);
/* Say something, for the sake of it. */
void send_nudge(struct conn *conn);
/* Ask for the sign of life. */
void send_beat(struct conn *conn);
/* Complete everything that was posted with @error; the queue pair is gone. */
void send_fail_all(struct conn *conn, int error);
/* Call message_sent for what has completed. By the dispatcher. */
void send_tell_finished(struct conn *conn);
bool send_is_idle(const struct conn *conn);

/* ---- recv.c ---- */

/* Post receives up to the window. 0 or -errno. */
int recv_fill(struct conn *conn);
void recv_arrived(struct conn *conn, struct block *block, size_t len);
/* Those that were faster than the CM's event. */
void recv_early(struct conn *conn);
void recv_read_done(struct conn *conn);
/* Deliver what is whole, in order. By the dispatcher. */
void recv_deliver(struct conn *conn);
/* Give back every block; the queue pair is gone. */
void recv_drop_all(struct conn *conn);

/* ---- many.c ---- */

/* Two or more that wait at the head of the queue, which is not empty, can travel together. */
bool many_wait(const struct conn *conn);
/* Copy what can from the queue into @carrier. Returns the bytes. */
size_t many_fill(struct conn *conn, struct block *carrier);
/* A MANY of @count messages in @len bytes has come, and was found to be well. */
void many_arrived(struct block *carrier, uint64_t count, size_t len);
/* Its next message. NULL: no memory, or it is not there any more. */
struct block *many_take(struct block *carrier);

#endif
