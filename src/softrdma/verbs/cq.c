/* SPDX-License-Identifier: MIT */
/* Completion queues: the ring, the arming, and how a poller drives its queue pairs. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "../../common/log.h"
#include "../progress/progress.h"
#include "../../common/uncancel.h"
#include "deferred.h"
#include "objects.h"

#define YIELDS   100 /* before a thread that waits for the drive lock sleeps */
#define PAUSE_NS 50000

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t size = 1;

	while (size < n)
		size <<= 1;
	return size;
}

/* ---- the drive lock: mostly it is only tried ---- */

static bool try_drive(struct soft_cq *cq)
{
	return !atomic_exchange_explicit(&cq->driven, true, memory_order_acquire);
}

static void begin_drive(struct soft_cq *cq)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	UNCANCELLABLE;
	for (int i = 0; !try_drive(cq); i++)
		if (i < YIELDS)
			sched_yield();
		else /* its holder may be of a lower priority */
			nanosleep(&pause, NULL);
}

static void end_drive(struct soft_cq *cq)
{
	atomic_store_explicit(&cq->driven, false, memory_order_release);
}

/* ---- programs that sleep in a loop of their own ---- */

/* Whoever arms a CQ of a channel that is in a loop is about to sleep there. The lock is held. */
static bool begin_sleep(struct soft_cq *cq)
{
	if (cq->slept_at || !cq->channel || !cq->channel->loops)
		return false;
	cq->slept_at = true;
	return true;
}

/* The lock is held. */
static void end_sleep(struct soft_cq *cq)
{
	if (cq->slept_at)
		progress_end_loop_sleep();
	cq->slept_at = false;
}

/* ---- queues ---- */

struct ibv_cq *soft_ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				  struct ibv_comp_channel *channel, int comp_vector)
{
	struct soft_cq *cq;

	if (cqe < 1 || cqe > SOFT_MAX_CQE || comp_vector < 0 ||
	    comp_vector >= context->num_comp_vectors ||
	    (channel && channel->context->device != context->device)) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->size = round_up_pow2((uint32_t)cqe);
	cq->mask = cq->size - 1;
	cq->ring = malloc(cq->size * sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = (int)cq->size;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	list_init(&cq->event_link);
	list_init(&cq->qps);
	deferred_init(&cq->deferred);
	if (channel) {
		cq->channel = container_of(channel, struct soft_channel, channel);
		pthread_mutex_lock(&cq->channel->lock);
		cq->channel->cqs++;
		pthread_mutex_unlock(&cq->channel->lock);
	}
	atomic_fetch_add(&to_context(context)->objects, 1);
	return &cq->cq;
}

/* After this no event of the CQ is queued, and all that were taken are acknowledged. */
static void retire_events(struct soft_cq *cq)
{
	channel_forget(cq->channel, cq);
	lock_take(&cq->lock);
	end_sleep(cq);
	for (;;) {
		unsigned taken;

		pthread_mutex_lock(&cq->channel->lock);
		taken = cq->events_taken;
		pthread_mutex_unlock(&cq->channel->lock);
		if (taken == cq->events_acked)
			break;
		news_wait(&cq->acked, &cq->lock, NULL);
	}
	lock_give(&cq->lock);
	pthread_mutex_lock(&cq->channel->lock);
	cq->channel->cqs--;
	pthread_mutex_unlock(&cq->channel->lock);
}

int soft_ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct soft_cq *cq = container_of(ibcq, struct soft_cq, cq);
	unsigned users;

	begin_drive(cq);
	users = cq->num_qps;
	end_drive(cq);
	if (users)
		return EBUSY;
	if (cq->channel)
		retire_events(cq);
	async_retire(ibcq->context, ibcq, &cq->async);
	atomic_fetch_sub(&to_context(ibcq->context)->objects, 1);
	pthread_mutex_destroy(&cq->poll_lock);
	pthread_mutex_destroy(&cq->cq.mutex);
	pthread_cond_destroy(&cq->cq.cond);
	free(cq->ring);
	free(cq);
	return 0;
}

