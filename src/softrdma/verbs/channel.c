/* SPDX-License-Identifier: MIT */
/*
 * Completion channels: a readable descriptor means that an event is there. It is an epoll instance
 * with an eventfd, which counts the events, and for programs that can do with it (look_for_event)
 * also the DATA set: then the event may have to be made yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../progress/progress.h"
#include "../../common/uncancel.h"
#include "objects.h"

static void close_descriptors(struct soft_channel *channel)
{
	if (channel->channel.fd >= 0)
		close(channel->channel.fd);
	if (channel->count_fd >= 0)
		close(channel->count_fd);
}

static bool open_descriptors(struct soft_channel *channel)
{
	struct epoll_event event = {.events = EPOLLIN};
	int saved;

	channel->channel.fd = epoll_create1(EPOLL_CLOEXEC);
	channel->count_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (channel->channel.fd >= 0 && channel->count_fd >= 0 &&
	    !epoll_ctl(channel->channel.fd, EPOLL_CTL_ADD, channel->count_fd, &event))
		return true;
	saved = errno;
	close_descriptors(channel);
	errno = saved;
	return false;
}

struct ibv_comp_channel *soft_ibv_create_comp_channel(struct ibv_context *context)
{
	struct soft_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->channel.context = context;
	if (!open_descriptors(channel)) {
		free(channel);
		return NULL;
	}
	pthread_mutex_init(&channel->lock, NULL);
	list_init(&channel->events);
	atomic_fetch_add(&to_context(context)->objects, 1);
	return &channel->channel;
}

static void leave_loop(struct soft_channel *channel)
{
	if (atomic_exchange(&channel->loops, false))
		progress_detach_loop(channel->channel.fd);
	atomic_store(&channel->asked_to_loop, false);
}

int soft_ibv_destroy_comp_channel(struct ibv_comp_channel *ibchannel)
{
	struct soft_channel *channel = container_of(ibchannel, struct soft_channel, channel);

	pthread_mutex_lock(&channel->lock);
	if (channel->cqs) {
		pthread_mutex_unlock(&channel->lock);
		return EBUSY;
	}
	pthread_mutex_unlock(&channel->lock);
	atomic_fetch_sub(&to_context(ibchannel->context)->objects, 1);
	leave_loop(channel);
	close_descriptors(channel);
	pthread_mutex_destroy(&channel->lock);
	free(channel);
	return 0;
}

/* An event is in the list, to be seen at the descriptor. The lock is held. */
static void count_up(struct soft_channel *channel)
{
	uint64_t one = 1;

	channel->counted++;
	if (write(channel->count_fd, &one, sizeof(one)) < 0)
		log_error("completion channel: %s", strerror(errno));
}

/*
 * An event has left the list. The lock is held, so the count is there and this does not block. The
 * event that is not counted, if there is one, leaves first.
 */
static void count_down(struct soft_channel *channel)
{
	uint64_t one;

	if (atomic_fetch_sub(&channel->queued, 1) > channel->counted)
		return;
	channel->counted--;
	if (read(channel->count_fd, &one, sizeof(one)) < 0)
		log_error("completion channel: %s", strerror(errno));
}

/* ---- the thread that waits ---- */

/*
 * A thread that waits in ibv_get_cq_event drives connections meanwhile, and so makes events itself.
 * It looks at channel->queued after that and before it sleeps. So an event that it makes need not
 * be counted at the descriptor, which saves two system calls. This holds for one such event at a
 * time, because the thread takes only one. Events of other threads are always counted, as the
 * waiting thread may be asleep.
 *
 * The channel notes one waiting thread. A second one that waits at the same time has all its events
 * counted. No lock is needed for the note: a thread finds itself there only if it wrote it itself.
 */
static void begin_wait(struct soft_channel *channel)
{
	pthread_t none = 0;

	atomic_compare_exchange_strong(&channel->waiter, &none, pthread_self());
}

