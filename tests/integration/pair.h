/* SPDX-License-Identifier: MIT */
/*
 * Two connected sides, for tests of the public interface on any device: in one process, or one of
 * them in a process of its own that may be killed. Waits are bounded, and a wait that runs out of
 * time fails the test. Not for threads of a test: what asserts must be called by the thread that
 * runs it.
 */
#ifndef INTEGRATION_PAIR_H
#define INTEGRATION_PAIR_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof(*(a)))
#define WAIT_MS       20000 /* for what must happen */
#define QUIET_MS      50    /* for what must not */
#define SOON_MS       5000  /* for what must happen at once, on a machine that may be busy */
#define KIB           1024u
#define MIB           (1024u * KIB)
#define ALL_ACCESS    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* ---- time and memory ---- */

uint64_t now_ms(void);
void fill(void *to, size_t len, unsigned seed);
bool is_filled(const void *at, size_t len, unsigned seed);
bool is_all(const void *at, size_t len, uint8_t value);
/* A byte that a peer may be writing at this moment: for programs that watch memory. */
uint8_t peek(const uint8_t *at);
void poke(uint8_t *at, uint8_t value);

/* ---- addresses: IBMSG_ADDR, or 127.0.0.1 ---- */

/* @port in network order. */
void test_address(struct sockaddr_storage *out, uint16_t port);
void any_address(struct sockaddr_storage *out, int family);
/* A port, in network order, at which nobody listens. */
uint16_t unused_port(void);

/* ---- CM events ---- */

/* The next event, to be acked by the caller. */
struct rdma_cm_event *cm_next(struct rdma_event_channel *channel);
/* The same, which must be of @type. */
struct rdma_cm_event *cm_take(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* Take and ack one that must be of @type; returns its status. */
int cm_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* Nothing comes for a moment. */
void cm_expect_none(struct rdma_event_channel *channel);

/* ---- sides ---- */

struct pair_options {
	size_t bytes;   /* of each buffer; 0: 64 KiB */
	uint32_t depth; /* of each queue; 0: 64 */
	uint32_t sge;   /* pieces in a request; 0: 1 */
	uint32_t inline_bytes;
	uint8_t reads; /* initiator_depth and responder_resources of both; 0: 16 */
	bool signal_all;
	bool one_cq;            /* for both queues */
	const struct side *cqs; /* whose CQs it uses, instead of its own */
	bool shared_receives;   /* receives are posted to an SRQ */
	unsigned access;        /* of the buffers; 0: ALL_ACCESS */
};

/* What a side tells its peer in private data. */
struct offer {
	uint64_t addr;
	uint32_t key;
	uint32_t len;
};

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *comp; /* NULL: the CQs are another side's */
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint8_t *buf;
	size_t size;
	struct ibv_mr *mr;
	struct offer remote;
};

struct pair {
	struct rdma_event_channel *channel; /* the listener's */
	struct rdma_cm_id *listener;
	struct side client, server;
};

struct rdma_cm_id *listen_at(struct rdma_event_channel *channel, const struct sockaddr_storage *at,
			     int backlog);

/* An id with its address and route resolved. */
void side_resolve(struct side *side, uint16_t port);
/* The same, bound to @from before. */
void side_resolve_from(struct side *side, struct sockaddr_storage *from, uint16_t port);
/* Everything but the connection; the id knows its device. */
void side_equip(struct side *side, const struct pair_options *options);
void side_connect(struct side *side, const struct pair_options *options);
/* Take a request from @channel and accept it; @side gets a channel of its own. */
void side_accept(struct side *side, struct rdma_event_channel *channel,
		 const struct pair_options *options);
/* ESTABLISHED at the client; what the peer offers is known then. */
void side_await_established(struct side *side);
void side_close(struct side *side);

void pair_open(struct pair *pair, const struct pair_options *options);
void pair_close(struct pair *pair);
/*
 * What peers did to the side's memory is over: thread sanitizers see no order through a socket, but
 * through this.
 */
void side_settle(struct side *side);
/* DISCONNECTED at both. */
void pair_disconnect(struct pair *pair);

/* ---- requests ---- */

struct request {
	enum ibv_wr_opcode opcode;
	uint64_t id;
	size_t at; /* in the side's buffer */
	uint32_t len;
	uint64_t remote_at; /* in the peer's */
	unsigned flags;
	uint32_t key; /* 0: as offered; for SEND_WITH_INV, the one to invalidate */
};

/* The verbs' own error, 0 for success. */
int side_try(struct side *side, const struct request *request);
void side_post(struct side *side, const struct request *request);
void side_send(struct side *side, uint64_t id, size_t at, uint32_t len); /* signalled */
void side_recv(struct side *side, uint64_t id, size_t at, uint32_t len);

/* ---- completions ---- */

/* One completion within @ms; whether there was one. May be called by any thread. */
bool cq_poll(struct ibv_cq *cq, struct ibv_wc *wc, unsigned ms);
struct ibv_wc cq_next(struct ibv_cq *cq);
/* The next one must be @id's, with @status. */
struct ibv_wc cq_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
void cq_expect_none(struct ibv_cq *cq);

/* Requests counted by their wr_id. */
#define TALLY_MAX 4096
struct tally {
	unsigned posted; /* ids 0 .. posted-1 */
	uint8_t seen[TALLY_MAX];
	unsigned done;            /* completions */
	unsigned flushed, failed; /* with an error: a flush, another one */
};
/* Poll until each has been seen; twice or unknown fails. */
void tally_drain(struct tally *tally, struct ibv_cq *cq);
void tally_count(struct tally *tally, const struct ibv_wc *wc);

bool fd_is_readable(int fd, int ms);

/* ---- a peer in a process of its own ---- */

struct peer_role {
	const char *name;
	void (*run)(uint16_t port); /* ends the process if it returns */
};

/* For main(): plays a role if the command line asks for one, and does not return then. */
void peer_main(int argc, char **argv, const struct peer_role *roles, size_t count);
/* This program anew, in @role; it dies with this one. */
pid_t peer_start(const char *role, uint16_t port);
void peer_kill(pid_t pid);
/* Its exit status, within the time. */
int peer_wait(pid_t pid);

#endif
