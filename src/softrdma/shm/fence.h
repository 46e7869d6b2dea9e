/* SPDX-License-Identifier: MIT */
/* What is written before is seen by others before what is read after. */
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

static inline void full_fence(void)
{
#ifdef FENCE_IS_WATCHED
	/* Thread sanitizers know no fences, but what has the same effect here. */
	static atomic_int word;

	atomic_fetch_add(&word, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
