/* SPDX-License-Identifier: MIT */
/* Between two looks at what another core writes. */
#ifndef IBMSG_COMMON_SPIN_H
#define IBMSG_COMMON_SPIN_H

/*
 * A processor that runs ahead in such a loop has many looks under way, which it must take back when
 * the other core writes; and the core may have a sibling that could use the time.
 */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
