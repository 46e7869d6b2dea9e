/* SPDX-License-Identifier: MIT */
/*
 * The MPA handshake on a socket, from both ends: one frame each way, read exactly, so that what
 * follows stays in the socket.
 */
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../mpa_io.h"
#include "../settings.h"
#include "../shm/shm.h"
#include "../wire/crc32c.h"
#include "../wire/terminate.h"
#include "internal.h"

#define RETRY_MS     20
#define RETRY_FOR_MS 200ull

#define ALL_RTR (MPA_RTR_FPDU | MPA_RTR_WRITE | MPA_RTR_READ)

/* ---- frames ---- */

/* A whole frame whose private data an event can carry. */
static int parse_frame(struct cm_id *cm, enum mpa_kind kind, struct mpa_frame *out)
{
	int err = mpa_parse(kind, cm->frame, cm->frame_len, out);

	if (!err && out->private_len > UINT8_MAX)
		err = -EMSGSIZE;
	return err;
}

/* ---- the initiator ---- */

void handshake_offer(struct cm_id *cm, uint16_t ird, uint16_t ord, size_t private_len)
{
	bool crc = settings()->crc, enhanced = !settings()->revision_1;
	bool peer_to_peer = enhanced && settings()->peer_to_peer;

	cm->local = (struct mpa_local){.ird = ird, .ord = ord, .crc = crc};
	cm->request = (struct mpa_frame){
		.kind = MPA_REQUEST,
		.revision = enhanced ? 2 : 1,
		.enhanced = enhanced,
		.crc = crc,
		.soft = true,
		.acks = true,
		.ird = ird,
		.ord = ord,
		.peer_to_peer = peer_to_peer,
		.rtr = peer_to_peer ? ALL_RTR : 0,
		.private_data = cm->offer,
		.private_len = (uint16_t)private_len,
	};
}

void handshake_retract(struct cm_id *cm)
{
	if (cm->shm_fd >= 0)
		close(cm->shm_fd);
	cm->shm_fd = -1;
}

/* Shared memory, if nothing is asked of the wire that it has not. */
static void offer_shm(struct cm_id *cm)
{
	const struct mpa_frame *request = &cm->request;

	handshake_retract(cm);
	if (request->enhanced && !request->crc && !request->peer_to_peer)
		cm->shm_fd = shm_offer(cm->fd);
	cm->request.shm = cm->shm_fd >= 0;
}

/* rdma_cm's choice for iWARP, and no route besides. */
static enum rdma_cm_event_type event_for(int error)
{
	switch (error) {
	case ECONNREFUSED:
	case ECONNRESET:
		return RDMA_CM_EVENT_REJECTED;
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return RDMA_CM_EVENT_UNREACHABLE;
	default:
		return RDMA_CM_EVENT_CONNECT_ERROR;
	}
}

/* The connection ends and the socket stays, with its port. */
static bool disconnect_socket(struct cm_id *cm)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	if (connect(cm->fd, &nobody, sizeof(nobody)))
		return false;
	/* The kernel gave up a port that it had chosen itself; EINVAL: it did not. */
	return !bind(cm->fd, cm_src(cm), addr_len(cm_src(cm))) || errno == EINVAL;
}

/*
 * A socket that the program bound keeps its port, as the peer may know it by that. Another one
 * gives it up, since the old connection may not be quite gone.
 */
static void drop_connection(struct cm_id *cm)
{
	id_unwatch(cm);
	if (cm->bound && disconnect_socket(cm))
		return;
	close(cm->fd);
	cm->fd = -1;
}

/*
 * Programs connect while their peer is about to listen: perftest's server listens anew for its
 * second connection, and where addresses take their time to resolve it is always ready. So a
 * refusal is final only after a moment. Whether there will be another try.
 */
static bool try_again(struct cm_id *cm)
{
	uint64_t now = progress_now();

	if (!cm->retry_until)
		cm->retry_until = now + RETRY_FOR_MS * 1000000u;
	if (now >= cm->retry_until)
		return false;
	drop_connection(cm);
	cm->state = CM_CONNECTING;
	progress_timer_arm(&cm->retry_timer, RETRY_MS);
	return true;
}

static void connect_failed(struct cm_id *cm, int error, const char *why)
{
	if (error == ECONNREFUSED && cm->state == CM_CONNECTING && try_again(cm))
		return;
	log_info("connect %s: %s", addr_text(cm_dst(cm)).text, why ? why : strerror(error));
	id_close_socket(cm);
	cm->state = CM_CLOSED;
	event_post(cm, event_for(error), -error, NULL);
}

