/* SPDX-License-Identifier: MIT */
/*
 * The life of a connection that a queue pair carries: what the queue pair tells, and the events
 * that follow.
 */
#include "../../common/log.h"
#include "../shm/shm.h"
#include "internal.h"

/* ---- called by the queue pair, with its lock held ---- */

static void owner_opened(struct qp_owner *owner)
{
	struct cm_id *cm = container_of(owner, struct cm_id, owner);

	atomic_store(&cm->opened, true);
	progress_defer(&cm->news);
}

static void owner_ended(struct qp_owner *owner, int error)
{
	struct cm_id *cm = container_of(owner, struct cm_id, owner);

	(void)error; /* who found it has logged it, and siw's DISCONNECTED has status 0 always */
	atomic_store(&cm->ended, true);
	progress_defer(&cm->news);
}

/* ---- under the CM lock ---- */

static void established(struct cm_id *cm, const struct cm_news *news)
{
	progress_timer_cancel(&cm->timer);
	cm->state = CM_CONNECTED;
	event_post(cm, RDMA_CM_EVENT_ESTABLISHED, 0, news);
	log_debug("connection %s: established", addr_text(cm_dst(cm)).text);
}

static void connection_news(struct progress_work *work)
{
	struct cm_id *cm = container_of(work, struct cm_id, news);
	struct cm_news depths = {
		.responder_resources = cm->local.ird,
		.initiator_depth = cm->local.ord,
	};

	if (atomic_load(&cm->opened) && cm->state == CM_ACCEPTED)
		established(cm, &depths);
	if (atomic_load(&cm->ended))
		connection_ended(cm);
}

void connection_init(struct cm_id *cm)
{
	cm->owner.opened = owner_opened;
	cm->owner.ended = owner_ended;
	progress_work_init(&cm->news, connection_news);
	atomic_init(&cm->opened, false);
	atomic_init(&cm->ended, false);
}

int connection_attach(struct cm_id *cm, struct shm_link *link, const struct mpa_agreed *agreed,
		      bool initiator, const struct cm_news *news)
{
	int err;

	id_unwatch(cm); /* before somebody else waits for this descriptor */
	cm->attached = true;
	err = qp_attach(cm->qp_num, cm->fd, link, agreed, initiator, &cm->owner);
	if (err) {
		cm->attached = false;
		shm_link_free(link);
		return err;
	}
	cm->fd = -1;
	cm->local.ird = agreed->ird;
	cm->local.ord = agreed->ord;
	progress_timer_cancel(&cm->timer);
	if (initiator || !agreed->rtr) {
		established(cm, news);
	} else {
		cm->state = CM_ACCEPTED;
		progress_timer_arm(&cm->timer, CM_OPENING_MS);
	}
	return 0;
}

void connection_ended(struct cm_id *cm)
{
	switch (cm->state) {
	case CM_ACCEPTED:
		log_info("connection %s: ended before it opened", addr_text(cm_dst(cm)).text);
		event_post(cm, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET, NULL);
		break;
	case CM_CONNECTED:
	case CM_CLOSING:
		log_debug("connection %s: ended", addr_text(cm_dst(cm)).text);
		event_post(cm, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		break;
	default: /* told already */
		return;
	}
	progress_timer_cancel(&cm->timer);
	cm->state = CM_CLOSED;
}

void connection_expired(struct cm_id *cm)
{
	log_info("connection %s: the peer did not open it", addr_text(cm_dst(cm)).text);
	connection_detach(cm);
	cm->state = CM_CLOSED;
	event_post(cm, RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT, NULL);
}

int connection_disconnect(struct cm_id *cm)
{
	switch (cm->state) {
	case CM_ACCEPTED:
	case CM_CONNECTED:
		cm->state = CM_CLOSING;
		qp_disconnect(cm->qp_num);
		if (!qp_exists(cm->qp_num)) /* destroyed first: nobody else will tell */
			connection_ended(cm);
		return 0;
	case CM_CLOSING:
	case CM_CLOSED:
		return 0;
	default:
		return -EINVAL;
	}
}

void connection_detach(struct cm_id *cm)
{
	if (!cm->attached)
		return;
	qp_disown(cm->qp_num, &cm->owner);
	progress_cancel(&cm->news);
	if (cm->state != CM_CLOSED)
		qp_disconnect(cm->qp_num);
	cm->attached = false;
}
