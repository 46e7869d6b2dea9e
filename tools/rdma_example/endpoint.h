/* SPDX-License-Identifier: MIT */
/*
 * One end of a connection, the same in both programs: the verbs objects that it needs, the receive
 * for the peer's record, and memory that is registered.
 *
 * Which object needs which:
 *
 *   rdma_cm_id ── from rdma_create_id, or from a connect request; it knows its device (id->verbs)
 *      │          when its address is resolved or bound
 *      ├─ ibv_pd             needs the device alone
 *      │    └─ ibv_mr        needs the PD, and memory
 *      ├─ ibv_comp_channel   needs the device alone
 *      │    └─ ibv_cq        needs the device, and a channel if somebody wants to sleep
 *      └─ ibv_qp             needs the id, the PD and the CQs; it is made last and destroyed first
 *
 * Every client of the server has a PD of its own, so no client's key opens the buffer of another.
 */
#ifndef RDMA_EXAMPLE_ENDPOINT_H
#define RDMA_EXAMPLE_ENDPOINT_H

#include <rdma/rdma_cma.h>

#include "buffer_attr.h"

#define CQ_CAPACITY 16
#define MAX_WR      8
#define MAX_READS   3 /* RDMA reads that are open at a time */

/* What a completion belongs to. Other wr_ids are the user's. */
enum { WR_RECEIVE = 1, WR_SEND };

struct endpoint {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *records_mr;
	struct {
		uint8_t received[BUFFER_ATTR_BYTES], sent[BUFFER_ATTR_BYTES];
	} records;
};

/*
 * Everything but the connection, with the receive for the peer's record posted: who connects or
 * accepts first and posts then may be too late. @endpoint must not move afterwards. 0 or -errno,
 * reported.
 */
int endpoint_init(struct endpoint *endpoint, struct rdma_cm_id *id);
/* In any state; the id stays. */
void endpoint_fini(struct endpoint *endpoint);

/* From here on nothing more arrives in our memory. */
void endpoint_destroy_qp(struct endpoint *endpoint);

/* Send our own record. Its completion is WR_SEND. */
int endpoint_send_attr(struct endpoint *endpoint, const struct buffer_attr *attr);

/* The next completion: 1, 0 if there is none, -errno. Does not wait. */
int endpoint_poll(struct endpoint *endpoint, struct ibv_wc *wc);
/* The channel's descriptor is readable: take the event, and ask for the next one. Poll then. */
int endpoint_take_event(struct endpoint *endpoint);

/* Whether the device speaks iWARP, which has rules of its own. */
int endpoint_is_iwarp(const struct endpoint *endpoint);

/* ---- memory ---- */

struct region {
	uint8_t *data;
	size_t length;
	struct ibv_mr *mr;
};

/* Zeroed memory that is registered with these rights, no more. 0 or -errno, reported. */
int region_init(struct region *region, struct ibv_pd *pd, size_t length, unsigned access);
void region_fini(struct region *region);

/* What the peer is to know of it. */
struct buffer_attr buffer_attr_of(const struct ibv_mr *mr);

#endif
