/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs that are connected by number, for tests: both ends are in this process, on soft_lo.
 */
#ifndef INTEGRATION_NUMBERED_H
#define INTEGRATION_NUMBERED_H

#include "pair.h"

#define NUMBERED_BYTES (64 * KIB)

struct numbered {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t buf[NUMBERED_BYTES]; /* the first half for receives, the second for what is sent */
};

/* Open and close the device, for cmocka's groups. */
int numbered_setup(void **state);
int numbered_teardown(void **state);
/* The GID of 127.0.0.1. */
extern union ibv_gid numbered_gid;

/* A queue pair in the state INIT, with a CQ and memory. */
struct numbered *numbered_open(void);
void numbered_close(struct numbered *end);

/* ---- its states ---- */

#define NUMBERED_RTR_MASK                                                                          \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define NUMBERED_RTS_MASK                                                                          \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)

void numbered_init(struct numbered *end);
struct ibv_qp_attr numbered_rtr_attr(uint32_t dest, uint32_t psn);
/* @psn: the first that @peer sends. */
void numbered_rtr(struct numbered *end, const struct numbered *peer, uint32_t psn);
/* @psn: the first that it sends. @timeout: LONG_TRIES unless it is to fail. */
#define LONG_TRIES 20 /* 4.3 s for each of two tries */
void numbered_rts(struct numbered *end, uint32_t psn, uint8_t timeout);
void numbered_set_state(struct numbered *end, enum ibv_qp_state state);
void numbered_assert_state(const struct numbered *end, enum ibv_qp_state state);

/* Both ends to RTS; @a sends from @a_psn on, @b from @b_psn on. */
void numbered_connect(struct numbered *a, uint32_t a_psn, struct numbered *b, uint32_t b_psn,
		      uint8_t timeout);

/* ---- traffic ---- */

void numbered_post_recv(struct numbered *end, uint64_t id);
/* A signalled request with @opcode for wr_id, to the start of the peer's memory. */
void numbered_post(struct numbered *end, const struct numbered *peer, enum ibv_wr_opcode opcode,
		   uint32_t len);
void numbered_await(struct numbered *end, uint64_t id, enum ibv_wc_status status);
/* A message of @from arrives at @to. */
void numbered_exchange(struct numbered *from, struct numbered *to);

#endif
