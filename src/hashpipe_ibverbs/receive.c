/* SPDX-License-Identifier: MIT */
/* Receiving: packets that have arrived, waiting for them, giving them back. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "internal.h"

#define NOBODY    UINT32_MAX
#define MOST_ONCE 1024 /* packets of a look, unless the user says otherwise */

/* ---- giving packets to the device ---- */

/* Its place in the array; NOBODY: it is none of ours. */
static uint32_t index_of(const struct hashpipe_ibv_context *context, const struct packets *packets,
			 const struct hashpipe_ibv_recv_pkt *pkt)
{
	size_t offset = (uintptr_t)pkt - (uintptr_t)context->recv_pkt_buf;
	size_t index = offset / sizeof(*pkt);

	if (index >= packets_total(context->recv_pkt_num, packets) || offset % sizeof(*pkt))
		return NOBODY;
	return (uint32_t)index;
}

static uint32_t qp_of(const struct hashpipe_ibv_context *context, const struct packets *packets,
		      uint32_t index)
{
	return packets->nqp == 1 ? 0 : index / context->recv_pkt_num;
}

/* Packets of one queue pair, linked, to be posted together. */
struct run {
	struct ibv_recv_wr *first, *last;
	uint32_t qp;
};

/* A packet that the device does not take is held back, and the others go on. 0 or -errno. */
static int post_run(struct packets *packets, struct run *run)
{
	struct ibv_recv_wr *wr = run->first, *bad;
	int error, result = 0;

	if (!wr)
		return 0;
	run->last->next = NULL;
	while (wr) {
		error = ibv_post_recv(packets->qp[run->qp], wr, &bad);
		if (!error)
			break;
		if (!result) {
			log_error("a packet cannot be received into: %s", strerror(error));
			result = -error;
		}
		packets->recv_place[bad->wr_id] = PKT_FREE;
		counter_add(&packets->held, 1);
		wr = bad->next;
		bad->next = NULL;
	}
	*run = (struct run){0};
	return result;
}

/* 0, or -errno of a run that had to be posted first. */
static int add_to_run(struct packets *packets, struct run *run, struct ibv_recv_wr *wr, uint32_t qp)
{
	int result = 0;

	if (run->first && run->qp != qp)
		result = post_run(packets, run);
	if (run->first)
		run->last->next = wr;
	else
		run->first = wr;
	run->last = wr;
	run->qp = qp;
	return result;
}

static void keep_first_error(int *first, int next)
{
	if (!*first)
		*first = next;
}

/* Try again what could not be posted before. */
static int post_held(struct hashpipe_ibv_context *context, struct packets *packets)
{
	int result = 0;

	for (uint32_t i = 0; i < packets_total(context->recv_pkt_num, packets); i++) {
		struct run run = {0};

		if (packets->recv_place[i] != PKT_FREE)
			continue;
		packets->recv_place[i] = PKT_DEVICE;
		counter_add(&packets->held, -1ull);
		add_to_run(packets, &run, &context->recv_pkt_buf[i].wr, qp_of(context, packets, i));
		keep_first_error(&result, post_run(packets, &run));
	}
	return result;
}

/* Take @pkt from the user, or from those held back. Its index; NOBODY: it is not the user's. */
static uint32_t take_back(struct hashpipe_ibv_context *context, struct packets *packets,
			  struct hashpipe_ibv_recv_pkt *pkt)
{
	uint32_t index = index_of(context, packets, pkt);

	if (index == NOBODY || packets->recv_place[index] == PKT_DEVICE)
		return NOBODY;
	if (packets->recv_place[index] == PKT_USER)
		counter_add(&packets->out, -1ull);
	else
		counter_add(&packets->held, -1ull);
	packets->recv_place[index] = PKT_DEVICE;
	pkt->wr.wr_id = index;
	return index;
}

static int release(struct hashpipe_ibv_context *context, struct packets *packets,
		   struct hashpipe_ibv_recv_pkt *pkt)
{
	bool had_held = packets->held;
	struct run run = {0};
	int result = 0;

	while (pkt) {
		uint32_t index = take_back(context, packets, pkt);
		struct ibv_recv_wr *next;

		/* Where it leads is not to be trusted. */
		if (index == NOBODY) {
			log_error("a packet was released that is not the caller's");
			keep_first_error(&result, -EINVAL);
			break;
		}
		next = pkt->wr.next;
		keep_first_error(&result, add_to_run(packets, &run, &pkt->wr,
						     qp_of(context, packets, index)));
		pkt = (struct hashpipe_ibv_recv_pkt *)next;
	}
	keep_first_error(&result, post_run(packets, &run));
	if (had_held)
		keep_first_error(&result, post_held(context, packets));
	return result;
}

