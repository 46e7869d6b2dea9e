/* SPDX-License-Identifier: MIT */
/* A queue pair in RTS dials its peer, until the two have met. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../mpa_io.h"
#include "../settings.h"
#include "../shm/shm.h"
#include "../tuning.h"
#include "internal.h"

static void close_socket(struct meeting *meeting)
{
	if (meeting->shm_offer >= 0)
		close(meeting->shm_offer);
	meeting->shm_offer = -1;
	if (meeting->source.fd < 0)
		return;
	progress_unwatch(&meeting->source);
	close(meeting->source.fd);
	meeting->source.fd = -1;
}

void dial_end(struct meeting *meeting)
{
	progress_timer_cancel(&meeting->timer);
	close_socket(meeting);
}

/* The peer may not be ready, or not be there any more: only requests that wait for it fail. */
static void pause_dialling(struct meeting *meeting, const char *why)
{
	unsigned ms = MEET_RETRY_MAX_MS;

	close_socket(meeting);
	if (meeting->tries < 16 && (MEET_RETRY_MS << meeting->tries) < ms)
		ms = MEET_RETRY_MS << meeting->tries;
	if (!meeting->tries++)
		log_info("QP 0x%x: QP 0x%x is not there yet: %s", meeting->terms.own,
			 meeting->terms.peer, why);
	meeting->state = MEETING_PAUSES;
	progress_timer_arm(&meeting->timer, ms);
}

/* ---- a queue pair that is connected to itself ---- */

static bool is_self(const struct meet_terms *terms)
{
	return terms->own == terms->peer && !memcmp(terms->own_gid, terms->peer_gid, 16);
}

