/* SPDX-License-Identifier: MIT */
/*
 * The CM's own types and the functions its files offer each other.
 *
 * Unless it says otherwise a function here is called with the CM lock held and returns 0 or -errno.
 * The entry functions (soft_rdma_*) take the lock, and translate to -1 and errno once they have
 * released it.
 */
#ifndef SOFTRDMA_CM_INTERNAL_H
#define SOFTRDMA_CM_INTERNAL_H

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../common/list.h"
#include "../progress/progress.h"
#include "../verbs/qp_owner.h"
#include "../verbs/verbs.h"
#include "../wire/mpa.h"
#include "cm.h"

#define CM_MAX_DEPTH  128   /* reads open at once, in each direction */
#define CM_CONNECT_MS 10000 /* the initiator: TCP and the reply together */
#define CM_REQUEST_MS 5000  /* the responder: from TCP's accept to the whole request */
#define CM_OPENING_MS                                                                              \
	10000 /* the responder: from the reply to the first FPDU, where one must come */

enum cm_state {
	CM_IDLE,
	CM_BOUND,          /* fd is bound, perhaps to a port alone */
	CM_LISTENING,      /* fd listens */
	CM_ADDR_RESOLVED,  /* source, destination and device are known */
	CM_ROUTE_RESOLVED, /* may connect */
	CM_CONNECTING,     /* initiator: fd waits for TCP */
	CM_AWAIT_REPLY,    /* initiator: the request is sent */
	CM_AWAIT_REQUEST,  /* responder: TCP accepted; no user knows this id yet */
	CM_REQUESTED, /* responder: CONNECT_REQUEST is queued or fetched; fd waits for an answer */
	CM_ACCEPTED,  /* responder: attached; ESTABLISHED waits for the initiator's first FPDU */
	CM_CONNECTED, /* attached, ESTABLISHED was queued */
	CM_CLOSING,   /* disconnect was called, DISCONNECTED is to come */
	CM_CLOSED,    /* the last event was queued */
};

/*
 * The descriptor's count is the length of @events, so that poll and epoll see what get_cm_event
 * would find.
 */
struct cm_channel {
	struct rdma_event_channel channel;
	struct list link;   /* among all channels */
	struct list events; /* struct cm_event, not fetched */
	struct list ids;    /* struct cm_id that report here */
};

struct cm_event {
	struct rdma_cm_event event;
	struct cm_id *owner; /* whose destruction waits for the ack: the listener's for a
				CONNECT_REQUEST */
	struct list link;
	uint8_t private_data[UINT8_MAX];
};

struct cm_id {
	struct rdma_cm_id id;
	enum cm_state state;
	bool sync;        /* calls wait for their event, and the channel is the id's own */
	unsigned unacked; /* events fetched and not acked; guarded by the lock of acks */
	struct list channel_link;
	struct cm_event *spare; /* the last event must not be lost for want of memory */
	struct ibv_qp_init_attr
		*ep_attr; /* listener of rdma_create_ep: the queue pairs its requests get */

	int tos; /* -1: as the system has it */
	bool v6only;

	int fd; /* -1: none, or handed over to the queue pair */
	bool watched;
	struct progress_source source;
	struct progress_timer timer;

	/* The handshake. */
	struct mpa_frame request; /* sent (private data in @offer) or received (in @frame) */
	struct mpa_local local;
	bool bound;     /* initiator: the program chose the source, or has seen its port */
	bool fell_back; /* to revision 1 */
	int shm_fd;     /* initiator: where the responder may meet us; -1: nowhere */
	struct progress_timer retry_timer;
	uint64_t retry_until; /* 0: nothing was tried again yet */
	uint8_t offer[MPA_USER_PRIVATE];
	uint8_t frame[MPA_MAX_FRAME];
	size_t frame_len;

	/* The connection. */
	uint32_t qp_num;
	bool attached; /* the queue pair knows @owner */
	struct qp_owner owner;
	struct progress_work news;
	atomic_bool opened, ended; /* set by the queue pair, read by @news */

	/* A listener. */
	unsigned backlog;
	unsigned handshakes; /* children in CM_AWAIT_REQUEST */
	unsigned pending;    /* children in CM_REQUESTED that the user has not fetched */
	bool starved;        /* the last accept found no descriptor or memory: that was logged */
	struct list children;

	/* A listener's child, until the user fetches its request. */
	struct cm_id *listener;
	struct list child_link;
};

static inline struct cm_id *to_cm(struct rdma_cm_id *id)
{
	return container_of(id, struct cm_id, id);
}

static inline struct sockaddr *cm_src(struct cm_id *cm)
{
	return &cm->id.route.addr.src_addr;
}

static inline struct sockaddr *cm_dst(struct cm_id *cm)
{
	return &cm->id.route.addr.dst_addr;
}

/* How an entry function takes the lock. */
static inline void cm_lock(void)
{
	progress_lock(PROGRESS_CM);
}

static inline void cm_unlock(void)
{
	progress_unlock(PROGRESS_CM);
}

/* The edge: from -errno to rdma-core's convention. */
static inline int fail(int error)
{
	errno = -error;
	return -1;
}

/* ---- id.c ---- */

/* No lock needed. NULL: no memory. */
struct cm_id *id_new(void *context, enum rdma_port_space ps, enum ibv_qp_type qp_type);
/* Everything is given back; shut down before, and on no channel but its own. */
void id_free(struct cm_id *cm);
/* End what the id is doing, without an event. */
void id_shutdown(struct cm_id *cm);
/* In a forked child: the id does nothing any more, and may be destroyed. */
void id_orphan(struct cm_id *cm);
/* A child that no user knows. */
void id_drop(struct cm_id *cm);
int id_watch(struct cm_id *cm, uint32_t events);
void id_pause(struct cm_id *cm);   /* the socket stays */
void id_unwatch(struct cm_id *cm); /* it goes, or becomes somebody else's */
/* The socket and the timer. */
void id_close_socket(struct cm_id *cm);

