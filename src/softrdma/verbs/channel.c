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
 * An event has left the list. The lock is held, so the count is there and this does not block. One
 * that was handed over had none.
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

/*
 * The channel that this thread waits for in ibv_get_cq_event. One event that it makes itself
 * meanwhile is handed to it without the detour by the descriptor.
 */
static __thread const struct soft_channel *awaited;

static bool hand_over(const struct soft_channel *channel)
{
	if (awaited != channel)
		return false;
	awaited = NULL;
	return true;
}

void channel_signal(struct soft_channel *channel, struct soft_cq *cq)
{
	UNCANCELLABLE; /* a poll may signal it */
	pthread_mutex_lock(&channel->lock);
	if (cq->events_queued++ == 0)
		list_add_tail(&channel->events, &cq->event_link);
	atomic_fetch_add(&channel->queued, 1);
	if (!hand_over(channel))
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
	int error, held;

	/* Whoever may block here relies on an event behind a descriptor that is readable. */
	if (channel->loops)
		leave_loop(channel);
	awaited = channel;
	/* It lets the thread be cancelled while it sleeps, in the state that it is called in. */
	held = uncancel_begin_sleep();
	error = progress_wait(channel->count_fd, &channel->queued);
	uncancel_end_sleep(held);
	awaited = NULL;
	return error;
}

/*
 * A program that comes here in vain and may not block has seen EAGAIN, and so may be woken for data
 * that makes no event; one that only comes when the descriptor is readable relies on an event. The
 * data that woke it has not been looked at yet.
 */
static int look_for_event(struct soft_channel *channel)
{
	if (!atomic_exchange(&channel->asked_to_loop, true)) {
		bool joined = progress_attach_loop(channel->channel.fd);

		atomic_store(&channel->loops, joined);
		atomic_store(&channel->asked_to_loop, joined); /* if not, perhaps the next time */
	}
	if (channel->loops) {
		awaited = channel;
		progress_look();
		awaited = NULL;
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
