/* SPDX-License-Identifier: MIT */
/* Completions: polling for them, sleeping until they come, and handing them out. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "internal.h"

#define FIRST_LOOK 64   /* at the clock, after so many polls */
#define SPIN_US    1000 /* between looks at the CM's channel */

/* ---- time ---- */

uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t deadline_in(int ms)
{
	return ms < 0 ? NEVER : now_us() + (uint64_t)ms * 1000;
}

int ms_until(uint64_t deadline)
{
	uint64_t now, ms;

	if (deadline == NEVER)
		return -1;
	now = now_us();
	if (now >= deadline)
		return 0;
	ms = (deadline - now + 999) / 1000;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* ---- a queue ---- */

int queue_open(struct queue *queue, struct ibv_context *verbs, unsigned entries)
{
	int flags;

	fifo_init(&queue->kept, sizeof(struct ibv_wc));
	queue->channel = ibv_create_comp_channel(verbs);
	if (!queue->channel)
		return error_of(errno, "cannot create a completion channel");
	flags = fcntl(queue->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(queue->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return error_of(errno, "cannot set up a completion channel");
	queue->cq = ibv_create_cq(verbs, (int)entries, NULL, queue->channel, 0);
	if (!queue->cq)
		return error_of(errno, "cannot create a completion queue");
	return 0;
}

void queue_close(struct queue *queue)
{
	if (queue->cq)
		ibv_destroy_cq(queue->cq);
	if (queue->channel)
		ibv_destroy_comp_channel(queue->channel);
	fifo_fini(&queue->kept);
	memset(queue, 0, sizeof(*queue));
}

void queue_keep(struct queue *queue, const struct ibv_wc *wc)
{
	*(struct ibv_wc *)fifo_push(&queue->kept) = *wc;
	queue->failures += wc->status != IBV_WC_SUCCESS;
}

/* The number of completions that there were. */
static int queue_poll(struct conn *conn, enum iw_cq_type type)
{
	struct queue *queue = &conn->queues[type];
	struct ibv_wc wc[POLL_BATCH];
	int count;

	if (fifo_reserve(&queue->kept, POLL_BATCH) ||
	    (type == IW_RCQ && fifo_reserve(&conn->arrivals, POLL_BATCH)))
		return error_of(ENOMEM, "no memory for completions");
	count = ibv_poll_cq(queue->cq, POLL_BATCH, wc);
	if (count < 0) {
		conn_end(conn, EIO);
		return error_of(EIO, "cannot poll a completion queue");
	}
	if (count) {
		conn->changes++;
		news_tell(&conn->news);
	}
	for (int i = 0; i < count; i++) {
		if (type == IW_SCQ)
			sendq_completed(conn, &wc[i]);
		else
			recvq_completed(conn, &wc[i]);
	}
	return count;
}

/* ---- waiting ---- */

/* Threads that want the lock get it. */
static void make_room(struct conn *conn)
{
	if (!lock_is_wanted(&conn->lock))
		return;
	conn_unlock(conn);
	sched_yield();
	conn_lock(conn);
}

/*
 * Poll for a while, once at least, until there is a change from what was @seen. Some clocks take
 * longer to read than a queue to poll, so they are looked at less and less.
 */
static int queue_spin(struct conn *conn, enum iw_cq_type type, unsigned seen, uint64_t *spent_us)
{
	unsigned next_look = FIRST_LOOK;
	uint64_t begin = 0, now;

	for (unsigned polls = 1;; polls++) {
		int count = queue_poll(conn, type);

		if (count < 0)
			return count;
		if (conn->changes != seen || *spent_us >= conn->busy_us)
			return 0;
		make_room(conn);
		if (polls < next_look)
			continue;
		next_look *= 2;
		now = now_us();
		if (!begin)
			begin = now;
		if (now - begin >= conn->busy_us - *spent_us || now - begin >= SPIN_US) {
			*spent_us += now - begin;
			return 0;
		}
	}
}

static void take_event(struct queue *queue)
{
	struct ibv_cq *cq;
	void *context;

	if (!ibv_get_cq_event(queue->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

/*
 * Of both queues, whichever is waited for: some devices tell of a failure in the one where it
 * happened alone. What came before a queue was armed raises no event.
 */
static int arm_and_poll(struct conn *conn)
{
	int counts[2];

	for (unsigned i = 0; i < 2; i++) {
		int error = ibv_req_notify_cq(conn->queues[i].cq, 0);

		if (error)
			return error_of(error, "cannot arm a completion queue");
		counts[i] = queue_poll(conn, (enum iw_cq_type)i);
		if (counts[i] < 0)
			return counts[i];
	}
	return counts[0] + counts[1];
}

/* Sleep on the descriptors, for all who wait. */
static int watch(struct conn *conn, uint64_t deadline)
{
	struct pollfd fds[] = {
		{.fd = conn->queues[0].channel->fd, .events = POLLIN},
		{.fd = conn->queues[1].channel->fd, .events = POLLIN},
		{.fd = conn->channel->fd, .events = POLLIN},
		{.fd = conn->end_fd, .events = POLLIN},
	};
	int error = arm_and_poll(conn);

	if (error)
		return error < 0 ? error : 0;
	conn->is_watched = true;
	conn_unlock(conn);
	if (poll(fds, 4, ms_until(deadline)) < 0)
		error = error_of(errno, "waiting for a completion");
	conn_lock(conn);
	conn->is_watched = false;
	for (unsigned i = 0; i < 2; i++)
		if (fds[i].revents)
			take_event(&conn->queues[i]);
	/* One of the others is the next. */
	news_tell(&conn->news);
	return error;
}

/* Somebody else watches. */
static void follow(struct conn *conn, uint64_t deadline)
{
	struct timespec at = {.tv_sec = (time_t)(deadline / 1000000),
			      .tv_nsec = (long)(deadline % 1000000 * 1000)};

	news_wait(&conn->news, &conn->lock, deadline == NEVER ? NULL : &at);
}

int queue_wait(struct conn *conn, enum iw_cq_type type, uint64_t deadline)
{
	const unsigned seen = conn->changes;
	uint64_t spent_us = 0;

	do {
		int ended = conn->ended, error;

		/* What came before the end is there by now. */
		error = queue_spin(conn, type, seen, &spent_us);
		if (error || conn->changes != seen)
			return error;
		if (ended)
			return conn_say_ended(conn);
		cm_look(conn);
	} while (conn->ended || spent_us < conn->busy_us);
	if (deadline != NEVER && now_us() >= deadline)
		return error_say(ETIMEDOUT, "nothing has completed in time");
	if (!conn->is_watched)
		return watch(conn, deadline);
	follow(conn, deadline);
	return 0;
}

/* ---- handing them out ---- */

static int say_failure(const struct ibv_wc *wc)
{
	return error_say(wc->status == IBV_WC_WR_FLUSH_ERR ? ECONNRESET : EIO,
			 "request %llu failed: %s", (unsigned long long)wc->wr_id,
			 ibv_wc_status_str(wc->status));
}

/* Up to @most of the kept, and none behind one that failed. */
static int hand_out(struct queue *queue, int most, struct ibv_wc *out, int *given)
{
	for (*given = 0; *given < most && queue->kept.count;) {
		struct ibv_wc *wc = &out[*given];

		*wc = *(struct ibv_wc *)fifo_pop(&queue->kept);
		(*given)++;
		if (wc->status != IBV_WC_SUCCESS) {
			queue->failures--;
			return say_failure(wc);
		}
	}
	return 0;
}

static int await(struct conn *conn, enum iw_cq_type type, int most, struct ibv_wc *out,
		 uint64_t deadline, int *given)
{
	struct queue *queue = &conn->queues[type];
	int error = 0, failed;

	while (!error && queue->kept.count < (size_t)most && !queue->failures)
		error = queue_wait(conn, type, deadline);
	if (error == -ETIMEDOUT || error == -EINTR)
		return error;
	failed = hand_out(queue, most, out, given);
	return failed ? failed : error;
}

static int await_until(enum iw_cq_type type, int most, struct ibv_wc *out, uint64_t deadline,
		       struct iw_ctx_conn *ctx)
{
	struct conn *conn;
	int error, given = 0;

	if (type != IW_SCQ && type != IW_RCQ)
		return error_say(EINVAL, "there is no such completion queue");
	if (most < 0 || (most && !out))
		return error_say(EINVAL, "there is no list for completions");
	error = conn_of_open(ctx, &conn);
	if (error)
		return error;
	conn_lock(conn);
	error = await(conn, type, most, out, deadline, &given);
	ctx->num_wcs[type] = given;
	conn_unlock(conn);
	return error;
}

int await_completions_timeout(enum iw_cq_type cq_type, int num_wcs, struct ibv_wc *wc_list_out,
			      int timeout_ms, struct iw_ctx_conn *iw_ctx)
{
	return error_return(
		await_until(cq_type, num_wcs, wc_list_out, deadline_in(timeout_ms), iw_ctx));
}

int await_completions(enum iw_cq_type cq_type, int num_wcs, struct ibv_wc *wc_list_out,
		      struct iw_ctx_conn *iw_ctx)
{
	return error_return(await_until(cq_type, num_wcs, wc_list_out, NEVER, iw_ctx));
}

int iw_set_busy_poll(unsigned microseconds, struct iw_ctx_conn *iw_ctx)
{
	struct conn *conn;
	int error = conn_of(iw_ctx, &conn);

	if (!error)
		conn->busy_us = microseconds;
	return error_return(error);
}
