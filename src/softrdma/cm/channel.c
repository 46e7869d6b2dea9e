/* SPDX-License-Identifier: MIT */
/*
 * Event channels, the events queued on them, and the acknowledgements that destroying an id waits
 * for.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"
#include "../fork_order.h"
#include "internal.h"

/*
 * Guards cm_id.unacked and cm_event.owner of fetched events; a leaf, so that acks never wait for
 * the CM lock.
 */
static pthread_mutex_t acks_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acks_changed = PTHREAD_COND_INITIALIZER;

/* All that are there, under the CM lock: see soft_rdma_get_cm_event. */
static struct list channels = {&channels, &channels};

static struct cm_channel *to_channel(struct rdma_event_channel *channel)
{
	return container_of(channel, struct cm_channel, channel);
}

/* ---- the count on the descriptor ---- */

static void token_add(struct cm_channel *channel)
{
	uint64_t one = 1;

	if (write(channel->channel.fd, &one, sizeof(one)) < 0)
		log_error("event channel %d: %m", channel->channel.fd);
}

/*
 * One event less was queued than the descriptor counts. A thread in get_cm_event may have taken the
 * count already, and will find nothing and look again, so this must not block: the descriptor's
 * mode is changed for the moment, and get_cm_event, should it see that, checks again under the
 * lock.
 */
static void token_take(struct cm_channel *channel)
{
	int fd = channel->channel.fd;
	int flags = fcntl(fd, F_GETFL);
	uint64_t one;

	if (flags < 0)
		return;
	if (!(flags & O_NONBLOCK))
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	if (read(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("event channel %d: %m", fd);
	if (!(flags & O_NONBLOCK))
		fcntl(fd, F_SETFL, flags);
}

static bool is_nonblocking(int fd)
{
	int flags;

	cm_lock();
	flags = fcntl(fd, F_GETFL);
	cm_unlock();
	return flags < 0 || (flags & O_NONBLOCK);
}

/*
 * Without the lock: a cancellation point, and restarted after a signal as its handler's flags say.
 */
static bool token_read(int fd)
{
	int held = uncancel_begin_sleep();
	uint64_t one;
	ssize_t n;

	n = read(fd, &one, sizeof(one));
	uncancel_end_sleep(held);
	return n >= 0;
}

static int token_wait(int fd)
{
	while (!token_read(fd)) {
		int err = -errno;

		if (err != -EAGAIN || is_nonblocking(fd))
			return err;
	}
	return 0;
}

/* ---- channels ---- */

struct cm_channel *channel_new(void)
{
	struct cm_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->channel.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (channel->channel.fd < 0) {
		free(channel);
		return NULL;
	}
	list_init(&channel->link);
	list_init(&channel->events);
	list_init(&channel->ids);
	return channel;
}

static void event_drop(struct cm_event *event)
{
	struct cm_id *child = to_cm(event->event.id);
	bool is_request = event->event.event == RDMA_CM_EVENT_CONNECT_REQUEST;

	list_del(&event->link);
	free(event);
	if (is_request)
		id_drop(child);
}

/*
 * Ids that are still there live on without a channel; their events are lost, as they are when the
 * kernel's descriptor closes.
 */
void channel_free(struct cm_channel *channel)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &channel->events)
		event_drop(container_of(pos, struct cm_event, link));
	while (!list_is_empty(&channel->ids))
		channel_leave(list_first(&channel->ids, struct cm_id, channel_link));
	list_del(&channel->link);
	close(channel->channel.fd);
	free(channel);
}

static bool channel_is_there(const struct rdma_event_channel *channel)
{
	struct list *pos;

	list_for_each (pos, &channels)
		if (&container_of(pos, struct cm_channel, link)->channel == channel)
			return true;
	return false;
}

void channel_join(struct cm_channel *channel, struct cm_id *cm)
{
	if (list_is_empty(&channel->link))
		list_add_tail(&channels, &channel->link);
	list_del(&cm->channel_link);
	list_add_tail(&channel->ids, &cm->channel_link);
	cm->id.channel = &channel->channel;
}

