/* SPDX-License-Identifier: MIT */
/* Lies about completions that a right model notices. */
#include <string.h>

#include "lie.h"

const char *const lie_names[LIE_KINDS] = {"none", "drop",   "twice",  "swap",  "byte",
					  "read", "atomic", "status", "length"};

/* The completion that is held back until the next one of its queue has passed it. */
static struct ibv_wc held;
static bool holds, told;

static bool same_queue(const struct ibv_wc *a, const struct ibv_wc *b)
{
	return a->wr_id >> 32 == b->wr_id >> 32;
}

static void insert(struct ibv_wc *wcs, int *num, int at, const struct ibv_wc *wc)
{
	memmove(&wcs[at + 1], &wcs[at], (size_t)(*num - at) * sizeof(*wcs));
	wcs[at] = *wc;
	++*num;
}

static void leave_out(struct ibv_wc *wcs, int *num, int at)
{
	--*num;
	memmove(&wcs[at], &wcs[at + 1], (size_t)(*num - at) * sizeof(*wcs));
}

/* Change a byte of what was received, or brought by a READ or an atomic. */
static void spoil_byte(struct run *run, const struct ibv_wc *wc)
{
	struct id id = id_unpack(wc->wr_id);
	size_t at = id.kind == ID_RECV ? run->layout.recv[id.q][id.s][id.index]
				       : run->layout.op[id.q][id.s][id.index];

	run->view[run->program->qps[id.q].sides[id.s].end][at] ^= 1;
}

static bool is_kind(const struct run *run, struct id id, enum op_kind kind)
{
	const struct op *op = &run->program->qps[id.q].sides[id.s].ops[id.index];

	return id.kind == ID_SEND && op->kind == (int)kind && op->len > 0;
}

/* Is this a completion to lie about? */
static bool suits(const struct run *run, const struct ibv_wc *wc)
{
	struct id id = id_unpack(wc->wr_id);
	const struct side *side = &run->program->qps[id.q].sides[id.s];

	if (told || wc->status != IBV_WC_SUCCESS)
		return false;
	switch ((enum lie)run->lie) {
	case LIE_BYTE:
		return id.kind == ID_RECV && wc->opcode == IBV_WC_RECV && wc->byte_len > 8;
	case LIE_READ:
		return is_kind(run, id, OP_READ);
	case LIE_ATOMIC:
		return is_kind(run, id, OP_FETCH_ADD);
	case LIE_LENGTH:
		return id.kind == ID_RECV;
	case LIE_SWAP:
		return id.kind == ID_SEND && side->sig_all && id.index + 1 < side->num_ops;
	default:
		return id.kind == ID_SEND || id.kind == ID_RECV;
	}
}

int lie_about(struct run *run, int cq, struct ibv_wc *wcs, int num)
{
	(void)cq;
	for (int i = 0; i < num; i++) {
		if (holds && same_queue(&held, &wcs[i])) {
			holds = false;
			insert(wcs, &num, i + 1, &held);
			return num;
		}
		if (!suits(run, &wcs[i]))
			continue;
		told = true;
		switch ((enum lie)run->lie) {
		case LIE_SWAP:
			held = wcs[i];
			holds = true;
			leave_out(wcs, &num, i--);
			break;
		case LIE_DROP:
			leave_out(wcs, &num, i);
			return num;
		case LIE_TWICE:
			insert(wcs, &num, i + 1, &wcs[i]);
			return num;
		case LIE_BYTE:
		case LIE_READ:
		case LIE_ATOMIC:
			spoil_byte(run, &wcs[i]);
			return num;
		case LIE_STATUS:
			wcs[i].status = IBV_WC_WR_FLUSH_ERR;
			return num;
		default:
			wcs[i].byte_len++;
			return num;
		}
	}
	return num;
}
