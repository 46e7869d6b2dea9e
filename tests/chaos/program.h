/* SPDX-License-Identifier: MIT */
/*
 * A random verbs program: what the generator makes, the text form shows, the ends run and the
 * model judges. Everything is in it but the timing.
 *
 * Every count is an int, so that one table of fields prints, reads and shrinks all of it.
 */
#ifndef CHAOS_PROGRAM_H
#define CHAOS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
	MAX_ENDS = 3,
	MAX_THREADS = 4, /* of one end */
	MAX_CQS = 16,
	MAX_SRQS = 4,
	MAX_QPS = 6,
	MAX_OPS = 96, /* of one side */
	MAX_SGE = 8,
	MAX_WORDS = 4, /* of one end */
	MAX_DEPTH = 64,
	MAX_MESSAGES = MAX_OPS * MAX_QPS,
	MAX_SPARE = 8,
	SPARE_BYTES = 64,
	INLINE_BYTES = 64,
};

enum op_kind {
	OP_SEND,
	OP_SEND_IMM,
	OP_SEND_INV,
	OP_WRITE,
	OP_WRITE_IMM,
	OP_READ,
	OP_CMP_SWP,
	OP_FETCH_ADD,
	OP_KINDS,
};

/* How a thread learns of completions. */
enum wait_kind {
	WAIT_POLL,  /* busy-polls */
	WAIT_EVENT, /* sleeps in ibv_get_cq_event */
	WAIT_EPOLL, /* sleeps in epoll on a channel that does not block */
	WAIT_LAZY,  /* when all is posted, watches memory and asks no CQ until the end */
	WAIT_NONE,  /* owns no CQ: only posts */
	WAIT_KINDS,
};

enum fault_kind {
	FAULT_NONE,
	FAULT_DISCONNECT,
	FAULT_ERR,     /* ibv_modify_qp to the error state */
	FAULT_DESTROY, /* of the queue pair */
	FAULT_KILL,    /* SIGKILL for an end */
	FAULT_STOP,    /* SIGSTOP for a while: must change nothing but the time */
	FAULT_KINDS,
};

struct op {
	int kind; /* enum op_kind */
	int len;
	int sge;
	int offset;  /* WRITE, READ: in the arena */
	int word;    /* atomics: which of the target's words */
	int operand; /* FETCH_ADD: what is added. CMP_SWP: whether it compares with a right guess */
	int signaled;
	int fence;
	int solicited;
	int inlined;
	int chain; /* posted in one call with the request behind it */
	int pause; /* microseconds before it is posted */
	int await; /* messages that must have arrived at this side first */
	int drain; /* all earlier requests must have completed first */
};

struct side {
	int end;
	int thread; /* posts the requests */
	int send_cq;
	int recv_cq;
	int srq; /* -1: a receive queue of its own */
	int sq_depth;
	int rq_depth;
	int max_sge;
	int sig_all;
	int modern;     /* posts by ibv_wr_* */
	int late;       /* microseconds before the receives are posted; 0: before connecting */
	int batch;      /* receives are posted again so many at a time */
	int recv_sge;   /* pieces of a receive */
	int recv_slack; /* bytes by which a receive is longer than its message */
	int spare;      /* receives that no message comes for */
	int num_ops;
	struct op ops[MAX_OPS];
};

/* Side 0 connects. */
struct qp {
	int ord;
	int ird;
	int number; /* its ends bring it up themselves, by number; else the CM does */
	struct side sides[2];
};

struct cq {
	int end;
	int thread;    /* the one that polls it */
	int extra;     /* entries beyond what can be outstanding */
	int solicited; /* armed for solicited completions only */
};

struct srq {
	int end;
	int depth;
	int batch;
	int late; /* as of a side */
	int recv_sge;
};

struct thread {
	int wait;      /* enum wait_kind */
	int arm_early; /* arms when a CQ is made, and again before it polls; else after polling */
	int batch;     /* completions asked for at once */
};

struct end {
	int num_threads;
	struct thread threads[MAX_THREADS];
	int tidy; /* gives everything back at the end; else just exits */
};

struct fault {
	int kind; /* enum fault_kind */
	int end;
	int qp;
	int after;    /* completions of all ends together */
	int duration; /* STOP: milliseconds */
};

struct program {
	uint64_t seed;
	int num_ends, num_cqs, num_srqs, num_qps;
	struct end ends[MAX_ENDS];
	struct cq cqs[MAX_CQS];
	struct srq srqs[MAX_SRQS];
	struct qp qps[MAX_QPS];
	struct fault fault;
};

/* ---- what a transport can do ---- */

struct features {
	bool immediate, atomics, invalidate, modern;
	bool modern_lists;   /* several pieces, and inline data, by ibv_wr_* */
	bool empty_receives; /* without a piece */
	bool fences;
	bool solicited;      /* arming for solicited completions works */
	bool plain_reads;    /* READs of no bytes, with a fence, or short ones across a page */
	bool reads_in_order; /* requests behind a READ need not wait for it */
	bool late_receives;  /* a message may arrive before its receive */
	bool numbers;        /* queue pairs can be connected by number */
	bool same_process;   /* both sides of a queue pair in one end */
	bool ends;     /* what is posted in the error state is flushed, so queue pairs may end */
	int max_len;   /* of a request */
	int max_total; /* bytes of all requests of a program, roughly */
	int max_send_sge, max_read_sge;
	int max_ops; /* of one side */
};

/* The features of "rxe" or "siw"; other names are transports of softrdma. */
const struct features *features_of(const char *name);

/* ---- questions about a program ---- */

bool op_is_message(const struct op *op); /* takes a receive at the peer */
bool op_is_atomic(const struct op *op);
bool op_has_imm(const struct op *op);
bool op_is_signaled(const struct side *side, const struct op *op);
/* Does it fill local memory, rather than send from it? */
bool op_fills(const struct op *op);

/* Messages that @side sends. */
int side_count_messages(const struct side *side);
/* Receives that a side posts to its own queue. */
int side_count_receives(const struct program *program, int q, int s);
/* The request that is message number @message of @side; NULL: there is none. */
const struct op *side_message(const struct side *side, int message, int *index);
/* Messages that arrive at an SRQ. */
int srq_count_messages(const struct program *program, int srq);
/* The longest of them. */
int srq_longest_message(const struct program *program, int srq);
/* Entries that a CQ must have. */
int cq_needs(const struct program *program, int cq);
/* Why the ends could not run it; NULL: they can. */
const char *program_flaw(const struct program *program);

static inline const struct side *peer_of(const struct program *program, int qp, int side)
{
	return &program->qps[qp].sides[!side];
}

/* ---- generate.c ---- */

void generate(struct program *program, uint64_t seed, const struct features *features);

/* ---- text.c ---- */

extern const char *const op_names[OP_KINDS];
extern const char *const fault_names[FAULT_KINDS];
void text_print(const struct program *program, FILE *file);
/* 0 or the number of the line that is wrong. */
int text_parse(struct program *program, FILE *file);

/* ---- random numbers ---- */

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* From 0 to @below - 1. */
int rng_below(struct rng *rng, int below);
int rng_between(struct rng *rng, int least, int most);
bool rng_chance(struct rng *rng, int percent);

#endif