/* A TCP socket that connects to its own address is its own peer. */
static void meet_self(struct meeting *meeting)
{
	const struct mpa_agreed agreed = {
		.soft = true,
		.acks = true,
		.ird = meeting->terms.ird,
		.ord = meeting->terms.ird,
		.either_first = true,
	};
	struct sockaddr_storage addr;
	socklen_t len = gid_to_addr(meeting->own_ip, 0, meeting->terms.ifindex, &addr);
	int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) ||
	    getsockname(fd, (struct sockaddr *)&addr, &len) ||
	    (connect(fd, (struct sockaddr *)&addr, len) && errno != EINPROGRESS)) {
		log_warn("QP 0x%x: cannot be connected to itself: %s", meeting->terms.own,
			 strerror(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	if (qp_met(meeting->terms.own, fd, NULL, &agreed, true))
		close(fd);
	else
		meeting_done(meeting, NULL);
}

/* ---- another one ---- */

static int open_socket(const struct meeting *meeting)
{
	const struct meet_terms *terms = &meeting->terms;
	struct sockaddr_storage own;
	socklen_t len = gid_to_addr(meeting->own_ip, 0, terms->ifindex, &own);
	int fd = socket(own.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		return -errno;
	/* The peer knows this end by its address. */
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&own, len)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

void dial_begin(struct meeting *meeting)
{
	const struct meet_terms *terms = &meeting->terms;
	struct sockaddr_storage peer;
	socklen_t len =
		gid_to_addr(meeting->peer_ip, (uint16_t)(terms->peer >> 8), terms->ifindex, &peer);
	int err = 0;

	meeting->state = MEETING_DIALS;
	meeting->frame_len = 0;
	if (is_self(terms)) {
		progress_timer_arm(&meeting->timer, 0); /* not under the queue pair's lock */
		return;
	}
	meeting->source.fd = open_socket(meeting);
	if (meeting->source.fd < 0)
		err = meeting->source.fd;
	else if (connect(meeting->source.fd, (struct sockaddr *)&peer, len) && errno != EINPROGRESS)
		err = -errno;
	if (!err)
		err = progress_watch(&meeting->source, EPOLLOUT);
	if (err)
		pause_dialling(meeting, strerror(-err));
	else
		progress_timer_arm(&meeting->timer, MEET_DIAL_MS);
}

/* TCP is connected: say hello. */
static int ask(struct meeting *meeting)
{
	bool crc = settings()->crc;
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(meeting->source.fd, SOL_SOCKET, SO_ERROR, &error, &len))
		error = errno;
	if (error)
		return -error;
	meeting->shm_offer = crc ? -1 : shm_offer(meeting->source.fd);
	meeting_say(meeting, MEET_WELCOME, meeting->hello);
	meeting->request = (struct mpa_frame){
		.kind = MPA_REQUEST,
		.revision = 2,
		.enhanced = true,
		.crc = crc,
		.soft = true,
		.acks = true,
		.shm = meeting->shm_offer >= 0,
		.ird = meeting->terms.ird,
		.ord = MEET_MAX_READS,
		.private_data = meeting->hello,
		.private_len = QP_HELLO_LEN,
	};
	meeting->state = MEETING_ASKS;
	error = mpa_send(meeting->source.fd, &meeting->request);
	return error ? error : progress_rewatch(&meeting->source, EPOLLIN);
}

static const char *text_of(unsigned answer)
{
	switch (answer) {
	case MEET_CROSSING:
		return "it dials, too";
	case MEET_UNFITTING:
		return "it expects somebody else, or another starting PSN";
	default:
		return "it expects nobody so far";
	}
}

static void reply_complete(struct meeting *meeting)
{
	const struct mpa_local local = {
		.ird = meeting->terms.ird, .ord = MEET_MAX_READS, .crc = settings()->crc};
	struct shm_link *link = NULL;
	struct mpa_agreed agreed;
	struct mpa_frame reply;
	struct qp_hello hello;
	uint16_t why;
	int fd;

	if (mpa_parse(MPA_REPLY, meeting->frame, meeting->frame_len, &reply) || !reply.soft ||
	    qp_hello_parse(reply.private_data, reply.private_len, &hello) ||
	    hello.from != meeting->terms.peer || hello.to != meeting->terms.own) {
		pause_dialling(meeting, "what answers there is no queue pair");
		return;
	}
	if (hello.answer != MEET_WELCOME ||
	    mpa_conclude(&meeting->request, &local, &reply, &agreed, &why)) {
		pause_dialling(meeting, text_of(hello.answer));
		return;
	}
	agreed.either_first = true;
	if (reply.shm && meeting->shm_offer >= 0) {
		link = shm_take(meeting->shm_offer, meeting->source.fd);
		meeting->shm_offer = -1;
	}
	fd = meeting->source.fd;
	progress_unwatch(&meeting->source); /* before somebody else waits for this descriptor */
	meeting->source.fd = -1;
	/* A responder in RTR has no PSN to send with yet. It is checked when it has. */
	meeting_done(meeting, NULL);
	if (qp_met(meeting->terms.own, fd, link, &agreed, true)) {
		shm_link_free(link);
		close(fd);
	}
}

static void ready(struct progress_source *source, uint32_t events)
{
	struct meeting *meeting = container_of(source, struct meeting, source);
	int result;

	(void)events;
	if (meeting->state == MEETING_DIALS) {
		result = ask(meeting);
		if (result)
			pause_dialling(meeting, strerror(-result));
		return;
	}
	result = mpa_read(source->fd, MPA_REPLY, meeting->frame, &meeting->frame_len);
	if (result < 0)
		pause_dialling(meeting, result == -EPIPE ? "it hung up" : strerror(-result));
	else if (result)
		reply_complete(meeting);
}

static void expired(struct progress_timer *timer)
{
	struct meeting *meeting = container_of(timer, struct meeting, timer);

	if (meeting->state == MEETING_DIALS && is_self(&meeting->terms))
		meet_self(meeting);
	else if (meeting->state == MEETING_PAUSES)
		dial_begin(meeting);
	else
		pause_dialling(meeting, "no answer");
}

void dial_init(struct meeting *meeting)
{
	meeting->shm_offer = -1;
	meeting->source.fd = -1;
	meeting->source.set = PROGRESS_CM;
	meeting->source.ready = ready;
	progress_timer_init(&meeting->timer, PROGRESS_CM, expired);
}
