/* SPDX-License-Identifier: MIT */
/* Numbers of queue pairs, and the sockets that listen for them. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../settings.h"
#include "../tuning.h"
#include "internal.h"

#define NUMBERS 255u /* of a port: with 256, the last of all would be that of multicast groups */

struct port {
	struct progress_source source;
	struct progress_timer timer; /* while it cannot accept */
	struct list link;
	uint16_t port;
	unsigned used;
	unsigned next; /* where to look for a free one: the last given back is used again last */
	bool taken[NUMBERS];
};

static struct list ports = {&ports, &ports};

/* ---- listening ---- */

/* There is no descriptor or memory for another visitor: those who wait, wait. */
static void starve(struct port *port)
{
	log_warn("port %u of queue pairs: cannot accept for now: %s", port->port, strerror(errno));
	progress_pause(&port->source);
	progress_timer_arm(&port->timer, MEET_STARVED_MS);
}

static void starved_expired(struct progress_timer *timer)
{
	struct port *port = container_of(timer, struct port, timer);

	if (progress_watch(&port->source, EPOLLIN))
		progress_timer_arm(&port->timer, MEET_STARVED_MS);
}

static void ready(struct progress_source *source, uint32_t events)
{
	(void)events;
	for (int i = 0; i < CM_ACCEPTS_AT_ONCE; i++) {
		int fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			visitor_new(fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			starve(container_of(source, struct port, source));
			return;
		} else if (errno == EAGAIN) {
			return;
		} /* else that one failed before it was taken */
	}
}

/* Both families at once, where there is IPv6. 0 or -errno. */
static int bind_to(int fd, sa_family_t family, uint16_t port)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	int err = family == AF_INET6 ? bind(fd, (struct sockaddr *)&v6, sizeof(v6))
				     : bind(fd, (struct sockaddr *)&v4, sizeof(v4));

	return err ? -errno : 0;
}

static int bind_in_range(int fd, sa_family_t family)
{
	unsigned from = settings()->first_port, to = settings()->last_port;
	int err = -EADDRINUSE;

	if (!to)
		return bind_to(fd, family, 0);
	for (unsigned port = from; port <= to && err == -EADDRINUSE; port++)
		err = bind_to(fd, family, (uint16_t)port);
	if (err)
		log_warn("SOFTRDMA_PORTS=%u-%u: %s", from, to, strerror(-err));
	return err;
}

static int open_listener(sa_family_t family, uint16_t *port)
{
	struct sockaddr_in6 addr = {0};
	socklen_t len = sizeof(addr);
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), zero = 0;
	int err;

	if (fd < 0)
		return -errno;
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	err = bind_in_range(fd, family);
	if (!err && (listen(fd, (int)NUMBERS) || getsockname(fd, (struct sockaddr *)&addr, &len)))
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	*port = ntohs(addr.sin6_port); /* at the same place in both families */
	return fd;
}

static struct port *port_open(int *err)
{
	struct port *port = calloc(1, sizeof(*port));

	*err = -ENOMEM;
	if (!port)
		return NULL;
	port->source.set = PROGRESS_CM;
	port->source.ready = ready;
	progress_timer_init(&port->timer, PROGRESS_CM, starved_expired);
	port->source.fd = open_listener(AF_INET6, &port->port);
	if (port->source.fd == -EAFNOSUPPORT || port->source.fd == -EADDRNOTAVAIL)
		port->source.fd = open_listener(AF_INET, &port->port);
	*err = port->source.fd;
	if (port->source.fd < 0)
		goto undo_port;
	*err = progress_watch(&port->source, EPOLLIN);
	if (*err)
		goto undo_listener;
	list_add_tail(&ports, &port->link);
	return port;

undo_listener:
	close(port->source.fd);
undo_port:
	free(port);
	return NULL;
}

static void port_close(struct port *port)
{
	progress_timer_cancel(&port->timer);
	progress_unwatch(&port->source);
	close(port->source.fd);
	list_del(&port->link);
	free(port);
}

/* ---- numbers ---- */

static struct port *with_room(void)
{
	struct list *pos;

	list_for_each (pos, &ports) {
		struct port *port = container_of(pos, struct port, link);

		if (port->used < NUMBERS)
			return port;
	}
	return NULL;
}

static uint32_t take_of(struct port *port)
{
	while (port->taken[port->next])
		port->next = (port->next + 1) % NUMBERS;
	port->taken[port->next] = true;
	port->used++;
	return (uint32_t)port->port << 8 | port->next;
}

int meet_take_number(uint32_t *number)
{
	struct port *port;
	int err = 0;

	progress_lock(PROGRESS_CM);
	port = with_room();
	if (!port)
		port = port_open(&err);
	if (port) {
		*number = take_of(port);
		port->next = (port->next + 1) % NUMBERS;
	}
	progress_unlock(PROGRESS_CM);
	return port ? 0 : err;
}

void meet_give_number(uint32_t number)
{
	struct list *pos;

	progress_lock(PROGRESS_CM);
	list_for_each (pos, &ports) {
		struct port *port = container_of(pos, struct port, link);

		if (port->port != number >> 8)
			continue;
		port->taken[number & 0xff] = false;
		if (!--port->used)
			port_close(port);
		break;
	}
	progress_unlock(PROGRESS_CM);
}

/* A child listens at ports of its own. */
void ports_forget(void)
{
	list_init(&ports);
}
