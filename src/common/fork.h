/* SPDX-License-Identifier: MIT */
/*
 * What happens to a library's process-wide locks and state when the program forks. Every such lock
 * is registered here with its place in the order of locks, when the library is loaded. A fork takes
 * all of them in that order, so the child finds what they guard whole, and no lock held by a thread
 * that it does not have. Each part may then let go of what is the parent's.
 */
#ifndef IBMSG_COMMON_FORK_H
#define IBMSG_COMMON_FORK_H

#include <pthread.h>
#include <stddef.h>

struct fork_part {
	unsigned order; /* parts with a smaller one are locked before */
	void (*lock)(void);
	void (*unlock)(void); /* in the parent, and at last in the child */
	void (*child)(void);  /* in the child, in the same order, with all locks held; or NULL */
};

/* It must live as long as the library, and hold none of the locks. */
void fork_register(const struct fork_part *part);

/* At most one of these in a file, with a semicolon. */
#define FORK_PART(place, take, give, in_child)                                                     \
	__attribute__((constructor)) static void fork_register_this(void)                          \
	{                                                                                          \
		static const struct fork_part part = {                                             \
			.order = (place), .lock = (take), .unlock = (give), .child = (in_child)};  \
                                                                                                   \
		fork_register(&part);                                                              \
	}                                                                                          \
	_Static_assert(1, "a semicolon follows")

/* The same for a mutex. */
#define FORK_MUTEX(place, mutex, in_child)                                                         \
	static void fork_lock_this(void)                                                           \
	{                                                                                          \
		pthread_mutex_lock(mutex);                                                         \
	}                                                                                          \
	static void fork_unlock_this(void)                                                         \
	{                                                                                          \
		pthread_mutex_unlock(mutex);                                                       \
	}                                                                                          \
	FORK_PART(place, fork_lock_this, fork_unlock_this, in_child)

/*
 * For a child: an eventfd of its own, of the kind that counts, takes the number of @fd, which it
 * shares with its parent. Returns that number; -1, and @fd is closed, if there is none to be had.
 */
int fork_renew_eventfd(int fd);

#endif