int receive_post_all(struct hashpipe_ibv_context *context, struct packets *packets)
{
	const uint32_t count = packets_total(context->recv_pkt_num, packets);
	struct run run = {0};
	int result = 0;

	for (uint32_t i = 0; i < count && !result; i++) {
		packets->recv_place[i] = PKT_DEVICE;
		result = add_to_run(packets, &run, &context->recv_pkt_buf[i].wr,
				    qp_of(context, packets, i));
	}
	return result ? result : post_run(packets, &run);
}

/* ---- what has arrived ---- */

struct arrivals {
	struct hashpipe_ibv_recv_pkt *first, *last;
	uint64_t count, bytes, errors;
};

static void add_arrival(struct hashpipe_ibv_context *context, struct packets *packets,
			const struct completion *done, struct arrivals *list)
{
	struct hashpipe_ibv_recv_pkt *pkt;

	if (done->wr_id >= packets_total(context->recv_pkt_num, packets) ||
	    packets->recv_place[done->wr_id] != PKT_DEVICE)
		return; /* posted by somebody else, to this queue pair */
	pkt = &context->recv_pkt_buf[done->wr_id];
	packets->recv_place[done->wr_id] = PKT_USER;
	pkt->length = done->length;
	pkt->timestamp = done->timestamp;
	pkt->wr.next = NULL;
	if (list->first)
		list->last->wr.next = &pkt->wr;
	else
		list->first = pkt;
	list->last = pkt;
	list->count++;
	list->bytes += done->length;
	if (done->status != IBV_WC_SUCCESS) {
		if (!list->errors)
			log_error("a receive has failed: %s", ibv_wc_status_str(done->status));
		list->errors++;
	}
}

/* Up to @max packets of one queue pair. */
static struct hashpipe_ibv_recv_pkt *look_at(struct hashpipe_ibv_context *context,
					     struct packets *packets, uint32_t qp, uint64_t max)
{
	struct completion done[COMPLETIONS];
	struct arrivals list = {0};
	int want, count;

	do {
		uint64_t room = max - list.count;

		want = room < COMPLETIONS ? (int)room : COMPLETIONS;
		count = queue_poll(&packets->recv[qp], done, want);
		for (int i = 0; i < count; i++)
			add_arrival(context, packets, &done[i], &list);
	} while (count == want && list.count < max);
	if (!list.first)
		return NULL;
	counter_add(&packets->out, list.count);
	counter_add(&packets->recv_lists, 1);
	counter_add(&packets->recv_pkts, list.count - list.errors);
	counter_add(&packets->recv_bytes, list.bytes);
	counter_add(&packets->recv_errors, list.errors);
	if (list.errors)
		packets_check(packets, packets->qp[qp]);
	return list.first;
}

static struct hashpipe_ibv_recv_pkt *look(struct hashpipe_ibv_context *context,
					  struct packets *packets, uint32_t max)
{
	for (uint32_t i = 0; i < packets->nqp; i++) {
		uint32_t qp = packets->next_qp;
		struct hashpipe_ibv_recv_pkt *list;

		packets->next_qp = qp + 1 < packets->nqp ? qp + 1 : 0;
		list = look_at(context, packets, qp, max ? max : UINT64_MAX);
		if (list)
			return list;
	}
	return NULL;
}

/*
 * How many packets a look takes at most, if the user does not say: some receives are to stay with
 * the device while the user is at work with the others.
 */
static uint32_t limit_of(const struct hashpipe_ibv_context *context, uint32_t wanted)
{
	uint32_t half = context->recv_pkt_num / 2;

	if (wanted)
		return wanted;
	return half > MOST_ONCE ? MOST_ONCE : half ? half : 1;
}

/* ---- waiting ---- */

/*
 * A receive CQ is armed, or its event is in the channel. So the descriptor is readable whenever
 * something has arrived since the last call that found nothing.
 */
static void fetch_events(struct hashpipe_ibv_context *context)
{
	struct ibv_cq *cq;
	void *ignored;

	while (!ibv_get_cq_event(context->recv_cc, &cq, &ignored)) {
		ibv_ack_cq_events(cq, 1);
		ibv_req_notify_cq(cq, 0);
	}
}

/* Sleep until @deadline at most, 0: for ever. 0, -ETIMEDOUT or -errno. */
static int sleep_on(struct hashpipe_ibv_context *context, struct packets *packets,
		    uint64_t deadline)
{
	struct pollfd channel = {.fd = context->recv_cc->fd, .events = POLLIN};
	struct timespec left, *limit = NULL;
	int result;

	if (deadline) {
		uint64_t now = clock_ns(CLOCK_MONOTONIC);

		if (now >= deadline)
			return -ETIMEDOUT;
		left.tv_sec = (time_t)((deadline - now) / 1000000000u);
		left.tv_nsec = (long)((deadline - now) % 1000000000u);
		limit = &left;
	}
	counter_add(&packets->recv_sleeps, 1);
	result = ppoll(&channel, 1, limit, NULL);
	return result < 0 ? -errno : 0;
}

