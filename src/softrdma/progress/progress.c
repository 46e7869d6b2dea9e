/* SPDX-License-Identifier: MIT */
/* The progress thread, the descriptors it and others watch, timers and deferred work. */
#include "progress.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../../common/log.h"

#define TICK_NS        100000 /* how long the thread trusts that a poller comes back */
#define STALE_TICKS    2      /* data unread at so many ticks in a row: the thread drives */
#define HITS_TO_YIELD  16     /* data found by pollers so often: they drive */
#define LOOK_EVERY     8      /* empty polls between two looks at the whole DATA set */
#define EVENTS_AT_ONCE 64
#define CM_AT_ONCE     16 /* CM callbacks in a row, then data and timers have their turn */

enum mode { WATCH, YIELD };

static struct {
	pthread_mutex_t set_lock[2]; /* held while callbacks of that set run */
	int epoll_fd[2];
	int kick_fd;  /* eventfd: the thread is to look around */
	int timer_fd; /* armed by a waiter that leaves: a tick without waking the thread now */

	pthread_mutex_t start_lock; /* guards started */
	bool started;

	pthread_mutex_t queue_lock; /* guards the three lists; a leaf */
	struct list timers;         /* by deadline */
	struct list work;
	struct list sources; /* all that are watched or paused */

	_Atomic(enum mode) mode;
	atomic_uint polls;    /* empty polls so far: somebody polls */
	atomic_uint hits;     /* data found by pollers while the thread watches */
	atomic_int waiters;   /* threads in progress_wait */
	atomic_bool kicked;   /* a kick is on its way: no second one is needed */
	atomic_bool tick_set; /* timer_fd is armed */
	void (*_Atomic flush)(void);
} progress = {
	.set_lock = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER},
	.epoll_fd = {-1, -1},
	.kick_fd = -1,
	.timer_fd = -1,
	.start_lock = PTHREAD_MUTEX_INITIALIZER,
	.queue_lock = PTHREAD_MUTEX_INITIALIZER,
	.timers = {&progress.timers, &progress.timers},
	.work = {&progress.work, &progress.work},
	.sources = {&progress.sources, &progress.sources},
};

uint64_t progress_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_lock(enum progress_set set)
{
	pthread_mutex_lock(&progress.set_lock[set]);
}

void progress_unlock(enum progress_set set)
{
	pthread_mutex_unlock(&progress.set_lock[set]);
}

void progress_set_flush(void (*flush)(void))
{
	atomic_store(&progress.flush, flush);
}

/* ---- descriptors ---- */

static int control(struct progress_source *source, int operation, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(progress.epoll_fd[source->set], operation, source->fd, &event))
		return -errno;
	return 0;
}

int progress_watch(struct progress_source *source, uint32_t events)
{
	int error = control(source, EPOLL_CTL_ADD, events);

	if (error)
		return error;
	pthread_mutex_lock(&progress.queue_lock);
	if (!source->paused)
		list_add_tail(&progress.sources, &source->link);
	source->paused = false;
	pthread_mutex_unlock(&progress.queue_lock);
	return 0;
}

int progress_rewatch(struct progress_source *source, uint32_t events)
{
	return control(source, EPOLL_CTL_MOD, events);
}

void progress_pause(struct progress_source *source)
{
	if (!control(source, EPOLL_CTL_DEL, 0))
		source->paused = true;
}

void progress_unwatch(struct progress_source *source)
{
	if (control(source, EPOLL_CTL_DEL, 0) && !source->paused)
		return; /* was not watched */
	pthread_mutex_lock(&progress.queue_lock);
	list_del(&source->link);
	source->paused = false;
	pthread_mutex_unlock(&progress.queue_lock);
}

void progress_barrier(void)
{
	progress_lock(PROGRESS_DATA);
	progress_unlock(PROGRESS_DATA);
}

/* Run the callbacks of what is ready in @set; its lock is held. Whether there was any. */
static bool dispatch(enum progress_set set)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	/* A CM callback may free other sources: fetch anew after each. */
	int most = set == PROGRESS_CM ? 1 : EVENTS_AT_ONCE;
	int count = epoll_wait(progress.epoll_fd[set], events, most, 0);

	for (int i = 0; i < count; i++) {
		struct progress_source *source = events[i].data.ptr;

		source->ready(source, events[i].events);
	}
	return count > 0;
}

