/* SPDX-License-Identifier: MIT */
/* What the connections of a loop share on one device: the channel, CQs, memory, the sign of life.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "../common/log.h"
#include "internal.h"

#define CQ_ENTRIES 32768

/* ---- completion queues ---- */

static struct cq *cq_new(struct device *device)
{
	struct cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return NULL;
	cq->cq = ibv_create_cq(device->verbs, (int)device->cq_size, cq, device->channel, 0);
	if (!cq->cq) {
		free(cq);
		return NULL;
	}
	cq->device = device;
	cq->size = (uint32_t)cq->cq->cqe;
	list_add_tail(&device->cqs, &cq->link);
	list_add_tail(&device->loop->unarmed, &cq->unarmed);
	return cq;
}

static void cq_free(struct cq *cq)
{
	list_del(&cq->link);
	list_del(&cq->unarmed);
	if (ibv_destroy_cq(cq->cq))
		log_warn("cannot destroy a completion queue");
	free(cq);
}

static struct cq *cq_with_room(struct device *device)
{
	struct list *pos;

	list_for_each (pos, &device->cqs) {
		struct cq *cq = container_of(pos, struct cq, link);

		if (cq->size - cq->reserved >= SEND_DEPTH + RECV_DEPTH)
			return cq;
	}
	return cq_new(device);
}

bool cq_arm(struct cq *cq)
{
	if (ibv_req_notify_cq(cq->cq, 0))
		return false;
	cq->armed = true;
	list_del(&cq->unarmed);
	/* What came before it was armed raises no event. */
	return loop_poll_cq(cq);
}

bool device_ready(struct device *device)
{
	struct ibv_cq *ibcq;
	void *context;
	bool any = false;

	while (!ibv_get_cq_event(device->channel, &ibcq, &context)) {
		struct cq *cq = context;

		ibv_ack_cq_events(ibcq, 1);
		if (cq->armed)
			list_add_tail(&device->loop->unarmed, &cq->unarmed);
		cq->armed = false;
		cq->misses = 0;
		loop_poll_cq(cq);
		any = true;
	}
	return any;
}

/* ---- the device ---- */

static int open_words(struct device *device, struct ibv_pd *pd)
{
	/* iWARP writes what was read by means of the sink's key. */
	int sink_access = IBV_ACCESS_LOCAL_WRITE | (device->iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);

	device->word_mr =
		ibv_reg_mr(pd, &device->word, sizeof(device->word), IBV_ACCESS_REMOTE_READ);
	if (!device->word_mr)
		return -errno;
	device->sink_mr = ibv_reg_mr(pd, &device->sink, sizeof(device->sink), sink_access);
	return device->sink_mr ? 0 : -errno;
}

void device_free(struct device *device)
{
	struct list *pos, *next;

	list_for_each_safe (pos, next, &device->cqs)
		cq_free(container_of(pos, struct cq, link));
	if (device->channel) {
		loop_unwatch(device->loop, device->channel->fd);
		ibv_destroy_comp_channel(device->channel);
	}
	if (device->sink_mr)
		ibv_dereg_mr(device->sink_mr);
	if (device->word_mr)
		ibv_dereg_mr(device->word_mr);
	if (device->pool)
		pool_put(device->pool);
	list_del(&device->link);
	free(device);
}

static int open_channel(struct device *device)
{
	int flags;

	device->channel = ibv_create_comp_channel(device->verbs);
	if (!device->channel)
		return -errno;
	flags = fcntl(device->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(device->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	return loop_watch(device->loop, device->channel->fd, device);
}

static int open_memory(struct device *device)
{
	struct ibv_pd *pd = ibv_alloc_pd(device->verbs);

	if (!pd)
		return -errno;
	device->pool = pool_new(pd, device->loop->wake_fd);
	if (!device->pool) {
		ibv_dealloc_pd(pd);
		return -ENOMEM;
	}
	return open_words(device, pd);
}

/* NULL, and why in *@error. */
static struct device *device_new(struct loop *loop, struct ibv_context *verbs, int *error)
{
	struct ibv_device_attr attr;
	struct device *device;

	*error = ibv_query_device(verbs, &attr);
	if (*error) {
		*error = *error > 0 ? -*error : *error;
		return NULL;
	}
	device = calloc(1, sizeof(*device));
	if (!device) {
		*error = -ENOMEM;
		return NULL;
	}
	device->loop = loop;
	device->verbs = verbs;
	device->iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	device->cq_size = attr.max_cqe < CQ_ENTRIES ? (uint32_t)attr.max_cqe : CQ_ENTRIES;
	device->max_reads =
		(uint8_t)(attr.max_qp_init_rd_atom < attr.max_qp_rd_atom ? attr.max_qp_init_rd_atom
									 : attr.max_qp_rd_atom);
	if (device->max_reads > MAX_READS)
		device->max_reads = MAX_READS;
	list_init(&device->cqs);
	list_add_tail(&loop->devices, &device->link);
	*error = open_memory(device);
	if (!*error)
		*error = open_channel(device);
	if (*error) {
		device_free(device);
		return NULL;
	}
	log_info("using %s", ibv_get_device_name(verbs->device));
	return device;
}

static struct device *device_find(struct loop *loop, const struct ibv_context *verbs)
{
	struct list *pos;

	list_for_each (pos, &loop->devices) {
		struct device *device = container_of(pos, struct device, link);

		if (device->verbs == verbs && !device->removed)
			return device;
	}
	return NULL;
}

int device_get(struct loop *loop, struct ibv_context *verbs, struct device **out, struct cq **cq)
{
	struct device *device = device_find(loop, verbs);
	int error;

	if (!device)
		device = device_new(loop, verbs, &error);
	if (!device)
		return error;
	*cq = cq_with_room(device);
	if (!*cq) {
		error = errno ? -errno : -ENOMEM;
		if (!device->users)
			device_free(device);
		return error;
	}
	(*cq)->reserved += SEND_DEPTH + RECV_DEPTH;
	device->users++;
	*out = device;
	return 0;
}

void device_starve_all(struct loop *loop)
{
	struct list *pos;

	list_for_each (pos, &loop->devices)
		pool_starve(container_of(pos, struct device, link)->pool);
}

uint64_t device_arriving_elsewhere(const struct device *device)
{
	const struct list *devices = &device->loop->devices;
	uint64_t bytes = 0;
	struct list *pos;

	if (devices->next == devices->prev)
		return 0; /* mostly it is the only one */
	list_for_each (pos, devices) {
		struct device *other = container_of(pos, struct device, link);

		if (other == device)
			continue;
		lock_take(&other->pool->lock);
		bytes += other->pool->arriving;
		lock_give(&other->pool->lock);
	}
	return bytes;
}

void device_removed(struct loop *loop, const struct ibv_context *verbs)
{
	struct device *device = device_find(loop, verbs);

	if (!device)
		return;
	device->removed = true;
}

void device_reap(struct loop *loop)
{
	struct list *pos, *next;
	bool any = false;

	list_for_each_safe (pos, next, &loop->devices) {
		struct device *device = container_of(pos, struct device, link);

		if (device->removed && !device->users) {
			device_free(device);
			any = true;
		}
	}
	/* Its memory is there for others. */
	if (any)
		loop_wake(loop);
}

/* A device without connections stays until the loop ends: the next one may come. */
void device_put(struct device *device, struct cq *cq)
{
	cq->reserved -= SEND_DEPTH + RECV_DEPTH;
	device->users--;
}
