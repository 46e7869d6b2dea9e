/* SPDX-License-Identifier: MIT */
/*
 * One reliable connection: what it means, for every transport. A transport carries frames and
 * embeds this struct first; it never decides what a request means.
 *
 * Everything here is guarded by the queue pair's lock, except where it says so.
 *
 * Three roles, one file each. The requester decides what may start and in which order. The
 * responder executes what the peer asks, through answers.c for what has a reply. The completer is
 * rc_settle, for what the peer has placed, and rc_end_frame, for answers.
 *
 * Positions: each direction counts what it carries, as its transport likes (frames, or cells of a
 * ring). The sender notes its position behind each request. The receiver's position, told to the
 * sender, says what has been placed; messages that wait for a receive hold it back.
 */
#ifndef SOFTRDMA_RC_CONN_H
#define SOFTRDMA_RC_CONN_H

#include <stdatomic.h>

#include "../progress/progress.h"
#include "../rc.h"
#include "../wire/terminate.h"
#include "frame.h"

struct rc_conn;

/* ---- what a transport offers; all with the queue pair's lock held, none blocks ---- */

struct rc_transport {
	/* It takes no system call to send or to look. */
	bool memory_only;
	/*
	 * Carry one frame of @frame's message, with as much of the data at @offset of the list as
	 * fits, at most @left bytes. The transport sets len, and RC_LAST if that is all. Moves
	 * conn->tx.position. Returns the bytes taken; -EAGAIN: no room now, and the transport calls
	 * rc_fill again when there is; -EPROTO: the peer broke the transport's rules.
	 */
	ssize_t (*put)(struct rc_conn *conn, struct rc_frame *frame, const struct ibv_sge *sge,
		       unsigned num_sge, uint64_t offset, uint32_t left);
	/*
	 * NULL, or: move some of a Write's or Read's data between the two memories without the
	 * peer's help. Bytes; -EAGAIN: it has to be asked for by frames.
	 */
	ssize_t (*copy)(struct rc_conn *conn, const struct rc_send *send, uint32_t offset);
	/* NULL, or: carry a whole Send that nothing is before, if that is possible at once. */
	bool (*put_now)(struct rc_conn *conn, const struct ibv_sge *sge, unsigned num_sge,
			uint32_t length, bool solicited);
	/* Send what rc_fill gives. Whether anything moved. May end the connection. */
	bool (*send)(struct rc_conn *conn);
	/*
	 * For a poller: look for what arrived, @looks times if a look is cheap and there is
	 * nothing. Whether anything came. May end the connection.
	 */
	bool (*poll)(struct rc_conn *conn, unsigned looks);
	/* The descriptor has @events, or rc_again was called (0). May end the connection. */
	void (*ready)(struct rc_conn *conn, uint32_t events);
	/*
	 * NULL, or: fetch the data of a Send (RC_SEND_FETCH) that has its receive and was held
	 * until now, then call rc_end_frame. -EPROTO: @payload does not say where it is.
	 */
	int (*fetch)(struct rc_conn *conn, const struct rc_frame *frame, const uint8_t *payload);
	/* rx.blocked has been cleared: go on reading. May end the connection. */
	void (*resume)(struct rc_conn *conn);
	/*
	 * Tell the peer rc_placed(), with whatever else can leave; clears ack_due when that is
	 * done. May end the connection.
	 */
	void (*acknowledge)(struct rc_conn *conn);
	/* NULL, or: rc_qp.access has changed. */
	void (*rights_changed)(struct rc_conn *conn);
	/* NULL, or: look whether the peer has told of more that was placed, and settle it. */
	void (*look_for_acks)(struct rc_conn *conn);
	/* What was posted and can leave now leaves, and what was placed is told. */
	void (*say_goodbye)(struct rc_conn *conn);
	/* The last word, best effort. @at_hand: the frame at hand is to blame. */
	void (*terminate)(struct rc_conn *conn, uint16_t code, bool at_hand);
	/* The queue pair and its connection part. @linger: the peer is to see an orderly end. */
	void (*detach)(struct rc_conn *conn, bool linger);
	/* Every call that came in from outside ends with this while the connection is attached. */
	void (*leave)(struct rc_conn *conn);
	/* Nobody uses it any more. Called by the progress thread, under the lock of DATA. */
	void (*free)(struct rc_conn *conn);
};

/* ---- the state of a connection ---- */

