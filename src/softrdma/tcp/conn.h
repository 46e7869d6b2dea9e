/* SPDX-License-Identifier: MIT */
/*
 * One iWARP connection, as the files of this folder share it. Guarded by its queue pair's lock
 * while it has one.
 */
#ifndef SOFTRDMA_TCP_CONN_H
#define SOFTRDMA_TCP_CONN_H

#include <stdatomic.h>

#include "../progress/progress.h"
#include "../wire/ddp.h"
#include "../wire/mpa.h"
#include "../wire/terminate.h"
#include "tcp.h"

#define TX_IOV 64

/* In the upper half of an Immediate Data message: it belongs to the Send that follows. */
#define IMMEDIATE_OF_SEND (1ull << 32)

/* A peer's read or atomic that is being answered. */
struct answer {
	enum { ANSWER_READ, ANSWER_ATOMIC, ANSWER_ATOMIC_DONE } kind;
	uint32_t done; /* bytes of a read put into bursts */
	union {
		struct rdmap_read_request read;
		struct rdmap_atomic_request atomic;
		struct rdmap_atomic_response result; /* ANSWER_ATOMIC_DONE */
	};
};

/* Of the request at the head of the send queue: what comes next. */
enum tx_phase { TX_HEAD, TX_DATA, TX_TAIL };

/*
 * Sending. FPDUs are gathered into a burst: headers, trailers and short payloads are copied into
 * the stage, long payloads stay where they are. A burst that the socket takes only in part waits,
 * and no other is built until it has left.
 */
struct tx {
	bool open;         /* FPDUs may be sent */
	bool spoken;       /* and some have been */
	bool full;         /* the socket takes no more until EPOLLOUT says so */
	bool answers_next; /* whose turn it is, when both sends and answers wait */
	uint8_t *stage;
	size_t stage_size;
	size_t stage_len;
	struct iovec iov[TX_IOV];
	int iov_first, iov_end;
	size_t left; /* bytes of the burst not yet taken by the socket */

	uint32_t send_msn;    /* of the next Send */
	uint32_t request_msn; /* of the next Read or Atomic Request */
	uint32_t result_msn;  /* of the next Atomic Response */
	enum tx_phase phase;  /* of the send at sq.next */
	uint32_t offset;      /* its bytes that are in bursts */
	uint32_t settled;     /* sends before this index have left */
	uint32_t reads_open;  /* reads and atomics unanswered */

	struct answer *answers; /* a ring of conn.ird; made when first needed */
	uint32_t answers_head, answers_tail;
	/* The memory that the burst at hand answers from, to be checked again if it has to wait. */
	uint32_t burst_stag;
	uint64_t burst_to;
	size_t burst_len;
};

/* A message that arrived before a receive was posted for it. */
struct held {
	struct list link;
	uint32_t len;
	uint32_t room;
	bool complete;
	struct rc_arrival arrival;
	uint8_t *data;
};

enum rx_state { RX_HEADER, RX_PAYLOAD, RX_TRAILER };
enum rx_sink { SINK_NONE, SINK_RECV, SINK_HELD, SINK_REGION, SINK_READ, SINK_TERMINATE };

/* Receiving: where the stream stands, and the message in progress. */
struct rx {
	enum rx_state state;
	uint8_t header[FPDU_LENGTH_LEN + DDP_MAX_HEADER];
	uint8_t header_len;
	uint8_t trailer[3 + FPDU_CRC_LEN];
	uint8_t trailer_len;
	uint16_t ulpdu_len;
	bool rtr; /* the FPDU at hand is the empty one that says ready-to-receive */
	struct ddp_header segment;
	enum rx_sink sink;
	uint32_t done; /* payload bytes of the segment that are in place */
	uint32_t crc;
	struct ddp_order order;

	struct rc_recv *recv; /* of the Send in progress, NULL if it is held */
	bool recv_begun;      /* a Send is in progress */
	uint32_t recv_done;   /* bytes of its whole segments */
	uint32_t read_done;   /* bytes of the answer to our oldest read */
	bool write_open;      /* a Write is in progress */
	uint32_t write_done;  /* bytes of the last Write, for the immediate data that follows */
	bool has_imm;         /* the Send to come has immediate data: */
	uint32_t imm;
	uint8_t terminate[4];

