/* SPDX-License-Identifier: MIT */
/* Timers of both sets, in the order of their deadlines. */
#include <pthread.h>
#include <time.h>

#include "internal.h"

static struct {
	pthread_mutex_t lock; /* guards the list; a leaf */
	struct list armed;    /* by deadline */
} timers = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.armed = {&timers.armed, &timers.armed},
};

uint64_t progress_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_timer_init(struct progress_timer *timer, enum progress_set set,
			 void (*expired)(struct progress_timer *timer))
{
	timer->set = set;
	timer->expired = expired;
	timer->deadline = 0;
	list_init(&timer->link);
}

void progress_timer_arm(struct progress_timer *timer, unsigned milliseconds)
{
	uint64_t deadline = progress_now() + (uint64_t)milliseconds * 1000000u;
	struct list *pos;
	bool first;

	pthread_mutex_lock(&timers.lock);
	list_del(&timer->link);
	timer->deadline = deadline;
	/* From the end: most timers are as long as the one before. */
	for (pos = timers.armed.prev; pos != &timers.armed; pos = pos->prev)
		if (container_of(pos, struct progress_timer, link)->deadline <= deadline)
			break;
	list_add_head(pos, &timer->link);
	first = timers.armed.next == &timer->link;
	pthread_mutex_unlock(&timers.lock);
	if (first)
		thread_wake(); /* it sleeps until a later deadline */
}

void progress_timer_cancel(struct progress_timer *timer)
{
	pthread_mutex_lock(&timers.lock);
	list_del(&timer->link);
	pthread_mutex_unlock(&timers.lock);
}

/* The first timer if its deadline has passed; it stays in the list. The lock is held. */
static struct progress_timer *due_timer(uint64_t now)
{
	struct progress_timer *timer;

	if (list_is_empty(&timers.armed))
		return NULL;
	timer = list_first(&timers.armed, struct progress_timer, link);
	return timer->deadline <= now ? timer : NULL;
}

/*
 * The set's lock must be taken before the timer leaves the list, or its owner could cancel it in
 * between and free it. So look, lock the set, and look again.
 */
void timers_run(void)
{
	uint64_t now = progress_now();

	for (;;) {
		struct progress_timer *timer;
		enum progress_set set;

		pthread_mutex_lock(&timers.lock);
		timer = due_timer(now);
		set = timer ? timer->set : PROGRESS_CM;
		pthread_mutex_unlock(&timers.lock);
		if (!timer)
			return;
		progress_lock(set);
		pthread_mutex_lock(&timers.lock);
		timer = due_timer(now);
		if (timer && timer->set == set)
			list_del(&timer->link);
		else
			timer = NULL;
		pthread_mutex_unlock(&timers.lock);
		if (timer)
			timer->expired(timer);
		progress_unlock(set);
	}
}

bool timers_next(uint64_t *deadline)
{
	bool any;

	pthread_mutex_lock(&timers.lock);
	any = !list_is_empty(&timers.armed);
	if (any)
		*deadline = list_first(&timers.armed, struct progress_timer, link)->deadline;
	pthread_mutex_unlock(&timers.lock);
	return any;
}

/* ---- fork ---- */

void timers_freeze(void)
{
	pthread_mutex_lock(&timers.lock);
}

void timers_thaw(void)
{
	pthread_mutex_unlock(&timers.lock);
}

void timers_drop(void)
{
	list_init(&timers.armed);
}