void channel_leave(struct cm_id *cm)
{
	list_del(&cm->channel_link);
	cm->id.channel = NULL;
}

struct rdma_event_channel *soft_rdma_create_event_channel(void)
{
	struct cm_channel *channel;
	int err = progress_start();

	if (err) {
		errno = -err;
		return NULL;
	}
	channel = channel_new();
	if (!channel)
		return NULL;
	cm_lock();
	list_add_tail(&channels, &channel->link);
	cm_unlock();
	return &channel->channel;
}

void soft_rdma_destroy_event_channel(struct rdma_event_channel *channel)
{

	if (!channel)
		return;
	cm_lock();
	channel_free(to_channel(channel));
	cm_unlock();
}

/* ---- queued events ---- */

static void event_queue(struct cm_channel *channel, struct cm_event *event)
{
	list_add_tail(&channel->events, &event->link);
	token_add(channel);
}

void channel_move_events(struct cm_channel *from, struct cm_channel *to, struct cm_id *owner)
{
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &from->events) {
		struct cm_event *event = container_of(pos, struct cm_event, link);

		if (event->owner != owner)
			continue;
		list_del(&event->link);
		token_take(from);
		event_queue(to, event);
	}
}

void channel_remove_events(struct cm_id *owner)
{
	struct list *pos, *tmp;
	struct cm_channel *channel;

	if (!owner->id.channel)
		return;
	channel = to_channel(owner->id.channel);
	list_for_each_safe (pos, tmp, &channel->events) {
		struct cm_event *event = container_of(pos, struct cm_event, link);

		if (event->owner != owner)
			continue;
		event_drop(event);
		token_take(channel);
	}
}

bool channel_has_events(struct cm_id *owner)
{
	struct list *pos;

	if (!owner->id.channel)
		return false;
	list_for_each (pos, &to_channel(owner->id.channel)->events) {
		if (container_of(pos, struct cm_event, link)->owner == owner)
			return true;
	}
	return false;
}

static void event_fill(struct cm_event *event, const struct cm_news *news)
{
	struct rdma_conn_param *conn = &event->event.param.conn;

	conn->responder_resources = (uint8_t)news->responder_resources;
	conn->initiator_depth = (uint8_t)news->initiator_depth;
	conn->private_data_len = (uint8_t)news->private_len;
	if (news->private_len) {
		memcpy(event->private_data, news->private_data, news->private_len);
		conn->private_data = event->private_data;
	}
}

void event_post(struct cm_id *cm, enum rdma_cm_event_type type, int status,
		const struct cm_news *news)
{
	struct cm_event *event;

	if (!cm->id.channel)
		return;
	event = calloc(1, sizeof(*event));
	if (!event) {
		event = cm->spare;
		cm->spare = NULL;
	}
	if (!event) {
		log_error("%s: an event is lost: no memory", addr_text(cm_dst(cm)).text);
		return;
	}
	event->owner = cm;
	event->event.id = &cm->id;
	event->event.event = type;
	event->event.status = status;
	if (news)
		event_fill(event, news);
	event_queue(to_channel(cm->id.channel), event);
}

int event_post_request(struct cm_id *child, const struct cm_news *news)
{
	struct cm_id *listener = child->listener;
	struct cm_event *event;

	if (!listener->id.channel)
		return -ENOTCONN;
	event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	event->owner = listener;
	event->event.id = &child->id;
	event->event.listen_id = &listener->id;
	event->event.event = RDMA_CM_EVENT_CONNECT_REQUEST;
	event_fill(event, news);
	event_queue(to_channel(listener->id.channel), event);
	return 0;
}

/* ---- fetching ---- */

/*
 * The id of a request gets its channel and context when the user first sees it: the listener may
 * have changed both.
 */
