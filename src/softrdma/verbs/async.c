/* SPDX-License-Identifier: MIT */
/* Asynchronous events of a context. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../common/fork.h"
#include "../../common/log.h"
#include "../../common/uncancel.h"
#include "objects.h"

struct queued_event {
	struct ibv_async_event event;
	struct list link;
};

void async_raise(struct ibv_context *ibcontext, const struct ibv_async_event *event)
{
	struct soft_context *context = to_context(ibcontext);
	struct queued_event *queued = malloc(sizeof(*queued));
	uint64_t one = 1;

	if (!queued) {
		log_error("no memory for the asynchronous event %d", event->event_type);
		return;
	}
	queued->event = *event;
	UNCANCELLABLE; /* a poll may raise it */
	pthread_mutex_lock(&context->async_lock);
	list_add_tail(&context->async_events, &queued->link);
	if (write(ibcontext->async_fd, &one, sizeof(one)) < 0)
		log_error("asynchronous event: %s", strerror(errno));
	pthread_mutex_unlock(&context->async_lock);
}

void async_renew(struct ibv_context *ibcontext)
{
	struct soft_context *context = to_context(ibcontext);

	/* A thread that is not here may have held the lock, and be in the middle of the list. */
	pthread_mutex_init(&ibcontext->mutex, NULL);
	pthread_mutex_init(&context->async_lock, NULL);
	pthread_cond_init(&context->async_acked, NULL);
	list_init(&context->async_events);
	ibcontext->async_fd = fork_renew_eventfd(ibcontext->async_fd);
}

/* Where the object of an event counts. NULL for events of the port or device. */
static struct async_count *count_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &container_of(event->element.cq, struct soft_cq, cq)->async;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &container_of(event->element.srq, struct soft_srq, srq)->async;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &container_of(event->element.qp, struct soft_qp, qp)->async;
	default:
		return NULL;
	}
}

/* One off the descriptor's count; the lock is held, so nobody else takes it meanwhile. */
static void count_down(const struct ibv_context *ibcontext)
{
	struct pollfd fd = {.fd = ibcontext->async_fd, .events = POLLIN};
	uint64_t one;

	if (poll(&fd, 1, 0) > 0 && read(fd.fd, &one, sizeof(one)) < 0)
		log_error("asynchronous event: %s", strerror(errno));
}

/* The oldest event, to be freed; NULL: there is none. */
static struct queued_event *take_event(struct ibv_context *ibcontext)
{
	struct soft_context *context = to_context(ibcontext);
	struct queued_event *queued = NULL;
	struct async_count *count;

	pthread_mutex_lock(&context->async_lock);
	if (!list_is_empty(&context->async_events)) {
		queued = list_first(&context->async_events, struct queued_event, link);
		list_del(&queued->link);
		count_down(ibcontext);
		count = count_of(&queued->event);
		if (count)
			count->taken++;
	}
	pthread_mutex_unlock(&context->async_lock);
	return queued;
}

static int sleep_for_event(int async_fd)
{
	struct pollfd fd = {.fd = async_fd, .events = POLLIN};
	int held = uncancel_begin_sleep();
	int count = poll(&fd, 1, -1);

	uncancel_end_sleep(held);
	return count < 0 ? -1 : 0;
}

int soft_ibv_get_async_event(struct ibv_context *ibcontext, struct ibv_async_event *event)
{
	bool blocks = !(fcntl(ibcontext->async_fd, F_GETFL) & O_NONBLOCK);
	struct queued_event *queued;

	do {
		if (blocks && sleep_for_event(ibcontext->async_fd))
			return -1;
		queued = take_event(ibcontext);
	} while (!queued && blocks);
	if (!queued) {
		errno = EAGAIN;
		return -1;
	}
	*event = queued->event;
	free(queued);
	return 0;
}

static struct ibv_context *context_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	default:
		return event->element.qp->context;
	}
}

void soft_ibv_ack_async_event(struct ibv_async_event *event)
{
	struct async_count *count = count_of(event);
	struct soft_context *context;

	if (!count)
		return;
	context = to_context(context_of(event));
	pthread_mutex_lock(&context->async_lock);
	count->acked++;
	pthread_cond_broadcast(&context->async_acked);
	pthread_mutex_unlock(&context->async_lock);
}

void async_retire(struct ibv_context *ibcontext, const void *object, struct async_count *count)
{
	struct soft_context *context = to_context(ibcontext);
	struct list *pos, *tmp;

	pthread_mutex_lock(&context->async_lock);
	list_for_each_safe (pos, tmp, &context->async_events) {
		struct queued_event *queued = container_of(pos, struct queued_event, link);

		if ((const void *)queued->event.element.qp == object) {
			list_del(pos);
			count_down(ibcontext);
			free(queued);
		}
	}
	while (count->taken != count->acked)
		pthread_cond_wait(&context->async_acked, &context->async_lock);
	pthread_mutex_unlock(&context->async_lock);
}
