/* SPDX-License-Identifier: MIT */
/* The progress thread: how it starts, what it sleeps on, and what it does when it wakes up. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"
#include "internal.h"
#include "sets.h"
#include "sources.h"

static struct {
	pthread_mutex_t lock; /* guards started */
	bool started;
	int wake_fd;  /* eventfd: the thread is to look around now */
	int timer_fd; /* and this, in a while */
} thread = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.wake_fd = -1,
	.timer_fd = -1,
};

/* ---- from other threads ---- */

void thread_wake(void)
{
	uint64_t one = 1;

	UNCANCELLABLE;
	if (write(thread.wake_fd, &one, sizeof(one)) < 0)
		log_error("cannot wake the progress thread: %s", strerror(errno));
}

void thread_arm_timer(unsigned ns)
{
	struct itimerspec span = {.it_value.tv_nsec = ns};

	if (ns)
		timerfd_settime(thread.timer_fd, 0, &span, NULL);
}

/* ---- the thread ---- */

/* Until the next deadline, at most @limit (0: no limit). */
static const struct timespec *time_to_sleep(struct timespec *span, uint64_t limit)
{
	uint64_t now = progress_now(), ns = limit, deadline;
	bool bounded = limit != 0;

	if (timers_next(&deadline)) {
		uint64_t left = deadline > now ? deadline - now : 0;

		if (!bounded || left < ns)
			ns = left;
		bounded = true;
	}
	if (!bounded)
		return NULL;
	span->tv_sec = (time_t)(ns / 1000000000u);
	span->tv_nsec = (long)(ns % 1000000000u);
	return span;
}

static void drain(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("progress thread: %s", strerror(errno));
}

static void dispatch_cm(void)
{
	bool more = true;

	for (int i = 0; i < PROGRESS_CM_AT_ONCE && more; i++) {
		progress_lock(PROGRESS_CM);
		more = sources_dispatch(PROGRESS_CM);
		progress_unlock(PROGRESS_CM);
	}
}

/* Nobody else comes by to send what this leads to. */
static void drive_all(void)
{
	drive_data();
	drive_flush();
}

/* Others drive: do they still do so? */
static void tick(void)
{
	struct policy_tick tick = policy_on_tick_begin(&progress_policy);
	bool unread = tick.asks_for_unread && sources_lie_unread();

	drive_act(policy_on_tick_end(&progress_policy, &tick, unread));
}

static void sleep_and_serve(void)
{
	struct policy_sleep sleep = policy_on_thread_sleep(&progress_policy);
	struct timespec span;
	struct pollfd fds[] = {
		{.fd = thread.wake_fd, .events = POLLIN},
		{.fd = sets_fd(PROGRESS_CM), .events = POLLIN},
		{.fd = thread.timer_fd, .events = POLLIN},
		{.fd = sleep.watches_data ? sets_fd(PROGRESS_DATA) : -1, .events = POLLIN},
	};

	ppoll(fds, 4, time_to_sleep(&span, sleep.tick_ns), NULL);
	if (fds[0].revents) {
		drain(thread.wake_fd);
		drive_act(policy_on_thread_woken(&progress_policy));
	}
	if (fds[2].revents) {
		drain(thread.timer_fd);
		drive_act(policy_on_timer(&progress_policy));
	}
	if (fds[1].revents)
		dispatch_cm();
	work_run();
	timers_run();
	if (!sleep.watches_data)
		tick();
	else if (fds[3].revents)
		drive_all();
}

static void *run_thread(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "softrdma");
	prctl(PR_SET_TIMERSLACK, 1000);
	for (;;)
		sleep_and_serve();
	return NULL;
}

/* ---- its start ---- */

static int open_descriptors(void)
{
	int error = sources_open();

	if (error)
		return error;
	thread.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	thread.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return thread.wake_fd < 0 || thread.timer_fd < 0 ? -errno : 0;
}

static void close_descriptors(void)
{
	int *const fds[] = {&thread.wake_fd, &thread.timer_fd};

	sources_close();
	for (unsigned i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

static int create_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t id;
	int error;

	/* The program's signals are for the program's threads. */
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&id, &attr, run_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -error;
}

/* The lock is held. */
static int start(void)
{
	int error = open_descriptors();

	if (!error)
		error = create_thread();
	if (error) {
		close_descriptors();
		log_error("cannot start the progress thread: %s", strerror(-error));
	}
	return error;
}

int progress_start(void)
{
	int error = 0;

	pthread_mutex_lock(&thread.lock);
	if (!thread.started) {
		error = start();
		thread.started = !error;
	}
	pthread_mutex_unlock(&thread.lock);
	return error;
}

/* ---- fork ---- */

void thread_freeze(void)
{
	pthread_mutex_lock(&thread.lock);
}

void thread_thaw(void)
{
	pthread_mutex_unlock(&thread.lock);
}

void thread_drop(void)
{
	close_descriptors();
	thread.started = false;
}