static void dispatch_cm(void)
{
	bool more = true;

	for (int i = 0; i < CM_AT_ONCE && more; i++) {
		progress_lock(PROGRESS_CM);
		more = dispatch(PROGRESS_CM);
		progress_unlock(PROGRESS_CM);
	}
}

/* If another thread is dispatching, it does the work. */
static bool dispatch_data(void)
{
	bool any;

	if (pthread_mutex_trylock(&progress.set_lock[PROGRESS_DATA]))
		return false;
	any = dispatch(PROGRESS_DATA);
	progress_unlock(PROGRESS_DATA);
	return any;
}

static void flush_sends(void)
{
	void (*flush)(void) = atomic_load(&progress.flush);

	if (flush)
		flush();
}

/* ---- timers ---- */

void progress_timer_init(struct progress_timer *timer, enum progress_set set,
			 void (*expired)(struct progress_timer *timer))
{
	timer->set = set;
	timer->expired = expired;
	timer->deadline = 0;
	list_init(&timer->link);
}

static void wake_thread(void)
{
	uint64_t one = 1;

	if (write(progress.kick_fd, &one, sizeof(one)) < 0)
		log_error("cannot wake the progress thread: %s", strerror(errno));
}

void progress_timer_arm(struct progress_timer *timer, unsigned milliseconds)
{
	uint64_t deadline = progress_now() + (uint64_t)milliseconds * 1000000u;
	struct list *pos;
	bool first;

	pthread_mutex_lock(&progress.queue_lock);
	list_del(&timer->link);
	timer->deadline = deadline;
	/* From the end: most timers are as long as the one before. */
	for (pos = progress.timers.prev; pos != &progress.timers; pos = pos->prev)
		if (container_of(pos, struct progress_timer, link)->deadline <= deadline)
			break;
	list_add_head(pos, &timer->link);
	first = progress.timers.next == &timer->link;
	pthread_mutex_unlock(&progress.queue_lock);
	if (first)
		wake_thread(); /* it sleeps until a later deadline */
}

void progress_timer_cancel(struct progress_timer *timer)
{
	pthread_mutex_lock(&progress.queue_lock);
	list_del(&timer->link);
	pthread_mutex_unlock(&progress.queue_lock);
}

/* The first timer if its deadline has passed; it stays in the list. */
static struct progress_timer *due_timer(uint64_t now)
{
	struct progress_timer *timer;

	if (list_is_empty(&progress.timers))
		return NULL;
	timer = list_first(&progress.timers, struct progress_timer, link);
	return timer->deadline <= now ? timer : NULL;
}

/*
 * The set's lock must be taken before the timer leaves the list, or its owner could cancel it in
 * between and free it. So look, lock the set, and look again.
 */
static void run_timers(void)
{
	uint64_t now = progress_now();

	for (;;) {
		struct progress_timer *timer;
		enum progress_set set;

		pthread_mutex_lock(&progress.queue_lock);
		timer = due_timer(now);
		set = timer ? timer->set : PROGRESS_CM;
		pthread_mutex_unlock(&progress.queue_lock);
		if (!timer)
			return;
		progress_lock(set);
		pthread_mutex_lock(&progress.queue_lock);
		timer = due_timer(now);
		if (timer && timer->set == set)
			list_del(&timer->link);
		else
			timer = NULL;
		pthread_mutex_unlock(&progress.queue_lock);
		if (timer)
			timer->expired(timer);
		progress_unlock(set);
	}
}

/* ---- work for the CM ---- */

void progress_work_init(struct progress_work *work, void (*run)(struct progress_work *work))
{
	work->run = run;
	list_init(&work->link);
}

void progress_defer(struct progress_work *work)
{
	pthread_mutex_lock(&progress.queue_lock);
	if (list_is_empty(&work->link))
		list_add_tail(&progress.work, &work->link);
	pthread_mutex_unlock(&progress.queue_lock);
	wake_thread();
}

void progress_cancel(struct progress_work *work)
{
	pthread_mutex_lock(&progress.queue_lock);
	list_del(&work->link);
	pthread_mutex_unlock(&progress.queue_lock);
}

static void run_work(void)
{
	progress_lock(PROGRESS_CM);
	for (;;) {
		struct progress_work *work = NULL;

		pthread_mutex_lock(&progress.queue_lock);
		if (!list_is_empty(&progress.work)) {
			work = list_first(&progress.work, struct progress_work, link);
			list_del(&work->link);
		}
		pthread_mutex_unlock(&progress.queue_lock);
		if (!work)
			break;
		work->run(work);
	}
	progress_unlock(PROGRESS_CM);
}