/* A peer's read or atomic that is being answered. */
struct rc_answer {
	enum { RC_ANSWER_READ, RC_ANSWER_ATOMIC, RC_ANSWER_RESULT } kind;
	struct rc_frame request;
	uint32_t done; /* bytes of a read that were put */
	uint64_t value;
};

/* The requester. */
struct rc_tx {
	bool open;          /* frames may be put */
	bool answers_next;  /* whose turn it is, when both requests and answers wait */
	bool unsent;        /* frames were put that the transport still has */
	bool framed;        /* frames of the request at sq.next were put, and not the last */
	uint32_t offset;    /* its bytes that are over */
	uint32_t position;  /* behind all that was put; the transport's */
	uint32_t settled;   /* what the peer has placed, or what has left: see @acknowledged */
	uint32_t unsettled; /* first request of the queue that may not be settled */
	uint32_t reads_open;
	struct rc_answer *answers; /* a ring of conn.ird; made when first needed */
	uint32_t answers_head, answers_tail;
};

enum rc_sink { RC_SINK_NONE, RC_SINK_RECV, RC_SINK_HELD, RC_SINK_REGION, RC_SINK_READ };

/* The responder. */
struct rc_rx {
	enum rc_sink sink;    /* of the frame at hand */
	struct rc_recv *recv; /* of the Send in progress */
	uint32_t recv_done;   /* bytes of its whole frames */
	uint32_t read_done;   /* bytes of the answer to our oldest read */
	uint32_t position;    /* behind all that was taken; the transport's */
	bool fetching;        /* the data of a whole Send, which began at: */
	uint32_t fetch_position;
	bool ack_due;        /* something was placed that the peer may wait to hear of */
	unsigned lone_polls; /* since then without a reply */
	bool delivered;      /* a message has ended; cleared by the transport */

	struct list held; /* frames that wait for a receive, in order */
	size_t held_bytes;
	bool starved; /* the first of them found none */
	bool blocked; /* no more are kept: the frame at hand waits, and nothing behind it is read */
	uint64_t starved_since;
	bool timed;     /* recv_timer is armed: left alone while messages come and go */
	bool replaying; /* what waited is being delivered: the frame at hand is another */
	uint32_t taken; /* receives in all */
	uint32_t seen_taken, seen_done; /* taken and recv_done when the timer was armed */
};

struct rc_conn {
	struct progress_source source;
	_Atomic(struct rc_qp *) qp; /* NULL: left alone, only waiting for its end */
	const struct rc_transport *transport;
	bool detached;      /* from its queue pair; whoever entered lets it go on leaving */
	unsigned linger_ms; /* then */
	char name[160];     /* for the log */
	struct progress_timer recv_timer;
	struct progress_timer free_timer;
	bool initiator;
	bool waits_for_first; /* the acceptor's, until the initiator has spoken */
	/* The peer tells what it has placed; else a request is over when it has left. */
	bool acknowledged;
	uint16_t ird;
	uint16_t ord;
	struct rc_tx tx;
	struct rc_rx rx;
};

static inline bool conn_is_attached(const struct rc_conn *conn)
{
	return !conn->detached;
}

static inline struct rc_qp *conn_qp(const struct rc_conn *conn)
{
	return atomic_load_explicit(&conn->qp, memory_order_relaxed);
}

/* Does @position, told by the peer, tell of more that was placed than is known? */
static inline bool rc_is_news(const struct rc_conn *conn, uint32_t position)
{
	return (int32_t)(position - conn->tx.settled) > 0;
}

/* ---- life: conn.c ---- */

/*
 * For a transport that attaches: everything that is not its own, source.fd included, which it
 * watches. @transport and what is agreed on have to be set. 0 or -errno.
 */
int rc_conn_init(struct rc_conn *conn, struct rc_qp *qp, int fd);
void rc_conn_fini(struct rc_conn *conn);
/* The queue pair has the connection from now on. */
void rc_conn_attach(struct rc_conn *conn, bool extended);
/* Every entry from outside that is not one of the service's ends with this. */
void rc_leave(struct rc_conn *conn);
/* For a timer of the transport: its callback with the lock held, if the connection is attached. */
void rc_on_timer(struct rc_conn *conn, void (*action)(struct rc_conn *conn));

/* ---- ends: end.c ---- */

/*
 * The connection is over because of something found here: tell the peer @code (TERM_NONE: nothing),
 * flush, close. @send is the request to blame, if any. @at_hand: the frame at hand is.
 */
