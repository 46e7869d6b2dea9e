/* SPDX-License-Identifier: MIT */
/*
 * A lock that costs one atomic operation while nobody else wants it, and that says when somebody
 * does; and news, for which its holder may wait. All zero: free, and none.
 *
 * It is given back by a look whether somebody wants it and a plain store. Whoever begins to want it
 * just between the two finds it free, as it looks for a while before it sleeps; unless the holder
 * loses its core right there. Nobody wakes it then, so no sleep is longer than LOCK_NAP_NS.
 */
#ifndef IBMSG_COMMON_LOCK_H
#define IBMSG_COMMON_LOCK_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

#define LOCK_NAP_NS 1000000
#define LOCK_LOOKS  100 /* before a sleep */

enum lock_state { LOCK_FREE, LOCK_HELD, LOCK_WANTED /* held, and others wait */ };

struct lock {
	unsigned state;
};

static inline bool lock_is_wanted(const struct lock *lock)
{
	return __atomic_load_n(&lock->state, __ATOMIC_RELAXED) == LOCK_WANTED;
}

static inline void lock_wait(struct lock *lock)
{
	const struct timespec nap = {.tv_nsec = LOCK_NAP_NS};
	int saved = errno;

	while (__atomic_exchange_n(&lock->state, LOCK_WANTED, __ATOMIC_ACQUIRE) != LOCK_FREE) {
		for (unsigned i = 0; i < LOCK_LOOKS && lock_is_wanted(lock); i++)
			spin_pause();
		if (lock_is_wanted(lock))
			syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, LOCK_WANTED, &nap,
				NULL, 0);
	}
	errno = saved;
}

/* Whether it was free. */
static inline bool lock_try(struct lock *lock)
{
	unsigned expected = LOCK_FREE;

	return __atomic_compare_exchange_n(&lock->state, &expected, LOCK_HELD, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void lock_take(struct lock *lock)
{
	if (!lock_try(lock))
		lock_wait(lock);
}

static inline void lock_give(struct lock *lock)
{
	bool wanted = lock_is_wanted(lock);

	__atomic_store_n(&lock->state, LOCK_FREE, __ATOMIC_RELEASE);
	if (wanted)
		syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Guarded by the lock. */
struct news {
	unsigned count;
	unsigned waiting; /* threads */
};

static inline void news_tell(struct news *news)
{
	news->count++;
	if (news->waiting)
		syscall(SYS_futex, &news->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Until there are any, or it is @until by the monotonic clock; NULL: however long. */
static inline void news_wait(struct news *news, struct lock *lock, const struct timespec *until)
{
	unsigned seen = news->count;
	int saved = errno;

	news->waiting++;
	lock_give(lock);
	syscall(SYS_futex, &news->count, FUTEX_WAIT_BITSET_PRIVATE, seen, until, NULL,
		FUTEX_BITSET_MATCH_ANY);
	lock_take(lock);
	news->waiting--;
	errno = saved;
}

#endif
