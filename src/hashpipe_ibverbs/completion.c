/* SPDX-License-Identifier: MIT */
/*
 * Completion queues: the extended kind where the device has time stamps, the classic one and the
 * time of the look otherwise.
 */
#include <errno.h>
#include <time.h>

#include "internal.h"

uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int queue_open(struct queue *queue, struct ibv_context *device, uint32_t entries, void *context,
	       struct ibv_comp_channel *channel, bool stamped)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = entries,
		.cq_context = context,
		.channel = channel,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};

	*queue = (struct queue){0};
	if (stamped) {
		queue->extended = ibv_create_cq_ex(device, &attr);
		if (!queue->extended) { /* one thread is a hint that not every device takes */
			attr.comp_mask = 0;
			queue->extended = ibv_create_cq_ex(device, &attr);
		}
		if (!queue->extended)
			return errno ? -errno : -ENOMEM;
		queue->cq = ibv_cq_ex_to_cq(queue->extended);
		return 0;
	}
	queue->cq = ibv_create_cq(device, (int)entries, context, channel, 0);
	return queue->cq ? 0 : errno ? -errno : -ENOMEM;
}

int queue_close(struct queue *queue)
{
	int error = queue->cq ? ibv_destroy_cq(queue->cq) : 0;

	*queue = (struct queue){0};
	return -error;
}

static int poll_extended(struct ibv_cq_ex *cq, struct completion *out, int max)
{
	struct ibv_poll_cq_attr attr = {0};
	int count = 0;

	if (ibv_start_poll(cq, &attr))
		return 0;
	do {
		bool good = cq->status == IBV_WC_SUCCESS;

		out[count++] = (struct completion){
			.wr_id = cq->wr_id,
			.status = cq->status,
			.length = good ? ibv_wc_read_byte_len(cq) : 0,
			.timestamp = good ? ibv_wc_read_completion_ts(cq) : 0,
		};
	} while (count < max && !ibv_next_poll(cq));
	ibv_end_poll(cq);
	return count;
}

static int poll_classic(struct ibv_cq *cq, struct completion *out, int max)
{
	struct ibv_wc done[COMPLETIONS];
	int count = ibv_poll_cq(cq, max, done);
	uint64_t now;

	if (count <= 0)
		return 0;
	now = clock_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < count; i++) {
		out[i] = (struct completion){
			.wr_id = done[i].wr_id,
			.status = done[i].status,
			.length = done[i].status == IBV_WC_SUCCESS ? done[i].byte_len : 0,
			.timestamp = now,
		};
	}
	return count;
}

int queue_poll(struct queue *queue, struct completion *out, int max)
{
	if (max > COMPLETIONS)
		max = COMPLETIONS;
	return queue->extended ? poll_extended(queue->extended, out, max)
			       : poll_classic(queue->cq, out, max);
}
