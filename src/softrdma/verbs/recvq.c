/* SPDX-License-Identifier: MIT */
/* A ring of posted receives, for a queue pair or an SRQ. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

int recvq_init(struct recvq *queue, uint32_t depth, uint32_t max_sge)
{
	uint32_t size = 1;

	while (size < depth)
		size <<= 1;
	queue->head = queue->tail = 0;
	queue->region = (struct region_sight){0};
	queue->mask = size - 1;
	queue->depth = depth;
	queue->max_sge = max_sge;
	queue->stride = (uint32_t)(sizeof(struct recv_slot) + max_sge * sizeof(struct ibv_sge));
	queue->slots = calloc(size, queue->stride);
	return queue->slots ? 0 : -ENOMEM;
}

void recvq_fini(struct recvq *queue)
{
	free(queue->slots);
	queue->slots = NULL;
}

static struct recv_slot *slot_at(const struct recvq *queue, uint32_t index)
{
	return (struct recv_slot *)(queue->slots + (size_t)(index & queue->mask) * queue->stride);
}

/* Mostly there is one piece. */
static void copy_pieces(struct ibv_sge *to, const struct ibv_sge *from, unsigned count)
{
	if (count == 1)
		*to = *from;
	else if (count)
		memcpy(to, from, count * sizeof(*to));
}

int recvq_post(struct recvq *queue, struct ibv_pd *pd, const struct ibv_recv_wr *wr)
{
	struct recv_slot *slot = slot_at(queue, queue->tail);
	unsigned count = (unsigned)wr->num_sge;
	uint64_t length;

	if (count > queue->max_sge)
		return EINVAL;
	if (recvq_count(queue) == queue->depth)
		return ENOMEM;
	slot->wr_id = wr->wr_id;
	slot->num_sge = (uint8_t)count;
	length = rc_sge_length(wr->sg_list, count);
	slot->length = length > SOFT_MAX_MSG ? SOFT_MAX_MSG : (uint32_t)length;
	slot->status = region_resolve(&queue->region, pd, wr->sg_list, count,
				      IBV_ACCESS_LOCAL_WRITE, slot->sge) == count
			       ? IBV_WC_SUCCESS
			       : IBV_WC_LOC_PROT_ERR;
	queue->tail++;
	return 0;
}

bool recvq_take(struct recvq *queue, struct rc_recv *out)
{
	const struct recv_slot *slot;

	if (queue->head == queue->tail)
		return false;
	slot = slot_at(queue, queue->head++);
	out->wr_id = slot->wr_id;
	out->length = slot->length;
	out->status = slot->status;
	out->num_sge = slot->num_sge;
	copy_pieces(out->sge, slot->sge, slot->num_sge);
	return true;
}

bool recvq_peek(const struct recvq *queue, unsigned ahead, struct rc_recv_view *view)
{
	const struct recv_slot *slot = slot_at(queue, queue->head + ahead);

	if (ahead >= recvq_count(queue) || slot->status != IBV_WC_SUCCESS)
		return false;
	*view = (struct rc_recv_view){
		.wr_id = slot->wr_id,
		.sge = slot->sge,
		.num_sge = slot->num_sge,
		.length = slot->length,
	};
	return true;
}