void soft_ibv_ack_cq_events(struct ibv_cq *ibcq, unsigned nevents)
{
	struct soft_cq *cq = container_of(ibcq, struct soft_cq, cq);

	lock_take(&cq->lock);
	cq->events_acked += nevents;
	news_tell(&cq->acked);
	lock_give(&cq->lock);
}

int soft_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct soft_cq *cq = container_of(ibcq, struct soft_cq, cq);
	bool sleeps;

	UNCANCELLABLE;
	lock_take(&cq->lock);
	if (!solicited_only)
		cq->armed = CQ_ARMED;
	else if (cq->armed == CQ_QUIET)
		cq->armed = CQ_ARMED_SOLICITED;
	sleeps = begin_sleep(cq);
	lock_give(&cq->lock);
	if (sleeps)
		progress_begin_loop_sleep();
	return 0;
}

/* Nothing is lost in silence: the program hears of it, and so does the log. */
static void report_overrun(struct soft_cq *cq)
{
	struct ibv_async_event event = {.element.cq = &cq->cq, .event_type = IBV_EVENT_CQ_ERR};

	if (cq->overrun)
		return;
	cq->overrun = true;
	log_error("CQ of %u entries overrun: completions are lost; make it larger", cq->size);
	async_raise(cq->cq.context, &event);
}

void rc_begin_batch(struct rc_qp *rc)
{
	to_qp(rc)->batch = (struct stamp_batch){.open = true};
}

void rc_end_batch(struct rc_qp *rc)
{
	to_qp(rc)->batch.open = false;
}

/* The time stamp for a completion of @qp, whose lock is held. */
static uint64_t stamp_now(struct soft_qp *qp)
{
	if (!qp->batch.open)
		return progress_now();
	if (!qp->batch.stamp)
		qp->batch.stamp = progress_now();
	return qp->batch.stamp;
}

static bool is_filled(const struct soft_cq *cq)
{
	return atomic_load_explicit(&cq->filled, memory_order_relaxed);
}

/*
 * While the ring is not empty, it may hold earlier completions of @qp, and this one has to queue
 * behind them. All completions of @qp are made under its lock, so none overtakes another. An armed
 * CQ needs the ring too, because cq_push raises the event.
 */
struct ibv_wc *cq_poll_slot(struct soft_cq *cq, struct soft_qp *qp)
{
	struct cq_poll *poll = qp->poll;

	if (!poll || poll->cq != cq || poll->count == poll->room || is_filled(cq) ||
	    atomic_load_explicit(&cq->armed, memory_order_relaxed) != CQ_QUIET)
		return NULL;
	if (poll->stamp && cq->stamped)
		*poll->stamp = stamp_now(qp);
	return &poll->wc[poll->count++];
}

void cq_push(struct soft_cq *cq, struct soft_qp *qp, const struct ibv_wc *wc, bool solicited)
{
	struct ibv_wc *slot = cq_poll_slot(cq, qp);

	if (slot) {
		*slot = *wc;
		return;
	}
	lock_take(&cq->lock);
	if (cq->tail - cq->head == cq->size) {
		report_overrun(cq);
		lock_give(&cq->lock);
		return;
	}
	cq->ring[cq->tail & cq->mask].wc = *wc;
	if (cq->stamped)
		cq->ring[cq->tail & cq->mask].stamp = stamp_now(qp);
	cq->tail++;
	atomic_store_explicit(&cq->filled, true, memory_order_relaxed);
	/* An unsuccessful completion counts as solicited. */
	if (cq->armed == CQ_ARMED ||
	    (cq->armed == CQ_ARMED_SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS))) {
		cq->armed = CQ_QUIET;
		end_sleep(cq);
		if (cq->channel)
			channel_signal(cq->channel, cq);
	}
	lock_give(&cq->lock);
}

/* The lock is held. */
static void note_emptiness(struct soft_cq *cq)
{
	if (cq->head != cq->tail)
		return;
	cq->head = cq->tail = 0; /* what was used last is in the caches */
	atomic_store_explicit(&cq->filled, false, memory_order_relaxed);
}