/* Look for a while before it is worth to sleep. */
static struct hashpipe_ibv_recv_pkt *look_longer(struct hashpipe_ibv_context *context,
						 struct packets *packets, uint32_t max,
						 uint64_t begin, uint64_t deadline)
{
	uint64_t end =
		begin + atomic_load_explicit(&packets->busy_us, memory_order_relaxed) * 1000ull;
	struct hashpipe_ibv_recv_pkt *list = NULL;

	if (deadline && deadline < end)
		end = deadline;
	while (!list && clock_ns(CLOCK_MONOTONIC) < end)
		list = look(context, packets, max);
	return list;
}

static int wait_for(struct hashpipe_ibv_context *context, struct packets *packets, int timeout_ms,
		    struct hashpipe_ibv_recv_pkt **list)
{
	uint32_t max = atomic_load_explicit(&packets->max_batch, memory_order_relaxed);
	uint32_t limit = limit_of(context, max);
	uint64_t begin, deadline = 0;
	int result = 0;

	*list = look(context, packets, limit);
	if (*list)
		return 0;
	if (timeout_ms) {
		begin = clock_ns(CLOCK_MONOTONIC);
		if (timeout_ms > 0)
			deadline = begin + (uint64_t)timeout_ms * 1000000u;
		*list = look_longer(context, packets, limit, begin, deadline);
	}
	while (!*list && !result) {
		fetch_events(context);
		/* What was there before the CQ was armed makes no event: all of it, unless told. */
		*list = look(context, packets, max);
		if (*list)
			break;
		if (atomic_load(&packets->level) == LEVEL_BROKEN)
			return -EPROTO;
		result = timeout_ms ? sleep_on(context, packets, deadline) : -ETIMEDOUT;
	}
	return result == -ETIMEDOUT ? 0 : result;
}

/* ---- the public calls ---- */

/* NULL, with errno: nothing can be received. */
static struct packets *packets_to_receive(const struct hashpipe_ibv_context *context)
{
	struct packets *packets = packets_of(context);
	int result;

	if (!packets)
		return NULL;
	if (atomic_load_explicit(&packets->level, memory_order_relaxed) >= LEVEL_RECEIVES)
		return packets;
	result = packets_raise(packets, LEVEL_RECEIVES);
	if (result)
		errno = -result;
	return result ? NULL : packets;
}

struct hashpipe_ibv_recv_pkt *hashpipe_ibv_recv_pkts(struct hashpipe_ibv_context *hibv_ctx,
						     int timeout_ms)
{
	int saved = errno, result;
	struct packets *packets = packets_to_receive(hibv_ctx);
	struct hashpipe_ibv_recv_pkt *list;

	if (!packets)
		return NULL;
	result = wait_for(hibv_ctx, packets, timeout_ms, &list);
	errno = result ? -result : saved;
	return list;
}

struct hashpipe_ibv_recv_pkt *hashpipe_ibv_poll_pkts(struct hashpipe_ibv_context *hibv_ctx,
						     uint32_t max_pkts)
{
	int saved = errno;
	struct packets *packets = packets_to_receive(hibv_ctx);
	struct hashpipe_ibv_recv_pkt *list;

	if (!packets)
		return NULL;
	list = look(hibv_ctx, packets, limit_of(hibv_ctx, max_pkts));
	errno = saved;
	if (!list && atomic_load_explicit(&packets->level, memory_order_relaxed) == LEVEL_BROKEN)
		errno = EPROTO;
	return list;
}

int hashpipe_ibv_release_pkts(struct hashpipe_ibv_context *hibv_ctx,
			      struct hashpipe_ibv_recv_pkt *recv_pkt)
{
	struct packets *packets = packets_of(hibv_ctx);
	int saved = errno, result;

	if (!packets)
		return -1;
	if (!recv_pkt)
		return 0;
	result = release(hibv_ctx, packets, recv_pkt);
	errno = result ? -result : saved;
	return -result;
}

int hashpipe_ibv_set_max_batch(struct hashpipe_ibv_context *hibv_ctx, uint32_t max_pkts)
{
	struct packets *packets = packets_of(hibv_ctx);

	if (!packets)
		return 1;
	atomic_store(&packets->max_batch, max_pkts);
	return 0;
}

int hashpipe_ibv_set_busy_poll(struct hashpipe_ibv_context *hibv_ctx, uint32_t microseconds)
{
	struct packets *packets = packets_of(hibv_ctx);

	if (!packets)
		return 1;
	atomic_store(&packets->busy_us, microseconds);
	return 0;
}
