/* SPDX-License-Identifier: MIT */
/* A ring of posted receives, for a queue pair or an SRQ. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"
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

static bool is_good(const struct recv_slot *slot)
{
	return slot->good_sge == slot->num_sge;
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
	slot->good_sge = (uint8_t)region_resolve(&queue->region, pd, wr->sg_list, count,
						 IBV_ACCESS_LOCAL_WRITE, slot->sge);
	if (!is_good(slot))
		queue->pd = pd;
	queue->tail++;
	return 0;
}

/* The first bytes of a wrong piece may be good all the same: its region may only be too short. */
static void take_wrong(struct recvq *queue, const struct recv_slot *slot, struct rc_recv *out)
{
	uint64_t good = rc_sge_length(slot->sge, slot->good_sge);
	struct ibv_sge *part = &out->sge[slot->good_sge];

	out->wrong = slot->sge[slot->good_sge];
	*part = out->wrong;
	if (region_cut(&queue->region, queue->pd, part, IBV_ACCESS_LOCAL_WRITE)) {
		out->num_sge++;
		good += part->length;
	}
	out->good = good > slot->length ? slot->length : (uint32_t)good;
}

bool recvq_take(struct recvq *queue, struct rc_recv *out)
{
	const struct recv_slot *slot;

	if (queue->head == queue->tail)
		return false;
	slot = slot_at(queue, queue->head++);
	out->wr_id = slot->wr_id;
	out->length = slot->length;
	out->num_sge = out->good_sge = slot->good_sge;
	copy_pieces(out->sge, slot->sge, slot->good_sge);
	if (is_good(slot))
		out->good = slot->length;
	else
		take_wrong(queue, slot, out);
	return true;
}

bool recvq_return(struct recvq *queue, const struct rc_recv *recv)
{
	struct recv_slot *slot;

	if (recvq_count(queue) == queue->depth)
		return false;
	slot = slot_at(queue, --queue->head);
	slot->wr_id = recv->wr_id;
	slot->length = recv->length;
	slot->num_sge = slot->good_sge = recv->good_sge;
	copy_pieces(slot->sge, recv->sge, recv->good_sge);
	/* What is behind a wrong piece can never be reached. */
	if (recv->good < recv->length)
		slot->sge[slot->num_sge++] = recv->wrong;
	return true;
}

enum ibv_wc_status rc_recv_fault(const struct rc_qp *qp, const struct rc_recv *recv)
{
	const struct ibv_sge *wrong = &recv->wrong;

	UNCANCELLABLE; /* the log is a system call */
	if (recv->good == recv->length)
		return IBV_WC_LOC_LEN_ERR;
	log_warn("QP 0x%x: a message cannot be placed: the receive with wr_id 0x%llx names key "
		 "0x%08x for %u bytes at 0x%llx, which are not registered for local writes here; "
		 "check that piece's lkey, address and length",
		 qp->qp_num, (unsigned long long)recv->wr_id, wrong->lkey, wrong->length,
		 (unsigned long long)wrong->addr);
	return IBV_WC_LOC_PROT_ERR;
}

bool recvq_peek(const struct recvq *queue, unsigned ahead, struct rc_recv_view *view)
{
	const struct recv_slot *slot = slot_at(queue, queue->head + ahead);

	if (ahead >= recvq_count(queue) || !is_good(slot))
		return false;
	*view = (struct rc_recv_view){
		.wr_id = slot->wr_id,
		.sge = slot->sge,
		.num_sge = slot->num_sge,
		.length = slot->length,
	};
	return true;
}
