/* SPDX-License-Identifier: MIT */
/* The device's clock, and rounds of its progress thread. */
#include "moment.h"

#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include "../fuzz.h"
#include "progress/progress.h"

#define NS_PER_S 1000000000ll

/*
 * Work runs between the descriptors of the CM and those of the data. The first round may have begun
 * too early to see all, and what the data of the second leads to is deferred to the third.
 */
#define ROUNDS 3

static atomic_llong ahead_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

/* The linker puts this in place of the device's calls. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = __real_clock_gettime(clock, now);
	long long ns;

	if (result || clock != CLOCK_MONOTONIC)
		return result;
	ns = now->tv_nsec + atomic_load(&ahead_ns);
	now->tv_sec += (time_t)(ns / NS_PER_S);
	now->tv_nsec = (long)(ns % NS_PER_S);
	return 0;
}

void moment_advance(unsigned ms)
{
	atomic_fetch_add(&ahead_ns, ms * (NS_PER_S / 1000));
}

struct round {
	struct progress_work work;
	sem_t done;
};

static void round_done(struct progress_work *work)
{
	sem_post(&container_of(work, struct round, work)->done);
}

void moment_settle(void)
{
	struct round round;

	CHECK(!progress_start());
	CHECK(!sem_init(&round.done, 0, 0));
	progress_work_init(&round.work, round_done);
	for (int i = 0; i < ROUNDS; i++) {
		progress_defer(&round.work);
		while (sem_wait(&round.done))
			continue; /* a signal */
		/* All work of one round runs under this lock: the next defer is for the next round.
		 */
		progress_lock(PROGRESS_CM);
		progress_unlock(PROGRESS_CM);
	}
	sem_destroy(&round.done);
}

void moment_pass(void)
{
	poll(NULL, 0, 1);
}
