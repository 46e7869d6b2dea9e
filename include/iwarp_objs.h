/* SPDX-License-Identifier: MIT */
/*
 * The objects of libiwarp. They are the application's: a call fills them in, and they need no
 * zeroing before. What is not marked as private may be read, and the verbs objects be used with
 * libibverbs.
 */
#ifndef IWARP_OBJS_H
#define IWARP_OBJS_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that may travel with iw_connect, iw_accept and iw_reject. */
#define IW_MAX_PRIVATE_DATA (48)
/* Pieces of a list. A device may take fewer for a send or a receive. */
#define IW_MAX_SGE          (16)
/* Requests that each queue of an accepted connection holds, unless told otherwise. */
#define IW_DEFAULT_CAPACITY (128)

/* The send completion queue and the receive completion queue. */
enum iw_cq_type { IW_SCQ, IW_RCQ };

/* A connection, or a listener: that has a channel and an id alone. */
struct iw_ctx_conn {
	struct rdma_event_channel *cm_channel;
	struct rdma_cm_id *cm_id;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	struct ibv_comp_channel *scq_channel, *rcq_channel;
	uint64_t last_wr_id; /* of the last post; its completion carries it */
	int num_wcs[2];      /* completions that the last await of IW_SCQ and of IW_RCQ gave */
	void *user_data;     /* the application's; NULL at first */
	void *private_[8];
};

/* A local buffer. */
struct iw_lmr {
	void *addr;
	size_t length;
	int access_flags;
	struct ibv_mr *mr;
	void *private_[4];
};

/* A remote buffer, as its owner has advertised it. */
struct iw_rmr {
	uint64_t addr;
	uint64_t length;
	uint32_t rkey;
	int access_flags; /* of IBV_ACCESS_REMOTE_READ and IBV_ACCESS_REMOTE_WRITE */
};

/* A piece of a local buffer. */
struct iw_sge {
	struct iw_lmr *lmr;
	size_t offset, length;
};

/* A scatter/gather list: made by iw_sgl_init and iw_sgl_add. */
struct iw_sgl {
	unsigned num_sge;
	struct iw_sge sge[IW_MAX_SGE];
};

#ifdef __cplusplus
}
#endif

#endif
