/* SPDX-License-Identifier: MIT */
#include "fork.h"

#include <assert.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "log.h"

#define MOST_PARTS 16

static struct {
	pthread_mutex_t lock; /* guards the parts; taken before all of theirs */
	const struct fork_part *parts[MOST_PARTS]; /* by order */
	unsigned count;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
	pthread_mutex_lock(&registry.lock);
	for (unsigned i = 0; i < registry.count; i++)
		registry.parts[i]->lock();
}

static void after_fork(void)
{
	for (unsigned i = registry.count; i-- > 0;)
		registry.parts[i]->unlock();
	pthread_mutex_unlock(&registry.lock);
}

static void after_fork_in_child(void)
{
	for (unsigned i = 0; i < registry.count; i++)
		if (registry.parts[i]->child)
			registry.parts[i]->child();
	after_fork();
}

void fork_register(const struct fork_part *part)
{
	unsigned at;

	pthread_mutex_lock(&registry.lock);
	if (!registry.count && pthread_atfork(before_fork, after_fork, after_fork_in_child))
		log_error("no memory to prepare for a fork: a child must not use RDMA");
	assert(registry.count < MOST_PARTS);
	for (at = registry.count++; at && registry.parts[at - 1]->order > part->order; at--)
		registry.parts[at] = registry.parts[at - 1];
	registry.parts[at] = part;
	pthread_mutex_unlock(&registry.lock);
}

int fork_renew_eventfd(int fd)
{
	int status = fcntl(fd, F_GETFL);
	int fresh = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);

	if (fresh < 0) {
		close(fd);
		return -1;
	}
	if (status >= 0 && (status & O_NONBLOCK))
		fcntl(fresh, F_SETFL, O_NONBLOCK);
	fd = dup3(fresh, fd, O_CLOEXEC);
	close(fresh);
	return fd;
}
