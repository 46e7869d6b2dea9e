/* SPDX-License-Identifier: MIT */
#include "sources.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"

#define EVENTS_AT_ONCE 64

static struct {
	pthread_mutex_t set_lock[2]; /* held while callbacks of that set run */
	int epoll_fd[2];
	pthread_mutex_t lock; /* guards the lists and what sources say of them; a leaf */
	struct list known;    /* all that are watched, paused or lent */
	struct list lent;
	atomic_uint num_lent; /* or about to be */
	atomic_uint num_loud; /* DATA sources that are watched and not lent, and those in again */
	struct list again;    /* DATA sources whose ready() is to be called */
	int again_fd;         /* eventfd in the DATA set: again is not empty */
} sources = {
	.set_lock = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER},
	.epoll_fd = {-1, -1},
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.known = {&sources.known, &sources.known},
	.lent = {&sources.lent, &sources.lent},
	.again = {&sources.again, &sources.again},
	.again_fd = -1,
};

/* ---- the sets ---- */

int sources_open(void)
{
	struct epoll_event again = {.events = EPOLLIN}; /* of no source */

	for (int set = 0; set < 2; set++) {
		sources.epoll_fd[set] = epoll_create1(EPOLL_CLOEXEC);
		if (sources.epoll_fd[set] < 0)
			return -errno;
	}
	sources.again_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sources.again_fd < 0 ||
	    epoll_ctl(sources.epoll_fd[PROGRESS_DATA], EPOLL_CTL_ADD, sources.again_fd, &again))
		return -errno;
	return 0;
}

void sources_close(void)
{
	for (int set = 0; set < 2; set++) {
		if (sources.epoll_fd[set] >= 0)
			close(sources.epoll_fd[set]);
		sources.epoll_fd[set] = -1;
	}
	if (sources.again_fd >= 0)
		close(sources.again_fd);
	sources.again_fd = -1;
}

int sources_fd(enum progress_set set)
{
	return sources.epoll_fd[set];
}

void progress_lock(enum progress_set set)
{
	pthread_mutex_lock(&sources.set_lock[set]);
}

bool progress_trylock(enum progress_set set)
{
	return !pthread_mutex_trylock(&sources.set_lock[set]);
}

void progress_unlock(enum progress_set set)
{
	pthread_mutex_unlock(&sources.set_lock[set]);
}

void progress_barrier(void)
{
	progress_lock(PROGRESS_DATA);
	progress_unlock(PROGRESS_DATA);
}

/* ---- sources that have more to do than their descriptors tell ---- */

/* The lock is held. */
static void add_again(struct progress_source *source)
{
	uint64_t one = 1;

	if (source->again)
		return;
	source->again = true;
	UNCANCELLABLE;
	if (list_is_empty(&sources.again) && write(sources.again_fd, &one, sizeof(one)) < 0 &&
	    errno != EAGAIN)
		log_error("cannot wake the progress thread: %s", strerror(errno));
	list_add_tail(&sources.again, &source->again_link);
	atomic_fetch_add(&sources.num_loud, 1);
}

/* The lock is held. */
static void drop_again(struct progress_source *source)
{
	if (!source->again)
		return;
	source->again = false;
	list_del(&source->again_link);
	atomic_fetch_sub(&sources.num_loud, 1);
}

void progress_again(struct progress_source *source)
{
	pthread_mutex_lock(&sources.lock);
	add_again(source);
	pthread_mutex_unlock(&sources.lock);
}

