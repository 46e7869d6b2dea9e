/* SPDX-License-Identifier: MIT */
/* The states of a queue pair, and its attributes. All with its lock held. */
#ifndef SOFTRDMA_VERBS_QP_STATE_H
#define SOFTRDMA_VERBS_QP_STATE_H

#include "objects.h"

/* What a queue pair lets its peer do, as long as the program does not say. */
#define QP_ALL_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

void qp_set_state(struct soft_qp *qp, enum ibv_qp_state state);
/* Everything ends: the connection, then the requests. */
void qp_enter_error(struct soft_qp *qp);
/* The owner of the connection hears of its end, once. */
void qp_tell_ended(struct soft_qp *qp, int error);

/* As a new queue pair has them. */
void qp_reset_attributes(struct soft_qp *qp);
/* For ibv_query_qp: who is at the other end of the connected socket @fd, and what was agreed on. */
void qp_note_peer(struct soft_qp *qp, int fd);
void qp_note_agreed(struct soft_qp *qp, uint16_t ord, uint16_t ird);

#endif
