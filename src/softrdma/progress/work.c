/* SPDX-License-Identifier: MIT */
/* Work that any thread defers to the progress thread, which runs it under the CM's lock. */
#include <pthread.h>

#include "internal.h"

static struct {
	pthread_mutex_t lock; /* guards the list; a leaf */
	struct list deferred;
} work_queue = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.deferred = {&work_queue.deferred, &work_queue.deferred},
};

void progress_work_init(struct progress_work *work, void (*run)(struct progress_work *work))
{
	work->run = run;
	list_init(&work->link);
}

void progress_defer(struct progress_work *work)
{
	pthread_mutex_lock(&work_queue.lock);
	if (list_is_empty(&work->link))
		list_add_tail(&work_queue.deferred, &work->link);
	pthread_mutex_unlock(&work_queue.lock);
	thread_wake();
}

void progress_cancel(struct progress_work *work)
{
	pthread_mutex_lock(&work_queue.lock);
	list_del(&work->link);
	pthread_mutex_unlock(&work_queue.lock);
}

static struct progress_work *take_first(void)
{
	struct progress_work *work = NULL;

	pthread_mutex_lock(&work_queue.lock);
	if (!list_is_empty(&work_queue.deferred)) {
		work = list_first(&work_queue.deferred, struct progress_work, link);
		list_del(&work->link);
	}
	pthread_mutex_unlock(&work_queue.lock);
	return work;
}

void work_run(void)
{
	struct progress_work *work;

	progress_lock(PROGRESS_CM);
	while ((work = take_first()) != NULL)
		work->run(work);
	progress_unlock(PROGRESS_CM);
}

/* ---- fork ---- */

void work_freeze(void)
{
	pthread_mutex_lock(&work_queue.lock);
}

void work_thaw(void)
{
	pthread_mutex_unlock(&work_queue.lock);
}

void work_drop(void)
{
	list_init(&work_queue.deferred);
}