/* Those that come to it meanwhile have their turn at the next call. */
static void dispatch_again(void)
{
	struct list now = {&now, &now};
	uint64_t count;

	pthread_mutex_lock(&sources.lock);
	if (read(sources.again_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("progress thread: %s", strerror(errno));
	while (!list_is_empty(&sources.again)) {
		struct list *link = sources.again.next;

		list_del(link);
		list_add_tail(&now, link);
	}
	while (!list_is_empty(&now)) {
		struct progress_source *source =
			list_first(&now, struct progress_source, again_link);

		drop_again(source);
		pthread_mutex_unlock(&sources.lock);
		source->ready(source, 0);
		pthread_mutex_lock(&sources.lock);
	}
	pthread_mutex_unlock(&sources.lock);
}

bool sources_are_quiet(void)
{
	return !atomic_load_explicit(&sources.num_loud, memory_order_relaxed);
}

bool sources_dispatch(enum progress_set set)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	/* A CM callback may free other sources: fetch anew after each. */
	int most = set == PROGRESS_CM ? 1 : EVENTS_AT_ONCE;
	int count = epoll_wait(sources.epoll_fd[set], events, most, 0);

	for (int i = 0; i < count; i++) {
		struct progress_source *source = events[i].data.ptr;

		if (source)
			source->ready(source, events[i].events);
		else
			dispatch_again();
	}
	return count > 0;
}

/* ---- watching ---- */

static int control(struct progress_source *source, int operation)
{
	struct epoll_event event = {.events = source->events, .data.ptr = source};

	if (epoll_ctl(sources.epoll_fd[source->set], operation, source->fd, &event))
		return -errno;
	return 0;
}

/* The lock is held. */
static void end_loan(struct progress_source *source)
{
	list_del(&source->lent_link);
	atomic_store(&source->lent, false);
	atomic_fetch_sub(&sources.num_lent, 1);
	atomic_fetch_add(&sources.num_loud, 1);
}

static void count_watched(const struct progress_source *source, int change)
{
	if (source->set == PROGRESS_DATA)
		atomic_fetch_add(&sources.num_loud, (unsigned)change);
}

int progress_watch(struct progress_source *source, uint32_t events)
{
	int error;

	pthread_mutex_lock(&sources.lock);
	source->events = events;
	error = control(source, EPOLL_CTL_ADD);
	if (!error && !source->paused) {
		list_add_tail(&sources.known, &source->link);
		count_watched(source, 1);
	}
	if (!error)
		source->paused = false;
	pthread_mutex_unlock(&sources.lock);
	return error;
}

int progress_rewatch(struct progress_source *source, uint32_t events)
{
	uint32_t before;
	bool lent;
	int error;

	pthread_mutex_lock(&sources.lock);
	before = source->events;
	lent = atomic_load(&source->lent);
	source->events = events;
	error = control(source, lent ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
	if (error)
		source->events = before;
	else if (lent)
		end_loan(source);
	pthread_mutex_unlock(&sources.lock);
	return error;
}

void progress_pause(struct progress_source *source)
{
	pthread_mutex_lock(&sources.lock);
	if (!control(source, EPOLL_CTL_DEL))
		source->paused = true;
	pthread_mutex_unlock(&sources.lock);
}

void progress_unwatch(struct progress_source *source)
{
	bool kept;

	pthread_mutex_lock(&sources.lock);
	kept = !atomic_load(&source->lent) || source->set_lent;
	if (atomic_load(&source->lent))
		end_loan(source);
	if (kept && control(source, EPOLL_CTL_DEL) && !source->paused)
		goto out; /* was not watched */
	drop_again(source);
	count_watched(source, -1);
	list_del(&source->link);
	source->paused = false;
out:
	pthread_mutex_unlock(&sources.lock);
}

/* What is found to be ready stays watched, and so is not freed, while the lock is held. */
bool sources_lie_unread(void)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	bool any = false;
	int count;

	pthread_mutex_lock(&sources.lock);
	count = epoll_wait(sources.epoll_fd[PROGRESS_DATA], events, EVENTS_AT_ONCE, 0);
	for (int i = 0; i < count; i++) {
		struct progress_source *source = events[i].data.ptr;

		any |= !source || !atomic_exchange(&source->in_hand, false);
	}
	pthread_mutex_unlock(&sources.lock);
	return any;
}

/* ---- lending ---- */

/* Out of the epoll set, or it sees to that itself. The lock is held. */
static int hand_out(struct progress_source *source)
{
	int error = source->set_lent ? 0 : control(source, EPOLL_CTL_DEL);

	if (error)
		return error;
	atomic_store(&source->looked_at, true);
	atomic_store(&source->lent, true);
	list_add_tail(&sources.lent, &source->lent_link);
	atomic_fetch_sub(&sources.num_loud, 1);
	if (source->set_lent)
		source->set_lent(source, true);
	return 0;
}

void sources_lend(struct progress_source *source, bool (*may)(void))
{
	pthread_mutex_lock(&sources.lock);
	atomic_fetch_add(&sources.num_lent, 1);
	if (!may() || source->paused || atomic_load(&source->lent) || hand_out(source))
		atomic_fetch_sub(&sources.num_lent, 1);
	pthread_mutex_unlock(&sources.lock);
}

/* The lock is held. */
static void take_back(struct progress_source *source)
{
	int error;

	if (source->set_lent) {
		end_loan(source);
		if (source->set_lent(source, false))
			add_again(source);
		return;
	}
	error = control(source, EPOLL_CTL_ADD);
	if (error)
		log_error("cannot watch a connection again: %s", strerror(-error));
	else
		end_loan(source);
}

void sources_take_back(bool all)
{
	struct list *pos, *next;

	if (!atomic_load(&sources.num_lent))
		return;
	pthread_mutex_lock(&sources.lock);
	list_for_each_safe (pos, next, &sources.lent) {
		struct progress_source *source =
			container_of(pos, struct progress_source, lent_link);

		if (all || !atomic_exchange(&source->looked_at, false))
			take_back(source);
	}
	pthread_mutex_unlock(&sources.lock);
}

void progress_take_back(struct progress_source *source)
{
	if (!atomic_load(&source->lent))
		return;
	pthread_mutex_lock(&sources.lock);
	if (atomic_load(&source->lent))
		take_back(source);
	pthread_mutex_unlock(&sources.lock);
}

/* ---- fork ---- */

void sources_freeze(void)
{
	pthread_mutex_lock(&sources.lock);
}

void sources_thaw(void)
{
	pthread_mutex_unlock(&sources.lock);
}

void sources_let_go(void)
{
	struct list *pos;

	list_for_each (pos, &sources.known)
		close(container_of(pos, struct progress_source, link)->fd);
	list_init(&sources.known);
	list_init(&sources.lent);
	list_init(&sources.again);
	atomic_store(&sources.num_lent, 0);
	atomic_store(&sources.num_loud, 0);
	sources_close();
}
