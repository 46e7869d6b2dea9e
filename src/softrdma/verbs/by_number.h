/* SPDX-License-Identifier: MIT */
/* Queue pairs that their program connects by number: what verbs keeps of it. See ../meet.h. */
#ifndef SOFTRDMA_VERBS_BY_NUMBER_H
#define SOFTRDMA_VERBS_BY_NUMBER_H

#include "objects.h"

void by_number_init(struct soft_qp *qp);

/*
 * Before @qp, in the state INIT or RTR, takes the step @to. The CM's lock and its own are held.
 * 0 or a positive error.
 */
int by_number_step(struct soft_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *attr,
		   int mask);

/* It expects nobody any more: it is reset, failed or destroyed. The CM's lock is held. */
void by_number_end(struct soft_qp *qp);

/*
 * Requests wait, and there is no connection: they fail if that stays so. Its lock is held.
 */
void by_number_await(struct soft_qp *qp);

#endif