static int pop(struct soft_cq *cq, int num, struct ibv_wc *wc)
{
	int count = 0;

	if (!is_filled(cq))
		return 0;
	lock_take(&cq->lock);
	while (count < num && cq->head != cq->tail)
		wc[count++] = cq->ring[cq->head++ & cq->mask].wc;
	note_emptiness(cq);
	lock_give(&cq->lock);
	return count;
}

bool cq_take(struct soft_cq *cq, struct cqe *out)
{
	bool any;

	if (!is_filled(cq))
		return false;
	lock_take(&cq->lock);
	any = cq->head != cq->tail;
	if (any)
		*out = cq->ring[cq->head++ & cq->mask];
	note_emptiness(cq);
	lock_give(&cq->lock);
	return any;
}

/* The lock is held. */
static int move_ring(struct soft_cq *cq, uint32_t size)
{
	struct cqe *ring;

	if (cq->tail - cq->head > size)
		return EINVAL;
	ring = malloc(size * sizeof(*ring));
	if (!ring)
		return ENOMEM;
	for (uint32_t i = cq->head; i != cq->tail; i++)
		ring[i & (size - 1)] = cq->ring[i & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->size = size;
	cq->mask = size - 1;
	cq->cq.cqe = (int)size;
	return 0;
}

int soft_ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct soft_cq *cq = container_of(ibcq, struct soft_cq, cq);
	int error;

	if (cqe < 1 || cqe > SOFT_MAX_CQE)
		return EINVAL;
	lock_take(&cq->lock);
	error = move_ring(cq, round_up_pow2((uint32_t)cqe));
	lock_give(&cq->lock);
	return error;
}

/* ---- queue pairs ---- */

/*
 * Make @use active, if there is room for one more: every empty poll looks at it. @costs_syscall: a
 * look at it is a system call. The drive lock is held.
 */
static void activate(struct soft_cq *cq, struct cq_use *use, bool costs_syscall)
{
	if (cq->num_active == CQ_MAX_ACTIVE ||
	    (costs_syscall && cq->num_costs_syscall == CQ_MAX_ACTIVE_SYSCALL))
		return;
	cq->active[cq->num_active++] = use;
	cq->num_costs_syscall += costs_syscall;
	use->costs_syscall = costs_syscall;
	use->empty_polls = 0;
	atomic_store(&use->active, true);
}

/* Polls do not look at it any more. The drive lock is held. */
static void deactivate(struct soft_cq *cq, unsigned slot)
{
	struct cq_use *use = cq->active[slot];

	cq->active[slot] = cq->active[--cq->num_active];
	cq->num_costs_syscall -= use->costs_syscall;
	atomic_store(&use->active, false);
}

void cq_attach_qp(struct soft_cq *cq, struct cq_use *use, struct soft_qp *qp)
{
	use->qp = qp;
	begin_drive(cq);
	list_add_tail(&cq->qps, &use->link);
	cq->num_qps++;
	activate(cq, use, true); /* its transport is not known yet */
	end_drive(cq);
}

void cq_note_traffic(struct soft_cq *cq, struct cq_use *use)
{
	const struct rc_service *service = use->qp->rc.service;

	if (atomic_load_explicit(&use->active, memory_order_relaxed))
		return;
	/*
	 * The drive lock comes before the queue pair's, which the caller holds. So it is only
	 * tried. If another thread holds it, the next message tries again.
	 */
	if (!try_drive(cq))
		return;
	activate(cq, use, !service || !service->memory_only);
	end_drive(cq);
}

void cq_detach_qp(struct soft_cq *cq, struct cq_use *use)
{
	uint32_t kept;

	begin_drive(cq);
	list_del(&use->link);
	cq->num_qps--;
	for (unsigned i = 0; i < cq->num_active; i++)
		if (cq->active[i] == use)
			deactivate(cq, i);
	end_drive(cq);

	lock_take(&cq->lock);
	kept = cq->head;
	for (uint32_t i = cq->head; i != cq->tail; i++)
		if (cq->ring[i & cq->mask].wc.qp_num != use->qp->rc.qp_num)
			cq->ring[kept++ & cq->mask] = cq->ring[i & cq->mask];
	cq->tail = kept;
	lock_give(&cq->lock);
}

