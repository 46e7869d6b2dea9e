/* SPDX-License-Identifier: MIT */
/* What a thread sees of another's memory when it sees something of it in the shared one. */
#ifndef SOFTRDMA_SHM_FENCE_H
#define SOFTRDMA_SHM_FENCE_H

#include <stdatomic.h>

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define FENCE_IS_WATCHED
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define FENCE_IS_WATCHED
#endif

/*
 * full_fence: what is written before is seen by others before what is read after.
 * before_put, after_peek: who sees an entry of a ring also sees what its writer did before. The
 * ring does that itself.
 */
#ifdef FENCE_IS_WATCHED

/*
 * Thread sanitizers know no fences, and take the two mappings of a ring within a process for two
 * memories. So they are shown what has the same effect: one word, of all files and of all
 * connections, between which they see less for it.
 */
__attribute__((weak)) atomic_int fence_word;

static inline void full_fence(void)
{
	atomic_fetch_add(&fence_word, 1);
}

static inline void before_put(void)
{
	atomic_fetch_add_explicit(&fence_word, 1, memory_order_release);
}

static inline void after_peek(void)
{
	atomic_load_explicit(&fence_word, memory_order_acquire);
}

#else

static inline void full_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

static inline void before_put(void)
{
}

static inline void after_peek(void)
{
}

#endif

#endif