/* ---- channel.c ---- */

struct cm_channel *channel_new(void); /* no lock needed; NULL and errno */
void channel_free(struct cm_channel *channel);
void channel_join(struct cm_channel *channel, struct cm_id *cm);
void channel_leave(struct cm_id *cm);
/* Queued events go with their owner to another channel. */
void channel_move_events(struct cm_channel *from, struct cm_channel *to, struct cm_id *owner);
/* Queued events of @owner vanish, and the children that only they knew. */
void channel_remove_events(struct cm_id *owner);
bool channel_has_events(struct cm_id *owner);

/* What an event tells beside its type; private data at most UINT8_MAX bytes. */
struct cm_news {
	const void *private_data;
	size_t private_len;
	uint16_t responder_resources;
	uint16_t initiator_depth;
};
/* Queue an event for @cm; @news may be NULL. */
void event_post(struct cm_id *cm, enum rdma_cm_event_type type, int status,
		const struct cm_news *news);
/* Queue a CONNECT_REQUEST with the listener of @child. */
int event_post_request(struct cm_id *child, const struct cm_news *news);
/* Without the lock: the ack of @event is @cm's matter from now on. */
void event_transfer(struct rdma_cm_event *event, struct cm_id *cm);
/* Without the lock; blocks until every fetched event of @cm is acked. */
void acks_wait(struct cm_id *cm);

/* ---- socket.c: no lock needed ---- */

socklen_t addr_len(const struct sockaddr *addr); /* 0: NULL, or neither IPv4 nor IPv6 */
bool addr_is_any(const struct sockaddr *addr);
bool addr_is_equal(const struct sockaddr *a, const struct sockaddr *b); /* ports apart */
in_port_t addr_port(const struct sockaddr *addr);                       /* network order */
void addr_set_port(struct sockaddr *addr, in_port_t port);
/*
 * An IPv4 address in IPv6 clothes becomes plain IPv4, as programs expect it from a listener for
 * both.
 */
void addr_unmap(struct sockaddr_storage *addr);
void addr_copy(struct sockaddr_storage *to, const struct sockaddr *from);

struct addr_text {
	char text[INET6_ADDRSTRLEN + 32];
};
struct addr_text addr_text(const struct sockaddr *addr); /* for the log */

/*
 * A TCP socket with our options, bound to @addr: the descriptor or -errno. @outgoing: it will
 * connect, and a port that is not given is chosen then.
 */
int socket_bind(const struct cm_id *cm, const struct sockaddr *addr, bool outgoing);
void socket_prepare(const struct cm_id *cm, int fd, int family);
/* The address from which @dst is reached; @src, if not NULL and not any, is demanded. */
int socket_route(const struct sockaddr *src, const struct sockaddr *dst,
		 struct sockaddr_storage *out);

/* ---- linger.c ---- */

/*
 * Close @fd without destroying what was just sent on it: a reset would, if the peer sent something
 * that nobody read.
 */
void linger_close(int fd);
/* In a forked child: there are none. */
void linger_forget(void);

/* ---- device.c ---- */

/* The device that has @addr: verbs, pd and port of @cm. -ENODEV. */
int device_assign(struct cm_id *cm, const struct sockaddr *addr);

/* ---- address.c ---- */

int address_bind(struct cm_id *cm, const struct sockaddr *addr);

/* ---- listen.c ---- */

void listen_ready(struct cm_id *cm);
void listen_resume(struct cm_id *cm);
void listen_close(struct cm_id *cm);
/* The child's request was fetched, or it is gone: its place is free. */
void listen_leave(struct cm_id *child);
/* The child's request is complete. */
void listen_promote(struct cm_id *child);

/* ---- handshake.c ---- */

/* Nobody is met any more. */
void handshake_retract(struct cm_id *cm);
/* Fill cm->request and cm->local for a request with the private data in cm->offer. */
void handshake_offer(struct cm_id *cm, uint16_t ird, uint16_t ord, size_t private_len);
/* Connect; how it ends comes as an event, except what fails here and now (-errno). */
int handshake_start(struct cm_id *cm);
void handshake_connected(struct cm_id *cm); /* CM_CONNECTING is ready */
void handshake_reply(struct cm_id *cm);     /* CM_AWAIT_REPLY is ready */
void handshake_request(struct cm_id *cm);   /* CM_AWAIT_REQUEST is ready */
void handshake_expired(struct cm_id *cm);
void handshake_retry(struct progress_timer *timer); /* retry_timer has expired */
/* Answer the request with a reject, and close. */
int handshake_refuse(struct cm_id *cm, const void *private_data, size_t len);

/* ---- connection.c ---- */

void connection_init(struct cm_id *cm);
struct shm_link;
/*
 * Hand the socket to the queue pair, and @link, if it is not NULL, also when it fails; ESTABLISHED
 * is queued, with @news, now or when the initiator speaks.
 */
int connection_attach(struct cm_id *cm, struct shm_link *link, const struct mpa_agreed *agreed,
		      bool initiator, const struct cm_news *news);
void connection_ended(struct cm_id *cm);
void connection_expired(struct cm_id *cm); /* CM_ACCEPTED for too long */
int connection_disconnect(struct cm_id *cm);
/* The queue pair forgets us; what is connected is disconnected. */
void connection_detach(struct cm_id *cm);

/* ---- endpoint.c: without the lock ---- */

/* A synchronous id waits for its event and keeps it in id->event; -1 and errno from its status. */
int endpoint_complete(struct rdma_cm_id *id);

#endif
