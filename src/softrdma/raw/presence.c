/* SPDX-License-Identifier: MIT */
#include "presence.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../common/log.h"

#define PREFIX      "softrdma/raw/"
#define PATIENCE_MS 1000 /* for another process to change its back end */
#define AGAIN_MS    5

static socklen_t set_name(struct sockaddr_un *address, const char *name)
{
	size_t len = strlen(name);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* Abstract: of the network namespace, and gone with the socket. */
	memcpy(address->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static bool may_ask(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

/* ---- being asked ---- */

static void keep_asking(struct presence *presence, int fd)
{
	int before = atomic_exchange(&presence->asking, fd);

	if (before >= 0)
		close(before); /* asked at the same time: it will see one more than it needs */
}

static void answer(struct presence *presence)
{
	enum presence_stage stage = PRESENCE_CHOOSING;
	int fd = atomic_exchange(&presence->asking, -1);

	if (fd < 0)
		return;
	/* Whoever is about to choose learns of it without waiting: it may be asking the other. */
	if (!atomic_compare_exchange_strong(&presence->stage, &stage, PRESENCE_ASKED) &&
	    stage == PRESENCE_ALONE && !presence->step_aside(presence)) {
		keep_asking(presence, fd);
		progress_timer_arm(&presence->again, AGAIN_MS);
		return;
	}
	close(fd);
}

static void ask_again(struct progress_timer *timer)
{
	answer(container_of(timer, struct presence, again));
}

static void asked(struct progress_source *source, uint32_t events)
{
	struct presence *presence = container_of(source, struct presence, source);
	int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC);

	(void)events;
	if (fd < 0)
		return;
	if (!may_ask(fd)) {
		close(fd);
		return;
	}
	keep_asking(presence, fd);
	answer(presence);
}

void presence_init(struct presence *presence, bool (*step_aside)(struct presence *presence))
{
	*presence = (struct presence){
		.source = {.fd = -1, .set = PROGRESS_CM, .ready = asked},
		.step_aside = step_aside,
		.asking = -1,
	};
	progress_timer_init(&presence->again, PROGRESS_CM, ask_again);
}

static int watch(struct presence *presence)
{
	int error;

	progress_lock(PROGRESS_CM);
	error = progress_watch(&presence->source, EPOLLIN);
	progress_unlock(PROGRESS_CM);
	return error;
}

static int listen_at(struct presence *presence, const char *name)
{
	struct sockaddr_un address;
	socklen_t len = set_name(&address, name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -errno;
	presence->source.fd = fd;
	if (bind(fd, (struct sockaddr *)&address, len) || listen(fd, 8))
		error = -errno;
	else
		error = watch(presence);
	if (error) {
		close(fd);
		presence->source.fd = -1;
	}
	return error;
}

void presence_show(struct presence *presence, unsigned ifindex, uint32_t qp_num)
{
	char name[64];
	int error;

	if (presence->source.fd >= 0)
		return;
	snprintf(name, sizeof(name), PREFIX "%u/%d/%x", ifindex, (int)getpid(), qp_num);
	error = listen_at(presence, name);
	if (error)
		log_warn("QP 0x%x cannot be found by other programs, and may miss frames that they "
			 "take: %s",
			 qp_num, strerror(-error));
}

void presence_fini(struct presence *presence)
{
	int fd;

	if (presence->source.fd < 0)
		return;
	progress_lock(PROGRESS_CM);
	progress_unwatch(&presence->source);
	progress_timer_cancel(&presence->again);
	progress_unlock(PROGRESS_CM);
	close(presence->source.fd);
	fd = atomic_exchange(&presence->asking, -1);
	if (fd >= 0)
		close(fd);
}

/* ---- asking ---- */

/* Whether there is somebody who matters. */
static bool ask(const char *name)
{
	struct pollfd end = {.events = POLLIN};
	struct sockaddr_un address;
	socklen_t len = set_name(&address, name);
	bool counts = false;

	end.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (end.fd < 0)
		return false;
	if (!connect(end.fd, (struct sockaddr *)&address, len) && may_ask(end.fd)) {
		counts = true;
		if (poll(&end, 1, PATIENCE_MS) <= 0)
			log_warn("%s does not answer: its rules may take frames", name);
	}
	close(end.fd);
	return counts;
}

/* The name in a line of /proc/net/unix if it is one of ours, of another process. */
static const char *other_name(char *line, const char *prefix, const char *own)
{
	char *name = strchr(line, '@');

	if (!name || strncmp(++name, prefix, strlen(prefix)) != 0 ||
	    !strncmp(name, own, strlen(own)))
		return NULL;
	name[strcspn(name, "\n")] = 0;
	return name;
}

static bool ask_others(unsigned ifindex)
{
	char prefix[48], own[64], *line = NULL, last[64] = "";
	FILE *list = fopen("/proc/thread-self/net/unix", "re");
	size_t room = 0;
	bool any = false;

	if (!list)
		return false;
	snprintf(prefix, sizeof(prefix), PREFIX "%u/", ifindex);
	snprintf(own, sizeof(own), "%s%d/", prefix, (int)getpid());
	while (getline(&line, &room, list) > 0) {
		const char *name = other_name(line, prefix, own);

		/* Its open connections bear the same name. */
		if (!name || strlen(name) >= sizeof(last) || !strcmp(name, last))
			continue;
		strcpy(last, name);
		any |= ask(name);
	}
	free(line);
	fclose(list);
	return any;
}

bool presence_is_alone(struct presence *presence, unsigned ifindex, bool alone_here)
{
	enum presence_stage stage = PRESENCE_CHOOSING;

	atomic_store(&presence->stage, PRESENCE_CHOOSING);
	if (!ask_others(ifindex) && alone_here &&
	    atomic_compare_exchange_strong(&presence->stage, &stage, PRESENCE_ALONE))
		return true;
	atomic_store(&presence->stage, PRESENCE_SHARED);
	return false;
}
