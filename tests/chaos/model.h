/* SPDX-License-Identifier: MIT */
/*
 * The model: what must hold, and the board in shared memory on which the ends keep what they
 * have seen. An end shows the model each completion as it polls it; the driver asks it about the
 * memory when all ends are through.
 */
#ifndef CHAOS_MODEL_H
#define CHAOS_MODEL_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#include "memory.h"
#include "program.h"

/* ---- the board ---- */

struct side_board {
	atomic_int posted;    /* requests; counted before the call */
	atomic_int completed; /* all requests before this one have completed */
	atomic_int received;  /* messages that arrived */
	atomic_int recv_posted;
	atomic_int recv_completed;
	atomic_bool ended;     /* by a fault: from now on requests may fail */
	atomic_bool buried;    /* nothing is posted any more; the last marks are in the queues */
	atomic_bool failed;    /* a request has failed: all later ones are flushed */
	atomic_bool send_over; /* the mark in the send queue has come back */
	atomic_bool recv_over;
	atomic_bool gone;    /* the queue pair was destroyed */
	atomic_int last_srq; /* the last receive that it took from its SRQ */
	atomic_uint qp_num;
	atomic_bool expects; /* by number: it is in RTR */
	atomic_uint arena_key;
	uint32_t spare_keys[MAX_OPS]; /* for SEND_WITH_INV, by request */
};

struct srq_board {
	atomic_int posted;
	atomic_int completed;
	atomic_bool done[MAX_MESSAGES];
};

enum doing {
	DOING_NOTHING,
	DOING_POST,
	DOING_POLL,
	DOING_EVENT,
	DOING_EPOLL,
	DOING_MEMORY,
	DOING_SLOT,
	DOING_OVER
};

struct end_board {
	atomic_int port;
	atomic_bool ready;
	atomic_bool started;
	atomic_bool finished;
	atomic_uint words_key;
	atomic_int doing[MAX_THREADS]; /* enum doing */
};

struct board {
	uint32_t number;       /* of the run, among all that go on at the same time */
	atomic_int fail_state; /* 0, 1: somebody writes the text, 2: it is there */
	char rule[32];
	char text[800];
	atomic_uint progress; /* anything at all has happened */
	atomic_int completions;
	atomic_bool fault_done;
	struct end_board ends[MAX_ENDS];
	struct side_board sides[MAX_QPS][2];
	struct srq_board srqs[MAX_SRQS];
};

/* What a process needs to know of a run. */
struct run {
	const struct program *program;
	struct layout layout;
	struct board *board;
	uint8_t *view[MAX_ENDS]; /* the ends' memory, to look at */
	int memfd[MAX_ENDS];
	int log[MAX_ENDS]; /* what the end says on stderr */
	bool placed;       /* a request that completed is in the target's memory */
	int lie;           /* enum lie: for testing the tester */
};

/* A rule is broken. The first one to say so is heard. */
void board_fail(struct board *board, const char *rule, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- the number of a request ---- */

enum id_kind { ID_SEND = 1, ID_RECV, ID_SRQ, ID_SEND_MARK, ID_RECV_MARK };

struct id {
	enum id_kind kind;
	int q, s; /* or q is the SRQ */
	int index;
};

uint64_t id_pack(enum id_kind kind, int q, int s, int index);
struct id id_unpack(uint64_t wr_id);

/* ---- while it runs ---- */

/* A completion was polled from CQ @cq by its end. */
void model_completed(struct run *run, int cq, const struct ibv_wc *wc);
/* Has every completion of the side's send queue been seen, or of its receives? */
bool sends_are_over(const struct run *run, int q, int s);
bool recvs_are_over(const struct run *run, int q, int s);

/* ---- model_memory.c ---- */

/*
 * Bytes [@from, @to) of the arena of (@q, @s) are what requests up to @must have made of them, or
 * some of those up to @may.
 */
bool arena_is_right(const struct run *run, int q, int s, const uint8_t *bytes, size_t from,
		    size_t to, int must, int may, size_t *wrong);
/* Has everything been written that the side writes? */
bool arena_is_complete(const struct run *run, int q, int s);
/* A message lies in a receive of @len bytes in @num pieces at @buffer, and nothing else does. */
bool message_is_right(const struct run *run, int q, int s, int i, const uint8_t *buffer, int room,
		      int num, char *why, size_t why_size);
/* After the run: arenas, atomics, guards, counts. */
void model_finish(struct run *run);

#endif
