/* SPDX-License-Identifier: MIT */
/* The sources: those that are watched in an epoll set, and those that pollers own instead. */
#include "sources.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"
#include "internal.h"
#include "sets.h"

static struct {
	pthread_mutex_t lock;    /* guards the lists and what sources say of them; a leaf */
	struct list known;       /* all that are watched, paused or owned by pollers */
	struct list owned;       /* by pollers */
	atomic_uint num_owned;   /* by pollers, or about to be */
	atomic_uint num_watched; /* DATA sources that pollers do not own, and those in again */
	struct list again;       /* DATA sources whose ready() is to be called */
	int again_fd;            /* eventfd in the DATA set: again is not empty */
} sources = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.known = {&sources.known, &sources.known},
	.owned = {&sources.owned, &sources.owned},
	.again = {&sources.again, &sources.again},
	.again_fd = -1,
};

/* ---- opening ---- */

int sources_open(void)
{
	struct epoll_event again = {.events = EPOLLIN}; /* of no source */
	int error = sets_open();

	if (error)
		return error;
	sources.again_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sources.again_fd < 0)
		return -errno;
	return sets_control(PROGRESS_DATA, EPOLL_CTL_ADD, sources.again_fd, &again);
}

void sources_close(void)
{
	sets_close();
	if (sources.again_fd >= 0)
		close(sources.again_fd);
	sources.again_fd = -1;
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
	atomic_fetch_add(&sources.num_watched, 1);
}

/* The lock is held. */
static void drop_again(struct progress_source *source)
{
	if (!source->again)
		return;
	source->again = false;
	list_del(&source->again_link);
	atomic_fetch_sub(&sources.num_watched, 1);
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

bool sources_are_all_owned(void)
{
	return !atomic_load_explicit(&sources.num_watched, memory_order_relaxed);
}

bool sources_dispatch(enum progress_set set)
{
	struct epoll_event events[PROGRESS_EVENTS_AT_ONCE];
	/* A CM callback may free other sources: fetch anew after each. */
	int most = set == PROGRESS_CM ? 1 : PROGRESS_EVENTS_AT_ONCE;
	int count = sets_poll(set, events, most);

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

	return sets_control(source->set, operation, source->fd, &event);
}

/* The lock is held. */
static void end_ownership(struct progress_source *source)
{
	list_del(&source->owned_link);
	atomic_store(&source->policy.poller_owned, false);
	atomic_fetch_sub(&sources.num_owned, 1);
	atomic_fetch_add(&sources.num_watched, 1);
}

static void count_watched(const struct progress_source *source, int change)
{
	if (source->set == PROGRESS_DATA)
		atomic_fetch_add(&sources.num_watched, (unsigned)change);
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
	bool owned;
	int error;

	pthread_mutex_lock(&sources.lock);
	before = source->events;
	owned = progress_is_poller_owned(source);
	source->events = events;
	error = control(source, owned ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
	if (error)
		source->events = before;
	else if (owned)
		end_ownership(source);
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
	bool owned, in_set;

	pthread_mutex_lock(&sources.lock);
	owned = progress_is_poller_owned(source);
	in_set = !owned || source->set_poller_owned;
	if (owned)
		end_ownership(source);
	if (in_set && control(source, EPOLL_CTL_DEL) && !source->paused)
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
	struct epoll_event events[PROGRESS_EVENTS_AT_ONCE];
	bool any = false;
	int count;

	pthread_mutex_lock(&sources.lock);
	count = sets_poll(PROGRESS_DATA, events, PROGRESS_EVENTS_AT_ONCE);
	for (int i = 0; i < count; i++) {
		struct progress_source *source = events[i].data.ptr;

		any |= !source || policy_is_source_unread(&source->policy);
	}
	pthread_mutex_unlock(&sources.lock);
	return any;
}

/* ---- sources that pollers own ---- */

/*
 * Asked with the source counted in num_owned. Whoever goes to sleep sets its flag first and looks
 * at num_owned then, so at least one of the two sees the other.
 */
static bool may_hand_over(const atomic_bool *const slept_for[2])
{
	return policy_may_hand_over(&progress_policy,
				    atomic_load(slept_for[0]) || atomic_load(slept_for[1]));
}

/* It leaves the epoll set, or makes do by itself. 0 or -errno. The lock is held. */
static int hand_over(struct progress_source *source)
{
	int error = source->set_poller_owned ? 0 : control(source, EPOLL_CTL_DEL);

	if (error)
		return error;
	policy_on_source_handed_over(&source->policy);
	list_add_tail(&sources.owned, &source->owned_link);
	atomic_fetch_sub(&sources.num_watched, 1);
	if (source->set_poller_owned)
		source->set_poller_owned(source, true, true);
	return 0;
}

void sources_hand_over(struct progress_source *source, const atomic_bool *const slept_for[2])
{
	if (!may_hand_over(slept_for))
		return;
	pthread_mutex_lock(&sources.lock);
	atomic_fetch_add(&sources.num_owned, 1);
	if (!may_hand_over(slept_for) || source->paused || progress_is_poller_owned(source) ||
	    hand_over(source))
		atomic_fetch_sub(&sources.num_owned, 1);
	pthread_mutex_unlock(&sources.lock);
}

/* The lock is held. @locked: so is the owner's. */
static void reclaim(struct progress_source *source, bool locked)
{
	int error;

	if (source->set_poller_owned) {
		end_ownership(source);
		if (source->set_poller_owned(source, false, locked))
			add_again(source);
		return;
	}
	error = control(source, EPOLL_CTL_ADD);
	if (error)
		log_error("cannot watch a connection again: %s", strerror(-error));
	else
		end_ownership(source);
}

static void reclaim_if(bool (*is_due)(struct policy_source *source))
{
	struct list *pos, *next;

	if (!atomic_load(&sources.num_owned))
		return;
	pthread_mutex_lock(&sources.lock);
	list_for_each_safe (pos, next, &sources.owned) {
		struct progress_source *source =
			container_of(pos, struct progress_source, owned_link);

		if (!is_due || is_due(&source->policy))
			reclaim(source, false);
	}
	pthread_mutex_unlock(&sources.lock);
}

void sources_reclaim_all(void)
{
	reclaim_if(NULL);
}

void sources_reclaim_idle(void)
{
	reclaim_if(policy_is_source_idle);
}

void progress_reclaim(struct progress_source *source)
{
	if (!progress_is_poller_owned(source))
		return;
	pthread_mutex_lock(&sources.lock);
	if (progress_is_poller_owned(source))
		reclaim(source, true);
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

void sources_drop(void)
{
	struct list *pos;

	list_for_each (pos, &sources.known)
		close(container_of(pos, struct progress_source, link)->fd);
	list_init(&sources.known);
	list_init(&sources.owned);
	list_init(&sources.again);
	atomic_store(&sources.num_owned, 0);
	atomic_store(&sources.num_watched, 0);
	sources_close();
}
