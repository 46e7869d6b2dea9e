/* SPDX-License-Identifier: MIT */
/*
 * A lock that costs one atomic operation while nobody else wants it, and that says when somebody
 * does. All zero is free.
 */
#ifndef IBMSG_COMMON_LOCK_H
#define IBMSG_COMMON_LOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum lock_state { LOCK_FREE, LOCK_HELD, LOCK_WANTED /* held, and others wait */ };

struct lock {
	unsigned state;
};

static inline void lock_wait(struct lock *lock)
{
	int saved = errno;

	while (__atomic_exchange_n(&lock->state, LOCK_WANTED, __ATOMIC_ACQUIRE) != LOCK_FREE)
		syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, LOCK_WANTED, NULL, NULL, 0);
	errno = saved;
}

static inline void lock_take(struct lock *lock)
{
	unsigned expected = LOCK_FREE;

	if (!__atomic_compare_exchange_n(&lock->state, &expected, LOCK_HELD, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		lock_wait(lock);
}

static inline void lock_give(struct lock *lock)
{
	if (__atomic_exchange_n(&lock->state, LOCK_FREE, __ATOMIC_RELEASE) == LOCK_WANTED)
		syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* For its holder. */
static inline bool lock_is_wanted(const struct lock *lock)
{
	return __atomic_load_n(&lock->state, __ATOMIC_RELAXED) == LOCK_WANTED;
}

#endif