static bool is_waiter(const struct soft_channel *channel)
{
	return pthread_equal(atomic_load(&channel->waiter), pthread_self());
}

/*
 * Also called when the thread is cancelled. That happens only in its sleep, before which it has
 * seen that nothing is queued, so no event is left uncounted.
 */
static void end_wait(void *arg)
{
	struct soft_channel *channel = arg;

	if (is_waiter(channel))
		atomic_store(&channel->waiter, 0);
}

/* ---- events ---- */

void channel_signal(struct soft_channel *channel, struct soft_cq *cq)
{
	bool needs_count;

	UNCANCELLABLE; /* a poll may signal it */
	pthread_mutex_lock(&channel->lock);
	needs_count = !is_waiter(channel) || atomic_load(&channel->queued) != channel->counted;
	if (cq->events_queued++ == 0)
		list_add_tail(&channel->events, &cq->event_link);
	atomic_fetch_add(&channel->queued, 1);
	if (needs_count)
		count_up(channel);
	pthread_mutex_unlock(&channel->lock);
}

void channel_forget(struct soft_channel *channel, struct soft_cq *cq)
{
	pthread_mutex_lock(&channel->lock);
	for (; cq->events_queued; cq->events_queued--)
		count_down(channel);
	list_del(&cq->event_link);
	pthread_mutex_unlock(&channel->lock);
}

/* The next event; NULL: another thread was faster, or its CQ is gone. */
static struct soft_cq *take_event(struct soft_channel *channel)
{
	struct soft_cq *cq = NULL;

	pthread_mutex_lock(&channel->lock);
	if (!list_is_empty(&channel->events)) {
		count_down(channel);
		cq = list_first(&channel->events, struct soft_cq, event_link);
		list_del(&cq->event_link);
		/* Other CQs have their turn before this one's next event. */
		if (--cq->events_queued)
			list_add_tail(&channel->events, &cq->event_link);
		cq->events_taken++;
	}
	pthread_mutex_unlock(&channel->lock);
	return cq;
}

static int wait_for_event(struct soft_channel *channel)
{
	int error = 0, held;

	/* Whoever may block here relies on an event behind a descriptor that is readable. */
	if (channel->loops)
		leave_loop(channel);
	begin_wait(channel);
	pthread_cleanup_push(end_wait, channel);
	/* It lets the thread be cancelled while it sleeps, in the state that it is called in. */
	held = uncancel_begin_sleep();
	error = progress_wait(channel->count_fd, &channel->queued);
	uncancel_end_sleep(held);
	pthread_cleanup_pop(1);
	return error;
}

/*
 * The channel does not block, and no event is there. A program that takes an EAGAIN from here may
 * be woken by data that makes no event. So from the first such call on, the DATA set is part of the
 * channel's descriptor. Each later call first looks at the data that may have woken the program.
 */
static int look_for_event(struct soft_channel *channel)
{
	if (!atomic_exchange(&channel->asked_to_loop, true)) {
		bool joined = progress_attach_loop(channel->channel.fd);

		atomic_store(&channel->loops, joined);
		atomic_store(&channel->asked_to_loop, joined); /* if not, perhaps the next time */
	}
	if (channel->loops) {
		begin_wait(channel);
		progress_look();
		end_wait(channel);
	}
	return atomic_load(&channel->queued) ? 0 : -EAGAIN;
}

int soft_ibv_get_cq_event(struct ibv_comp_channel *ibchannel, struct ibv_cq **ibcq,
			  void **cq_context)
{
	struct soft_channel *channel = container_of(ibchannel, struct soft_channel, channel);
	struct soft_cq *cq;

	while (!(cq = take_event(channel))) {
		bool blocks = !(fcntl(ibchannel->fd, F_GETFL) & O_NONBLOCK);
		int error = blocks ? wait_for_event(channel) : look_for_event(channel);

		if (error) {
			errno = -error;
			return -1;
		}
	}
	*ibcq = &cq->cq;
	*cq_context = cq->cq.cq_context;
	return 0;
}
