/* SPDX-License-Identifier: MIT */
/* The two sets of sources: an epoll instance and a lock each. */
#include "sets.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static struct set {
	pthread_mutex_t lock; /* held while callbacks of the set run */
	int epoll_fd;
} sets[] = {
	[PROGRESS_CM] = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll_fd = -1},
	[PROGRESS_DATA] = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll_fd = -1},
};

int sets_open(void)
{
	for (int set = 0; set < 2; set++) {
		sets[set].epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		if (sets[set].epoll_fd < 0)
			return -errno;
	}
	return 0;
}

void sets_close(void)
{
	for (int set = 0; set < 2; set++) {
		if (sets[set].epoll_fd >= 0)
			close(sets[set].epoll_fd);
		sets[set].epoll_fd = -1;
	}
}

int sets_fd(enum progress_set set)
{
	return sets[set].epoll_fd;
}

int sets_control(enum progress_set set, int operation, int fd, struct epoll_event *event)
{
	return epoll_ctl(sets[set].epoll_fd, operation, fd, event) ? -errno : 0;
}

int sets_poll(enum progress_set set, struct epoll_event *events, int most)
{
	return epoll_wait(sets[set].epoll_fd, events, most, 0);
}

void progress_lock(enum progress_set set)
{
	pthread_mutex_lock(&sets[set].lock);
}

bool sets_trylock(enum progress_set set)
{
	return !pthread_mutex_trylock(&sets[set].lock);
}

void progress_unlock(enum progress_set set)
{
	pthread_mutex_unlock(&sets[set].lock);
}

void progress_barrier(void)
{
	progress_lock(PROGRESS_DATA);
	progress_unlock(PROGRESS_DATA);
}
