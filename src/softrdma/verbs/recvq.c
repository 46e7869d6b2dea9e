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

int recvq_post(struct recvq *queue, struct ibv_pd *pd, const struct ibv_recv_wr *wr)
{
	struct recv_slot *slot = slot_at(queue, queue->tail);
	uint64_t length = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge)
		return EINVAL;
	if (recvq_count(queue) == queue->depth)
		return ENOMEM;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	slot->wr_id = wr->wr_id;
	slot->num_sge = (uint8_t)wr->num_sge;
	slot->length = length > SOFT_MAX_MSG ? SOFT_MAX_MSG : (uint32_t)length;
	slot->status = IBV_WC_SUCCESS;
	if (!region_covers(&queue->region, pd, wr->sg_list, slot->num_sge, IBV_ACCESS_LOCAL_WRITE))
		slot->status = IBV_WC_LOC_PROT_ERR;
	if (wr->num_sge == 1) /* mostly */
		slot->sge[0] = wr->sg_list[0];
	else if (wr->num_sge)
		memcpy(slot->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
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
	if (slot->num_sge == 1) /* mostly */
		out->sge[0] = slot->sge[0];
	else
		memcpy(out->sge, slot->sge, slot->num_sge * sizeof(*slot->sge));
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
