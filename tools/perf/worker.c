/* SPDX-License-Identifier: MIT */
/* A thread of the client: connect, warm up, measure, close. */
#include "worker.h"

#include <stdlib.h>
#include <time.h>

#include "link.h"

#define WARM_UP 10  /* one in so many of the messages, or of the time, comes first, unmeasured */
#define LOOK_MS 100 /* at what other threads have to say */

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool goes_on(struct worker *worker)
{
	int error;

	if (worker->run->failed)
		return false;
	error = ibmsg_dispatch_event_loop_timeout(&worker->loop, LOOK_MS);
	if (error)
		run_fail(worker->run, error);
	return !worker->run->failed;
}

static void connect_links(struct worker *worker)
{
	for (unsigned i = 0; i < worker->link_count && !worker->run->failed; i++) {
		int error = link_connect(&worker->links[i], worker, worker->first + i);

		if (error)
			run_fail(worker->run, error);
	}
	while (worker->established < worker->link_count && goes_on(worker))
		;
}

static void run_part(struct worker *worker, bool measures)
{
	const struct options *options = worker->run->options;
	double share = measures ? 1 : 1.0 / WARM_UP;

	worker->measures = measures;
	worker->over = false;
	worker->iterations = 0;
	worker->count = measures ? options->count : (options->count + WARM_UP - 1) / WARM_UP;
	worker->busy = worker->link_count;
	worker->begin = now_ns();
	worker->until = worker->begin + (uint64_t)(options->seconds * share * 1e9);
	for (unsigned i = 0; i < worker->link_count && !worker->run->failed; i++)
		link_begin_part(&worker->links[i]);
	while (worker->busy && goes_on(worker))
		worker->over = worker->over || now_ns() >= worker->until;
}

static void close_links(struct worker *worker)
{
	for (unsigned i = 0; i < worker->link_count && !worker->run->failed; i++) {
		worker->links[i].closing = true;
		ibmsg_disconnect(&worker->links[i].socket);
	}
	while (worker->closed < worker->link_count && goes_on(worker))
		;
}

static bool open_worker(struct worker *worker)
{
	int error = ibmsg_init_event_loop(&worker->loop);

	if (error) {
		run_fail(worker->run, error);
		return false;
	}
	worker->links = calloc(worker->link_count, sizeof(*worker->links));
	if (!worker->links) {
		ibmsg_destroy_event_loop(&worker->loop);
		run_fail(worker->run, IBMSG_ALLOC_FAILED);
		return false;
	}
	link_set_callbacks(&worker->loop);
	ibmsg_set_busy_poll(&worker->loop, worker->run->options->sleeps ? 0 : BUSY_US);
	return true;
}

/* After destroy, which ends what is still on its way. */
static void close_worker(struct worker *worker)
{
	ibmsg_destroy_event_loop(&worker->loop);
	for (unsigned i = 0; i < worker->link_count; i++)
		link_fini(&worker->links[i]);
	free(worker->links);
}

void *worker_run(void *argument)
{
	struct worker *worker = argument;
	struct run *run = worker->run;
	bool is_open = open_worker(worker);

	if (is_open)
		connect_links(worker);
	/* Also those wait that have failed, or the others would do so for ever. */
	pthread_barrier_wait(&run->ready);
	if (!run->failed)
		run_part(worker, false);
	pthread_barrier_wait(&run->ready);
	if (!run->failed)
		run_part(worker, true);
	if (is_open) {
		close_links(worker);
		close_worker(worker);
	}
	return NULL;
}
