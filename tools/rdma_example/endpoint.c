/* SPDX-License-Identifier: MIT */
/* One end of a connection: PD, completion channel, CQ, QP, records, memory. */
#include "endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* ---- making and destroying ---- */

static int make_cq(struct endpoint *endpoint)
{
	struct ibv_context *device = endpoint->id->verbs;

	/* The channel is what we sleep on while no completion is there. */
	endpoint->channel = ibv_create_comp_channel(device);
	if (!endpoint->channel)
		return -errno;
	/* Sends and receives complete in one queue: it has room for all that can be posted. */
	endpoint->cq = ibv_create_cq(device, CQ_CAPACITY, endpoint, endpoint->channel, 0);
	if (!endpoint->cq)
		return -errno;
	/* Asked for before anything is posted, so nothing is missed. */
	return -ibv_req_notify_cq(endpoint->cq, 0);
}

static int make_qp(struct endpoint *endpoint)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = endpoint->cq,
		.recv_cq = endpoint->cq,
		.cap = {.max_send_wr = MAX_WR,
			.max_recv_wr = MAX_WR,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	return rdma_create_qp(endpoint->id, endpoint->pd, &attr) ? -errno : 0;
}

static int post_receive(struct endpoint *endpoint)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)endpoint->records.received,
		.length = sizeof(endpoint->records.received),
		.lkey = endpoint->records_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = WR_RECEIVE, .sg_list = &piece, .num_sge = 1}, *bad;

	return -ibv_post_recv(endpoint->id->qp, &wr, &bad);
}

/* Returns @error. */
static int could_not(const char *what, int error)
{
	report_error("%s failed with errno : (%d), %s", what, error, strerror(-error));
	if (error == -ENOMEM)
		fputs("HINT : memory for a device stays in RAM; 'ulimit -l' is how much of it a "
		      "user may have.\n",
		      stderr);
	return error;
}

int endpoint_init(struct endpoint *endpoint, struct rdma_cm_id *id)
{
	int error;

	*endpoint = (struct endpoint){.id = id};
	endpoint->pd = ibv_alloc_pd(id->verbs);
	if (!endpoint->pd)
		return could_not("Allocating a protection domain", -errno);
	error = make_cq(endpoint);
	if (error)
		return could_not("Creating the completion queue", error);
	error = make_qp(endpoint);
	if (error)
		return could_not("Creating the queue pair", error);
	/* No remote rights: the peer's record comes by a message. */
	endpoint->records_mr = ibv_reg_mr(endpoint->pd, &endpoint->records,
					  sizeof(endpoint->records), IBV_ACCESS_LOCAL_WRITE);
	if (!endpoint->records_mr)
		return could_not("Registering the records", -errno);
	error = post_receive(endpoint);
	return error ? could_not("Posting the receive", error) : 0;
}

void endpoint_destroy_qp(struct endpoint *endpoint)
{
	if (endpoint->id && endpoint->id->qp)
		rdma_destroy_qp(endpoint->id);
}

void endpoint_fini(struct endpoint *endpoint)
{
	endpoint_destroy_qp(endpoint);
	if (endpoint->records_mr)
		ibv_dereg_mr(endpoint->records_mr);
	if (endpoint->cq)
		ibv_destroy_cq(endpoint->cq);
	if (endpoint->channel)
		ibv_destroy_comp_channel(endpoint->channel);
	if (endpoint->pd)
		ibv_dealloc_pd(endpoint->pd);
	*endpoint = (struct endpoint){0};
}

/* ---- records and completions ---- */

int endpoint_send_attr(struct endpoint *endpoint, const struct buffer_attr *attr)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)endpoint->records.sent,
		.length = sizeof(endpoint->records.sent),
		.lkey = endpoint->records_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = WR_SEND,
		.sg_list = &piece,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;
	int error;

	buffer_attr_put(endpoint->records.sent, attr);
	error = ibv_post_send(endpoint->id->qp, &wr, &bad);
	return error ? could_not("Sending the buffer information", -abs(error)) : 0;
}

int endpoint_poll(struct endpoint *endpoint, struct ibv_wc *wc)
{
	int count = ibv_poll_cq(endpoint->cq, 1, wc);

	return count < 0 ? could_not("Polling the completion queue", -EIO) : count;
}

int endpoint_take_event(struct endpoint *endpoint)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(endpoint->channel, &cq, &context))
		return could_not("Taking a completion event", -errno);
	/* An event that is not acked keeps the CQ from being destroyed. */
	ibv_ack_cq_events(cq, 1);
	return -ibv_req_notify_cq(cq, 0);
}

int endpoint_is_iwarp(const struct endpoint *endpoint)
{
	return endpoint->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

/* ---- memory ---- */

int region_init(struct region *region, struct ibv_pd *pd, size_t length, unsigned access)
{
	uint8_t *data = calloc(1, length);
	struct ibv_mr *mr;
	int error;

	if (!data)
		return could_not("Allocating the buffer", -ENOMEM);
	mr = ibv_reg_mr(pd, data, length, (int)access);
	if (!mr) {
		error = -errno;
		free(data);
		return could_not("Registering the buffer", error);
	}
	*region = (struct region){data, length, mr};
	return 0;
}

void region_fini(struct region *region)
{
	if (region->mr)
		ibv_dereg_mr(region->mr);
	free(region->data);
	*region = (struct region){0};
}

struct buffer_attr buffer_attr_of(const struct ibv_mr *mr)
{
	return (struct buffer_attr){
		.address = (uintptr_t)mr->addr,
		.length = (uint32_t)mr->length,
		.stag = mr->rkey,
	};
}