/* Is there a completion for @poll? */
static bool has_found(const struct cq_poll *poll)
{
	return poll->count || is_filled(poll->cq);
}

/*
 * An active queue pair was looked at, and there was nothing. If it has been silent for long, and is
 * not the only one of the CQ, it becomes inactive: only the looks at the whole DATA set find what
 * arrives there. Returns whether it did. The drive lock is held.
 */
static bool deactivate_silent(struct soft_cq *cq, unsigned slot)
{
	struct cq_use *use = cq->active[slot];

	if (++use->empty_polls < (use->costs_syscall ? CQ_EMPTY_POLLS_SYSCALL : CQ_EMPTY_POLLS) ||
	    cq->num_qps == 1 || !qp_rest(use->qp))
		return false;
	deactivate(cq, slot);
	return true;
}

/*
 * Look at the active queue pairs in turn, until there is a completion or CQ_HITS of them have done
 * their share of work without one. Returns whether one had traffic. *@num: how many are active.
 */
static bool drive_active(struct cq_poll *poll, unsigned *num)
{
	struct soft_cq *cq = poll->cq;
	unsigned hits = 0, looks;

	*num = 1;
	if (!try_drive(cq))
		return false; /* another thread that polls this CQ looks at them now */
	*num = cq->num_active;
	looks = cq->num_active > 1 ? RC_LOOKS / cq->num_active + 1 : RC_LOOKS;
	for (unsigned left = cq->num_active; left && hits < CQ_HITS && !has_found(poll); left--) {
		unsigned slot = cq->next_active < cq->num_active ? cq->next_active : 0;

		cq->next_active = slot + 1;
		if (qp_drive(cq->active[slot]->qp, looks, poll)) {
			cq->active[slot]->empty_polls = 0;
			hits++;
		} else if (deactivate_silent(cq, slot)) {
			cq->next_active = slot; /* the last one has moved there */
		}
	}
	end_drive(cq);
	return hits;
}

/*
 * Count this poll, and send the requests that were held back. Returns whether there were any.
 * *@turn: the number of this poll.
 */
static bool note_poll(struct soft_cq *cq, unsigned *turn)
{
	/* Two threads that poll at once may count one poll. That does no harm. */
	*turn = atomic_load_explicit(&cq->polls, memory_order_relaxed);
	atomic_store_explicit(&cq->polls, *turn + 1, memory_order_relaxed);
	return deferred_send(&cq->deferred);
}

/*
 * The CQ is empty: look for completions. poll->count says how many went straight to the caller of
 * @poll. Others may be in the ring. @hit: this poll has sent something.
 */
static void look(struct cq_poll *poll, bool hit, unsigned turn)
{
	unsigned num_active;

	hit |= drive_active(poll, &num_active);
	/*
	 * The more queue pairs an empty poll has looked at, the longer it took. So fewer such polls
	 * pass before the whole DATA set is looked at.
	 */
	progress_polled(hit, !num_active ? 0 : hit ? turn : turn << num_active / 8);
}

bool cq_find(struct soft_cq *cq, struct cqe *out)
{
	struct cq_poll poll = {.cq = cq, .wc = &out->wc, .stamp = &out->stamp, .room = 1};
	unsigned turn;
	bool hit = note_poll(cq, &turn);

	look(&poll, hit, turn);
	return poll.count || cq_take(cq, out);
}

int soft_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct soft_cq *cq = container_of(ibcq, struct soft_cq, cq);
	struct cq_poll poll = {.cq = cq, .wc = wc, .room = num};
	unsigned turn;
	bool hit = note_poll(cq, &turn);
	int count = pop(cq, num, wc);

	if (count) {
		progress_found(hit, turn);
		return count;
	}
	look(&poll, hit, turn);
	return poll.count + pop(cq, num - poll.count, wc + poll.count);
}
