/* SPDX-License-Identifier: MIT */
/* Queue pairs that have something to send: see rc_defer. */
#ifndef SOFTRDMA_VERBS_FLUSH_H
#define SOFTRDMA_VERBS_FLUSH_H

#include <stdbool.h>

struct soft_qp;

/* Forget @qp, which is about to go. */
void flush_forget(struct soft_qp *qp);

/* Send all that is held back. No lock is held. Whether there was any. */
bool flush_unsent(void);

#endif