/* ---- pollers and waiters ---- */

void progress_kick(void)
{
	/*
	 * A thread that ticks will flush at its tick: no system call for a program that posts and
	 * polls.
	 */
	if (atomic_load_explicit(&progress.mode, memory_order_relaxed) == YIELD &&
	    !atomic_load_explicit(&progress.waiters, memory_order_relaxed))
		return;
	if (!atomic_exchange(&progress.kicked, true))
		wake_thread();
}

bool progress_polled(bool hit)
{
	unsigned polls = atomic_fetch_add_explicit(&progress.polls, 1, memory_order_relaxed);

	if (hit) {
		if (atomic_load_explicit(&progress.mode, memory_order_relaxed) == WATCH &&
		    atomic_fetch_add_explicit(&progress.hits, 1, memory_order_relaxed) ==
			    HITS_TO_YIELD) {
			atomic_store(&progress.mode, YIELD);
			wake_thread();
		}
		return true;
	}
	if (polls % LOOK_EVERY)
		return false;
	return dispatch_data();
}

/*
 * A tick in a while, so that the thread notices if this waiter does not come back. No wake-up now.
 */
static void arm_tick(void)
{
	struct itimerspec tick = {.it_value.tv_nsec = TICK_NS};

	if (!atomic_exchange(&progress.tick_set, true))
		timerfd_settime(progress.timer_fd, 0, &tick, NULL);
}

static void leave_wait(void *unused)
{
	(void)unused;
	atomic_fetch_add(&progress.polls, 1);
	atomic_fetch_sub(&progress.waiters, 1);
	arm_tick();
}

int progress_wait(int fd, int timeout_ms)
{
	struct pollfd fds[] = {
		{.fd = fd, .events = POLLIN},
		{.fd = progress.epoll_fd[PROGRESS_DATA], .events = POLLIN},
	};
	int result = -EINTR, cancel_state;

	/* Only while it sleeps may this thread be cancelled: elsewhere it holds locks. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	atomic_fetch_add(&progress.waiters, 1);
	pthread_cleanup_push(leave_wait, NULL);
	/* The thread must stop watching, or both are woken for every message. */
	if (atomic_exchange(&progress.mode, YIELD) == WATCH)
		wake_thread();
	flush_sends();
	for (;;) {
		int count, error;

		pthread_setcancelstate(cancel_state, NULL);
		count = poll(fds, 2, timeout_ms);
		error = errno;
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		if (count <= 0) {
			result = count ? -error : -ETIMEDOUT;
			break;
		}
		if (fds[1].revents)
			dispatch_data();
		if (fds[0].revents) {
			result = 0;
			break;
		}
		if (fds[1].revents) {
			struct pollfd now = {.fd = fd, .events = POLLIN};

			if (poll(&now, 1, 0) > 0) {
				result = 0;
				break;
			}
		}
	}
	pthread_cleanup_pop(1);
	pthread_setcancelstate(cancel_state, NULL);
	return result;
}

/* ---- the thread ---- */