static void begin_tcp(struct cm_id *cm)
{
	int err = 0;

	cm->state = CM_CONNECTING;
	cm->frame_len = 0;
	if (connect(cm->fd, cm_dst(cm), addr_len(cm_dst(cm))) && errno != EINPROGRESS)
		err = -errno;
	if (!err)
		err = id_watch(cm, EPOLLOUT);
	if (err)
		connect_failed(cm, -err, NULL);
}

int handshake_start(struct cm_id *cm)
{
	cm->bound = cm->fd >= 0;
	if (!cm->bound) {
		int fd = socket_bind(cm, cm_src(cm), true);

		if (fd < 0) {
			log_info("connect %s from %s: %s", addr_text(cm_dst(cm)).text,
				 addr_text(cm_src(cm)).text, strerror(-fd));
			return fd;
		}
		cm->fd = fd;
	}
	progress_timer_arm(&cm->timer, CM_CONNECT_MS);
	begin_tcp(cm);
	return 0;
}

void handshake_connected(struct cm_id *cm)
{
	socklen_t len = sizeof(cm->id.route.addr.src_storage);
	socklen_t error_len = sizeof(int);
	int error = 0, err;

	if (getsockopt(cm->fd, SOL_SOCKET, SO_ERROR, &error, &error_len))
		error = errno;
	if (error) {
		connect_failed(cm, error, NULL);
		return;
	}
	getsockname(cm->fd, cm_src(cm), &len);
	offer_shm(cm);
	err = mpa_send(cm->fd, &cm->request);
	if (!err)
		err = id_watch(cm, EPOLLIN);
	if (err) {
		connect_failed(cm, -err, NULL);
		return;
	}
	cm->state = CM_AWAIT_REPLY;
}

static void connect_anew(struct cm_id *cm)
{
	struct sockaddr_storage src;

	if (cm->fd < 0) {
		addr_copy(&src, cm_src(cm));
		if (!cm->bound)
			addr_set_port((struct sockaddr *)&src, 0);
		cm->fd = socket_bind(cm, (struct sockaddr *)&src, true);
	}
	if (cm->fd < 0) {
		int error = -cm->fd;

		cm->fd = -1;
		connect_failed(cm, error, NULL);
		return;
	}
	begin_tcp(cm);
}

void handshake_retry(struct progress_timer *timer)
{
	connect_anew(container_of(timer, struct cm_id, retry_timer));
}

/* A responder that knows revision 1 alone may just close. The time for it all goes on running. */
static void fall_back(struct cm_id *cm)
{
	log_info("connect %s: closed without a reply; once more with MPA revision 1",
		 addr_text(cm_dst(cm)).text);
	drop_connection(cm);
	cm->fell_back = true;
	cm->request.revision = 1;
	cm->request.enhanced = false;
	cm->request.peer_to_peer = false;
	cm->request.rtr = 0;
	connect_anew(cm);
}

static void reply_failed(struct cm_id *cm, int err)
{
	/* Closing with our request unread resets the connection. */
	bool silent = (err == -EPIPE || err == -ECONNRESET) && cm->frame_len == 0;

	if (silent && err == -ECONNRESET && try_again(cm))
		return; /* a forwarder accepts for a peer that does not listen yet, and resets */
	if (silent && cm->request.revision == 2 && !cm->fell_back)
		fall_back(cm);
	else if (err == -EPIPE)
		connect_failed(cm, ECONNRESET, "closed without a reply");
	else if (err == -EPROTO)
		connect_failed(cm, EPROTO, "the reply is not an MPA reply");
	else
		connect_failed(cm, -err, NULL);
}

/* RFC 6581: an initiator that cannot go on with what was agreed says why. */
static void send_terminate(struct cm_id *cm, uint16_t code, bool crc)
{
	uint8_t fpdu[TERMINATE_MAX_FPDU + FPDU_CRC_LEN];
	size_t len = terminate_build(fpdu, code, NULL, 0, 0);

	fpdu_put_crc(fpdu + len, crc ? crc32c(0, fpdu, len) : 0);
	if (mpa_send_bytes(cm->fd, fpdu, len + FPDU_CRC_LEN))
		log_debug("connect %s: no Terminate: %m", addr_text(cm_dst(cm)).text);
}

static void reply_refused(struct cm_id *cm, const struct mpa_frame *reply)
{
	struct cm_news news = {
		.private_data = reply->private_data,
		.private_len = reply->private_len,
	};

	log_info("connect %s: rejected by the peer", addr_text(cm_dst(cm)).text);
	id_close_socket(cm);
	cm->state = CM_CLOSED;
	event_post(cm, RDMA_CM_EVENT_REJECTED, -ECONNRESET, &news); /* as siw */
}

