/* SPDX-License-Identifier: MIT */
/*
 * What the CM does with queue pairs. It knows them by number: a program may destroy its QP and its
 * id in any order.
 */
#ifndef SOFTRDMA_VERBS_QP_OWNER_H
#define SOFTRDMA_VERBS_QP_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "../wire/mpa.h"

struct shm_link;

/*
 * Who wants to hear of a connection's life. Called with the queue pair's lock held, from any
 * thread: must do no more than progress_defer.
 */
struct qp_owner {
	void (*opened)(struct qp_owner *owner); /* responder: the first FPDU arrived */
	void (*ended)(struct qp_owner *owner,
		      int error); /* once; 0: orderly, by the peer or by disconnect */
};

/*
 * Connect queue pair @qp_num over the socket @fd, or over @link if it is not NULL; the state
 * becomes RTS (from INIT, RTR or RTS: programs that drive ibv_modify_qp themselves have been there
 * already). Takes @fd and @link over on success. -ENOENT: there is no such queue pair; -EISCONN: it
 * has a connection; -EINVAL: it is in a state that cannot connect.
 */
int qp_attach(uint32_t qp_num, int fd, struct shm_link *link, const struct mpa_agreed *agreed,
	      bool initiator, struct qp_owner *owner);

/*
 * An orderly end from this side: requests are flushed, the peer sees the end; ended() is called.
 * Nothing if there is no connection.
 */
void qp_disconnect(uint32_t qp_num);

/* @owner hears nothing more. */
void qp_disown(uint32_t qp_num, struct qp_owner *owner);

/* Whether a queue pair of this number exists. */
bool qp_exists(uint32_t qp_num);

#endif