static int adopt_child(const struct cm_event *event)
{
	struct cm_id *listener = event->owner, *child = to_cm(event->event.id);
	struct cm_channel *channel = to_channel(listener->id.channel);

	if (listener->sync) {
		channel = channel_new();
		if (!channel)
			return -errno;
		child->sync = true;
	}
	child->id.context = listener->id.context;
	channel_join(channel, child);
	listen_leave(child);
	return 0;
}

/*
 * One count has been taken from the descriptor. *@out stays NULL if its event was removed in
 * between, with an id.
 */
static int event_fetch(struct cm_channel *channel, struct cm_event **out)
{
	struct cm_event *event;
	int err;

	if (list_is_empty(&channel->events))
		return 0;
	event = list_first(&channel->events, struct cm_event, link);
	if (event->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		err = adopt_child(event);
		if (err) { /* it waits until the user has descriptors again */
			token_add(channel);
			return err;
		}
	}
	list_del(&event->link);
	pthread_mutex_lock(&acks_lock);
	event->owner->unacked++;
	pthread_mutex_unlock(&acks_lock);
	*out = event;
	return 0;
}

/* As librdmacm does on a reject: receives posted for a connection that will not be are flushed. */
static void flush_unconnected(const struct rdma_cm_event *event)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp *qp = event->id->qp;

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		/* By number, because the program may have destroyed it behind our back. */
		if (qp && qp_exists(to_cm(event->id)->qp_num))
			soft_ibv_modify_qp(qp, &attr, IBV_QP_STATE);
		break;
	default:
		break;
	}
}

int soft_rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct cm_event *found = NULL;
	int err, fd;

	if (!channel || !event)
		return fail(-EINVAL);
	fd = channel->fd;
	do {
		err = token_wait(fd);
		if (err)
			return fail(err);
		cm_lock();
		/*
		 * Programs destroy a channel under a thread that waits on it (rping does, as it
		 * ends).
		 */
		err = channel_is_there(channel) ? event_fetch(to_channel(channel), &found) : -EBADF;
		cm_unlock();
		if (err)
			return fail(err);
	} while (!found);

	flush_unconnected(&found->event);
	*event = &found->event;
	return 0;
}

/* ---- acknowledging ---- */

int soft_rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm_event *acked;

	if (!event)
		return fail(-EINVAL);
	acked = container_of(event, struct cm_event, event);
	pthread_mutex_lock(&acks_lock);
	acked->owner->unacked--;
	pthread_cond_broadcast(&acks_changed);
	pthread_mutex_unlock(&acks_lock);
	free(acked);
	return 0;
}

void event_transfer(struct rdma_cm_event *event, struct cm_id *cm)
{
	struct cm_event *fetched = container_of(event, struct cm_event, event);

	pthread_mutex_lock(&acks_lock);
	fetched->owner->unacked--;
	fetched->owner = cm;
	cm->unacked++;
	pthread_cond_broadcast(&acks_changed);
	pthread_mutex_unlock(&acks_lock);
}

static void acks_unlock(void *unused)
{
	(void)unused;
	pthread_mutex_unlock(&acks_lock);
}

void acks_wait(struct cm_id *cm)
{
	int held;

	pthread_mutex_lock(&acks_lock);
	pthread_cleanup_push(acks_unlock, NULL);
	held = uncancel_begin_sleep();
	while (cm->unacked)
		pthread_cond_wait(&acks_changed, &acks_lock);
	uncancel_end_sleep(held);
	pthread_cleanup_pop(1);
}

/* ---- fork: a child may go on with its parent's channels, and free its ids ---- */

static void forget_parent(void)
{
	struct list *pos, *id;

	pthread_cond_init(&acks_changed, NULL); /* nobody waits here */
	linger_forget();
	list_for_each (pos, &channels) {
		struct cm_channel *channel = container_of(pos, struct cm_channel, link);

		list_for_each (id, &channel->ids)
			id_orphan(container_of(id, struct cm_id, channel_link));
		list_init(&channel->events); /* the parent fetches them */
		channel->channel.fd = fork_renew_eventfd(channel->channel.fd);
	}
}

FORK_MUTEX(FORK_CM, &acks_lock, forget_parent);
