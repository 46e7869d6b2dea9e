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
#include "../../common/uncancel.h"
#include "../fork_order.h"
#include "sources.h"

#define TICK_NS      100000  /* how long the thread trusts that a poller comes back, at first */
#define KICK_NS      50000   /* and that one who posts comes back to send what it gathers */
#define LONG_TICK_NS 2000000 /* and at most */
#define PATIENT_TICKS                                                                              \
	2 /* nobody polls, or data lies unread, at so many in a row: the thread drives */
#define MISSES_TO_YIELD 256 /* empty polls in a row, while the thread watches: somebody spins */
#define HITS_TO_YIELD   16  /* data found by pollers so often: they drive */
#define FINDS_TO_LEND   64  /* packets found by pollers at one source: epoll need not look there */
#define LOOK_EMPTY      8   /* polls that found nothing between two looks at the whole DATA set */
#define LOOK_BUSY       64  /* polls of any kind */
#define LOOK_QUIET                                                                                 \
	1024 /* polls that found nothing, while all that is worth a look is lent to pollers */
#define LOOP_TICKS 25 /* as PATIENT_TICKS, for polls, while a program sleeps in its own loop */
#define MOST_LOOPS 8  /* each is one more that the kernel has to wake through */
#define CM_AT_ONCE 16 /* CM callbacks in a row, then data and timers have their turn */

enum mode { WATCH, YIELD };

static struct {
	int kick_fd;  /* eventfd: the thread is to look around */
	int timer_fd; /* armed by a waiter that leaves: a tick without waking the thread now */

	pthread_mutex_t start_lock; /* guards started */
	bool started;

	pthread_mutex_t queue_lock; /* guards the two lists; a leaf */
	struct list timers;         /* by deadline */
	struct list work;

	_Atomic(enum mode) mode;
	atomic_bool polled;    /* since the last tick */
	atomic_bool looked;    /* since the last tick, at the whole DATA set */
	atomic_uint tick_ns;   /* the next tick: the longer, the longer pollers have been at it */
	atomic_uint hits;      /* data found by pollers while the thread watches */
	atomic_uint misses;    /* empty polls in a row, while it watches */
	atomic_int waiters;    /* threads in progress_wait */
	atomic_int loops;      /* descriptors that have the DATA set in them */
	atomic_int sleepers;   /* that are said to be slept at */
	atomic_int long_moves; /* threads that move many bytes right now */
	atomic_bool kicked;    /* a kick is on its way: no second one is needed */
	atomic_bool tick_set;  /* timer_fd is armed */
	bool (*_Atomic flush)(void);
} progress = {
	.kick_fd = -1,
	.timer_fd = -1,
	.tick_ns = TICK_NS,
	.start_lock = PTHREAD_MUTEX_INITIALIZER,
	.queue_lock = PTHREAD_MUTEX_INITIALIZER,
	.timers = {&progress.timers, &progress.timers},
	.work = {&progress.work, &progress.work},
};

uint64_t progress_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_set_flush(bool (*flush)(void))
{
	atomic_store(&progress.flush, flush);
}

/* ---- callbacks ---- */

static void dispatch_cm(void)
{
	bool more = true;

	for (int i = 0; i < CM_AT_ONCE && more; i++) {
		progress_lock(PROGRESS_CM);
		more = sources_dispatch(PROGRESS_CM);
		progress_unlock(PROGRESS_CM);
	}
}

/* If another thread is dispatching, it does the work. */
static bool dispatch_data(void)
{
	bool any;

	if (!progress_trylock(PROGRESS_DATA))
		return false;
	any = sources_dispatch(PROGRESS_DATA);
	progress_unlock(PROGRESS_DATA);
	return any;
}

static void flush_sends(void)
{
	bool (*flush)(void) = atomic_load(&progress.flush);

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

	UNCANCELLABLE;
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

/* The thread is to come by in @ns, without waking it now. */
static void arm_timer(unsigned ns)
{
	struct itimerspec tick = {.it_value.tv_nsec = ns};

	atomic_store(&progress.tick_set, true);
	timerfd_settime(progress.timer_fd, 0, &tick, NULL);
}

void progress_kick(void)
{
	/*
	 * A thread that ticks will flush at its tick: no system call for a program that posts and
	 * polls.
	 */
	if (atomic_load_explicit(&progress.mode, memory_order_relaxed) == YIELD &&
	    !atomic_load_explicit(&progress.waiters, memory_order_relaxed) &&
	    atomic_load_explicit(&progress.sleepers, memory_order_relaxed) <= 0)
		return;
	/* At once it would take away what is being gathered. */
	if (!atomic_exchange(&progress.kicked, true))
		arm_timer(KICK_NS);
}

/* In steady state nothing is written: pollers of several CQs do not share a dirty cache line. */
static void set_once(atomic_bool *flag)
{
	if (!atomic_load_explicit(flag, memory_order_relaxed))
		atomic_store_explicit(flag, true, memory_order_relaxed);
}

static bool is_watching(void)
{
	return atomic_load_explicit(&progress.mode, memory_order_relaxed) == WATCH;
}

/* One more towards the thread's yielding. */
static void count_towards(atomic_uint *counter, unsigned enough)
{
	if (atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) == enough) {
		atomic_store(&progress.mode, YIELD);
		wake_thread();
	}
}