void rc_fail(struct rc_conn *conn, uint16_t code, bool at_hand, struct rc_send *send,
	     enum ibv_wc_status status);
/* The connection is over because the transport or the peer says so. @error 0: orderly. */
void rc_end(struct rc_conn *conn, int error);
/* The same, where the peer has just gone: whether that is orderly depends on what is open. */
void rc_peer_gone(struct rc_conn *conn, bool between_frames);
/* The connection is over because the peer said so. */
void rc_terminated(struct rc_conn *conn, uint16_t code);
/* The program ends it, in good order or at once. Both detach. */
void rc_disconnect(struct rc_conn *conn);
void rc_close(struct rc_conn *conn);

/* ---- the requester: requester.c ---- */

/*
 * Put answers and requests in turns, at most @frames. Returns the number put; the connection may
 * have ended.
 */
unsigned rc_fill(struct rc_conn *conn, unsigned frames);
/* Is there anything that could be sent if the transport took it? */
bool rc_is_pending(const struct rc_conn *conn);
/* Is a Send that invalidates nothing the next that would be put? */
bool rc_sends_next(const struct rc_conn *conn);
/* Does the program wait for the peer to tell of requests that it has placed? */
bool rc_awaits_acks(const struct rc_conn *conn);
/* All requests up to @position are over. -EPROTO: that was not sent. */
int rc_settle(struct rc_conn *conn, uint32_t position);
/* Our oldest read or atomic that is unanswered, NULL if there is none. */
struct rc_send *rc_oldest_request(const struct rc_conn *conn);

/* ---- the responder: responder.c ---- */

enum rc_outcome {
	RC_GO_ON,
	RC_BLOCKED, /* no receive, and no room to keep the frame: begin it again after resume */
	RC_ENDED,   /* the connection has ended */
};

/* The header of a frame is here: check it and choose where its payload goes. */
enum rc_outcome rc_begin_frame(struct rc_conn *conn, const struct rc_frame *frame);
/*
 * Where its payload from @done on goes, at most @most bytes, in RC_MAX_SGE pieces; *@region is to
 * be put back by the caller if it is not NULL. Pieces; 0: nowhere; -EFAULT: the memory has gone.
 */
int rc_place(struct rc_conn *conn, const struct rc_frame *frame, uint32_t done, size_t most,
	     struct iovec *iov, struct rc_region **region);
/* All of it is in place: it takes effect. */
enum rc_outcome rc_end_frame(struct rc_conn *conn, const struct rc_frame *frame);
/* All of that for a frame whose payload is at @payload. */
enum rc_outcome rc_take_frame(struct rc_conn *conn, const struct rc_frame *frame,
			      const uint8_t *payload);
/* Receives were posted: deliver what waits. False: something still waits, or it has ended. */
bool rc_deliver_held(struct rc_conn *conn);
/* Up to where all that came has been placed. */
uint32_t rc_placed(const struct rc_conn *conn);
/* Does a frame of this kind take a receive? */
bool rc_takes_receive(const struct rc_frame *frame);

/* ---- frames that wait for a receive: held.c ---- */

struct rc_held {
	struct list link;
	struct rc_frame frame;
	uint32_t position; /* before it */
	bool complete;
	uint8_t payload[];
};

/* A frame is to wait. -EAGAIN: no more is kept now; -ENOMEM. */
int rc_hold(struct rc_conn *conn, const struct rc_frame *frame);
static inline struct rc_held *rc_last_held(const struct rc_conn *conn)
{
	return container_of(conn->rx.held.prev, struct rc_held, link);
}
void rc_drop_held(struct rc_conn *conn, struct rc_held *held);
/* The first that waits has found no receive. */
void rc_starve(struct rc_conn *conn);
/* A message is in progress when the transport pauses: it must go on some time. */
void rc_watch_message(struct rc_conn *conn);
void rc_recv_expired(struct progress_timer *timer);

/* ---- answers: answers.c ---- */

enum rc_step { RC_STEP_NONE, RC_STEP_DONE, RC_STEP_ENDED };

bool rc_answers_wait(const struct rc_tx *tx);
/* Has the oldest answer been put in part? Two tagged messages must not be interleaved. */
bool rc_answer_is_open(const struct rc_conn *conn);
enum rc_outcome rc_add_answer(struct rc_conn *conn, const struct rc_frame *request);
/* One frame of the oldest. */
enum rc_step rc_answer_step(struct rc_conn *conn);

#endif
