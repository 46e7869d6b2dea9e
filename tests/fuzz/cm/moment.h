/* SPDX-License-Identifier: MIT */
/*
 * Time for a live target: the device's clock can be set forward, and the target can wait until the
 * progress thread has nothing left to do. So deadlines of seconds cost nothing.
 */
#ifndef FUZZ_CM_MOMENT_H
#define FUZZ_CM_MOMENT_H

/* The device's clock jumps; what is due then has run when moment_settle returns. */
void moment_advance(unsigned ms);
/* Everything that was ready when this was called has been handled. */
void moment_settle(void);
/* For waits: let other threads and the kernel work for a moment. */
void moment_pass(void);

#endif
