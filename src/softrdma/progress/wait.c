/* SPDX-License-Identifier: MIT */
/* Threads that sleep for completions: in progress_wait, or in an event loop of the program. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include "internal.h"
#include "sets.h"

/* ---- threads that sleep here ---- */

static void leave_wait(void *unused)
{
	(void)unused;
	thread_arm_timer(policy_on_wait_end(&progress_policy));
}

/* Sleep until a descriptor is readable. 0 or -errno. */
static int sleep_once(struct pollfd *fds, nfds_t num_fds, int cancel_state)
{
	int count, error;

	pthread_setcancelstate(cancel_state, NULL);
	count = poll(fds, num_fds, -1);
	error = errno;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return count < 0 ? -error : 0;
}

int progress_wait(int fd, const atomic_uint *events)
{
	struct pollfd fds[] = {
		{.fd = fd, .events = POLLIN},
		{.fd = sets_fd(PROGRESS_DATA), .events = POLLIN},
	};
	int error = 0, cancel_state;

	/* Only while it sleeps may this thread be cancelled: elsewhere it holds locks. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	pthread_cleanup_push(leave_wait, NULL);
	drive_act(policy_on_wait_begin(&progress_policy));
	/* The flush may have made the event already, and then nothing makes @fd readable. */
	while (!error && !fds[0].revents && !atomic_load(events)) {
		error = sleep_once(fds, 2, cancel_state);
		if (error || !fds[1].revents)
			continue;
		drive_data();
		/* Its next call sends what is due, or the progress thread does. */
		if (!atomic_load(events))
			drive_flush();
	}
	pthread_cleanup_pop(1);
	pthread_setcancelstate(cancel_state, NULL);
	return error;
}

/* ---- programs with an event loop of their own ---- */

bool progress_attach_loop(int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (!policy_on_loop_attach(&progress_policy))
		return false;
	if (!epoll_ctl(fd, EPOLL_CTL_ADD, sets_fd(PROGRESS_DATA), &event))
		return true;
	policy_on_loop_detach(&progress_policy);
	return false;
}

void progress_detach_loop(int fd)
{
	epoll_ctl(fd, EPOLL_CTL_DEL, sets_fd(PROGRESS_DATA), NULL);
	policy_on_loop_detach(&progress_policy);
}

void progress_begin_loop_sleep(void)
{
	drive_act(policy_on_loop_sleep_begin(&progress_policy));
}

void progress_end_loop_sleep(void)
{
	policy_on_loop_sleep_end(&progress_policy);
}

void progress_look(void)
{
	drive_act(policy_on_loop_wakeup(&progress_policy));
}
