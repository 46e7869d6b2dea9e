/* SPDX-License-Identifier: MIT */
/* One side of a pair: its connections, and the objects that they share. */
#ifndef BENCH_VERBS_SIDE_H
#define BENCH_VERBS_SIDE_H

#include <rdma/rdma_cma.h>

#include "bench.h"

#define SEND_DEPTH 128
#define RECV_DEPTH 512
#define READ_DEPTH 16
#define INLINE_MAX 64

/* Where the server's memory is, told when the connection is accepted. */
struct remote_memory {
	uint64_t address;
	uint32_t key;
};

struct side {
	const struct options *options;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id; /* the connection that is measured */
	struct rdma_cm_id **idle;
	struct rdma_cm_id *to; /* that requests are posted to: id, unless a test says another */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* of the receives; NULL: this side polls */
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_mr *mr;
	uint8_t *data;               /* options->buffers times options->size bytes */
	struct remote_memory remote; /* as much */
	unsigned sends, receives;    /* where in it the next one is, in buffers */
};

/* Either makes the connection that is measured. @sleeps: with a completion channel. */
void side_listen(struct side *side, const struct options *options, bool sleeps);
void side_connect(struct side *side, const struct options *options, bool sleeps);

/* options->idle further connections, with queues of one entry and one receive posted. */
void side_accept_idle(struct side *side);
void side_connect_idle(struct side *side);

/* The client disconnects; the server waits for that. All is given back. */
void side_close(struct side *side);

/* The connection is the wr_id of the receive, that of a send is its opcode. */
void side_post_recv(struct side *side);
void side_post_send(struct side *side, enum ibv_wr_opcode opcode, size_t length, unsigned flags);

/* At least one completion of @cq, polling; their number, or leaves if one is bad. */
int side_poll(struct ibv_cq *cq, struct ibv_wc *wc, int most);
/* The same of receives, or asleep until the completion channel tells: as the side was made. */
int side_wait_recv(struct side *side, struct ibv_wc *wc, int most);

#endif
