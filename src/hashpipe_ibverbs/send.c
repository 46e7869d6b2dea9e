/* SPDX-License-Identifier: MIT */
/* Sending: packets that are free, packets to be sent, packets that were. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "internal.h"

#define DRAIN_NS 1000000000u

static void put_free(struct hashpipe_ibv_context *context, struct packets *packets, uint64_t index)
{
	struct hashpipe_ibv_send_pkt *pkt = &context->send_pkt_buf[index];

	packets->send_place[index] = PKT_FREE;
	pkt->wr.next = context->send_pkt_head ? &context->send_pkt_head->wr : NULL;
	context->send_pkt_head = pkt;
}

/* Whether it was one of ours, and has failed. */
static bool take_completion(struct hashpipe_ibv_context *context, struct packets *packets,
			    const struct completion *done)
{
	if (done->wr_id >= packets_total(context->send_pkt_num, packets) ||
	    packets->send_place[done->wr_id] != PKT_DEVICE)
		return false;
	packets->sends_done++;
	context->send_pkt_buf[done->wr_id].timestamp = done->timestamp;
	put_free(context, packets, done->wr_id);
	return done->status != IBV_WC_SUCCESS;
}

static void reap_qp(struct hashpipe_ibv_context *context, struct packets *packets, uint32_t qp)
{
	struct completion done[COMPLETIONS];
	uint64_t failures = 0;
	int count;

	do {
		count = queue_poll(&packets->send[qp], done, COMPLETIONS);
		for (int i = 0; i < count; i++) {
			if (!take_completion(context, packets, &done[i]))
				continue;
			if (!failures++)
				log_error("a packet could not be sent: %s",
					  ibv_wc_status_str(done[i].status));
		}
	} while (count == COMPLETIONS);
	if (!failures)
		return;
	counter_add(&packets->send_errors, failures);
	packets_check(packets, packets->qp[qp]);
}

void send_reap(struct hashpipe_ibv_context *context, struct packets *packets)
{
	for (uint32_t i = 0; i < packets->nqp; i++)
		reap_qp(context, packets, i);
}

void send_drain(struct hashpipe_ibv_context *context, struct packets *packets)
{
	const struct timespec pause = {.tv_nsec = 50000};
	const uint64_t end = clock_ns(CLOCK_MONOTONIC) + DRAIN_NS;

	for (;;) {
		uint64_t left;

		send_reap(context, packets);
		left = packets->sends_posted - packets->sends_done;
		if (!left || atomic_load(&packets->level) == LEVEL_BROKEN)
			return;
		if (clock_ns(CLOCK_MONOTONIC) > end) {
			log_warn("%llu packets were not sent in time", (unsigned long long)left);
			return;
		}
		nanosleep(&pause, NULL);
	}
}

/* ---- getting packets ---- */

/* Up to @count of those that are free, linked. */
static struct hashpipe_ibv_send_pkt *take_free(struct hashpipe_ibv_context *context,
					       struct packets *packets, uint32_t count)
{
	struct hashpipe_ibv_send_pkt *first = context->send_pkt_head, *last = NULL, *pkt = first;

	for (uint32_t i = 0; i < count && pkt; i++) {
		packets->send_place[pkt - context->send_pkt_buf] = PKT_USER;
		last = pkt;
		pkt = (struct hashpipe_ibv_send_pkt *)pkt->wr.next;
	}
	if (!last)
		return NULL;
	last->wr.next = NULL;
	context->send_pkt_head = pkt;
	return first;
}

struct hashpipe_ibv_send_pkt *hashpipe_ibv_get_pkts(struct hashpipe_ibv_context *hibv_ctx,
						    uint32_t num_pkts)
{
	struct packets *packets = packets_of(hibv_ctx);
	struct hashpipe_ibv_send_pkt *list;
	int saved = errno, level, result = 0;

	if (!packets || !num_pkts)
		return NULL;
	level = atomic_load_explicit(&packets->level, memory_order_relaxed);
	if (level != LEVEL_SENDS)
		result = packets_raise(packets, LEVEL_SENDS);
	if (!result) {
		send_reap(hibv_ctx, packets);
		if (atomic_load_explicit(&packets->level, memory_order_relaxed) == LEVEL_BROKEN)
			result = -EPROTO;
	}
	if (result) {
		errno = -result;
		return NULL;
	}
	if (num_pkts > hibv_ctx->send_pkt_num)
		num_pkts = hibv_ctx->send_pkt_num;
	list = take_free(hibv_ctx, packets, num_pkts);
	errno = saved;
	return list;
}

