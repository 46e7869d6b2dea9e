/* SPDX-License-Identifier: MIT */
/*
 * Listeners: accepting TCP connections, and how many of them may wait for their request or for an
 * answer.
 */
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../tuning.h"
#include "internal.h"

#define DEFAULT_BACKLOG 1024 /* the kernel's */
#define TCP_BACKLOG     1024
#define MAX_HANDSHAKES  256 /* whoever connects and says nothing holds one for CM_REQUEST_MS */
#define STARVED_MS      100
#define PATIENCE_MS     250 /* the time that a request has to come when no place is left */

/*
 * The backlog counts requests that nobody has fetched, as the kernel does: a program may hold many
 * and answer later. Requests that are complete are shown even if that exceeds the backlog: they are
 * as many as handshakes were under way when the backlog was reached.
 */
static bool is_full(const struct cm_id *cm)
{
	return cm->handshakes >= MAX_HANDSHAKES || cm->pending >= cm->backlog;
}

static int start_listening(struct cm_id *cm, int backlog)
{
	static const struct sockaddr_in any = {.sin_family = AF_INET};
	int err = 0;

	if (cm->state == CM_IDLE)
		err = address_bind(cm, (const struct sockaddr *)&any);
	if (err)
		return err;
	if (cm->state != CM_BOUND)
		return -EINVAL;
	if (listen(cm->fd, TCP_BACKLOG)) {
		err = -errno;
		if (err == -EADDRINUSE)
			log_warn("listen %s: another program listens at that TCP port",
				 addr_text(cm_src(cm)).text);
		return err;
	}
	err = id_watch(cm, EPOLLIN);
	if (err)
		return err;
	cm->backlog = backlog > 0 ? (unsigned)backlog : DEFAULT_BACKLOG;
	cm->state = CM_LISTENING;
	return 0;
}

int soft_rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int err;

	if (!id)
		return fail(-EINVAL);
	cm_lock();
	err = start_listening(to_cm(id), backlog);
	cm_unlock();
	return err ? fail(err) : 0;
}

/* ---- children ---- */

static int name_child(struct cm_id *child)
{
	struct rdma_addr *addr = &child->id.route.addr;
	socklen_t src_len = sizeof(addr->src_storage), dst_len = sizeof(addr->dst_storage);

	if (getsockname(child->fd, &addr->src_addr, &src_len) ||
	    getpeername(child->fd, &addr->dst_addr, &dst_len))
		return -errno;
	addr_unmap(&addr->src_storage);
	addr_unmap(&addr->dst_storage);
	return device_assign(child, &addr->src_addr);
}

/* Takes @fd over, whatever happens. */
static int add_child(struct cm_id *cm, int fd)
{
	struct cm_id *child = id_new(cm->id.context, cm->id.ps, cm->id.qp_type);
	int err;

	if (!child) {
		close(fd);
		return -ENOMEM;
	}
	child->fd = fd;
	child->tos = cm->tos;
	child->state = CM_AWAIT_REQUEST;
	child->listener = cm;
	list_add_tail(&cm->children, &child->child_link);
	cm->handshakes++;

	err = name_child(child);
	if (!err) {
		socket_prepare(child, fd, cm_src(cm)->sa_family);
		err = id_watch(child, EPOLLIN);
	}
	if (err) {
		log_info("accept from %s: %s", addr_text(cm_dst(child)).text, strerror(-err));
		id_drop(child);
		return err;
	}
	progress_timer_arm(&child->timer, CM_REQUEST_MS);
	return 0;
}

void listen_promote(struct cm_id *child)
{
	child->listener->handshakes--;
	child->listener->pending++;
	child->state = CM_REQUESTED;
}

void listen_leave(struct cm_id *child)
{
	struct cm_id *cm = child->listener;

	if (!cm)
		return;
	child->listener = NULL;
	list_del(&child->child_link);
	if (child->state == CM_AWAIT_REQUEST)
		cm->handshakes--;
	else
		cm->pending--;
	if (cm->state == CM_LISTENING)
		listen_resume(cm);
}

/* ---- accepting ---- */

static void starve(struct cm_id *cm, int err)
{
	if (!cm->starved)
		log_warn("listen %s: cannot accept for now: %s", addr_text(cm_src(cm)).text,
			 strerror(-err));
	cm->starved = true;
	id_pause(cm);
	progress_timer_arm(&cm->timer, STARVED_MS);
}

/*
 * Others wait and every place is taken: whoever has had its time and did not say all makes room, so
 * that a crowd that says nothing keeps nobody out for long.
 */
static void make_room(struct cm_id *cm)
{
	const uint64_t patience = (uint64_t)(CM_REQUEST_MS - PATIENCE_MS) * 1000000u;
	uint64_t now = progress_now();
	struct list *pos, *tmp;

	list_for_each_safe (pos, tmp, &cm->children) {
		struct cm_id *child = container_of(pos, struct cm_id, child_link);

		if (child->state == CM_AWAIT_REQUEST && child->timer.deadline < now + patience)
			handshake_expired(child);
	}
}

/* 0: go on; -EAGAIN: nobody waits; else there is no room for another one now. */
static int accept_one(struct cm_id *cm)
{
	int fd = accept4(cm->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0)
		return add_child(cm, fd) == -ENOMEM ? -ENOMEM : 0;
	switch (errno) {
	case EAGAIN:
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		return -errno;
	default: /* that one connection failed before we took it */
		return 0;
	}
}

void listen_ready(struct cm_id *cm)
{
	int err = 0;

	if (cm->handshakes >= MAX_HANDSHAKES)
		make_room(cm);
	for (int i = 0; i < CM_ACCEPTS_AT_ONCE && !is_full(cm) && !err; i++)
		err = accept_one(cm);
	if (err && err != -EAGAIN) {
		starve(cm, err);
		return;
	}
	cm->starved = false;
	if (is_full(cm)) {
		log_info("listen %s: %u requests wait to be fetched, %u connections for a request",
			 addr_text(cm_src(cm)).text, cm->pending, cm->handshakes);
		id_pause(cm);
		progress_timer_arm(&cm->timer, PATIENCE_MS);
	}
}

void listen_resume(struct cm_id *cm)
{
	int err;

	/* Too many handshakes are no reason not to look whether somebody waits: see make_room. */
	if (cm->watched || cm->pending >= cm->backlog)
		return;
	err = id_watch(cm, EPOLLIN);
	if (err)
		starve(cm, err);
}

/*
 * Requests that the user has fetched go on without us; those that are queued go with their events.
 */
void listen_close(struct cm_id *cm)
{
	cm->state = CM_CLOSED;
	id_close_socket(cm);
	while (!list_is_empty(&cm->children)) {
		struct cm_id *child = list_first(&cm->children, struct cm_id, child_link);

		if (child->state == CM_AWAIT_REQUEST)
			id_drop(child);
		else
			listen_leave(child);
	}
}