static bool look(void)
{
	UNCANCELLABLE;
	set_once(&progress.looked);
	return dispatch_data();
}

void progress_found(bool hit, unsigned turn)
{
	set_once(&progress.polled);
	if (is_watching()) {
		atomic_store_explicit(&progress.misses, 0, memory_order_relaxed);
		if (hit)
			count_towards(&progress.hits, HITS_TO_YIELD);
	}
	if (turn % LOOK_BUSY == 0)
		look();
}

void progress_begin_long(void)
{
	atomic_fetch_add(&progress.long_moves, 1);
}

void progress_end_long(void)
{
	atomic_fetch_sub(&progress.long_moves, 1);
}

bool progress_polled(bool hit, unsigned turn)
{
	if (hit) {
		progress_found(true, turn);
		return true;
	}
	set_once(&progress.polled);
	if (is_watching())
		count_towards(&progress.misses, MISSES_TO_YIELD);
	return turn % (sources_are_quiet() ? LOOK_QUIET : LOOK_EMPTY) == 0 && look();
}

static __thread const atomic_bool *minded[2] __attribute__((tls_model("initial-exec")));

void progress_mind_sleepers(const atomic_bool *one, const atomic_bool *other)
{
	minded[0] = one;
	minded[1] = other;
}

/* Whoever is about to sleep says so, and takes back what is lent; here it is the other way round.
 */
static bool may_lend(void)
{
	return !is_watching() && !(minded[0] && atomic_load(minded[0])) &&
	       !(minded[1] && atomic_load(minded[1])) && !atomic_load(&progress.waiters);
}

void progress_looked(struct progress_source *source, unsigned found)
{
	set_once(&source->looked_at);
	/* Where lending costs no system call, whoever looks may have it. */
	if (source->set_lent) {
		if (!progress_is_lent(source) && may_lend())
			sources_lend(source, may_lend);
		return;
	}
	source->finds += found;
	if (source->finds < FINDS_TO_LEND)
		return;
	source->finds = 0;
	if (source->events == EPOLLIN && !progress_is_lent(source))
		sources_lend(source, may_lend);
}

void progress_has_hands_full(struct progress_source *source)
{
	set_once(&source->in_hand);
}

/*
 * A tick in a while, so that the thread notices if this waiter does not come back. No wake-up now.
 */
static void arm_tick(void)
{
	if (!atomic_load(&progress.tick_set))
		arm_timer(atomic_load(&progress.tick_ns));
}

/* Whoever is about to sleep does the thread's work when it is woken. */
static void relieve_thread(void)
{
	sources_take_back(true);
	/* The thread must stop watching, or both are woken for every message. */
	if (atomic_exchange(&progress.mode, YIELD) == WATCH)
		wake_thread();
	flush_sends();
}

static void leave_wait(void *unused)
{
	(void)unused;
	set_once(&progress.polled);
	set_once(&progress.looked);
	atomic_fetch_sub(&progress.waiters, 1);
	arm_tick();
}

int progress_wait(int fd, int timeout_ms, const atomic_uint *events)
{
	struct pollfd fds[] = {
		{.fd = fd, .events = POLLIN},
		{.fd = sources_fd(PROGRESS_DATA), .events = POLLIN},
	};
	int result = 0, cancel_state;

	/* Only while it sleeps may this thread be cancelled: elsewhere it holds locks. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	atomic_fetch_add(&progress.waiters, 1);
	pthread_cleanup_push(leave_wait, NULL);
	relieve_thread();
	/* relieve_thread may have made the event already: such an event has no descriptor. */
	while (!atomic_load(events)) {
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
		if (fds[0].revents)
			break;
	}
	pthread_cleanup_pop(1);
	pthread_setcancelstate(cancel_state, NULL);
	return result;
}

/* ---- programs with a loop of their own ---- */

bool progress_join_loop(int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (atomic_fetch_add(&progress.loops, 1) < MOST_LOOPS &&
	    !epoll_ctl(fd, EPOLL_CTL_ADD, sources_fd(PROGRESS_DATA), &event))
		return true;
	atomic_fetch_sub(&progress.loops, 1);
	return false;
}

