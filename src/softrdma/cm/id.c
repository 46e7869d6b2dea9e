/* SPDX-License-Identifier: MIT */
/*
 * Ids: their making and end, their options, and which state's code serves a descriptor, a timer or
 * a shutdown.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "internal.h"

/* ---- one switch per happening ---- */

static void id_ready(struct progress_source *source, uint32_t events)
{
	struct cm_id *cm = container_of(source, struct cm_id, source);

	(void)events; /* every handler asks the socket itself */
	switch (cm->state) {
	case CM_LISTENING:
		listen_ready(cm);
		break;
	case CM_CONNECTING:
		handshake_connected(cm);
		break;
	case CM_AWAIT_REPLY:
		handshake_reply(cm);
		break;
	case CM_AWAIT_REQUEST:
		handshake_request(cm);
		break;
	default: /* nobody reads it in this state */
		id_pause(cm);
		break;
	}
}

static void id_expired(struct progress_timer *timer)
{
	struct cm_id *cm = container_of(timer, struct cm_id, timer);

	switch (cm->state) {
	case CM_LISTENING:
		listen_resume(cm);
		break;
	case CM_CONNECTING:
	case CM_AWAIT_REPLY:
	case CM_AWAIT_REQUEST:
		handshake_expired(cm);
		break;
	case CM_ACCEPTED:
		connection_expired(cm);
		break;
	default:
		break;
	}
}

void id_shutdown(struct cm_id *cm)
{
	switch (cm->state) {
	case CM_LISTENING:
		listen_close(cm);
		break;
	case CM_REQUESTED: /* the peer waits for an answer */
		handshake_refuse(cm, NULL, 0);
		break;
	default:
		break;
	}
	listen_leave(cm);
	connection_detach(cm);
	id_close_socket(cm);
	cm->state = CM_CLOSED;
}

/* ---- the socket ---- */

int id_watch(struct cm_id *cm, uint32_t events)
{
	int err;

	cm->source.fd = cm->fd;
	err = cm->watched ? progress_rewatch(&cm->source, events)
			  : progress_watch(&cm->source, events);
	if (!err)
		cm->watched = true;
	return err;
}

void id_pause(struct cm_id *cm)
{
	if (cm->watched)
		progress_pause(&cm->source);
	cm->watched = false;
}

void id_unwatch(struct cm_id *cm)
{
	if (cm->watched || cm->source.paused)
		progress_unwatch(&cm->source);
	cm->watched = false;
}

void id_close_socket(struct cm_id *cm)
{
	progress_timer_cancel(&cm->timer);
	progress_timer_cancel(&cm->retry_timer);
	handshake_retract(cm);
	id_unwatch(cm);
	if (cm->fd >= 0)
		close(cm->fd);
	cm->fd = -1;
}

/* ---- making and ending ---- */

struct cm_id *id_new(void *context, enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct cm_id *cm = calloc(1, sizeof(*cm));

	if (!cm)
		return NULL;
	cm->spare = calloc(1, sizeof(*cm->spare));
	if (!cm->spare) {
		free(cm);
		return NULL;
	}
	cm->id.context = context;
	cm->id.ps = ps;
	cm->id.qp_type = qp_type;
	cm->state = CM_IDLE;
	cm->tos = -1;
	cm->fd = -1;
	cm->shm_fd = -1;
	cm->source.fd = -1;
	cm->source.set = PROGRESS_CM;
	cm->source.ready = id_ready;
	progress_timer_init(&cm->timer, PROGRESS_CM, id_expired);
	progress_timer_init(&cm->retry_timer, PROGRESS_CM, handshake_retry);
	connection_init(cm);
	list_init(&cm->channel_link);
	list_init(&cm->children);
	list_init(&cm->child_link);
	return cm;
}

void id_free(struct cm_id *cm)
{
	struct rdma_event_channel *channel = cm->id.channel;

	channel_leave(cm);
	if (cm->sync && channel)
		channel_free(container_of(channel, struct cm_channel, channel));
	free(cm->ep_attr);
	free(cm->spare);
	free(cm);
}

void id_drop(struct cm_id *cm)
{
	id_shutdown(cm);
	id_free(cm);
}

/* Progress has closed what it watched, and has forgotten timers and work. */
static void forget_socket(struct cm_id *cm)
{
	if (cm->fd >= 0 && !cm->watched && !cm->source.paused)
		close(cm->fd);
	cm->fd = -1;
	handshake_retract(cm);
	cm->watched = cm->source.paused = false;
	list_init(&cm->source.link);
	list_init(&cm->timer.link);
	list_init(&cm->retry_timer.link);
	list_init(&cm->news.link);
}