/* Until the next deadline, at most @limit (0: no limit). */
static const struct timespec *time_to_sleep(struct timespec *span, uint64_t limit)
{
	uint64_t now = progress_now(), ns = limit;
	bool bounded = limit != 0;

	pthread_mutex_lock(&progress.queue_lock);
	if (!list_is_empty(&progress.timers)) {
		uint64_t deadline =
			list_first(&progress.timers, struct progress_timer, link)->deadline;
		uint64_t left = deadline > now ? deadline - now : 0;

		if (!bounded || left < ns)
			ns = left;
		bounded = true;
	}
	pthread_mutex_unlock(&progress.queue_lock);
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

/* What the thread remembers from tick to tick. */
struct ticks {
	unsigned polls; /* as of the last tick */
	unsigned stale; /* ticks in a row at which data lay unread */
};

static bool data_is_ready(void)
{
	struct pollfd data = {.fd = progress.epoll_fd[PROGRESS_DATA], .events = POLLIN};

	return poll(&data, 1, 0) > 0;
}

/* YIELD, at a tick: do the pollers still do their work? */
static void check_pollers(struct ticks *ticks)
{
	unsigned polls = atomic_load(&progress.polls);
	bool polled = polls != ticks->polls;

	ticks->polls = polls;
	ticks->stale = data_is_ready() ? ticks->stale + 1 : 0;
	flush_sends();
	if (atomic_load(&progress.waiters))
		return;
	if (!polled || ticks->stale >= STALE_TICKS) {
		atomic_store(&progress.hits, 0);
		atomic_store(&progress.mode, WATCH);
		ticks->stale = 0;
		flush_sends(); /* of whoever still saw YIELD, and counts on a tick */
	}
}

static void sleep_and_serve(struct ticks *ticks)
{
	enum mode mode = atomic_load(&progress.mode);
	bool waited_for = atomic_load(&progress.waiters) > 0;
	struct timespec span;
	struct pollfd fds[] = {
		{.fd = progress.kick_fd, .events = POLLIN},
		{.fd = progress.epoll_fd[PROGRESS_CM], .events = POLLIN},
		{.fd = progress.timer_fd, .events = POLLIN},
		{.fd = mode == WATCH ? progress.epoll_fd[PROGRESS_DATA] : -1, .events = POLLIN},
	};

	ppoll(fds, 4, time_to_sleep(&span, mode == YIELD && !waited_for ? TICK_NS : 0), NULL);
	if (fds[0].revents) {
		drain(progress.kick_fd);
		atomic_store(&progress.kicked, false);
		flush_sends();
	}
	if (fds[2].revents) {
		drain(progress.timer_fd);
		atomic_store(&progress.tick_set, false);
	}
	if (fds[1].revents)
		dispatch_cm();
	run_work();
	run_timers();
	if (mode == WATCH) {
		if (fds[3].revents)
			dispatch_data();
	} else {
		check_pollers(ticks);
	}
}

static void *progress_thread(void *unused)
{
	struct ticks ticks = {0};

	(void)unused;
	prctl(PR_SET_NAME, "softrdma");
	prctl(PR_SET_TIMERSLACK, 1000);
	for (;;)
		sleep_and_serve(&ticks);
	return NULL;
}

static int open_descriptors(void)
{
	progress.epoll_fd[PROGRESS_CM] = epoll_create1(EPOLL_CLOEXEC);
	progress.epoll_fd[PROGRESS_DATA] = epoll_create1(EPOLL_CLOEXEC);
	progress.kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	progress.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (progress.epoll_fd[PROGRESS_CM] < 0 || progress.epoll_fd[PROGRESS_DATA] < 0 ||
	    progress.kick_fd < 0 || progress.timer_fd < 0)
		return -errno;
	return 0;
}

static void close_descriptors(void)
{
	int *const fds[] = {&progress.epoll_fd[PROGRESS_CM], &progress.epoll_fd[PROGRESS_DATA],
			    &progress.kick_fd, &progress.timer_fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

static int start_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;
	int error;

	/* The program's signals are for the program's threads. */
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attr, progress_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -error;
}

/* ---- fork: the parent goes on unharmed; the child has no thread and lets go of all ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&progress.start_lock);
	progress_lock(PROGRESS_CM);
	progress_lock(PROGRESS_DATA);
	pthread_mutex_lock(&progress.queue_lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&progress.queue_lock);
	progress_unlock(PROGRESS_DATA);
	progress_unlock(PROGRESS_CM);
	pthread_mutex_unlock(&progress.start_lock);
}

/*
 * A peer must see the end of a connection when the parent dies, though the child lives on: so the
 * child keeps no socket open.
 */
static void after_fork_in_child(void)
{
	struct list *pos;

	list_for_each (pos, &progress.sources)
		close(container_of(pos, struct progress_source, link)->fd);
	list_init(&progress.sources);
	list_init(&progress.timers);
	list_init(&progress.work);
	close_descriptors();
	progress.started = false;
	after_fork_in_parent();
}

static int start(void)
{
	static bool prepared;
	int error = open_descriptors();

	if (!error && !prepared) {
		error = -pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
		prepared = !error;
	}
	if (!error)
		error = start_thread();
	if (error) {
		close_descriptors();
		log_error("cannot start the progress thread: %s", strerror(-error));
	}
	return error;
}

int progress_start(void)
{
	int error = 0;

	pthread_mutex_lock(&progress.start_lock);
	if (!progress.started) {
		error = start();
		progress.started = !error;
	}
	pthread_mutex_unlock(&progress.start_lock);
	return error;
}
