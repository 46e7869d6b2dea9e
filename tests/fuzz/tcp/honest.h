/* SPDX-License-Identifier: MIT */
/*
 * The honest end of a connection that a fuzz target's stranger talks to: a queue pair of the public
 * interface, its memory, and a record of all that was posted. It checks what must hold whatever the
 * stranger says.
 */
#ifndef FUZZ_TCP_HONEST_H
#define FUZZ_TCP_HONEST_H

#include "pair.h"

#define WINDOW       (192u << 10) /* bytes that the peer may read and write, or only read */
#define ROOM         8192u        /* of a receive, and of what a read brings */
#define SOURCE       (160u << 10) /* bytes that requests send */
#define HONEST_DEPTH 16u          /* of each queue */
#define GAP          256u         /* behind each slot: nothing is ever offered of it */
#define MAX_POSTED   512u         /* in the whole life of a connection, of each kind */

/* The side's own memory: what is sent, then a slot for each receive, then one for each read. */
#define HONEST_BYTES (SOURCE + 2 * HONEST_DEPTH * (ROOM + GAP))

/* What memory holds before anything came, and what no stranger may change. */
#define FRESH_BYTE    0x5a
#define SOURCE_BYTE   0xc3
#define READONLY_BYTE 0xb4
#define GUARD_BYTE    0xee
#define SECRET_BYTE   0x77 /* the window while it is deregistered */
/* What the stranger says: a Send has one of sixteen values. */
#define SEND_BYTE     0x10
#define WRITE_BYTE    0x22
#define ANSWER_BYTE   0x33

struct posted {
	uint8_t opcode;
	bool signaled;
	uint32_t length;
	uint8_t *at;
};

struct honest {
	struct side side;
	struct ibv_mr *window; /* NULL: deregistered */
	struct ibv_mr *readonly;
	uint32_t window_key;             /* also when it is deregistered */
	bool wild;                       /* the stranger's payloads may be anything */
	bool failed;                     /* a send request has completed with an error */
	unsigned blamed;                 /* those that were not just flushed */
	unsigned messages;               /* that have come */
	unsigned sends, recvs;           /* posted */
	unsigned sends_seen, recvs_seen; /* all before have completed, or never will */
	struct posted send[MAX_POSTED], recv[MAX_POSTED];
};

/* As is_all, and fast enough for memory of any size. */
static inline bool is_only(const uint8_t *at, size_t len, uint8_t value)
{
	return !len || (at[0] == value && !memcmp(at, at + 1, len - 1));
}

/* Of the process: the memory of windows, made once. */
uint8_t *honest_window(void);
uint8_t *honest_readonly(void);

/* The side is connected; the rest of @honest is zero. */
void honest_begin(struct honest *honest);
/* Close everything and check that no byte has changed that was not offered. */
void honest_end(struct honest *honest);

/* What cannot be posted is refused without a trace. */
void honest_post_recv(struct honest *honest, uint32_t room, unsigned pieces, bool wrong_key);
struct honest_request {
	enum ibv_wr_opcode opcode;
	unsigned flags;
	uint32_t length;
	unsigned pieces;
	bool wrong_key;
};
void honest_post_send(struct honest *honest, const struct honest_request *request);
/* Poll both queues once, and check what comes. Whether anything came. */
bool honest_poll(struct honest *honest);
void honest_deregister(struct honest *honest);
void honest_register(struct honest *honest);
void honest_set_state(struct honest *honest, enum ibv_qp_state state);
/* The peer has gone: the queue pair fails, and everything completes, within a bound. */
void honest_await_end(struct honest *honest);

#endif
