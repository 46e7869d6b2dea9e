/* SPDX-License-Identifier: MIT */
/*
 * Whoever connects to a port of ours has a moment to say a hello that fits. Nothing that it says is
 * kept: it is answered at once, and asks again if it came too early.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../mpa_io.h"
#include "../settings.h"
#include "../shm/shm.h"
#include "../tuning.h"
#include "internal.h"

struct visitor {
	struct progress_source source;
	struct progress_timer timer;
	struct list link;
	uint8_t frame[MPA_MAX_FRAME];
	size_t frame_len;
};

static struct list visitors = {&visitors, &visitors}; /* the oldest first */
static unsigned num_visitors;

/* @keep: the descriptor has a new owner. */
static void visitor_free(struct visitor *visitor, bool keep)
{
	progress_timer_cancel(&visitor->timer);
	progress_unwatch(&visitor->source);
	if (!keep)
		close(visitor->source.fd);
	list_del(&visitor->link);
	num_visitors--;
	free(visitor);
}

static void send_away(struct visitor *visitor, const struct qp_hello *hello,
		      enum qp_hello_answer answer)
{
	/* All that is not welcome hears the same of us: the numbers that it said itself. */
	const struct qp_hello reply_hello = {
		.answer = (uint8_t)answer,
		.path_mtu = hello->path_mtu,
		.from = hello->to,
		.to = hello->from,
	};
	uint8_t bytes[QP_HELLO_LEN];
	const struct mpa_frame reply = {
		.kind = MPA_REPLY,
		.revision = 2,
		.soft = true,
		.reject = true,
		.private_data = bytes,
		.private_len = QP_HELLO_LEN,
	};

	qp_hello_build(&reply_hello, bytes);
	if (mpa_send(visitor->source.fd, &reply))
		log_debug("meet: a visitor left before its answer");
	visitor_free(visitor, false);
}

static void welcome(struct visitor *visitor, struct meeting *meeting, const struct qp_hello *hello,
		    const struct mpa_frame *request)
{
	const struct mpa_local local = {
		.ird = meeting->terms.ird, .ord = MEET_MAX_READS, .crc = settings()->crc};
	uint32_t own = meeting->terms.own;
	struct shm_link *link = NULL;
	int fd = visitor->source.fd;
	struct mpa_agreed agreed;
	uint8_t bytes[QP_HELLO_LEN];
	struct mpa_frame reply;
	uint16_t why;

	if (mpa_answer(request, &local, &reply, &agreed, &why)) {
		visitor_free(visitor, false);
		return;
	}
	agreed.either_first = true;
	if (request->shm && !agreed.crc)
		link = shm_meet(fd);
	meeting_say(meeting, MEET_WELCOME, bytes);
	reply.shm = link != NULL;
	reply.private_data = bytes;
	reply.private_len = QP_HELLO_LEN;
	/* The reply goes first: once attached, a request may leave at any moment. */
	if (mpa_send(fd, &reply)) {
		shm_link_free(link);
		visitor_free(visitor, false);
		return;
	}
	meeting_done(meeting, hello);
	visitor_free(visitor, true);
	if (qp_met(own, fd, link, &agreed, false)) {
		shm_link_free(link);
		close(fd);
	}
}

static void answer(struct visitor *visitor)
{
	struct sockaddr_storage from = {0};
	socklen_t len = sizeof(from);
	enum qp_hello_answer verdict;
	struct mpa_frame request;
	struct meeting *meeting;
	struct qp_hello hello;

	if (mpa_parse(MPA_REQUEST, visitor->frame, visitor->frame_len, &request) || !request.soft ||
	    !request.acks || !request.enhanced ||
	    qp_hello_parse(request.private_data, request.private_len, &hello) ||
	    getpeername(visitor->source.fd, (struct sockaddr *)&from, &len)) {
		log_info("meet: a visitor said no hello");
		visitor_free(visitor, false);
		return;
	}
	/* Whether there is such a queue pair at all is nobody's business. */
	meeting = meeting_find(hello.to);
	verdict = meeting ? meeting_judge(meeting, &hello, (struct sockaddr *)&from) : MEET_NOT_YET;
	if (verdict == MEET_WELCOME)
		welcome(visitor, meeting, &hello, &request);
	else
		send_away(visitor, &hello, verdict);
}

static void ready(struct progress_source *source, uint32_t events)
{
	struct visitor *visitor = container_of(source, struct visitor, source);
	int result = mpa_read(source->fd, MPA_REQUEST, visitor->frame, &visitor->frame_len);

	(void)events;
	if (result < 0)
		visitor_free(visitor, false);
	else if (result)
		answer(visitor);
}

static void expired(struct progress_timer *timer)
{
	log_info("meet: a visitor said nothing");
	visitor_free(container_of(timer, struct visitor, timer), false);
}

void visitor_new(int fd)
{
	struct visitor *visitor;

	/* The one who has been silent for longest makes room. */
	if (num_visitors == MEET_MAX_VISITORS)
		visitor_free(list_first(&visitors, struct visitor, link), false);
	visitor = calloc(1, sizeof(*visitor));
	if (!visitor) {
		close(fd);
		return;
	}
	visitor->source.fd = fd;
	visitor->source.set = PROGRESS_CM;
	visitor->source.ready = ready;
	progress_timer_init(&visitor->timer, PROGRESS_CM, expired);
	list_add_tail(&visitors, &visitor->link);
	num_visitors++;
	if (progress_watch(&visitor->source, EPOLLIN)) {
		visitor_free(visitor, false);
		return;
	}
	progress_timer_arm(&visitor->timer, MEET_HELLO_MS);
}

/* A child has none of its parent's visitors. */
void visitors_forget(void)
{
	list_init(&visitors);
	num_visitors = 0;
}
