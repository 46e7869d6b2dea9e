/* SPDX-License-Identifier: MIT */
/*
 * Sockets that are done but for their goodbye: the last words sent must arrive before they close.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../tuning.h"
#include "internal.h"

#define LINGER_MS  2000
#define LINGER_MAX 1024 /* a flood of requests to refuse must not eat the descriptors */

struct linger_socket {
	struct progress_source source;
	struct progress_timer timer;
};

static unsigned lingering; /* guarded by the CM lock */

static void linger_end(struct linger_socket *linger)
{
	progress_timer_cancel(&linger->timer);
	progress_unwatch(&linger->source);
	close(linger->source.fd);
	free(linger);
	lingering--;
}

static void linger_expired(struct progress_timer *timer)
{
	linger_end(container_of(timer, struct linger_socket, timer));
}

static void linger_ready(struct progress_source *source, uint32_t events)
{
	char scratch[4096];
	ssize_t n = 1;

	(void)events;
	for (int i = 0; i < CM_LINGER_READS_AT_ONCE && n > 0; i++)
		n = recv(source->fd, scratch, sizeof(scratch), MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		linger_end(container_of(source, struct linger_socket, source));
}

static int linger_watch(int fd)
{
	struct linger_socket *linger;
	int err;

	if (lingering >= LINGER_MAX)
		return -EMFILE;
	linger = calloc(1, sizeof(*linger));
	if (!linger)
		return -ENOMEM;
	linger->source.fd = fd;
	linger->source.set = PROGRESS_CM;
	linger->source.ready = linger_ready;
	err = progress_watch(&linger->source, EPOLLIN);
	if (err) {
		free(linger);
		return err;
	}
	progress_timer_init(&linger->timer, PROGRESS_CM, linger_expired);
	progress_timer_arm(&linger->timer, LINGER_MS);
	lingering++;
	return 0;
}

void linger_forget(void)
{
	lingering = 0;
}

void linger_close(int fd)
{
	if (shutdown(fd, SHUT_WR) || linger_watch(fd))
		close(fd);
}