static void reply_complete(struct cm_id *cm)
{
	struct shm_link *link = NULL;
	struct mpa_agreed agreed;
	struct mpa_frame reply;
	struct cm_news news;
	uint16_t why = TERM_NONE;
	int err;

	err = parse_frame(cm, MPA_REPLY, &reply);
	if (err) {
		reply_failed(cm, err);
		return;
	}
	err = mpa_conclude(&cm->request, &cm->local, &reply, &agreed, &why);
	if (err == -ECONNREFUSED && why == TERM_NONE) {
		reply_refused(cm, &reply);
		return;
	}
	if (err) {
		if (why == TERM_MPA_IRD || why == TERM_MPA_RTR)
			send_terminate(cm, why, reply.crc);
		connect_failed(cm, -err, terminate_text(why));
		return;
	}
	news = (struct cm_news){
		.private_data = reply.private_data,
		.private_len = reply.private_len,
		.responder_resources = agreed.ird,
		.initiator_depth = agreed.ord,
	};
	if (reply.shm && cm->shm_fd >= 0) {
		link = shm_take(cm->shm_fd, cm->fd);
		cm->shm_fd = -1;
	}
	handshake_retract(cm);
	err = connection_attach(cm, link, &agreed, true, &news);
	if (err)
		connect_failed(cm, -err, err == -ENOENT ? "its queue pair is gone" : NULL);
}

void handshake_reply(struct cm_id *cm)
{
	int got = mpa_read(cm->fd, MPA_REPLY, cm->frame, &cm->frame_len);

	if (got < 0)
		reply_failed(cm, got);
	else if (got)
		reply_complete(cm);
}

/* ---- the responder ---- */

static void request_failed(struct cm_id *cm, const char *why)
{
	log_info("request from %s: dropped: %s", addr_text(cm_dst(cm)).text, why);
	id_drop(cm);
}

static uint16_t shown_depth(const struct mpa_frame *request, uint16_t depth)
{
	return request->enhanced && depth < CM_MAX_DEPTH ? depth : CM_MAX_DEPTH;
}

/* Whether we could accept it at all. */
static int check_request(const struct mpa_frame *request)
{
	struct mpa_local most = {.ird = CM_MAX_DEPTH, .ord = CM_MAX_DEPTH};
	struct mpa_agreed agreed;
	struct mpa_frame reply;
	uint16_t why;

	return mpa_answer(request, &most, &reply, &agreed, &why);
}

static void request_complete(struct cm_id *cm)
{
	struct mpa_frame *request = &cm->request;
	struct cm_news news;
	int err = parse_frame(cm, MPA_REQUEST, request);

	if (err) {
		request_failed(cm, strerror(-err));
		return;
	}
	err = check_request(request);
	if (err) {
		handshake_refuse(cm, NULL, 0);
		request_failed(cm, err == -ECONNREFUSED ? "it demands markers"
							: "it offers no way to open peer-to-peer");
		return;
	}
	/* Nobody reads on: what follows is the queue pair's. */
	progress_timer_cancel(&cm->timer);
	id_pause(cm);
	news = (struct cm_news){
		.private_data = request->private_data,
		.private_len = request->private_len,
		.responder_resources = shown_depth(request, request->ord),
		.initiator_depth = shown_depth(request, request->ird),
	};
	listen_promote(cm);
	err = event_post_request(cm, &news);
	if (err)
		request_failed(cm, strerror(-err));
}

void handshake_request(struct cm_id *cm)
{
	int got = mpa_read(cm->fd, MPA_REQUEST, cm->frame, &cm->frame_len);

	if (got == -EPROTO)
		request_failed(cm, "not an MPA request");
	else if (got == -EPIPE)
		request_failed(cm, "closed before its end");
	else if (got < 0)
		request_failed(cm, strerror(-got));
	else if (got)
		request_complete(cm);
}

int handshake_refuse(struct cm_id *cm, const void *private_data, size_t len)
{
	struct mpa_local none = {0};
	struct mpa_agreed agreed;
	struct mpa_frame reply;
	uint16_t why;
	int err;

	if (mpa_answer(&cm->request, &none, &reply, &agreed, &why))
		reply = (struct mpa_frame){
			.kind = MPA_REPLY,
			.revision = cm->request.revision,
			.soft = cm->request.soft,
		};
	reply.reject = true;
	reply.private_data = private_data;
	reply.private_len = (uint16_t)len;
	err = mpa_send(cm->fd, &reply);
	id_unwatch(cm);
	linger_close(cm->fd);
	cm->fd = -1;
	return err;
}

/* ---- both ---- */

void handshake_expired(struct cm_id *cm)
{
	if (cm->state == CM_AWAIT_REQUEST)
		request_failed(cm, "it did not come in time");
	else
		connect_failed(cm, ETIMEDOUT, "no answer");
}