	struct list held; /* the last one may be incomplete */
	size_t held_bytes;
	uint64_t held_since; /* when a receive was last wanted in vain */
	bool timed;          /* recv_timer is armed: left alone while messages come and go */
	bool delivered;      /* a message has ended: let the program post before more is read */
	bool blocked;   /* no more is kept: the segment at hand waits, and the socket is not read */
	uint8_t *stash; /* bytes that were read behind it */
	size_t stash_len;
};

struct tcp_conn {
	struct progress_source source;
	_Atomic(struct rc_qp *) qp; /* NULL: left alone, only waiting for its end */
	bool detached;              /* from its queue pair; whoever entered lets it go on leaving */
	bool lingers;               /* then */
	char name[160];             /* for the log */
	struct progress_timer open_timer;
	struct progress_timer recv_timer;
	struct progress_timer linger_timer;
	bool initiator;
	bool crc;
	bool soft;
	bool heard;     /* the first FPDU of the peer has come */
	uint8_t nudges; /* given to a peer that was silent */
	uint8_t rtr;    /* enum mpa_rtr that was agreed on, 0 for none */
	bool rtr_read;  /* our ready-to-receive read is unanswered */
	uint16_t ird;
	uint16_t ord;
	size_t max_ulpdu;
	struct tx tx;
	struct rx rx;
};

/* ---- conn.c ---- */

void conn_watch(struct tcp_conn *conn, uint32_t events);

/*
 * The connection is over because of something found here: tell the peer @code (TERM_NONE: nothing),
 * flush, close. @send is the request to blame, if any. @offending: attach the header at hand.
 */
void conn_fail(struct tcp_conn *conn, uint16_t code, bool offending, struct rc_send *send,
	       enum ibv_wc_status status);

/* The connection is over because the socket or the peer says so. @error 0: orderly. */
void conn_end(struct tcp_conn *conn, int error);

/*
 * The connection is over because the peer sent a Terminate; @send is the request it is about, if
 * any.
 */
void conn_terminated(struct tcp_conn *conn, uint16_t code, struct rc_send *send);

static inline bool conn_is_attached(const struct tcp_conn *conn)
{
	return !conn->detached;
}

static inline struct rc_qp *conn_qp(const struct tcp_conn *conn)
{
	return atomic_load_explicit(&conn->qp, memory_order_relaxed);
}

/* ---- tx.c ---- */

int tx_init(struct tcp_conn *conn);
void tx_fini(struct tcp_conn *conn);
/*
 * Send what there is as far as the socket takes it, within a budget. Whether anything left. May end
 * the connection.
 */
bool tx_run(struct tcp_conn *conn);
/* The socket takes bytes again. */
void tx_unblock(struct tcp_conn *conn);
/* Is there anything that could be sent if the socket took it? */
bool tx_is_pending(const struct tcp_conn *conn);
/* Open the direction: say ready-to-receive if that was agreed, then what is queued. */
void tx_open(struct tcp_conn *conn);
/*
 * An empty Write behind what was sent, if nothing else is under way. To the peer's program it means
 * nothing. May end the connection.
 */
void tx_nudge(struct tcp_conn *conn);
/* Best effort: a Terminate, unless an FPDU is half out. */
void tx_terminate(struct tcp_conn *conn, uint16_t code, const uint8_t *offending, size_t len,
		  uint16_t segment_len);
/* Our oldest read or atomic that is unanswered, NULL if there is none. */
struct rc_send *tx_oldest_request(const struct tcp_conn *conn);
/* The sink that a read of ours names on the wire; only its echo is ever compared. */
uint32_t tx_sink_stag(const struct rc_send *send);
uint64_t tx_sink_to(const struct rc_send *send);

/* ---- rx.c ---- */

void rx_init(struct tcp_conn *conn);
void rx_fini(struct tcp_conn *conn);
/* Take what the socket has, within a budget. Whether anything came. May end the connection. */
bool rx_run(struct tcp_conn *conn);
/* A receive was posted: give it what is held, and go on. */
void rx_resume(struct tcp_conn *conn);

#endif