/* ---- sending them ---- */

static bool is_users(const struct hashpipe_ibv_context *context, const struct packets *packets,
		     const struct hashpipe_ibv_send_pkt *pkt)
{
	size_t offset = (uintptr_t)pkt - (uintptr_t)context->send_pkt_buf;
	size_t index = offset / sizeof(*pkt);

	return index < packets_total(context->send_pkt_num, packets) && !(offset % sizeof(*pkt)) &&
	       packets->send_place[index] == PKT_USER;
}

static uint64_t bytes_of(const struct ibv_send_wr *wr)
{
	uint64_t bytes = 0;

	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	return bytes;
}

/*
 * Take the list from the user: up to a packet that is not the user's, where it is cut. How many
 * there are; *@result is 0 or -EINVAL.
 */
static uint64_t take_list(struct hashpipe_ibv_context *context, struct packets *packets,
			  struct hashpipe_ibv_send_pkt *pkt, int *result)
{
	struct hashpipe_ibv_send_pkt *last = NULL;
	uint64_t count = 0;

	*result = 0;
	for (; pkt; last = pkt, pkt = (struct hashpipe_ibv_send_pkt *)pkt->wr.next) {
		if (!is_users(context, packets, pkt)) {
			log_error("a packet was sent that is not the caller's");
			*result = -EINVAL;
			if (last)
				last->wr.next = NULL;
			break;
		}
		pkt->wr.wr_id = (uint64_t)(pkt - context->send_pkt_buf);
		packets->send_place[pkt->wr.wr_id] = PKT_DEVICE;
		count++;
	}
	return count;
}

/* The device has taken @count packets from @wr on. */
static void count_sent(struct packets *packets, const struct ibv_send_wr *wr, uint64_t count)
{
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < count; i++, wr = wr->next)
		bytes += bytes_of(wr);
	packets->sends_posted += count;
	counter_add(&packets->send_pkts, count);
	counter_add(&packets->send_bytes, bytes);
}

/* The device took none from @wr on: they are free again. How many. */
static uint64_t take_unsent(struct hashpipe_ibv_context *context, struct packets *packets,
			    struct ibv_send_wr *wr)
{
	uint64_t count = 0;

	while (wr) {
		struct ibv_send_wr *next = wr->next;

		put_free(context, packets, wr->wr_id);
		wr = next;
		count++;
	}
	counter_add(&packets->send_errors, count);
	return count;
}

static int send_list(struct hashpipe_ibv_context *context, struct packets *packets,
		     struct hashpipe_ibv_send_pkt *pkt, uint32_t qp)
{
	struct ibv_send_wr *bad = NULL;
	int error, result;
	uint64_t count = take_list(context, packets, pkt, &result);

	if (!count)
		return result;
	error = ibv_post_send(packets->qp[qp], &pkt->wr, &bad);
	if (error) {
		log_error("packets cannot be sent: %s", strerror(error));
		count -= take_unsent(context, packets, bad);
		result = -error;
	}
	count_sent(packets, &pkt->wr, count);
	return result;
}

int hashpipe_ibv_send_pkts(struct hashpipe_ibv_context *hibv_ctx,
			   struct hashpipe_ibv_send_pkt *send_pkt, uint32_t qp_idx)
{
	struct packets *packets = packets_of(hibv_ctx);
	int saved = errno, result;

	if (!packets)
		return -1;
	if (!send_pkt || qp_idx >= packets->nqp) {
		errno = EINVAL;
		return -1;
	}
	result = send_list(hibv_ctx, packets, send_pkt, qp_idx);
	errno = result ? -result : saved;
	return -result;
}