void id_orphan(struct cm_id *cm)
{
	while (!list_is_empty(&cm->children)) {
		struct cm_id *child = list_first(&cm->children, struct cm_id, child_link);

		list_del(&child->child_link);
		forget_socket(child);
	}
	forget_socket(cm);
	cm->attached = false;
	cm->state = CM_CLOSED;
}

int soft_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
			enum rdma_port_space ps)
{
	struct cm_channel *chosen = NULL;
	struct cm_id *cm;
	int err;

	if (!id)
		return fail(-EINVAL);
	if (ps != RDMA_PS_TCP)
		return fail(-EOPNOTSUPP);
	err = progress_start();
	if (err)
		return fail(err);
	cm = id_new(context, ps, IBV_QPT_RC);
	if (!cm)
		return fail(-ENOMEM);
	if (!channel) {
		chosen = channel_new();
		if (!chosen)
			goto undo_id;
		cm->sync = true;
	} else {
		chosen = container_of(channel, struct cm_channel, channel);
	}
	cm_lock();
	channel_join(chosen, cm);
	cm_unlock();
	*id = &cm->id;
	return 0;

undo_id:
	err = -errno;
	id_free(cm);
	return fail(err);
}

int soft_rdma_destroy_id(struct rdma_cm_id *id)
{
	struct cm_id *cm;

	if (!id)
		return fail(-EINVAL);
	cm = to_cm(id);
	cm_lock();
	id_shutdown(cm);
	channel_remove_events(cm);
	if (!cm->sync)
		channel_leave(cm);
	cm_unlock();

	if (id->event)
		soft_rdma_ack_cm_event(id->event);
	id->event = NULL;
	acks_wait(cm);

	cm_lock();
	id_free(cm);
	cm_unlock();
	return 0;
}

/* ---- moving to another channel ---- */

/* Returns the channel that was the id's own, if it had one: nobody needs it now. */
static struct cm_channel *move_id(struct cm_id *cm, struct cm_channel *to, bool sync)
{
	struct cm_channel *from = NULL;
	bool was_sync = cm->sync;

	if (cm->id.channel) {
		from = container_of(cm->id.channel, struct cm_channel, channel);
		channel_move_events(from, to, cm);
	}
	channel_join(to, cm);
	cm->sync = sync;
	return was_sync ? from : NULL;
}

int soft_rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct cm_channel *to, *own;
	struct cm_id *cm;

	if (!id || (to_cm(id)->sync && !channel))
		return fail(-EINVAL);
	if (channel && channel == id->channel)
		return 0;
	cm = to_cm(id);
	to = channel ? container_of(channel, struct cm_channel, channel) : channel_new();
	if (!to)
		return fail(-errno);

	cm_lock();
	own = move_id(cm, to, !channel);
	if (own)
		channel_free(own);
	cm_unlock();

	if (own && id->event) {
		soft_rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	/* As librdmacm: once this returns nobody handles an event from the old channel any more. */
	acks_wait(cm);
	return 0;
}

/* ---- options ---- */

static int set_id_option(struct cm_id *cm, int name, const void *value, size_t len)
{
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (len != sizeof(uint8_t))
			return -EINVAL;
		cm->tos = *(const uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_AFONLY: /* TCP takes it before bind alone */
		if (len != sizeof(int) || cm->state != CM_IDLE)
			return -EINVAL;
		cm->v6only = *(const int *)value != 0;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR: /* always so */
		return len == sizeof(int) ? 0 : -EINVAL;
	case RDMA_OPTION_ID_ACK_TIMEOUT: /* TCP has its own */
		return len == sizeof(uint8_t) ? 0 : -EINVAL;
	default:
		return -EOPNOTSUPP;
	}
}

int soft_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	int err;

	if (!id || !value)
		return fail(-EINVAL);
	if (level != RDMA_OPTION_ID)
		return fail(-EOPNOTSUPP);
	cm_lock();
	err = set_id_option(to_cm(id), name, value, len);
	cm_unlock();
	return err ? fail(err) : 0;
}

/* A connection attempt that is under way may be writing the address. */
__be16 soft_rdma_get_src_port(struct rdma_cm_id *id)
{
	__be16 port;

	if (!id)
		return 0;
	cm_lock();
	port = addr_port(&id->route.addr.src_addr);
	cm_unlock();
	return port;
}

__be16 soft_rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id ? addr_port(&id->route.addr.dst_addr) : 0;
}
