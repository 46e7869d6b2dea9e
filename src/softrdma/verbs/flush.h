/* SPDX-License-Identifier: MIT */
/* Queue pairs whose posted sends wait to leave together. */
#ifndef SOFTRDMA_VERBS_FLUSH_H
#define SOFTRDMA_VERBS_FLUSH_H

#include <stdbool.h>

struct soft_qp;

/*
 * Note that @qp holds requests back; its lock is held. Somebody will send them: a poll, a waiter or
 * the progress thread.
 */
void flush_later(struct soft_qp *qp);

/* Forget @qp, which is about to go. */
void flush_forget(struct soft_qp *qp);

/* Send all that is held back. No lock is held. Whether there was any. */
bool flush_unsent(void);

#endif
