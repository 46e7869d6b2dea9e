/* SPDX-License-Identifier: MIT */
/* What users ask of a connection: connect, accept, reject, establish, disconnect. */
#include <string.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../mpa_io.h"
#include "../settings.h"
#include "../shm/shm.h"
#include "internal.h"

/* RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH are above the maximum, and mean it. */
static uint16_t limit_depth(uint8_t depth)
{
	return depth < CM_MAX_DEPTH ? depth : CM_MAX_DEPTH;
}

static int check_param(struct cm_id *cm, const struct rdma_conn_param *param)
{
	if (!cm->id.qp && !param)
		return -EINVAL;
	if (param && param->private_data_len > MPA_USER_PRIVATE)
		return -EINVAL;
	if (param && param->private_data_len && !param->private_data)
		return -EINVAL;
	cm->qp_num = cm->id.qp ? cm->id.qp->qp_num : param->qp_num;
	return qp_exists(cm->qp_num) ? 0 : -EINVAL;
}

/* ---- connect ---- */

static int connect_id(struct cm_id *cm, const struct rdma_conn_param *param)
{
	uint8_t ird = param ? param->responder_resources : RDMA_MAX_RESP_RES;
	uint8_t ord = param ? param->initiator_depth : RDMA_MAX_INIT_DEPTH;
	size_t private_len = param ? param->private_data_len : 0;
	int err;

	if (cm->state != CM_ROUTE_RESOLVED)
		return -EINVAL;
	err = check_param(cm, param);
	if (err)
		return err;
	if (private_len)
		memcpy(cm->offer, param->private_data, private_len);
	handshake_offer(cm, limit_depth(ird), limit_depth(ord), private_len);
	return handshake_start(cm);
}

int soft_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int err;

	if (!id)
		return fail(-EINVAL);
	cm_lock();
	err = connect_id(to_cm(id), param);
	cm_unlock();
	return err ? fail(err) : endpoint_complete(id);
}

/* ---- accept ---- */

/* The reply goes first: once attached, a request that is posted may leave at any moment. */
static int answer(struct cm_id *cm, struct mpa_frame *reply, const struct mpa_agreed *agreed)
{
	struct cm_news news = {
		.responder_resources = agreed->ird,
		.initiator_depth = agreed->ord,
	};
	struct shm_link *link = NULL;
	int err;

	/* What was asked of the wire needs one. */
	if (cm->request.shm && !agreed->crc && !agreed->rtr)
		link = shm_meet(cm->fd);
	reply->shm = link != NULL;
	err = mpa_send(cm->fd, reply);
	if (err == -EPIPE) /* the peer has gone meanwhile */
		err = -ECONNRESET;
	if (!err)
		err = connection_attach(cm, link, agreed, false, &news);
	else
		shm_link_free(link);
	if (err) {
		log_info("accept %s: %s", addr_text(cm_dst(cm)).text, strerror(-err));
		id_close_socket(cm);
		cm->state = CM_CLOSED;
	}
	return err;
}

static int accept_id(struct cm_id *cm, const struct rdma_conn_param *param)
{
	struct mpa_agreed agreed;
	struct mpa_frame reply;
	uint16_t why;
	int err;

	if (cm->state != CM_REQUESTED)
		return -EINVAL;
	err = check_param(cm, param);
	if (err)
		return err;
	cm->local = (struct mpa_local){
		.ird = limit_depth(param ? param->responder_resources : RDMA_MAX_RESP_RES),
		.ord = limit_depth(param ? param->initiator_depth : RDMA_MAX_INIT_DEPTH),
		.crc = settings()->crc,
	};
	err = mpa_answer(&cm->request, &cm->local, &reply, &agreed, &why);
	if (err)
		return err;
	if (param && param->private_data_len) {
		reply.private_data = param->private_data;
		reply.private_len = param->private_data_len;
	}
	return answer(cm, &reply, &agreed);
}

int soft_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int err;

	if (!id)
		return fail(-EINVAL);
	cm_lock();
	err = accept_id(to_cm(id), param);
	cm_unlock();
	return err ? fail(err) : endpoint_complete(id);
}

/* ---- reject ---- */

static int reject_id(struct cm_id *cm, const void *private_data, size_t len)
{
	int err;

	if (cm->state != CM_REQUESTED || len > MPA_USER_PRIVATE || (len && !private_data))
		return -EINVAL;
	err = handshake_refuse(cm, private_data, len);
	cm->state = CM_CLOSED;
	return err;
}

int soft_rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t len)
{
	int err;

	if (!id)
		return fail(-EINVAL);
	cm_lock();
	err = reject_id(to_cm(id), private_data, private_data ? len : 0);
	cm_unlock();
	return err ? fail(err) : 0;
}

/* ---- afterwards ---- */

/* iWARP reports ESTABLISHED by itself, so there is nothing left to do. */
int soft_rdma_establish(struct rdma_cm_id *id)
{
	enum cm_state state;

	if (!id || id->qp)
		return fail(-EINVAL);
	cm_lock();
	state = to_cm(id)->state;
	cm_unlock();
	return state == CM_CONNECTED ? 0 : fail(-EINVAL);
}

int soft_rdma_disconnect(struct rdma_cm_id *id)
{
	struct cm_id *cm;
	bool wait;
	int err;

	if (!id)
		return fail(-EINVAL);
	cm = to_cm(id);
	cm_lock();
	err = connection_disconnect(cm);
	/* A second call, with nothing more to come, must not wait for it. */
	wait = cm->state == CM_CLOSING || channel_has_events(cm);
	cm_unlock();
	if (err)
		return fail(err);
	return wait ? endpoint_complete(id) : 0;
}

int soft_rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	(void)event;
	return id ? 0 : fail(-EINVAL);
}