void progress_part_loop(int fd)
{
	epoll_ctl(fd, EPOLL_CTL_DEL, sources_fd(PROGRESS_DATA), NULL);
	atomic_fetch_sub(&progress.loops, 1);
}

void progress_expect_loop(void)
{
	set_once(&progress.polled);
	atomic_fetch_add(&progress.sleepers, 1);
	relieve_thread();
}

void progress_loop_is_over(void)
{
	set_once(&progress.polled);
	atomic_fetch_sub(&progress.sleepers, 1);
}

bool progress_look(void)
{
	set_once(&progress.polled);
	return look();
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
	unsigned quiet; /* ticks in a row without a poll between them */
	unsigned stale; /* ticks in a row at which data lay unread that nobody had looked for */
};

/*
 * As long as all is well a tick is twice as long as the one before: the thread costs a busy poller
 * little, and takes over no later than the pollers had been at it.
 */
static void choose_tick(bool well)
{
	unsigned ns = atomic_load(&progress.tick_ns);

	if (!well)
		ns = TICK_NS;
	else if (ns < LONG_TICK_NS)
		ns = 2 * ns < LONG_TICK_NS ? 2 * ns : LONG_TICK_NS;
	atomic_store(&progress.tick_ns, ns);
}

/* YIELD, at a tick: do the pollers still do their work? */
static void check_pollers(struct ticks *ticks)
{
	bool polled = atomic_exchange(&progress.polled, false);
	bool looked = atomic_exchange(&progress.looked, false);
	bool busy = atomic_load(&progress.waiters) > 0 || atomic_load(&progress.long_moves) > 0;
	bool slept_at = atomic_load(&progress.sleepers) > 0;

	ticks->quiet = !busy && !polled ? ticks->quiet + 1 : 0;
	ticks->stale = !busy && !looked && sources_lie_unread() ? ticks->stale + 1 : 0;
	choose_tick((!ticks->quiet || slept_at) && !ticks->stale);
	sources_take_back(false);
	flush_sends();
	if (ticks->quiet < (slept_at ? LOOP_TICKS : PATIENT_TICKS) && ticks->stale < PATIENT_TICKS)
		return;
	*ticks = (struct ticks){0};
	atomic_store(&progress.hits, 0);
	atomic_store(&progress.misses, 0);
	atomic_store(&progress.mode, WATCH);
	sources_take_back(true);
	flush_sends(); /* of whoever still saw YIELD, and counts on a tick */
}

static void sleep_and_serve(struct ticks *ticks)
{
	enum mode mode = atomic_load(&progress.mode);
	bool waited_for = atomic_load(&progress.waiters) > 0;
	struct timespec span;
	struct pollfd fds[] = {
		{.fd = progress.kick_fd, .events = POLLIN},
		{.fd = sources_fd(PROGRESS_CM), .events = POLLIN},
		{.fd = progress.timer_fd, .events = POLLIN},
		{.fd = mode == WATCH ? sources_fd(PROGRESS_DATA) : -1, .events = POLLIN},
	};

	ppoll(fds, 4,
	      time_to_sleep(&span,
			    mode == YIELD && !waited_for ? atomic_load(&progress.tick_ns) : 0),
	      NULL);
	if (fds[0].revents) {
		drain(progress.kick_fd);
		flush_sends();
	}
	if (fds[2].revents) {
		drain(progress.timer_fd);
		atomic_store(&progress.tick_set, false);
		if (atomic_exchange(&progress.kicked, false))
			flush_sends();
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
	int error = sources_open();

	if (error)
		return error;
	progress.kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	progress.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return progress.kick_fd < 0 || progress.timer_fd < 0 ? -errno : 0;
}

static void close_descriptors(void)
{
	int *const fds[] = {&progress.kick_fd, &progress.timer_fd};

	sources_close();
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
	sources_freeze();
}

static void after_fork_in_parent(void)
{
	sources_thaw();
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
	sources_let_go();
	list_init(&progress.timers);
	list_init(&progress.work);
	close_descriptors();
	progress.started = false;
	/* Of threads that are not here. */
	atomic_store(&progress.waiters, 0);
	atomic_store(&progress.loops, 0);
	atomic_store(&progress.sleepers, 0);
	atomic_store(&progress.long_moves, 0);
	atomic_store(&progress.kicked, false);
	atomic_store(&progress.tick_set, false);
	atomic_store(&progress.mode, WATCH);
}

FORK_PART(FORK_PROGRESS, before_fork, after_fork_in_parent, after_fork_in_child);

static int start(void)
{
	int error = open_descriptors();

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
