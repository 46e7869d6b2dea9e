/* SPDX-License-Identifier: MIT */
/*
 * The steps of posting a send request, for both posting interfaces. All with the queue pair's lock
 * held.
 */
#ifndef SOFTRDMA_VERBS_POST_H
#define SOFTRDMA_VERBS_POST_H

#include "objects.h"

/* 0, or EINVAL: nothing may be posted in this state. Errors are positive: as verbs return them. */
int post_check_state(const struct soft_qp *qp);

/*
 * Check @wr and put it behind the queue, into the place *@tail, which moves on. It is no part of
 * the queue before post_publish.
 */
int post_enqueue(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t *tail);
/* All up to @tail are posted. */
void post_publish(struct soft_qp *qp, uint32_t tail);

/* What is in the queue leaves, now or soon. */
void post_go(struct soft_qp *qp);

#endif
