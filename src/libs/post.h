/* SPDX-License-Identifier: MIT */
/* Posting to a send queue, for the libraries over verbs. */
#ifndef IBMSG_LIBS_POST_H
#define IBMSG_LIBS_POST_H

#include <errno.h>

#include "../softrdma/interpose/redirect.h" /* in place of <infiniband/verbs.h> */

/*
 * -errno: the device did not take all of the list. When a connection is at its end, siw takes the
 * list and says that this failed, naming no request; those in its queue are discarded like all
 * others, so they count as posted.
 */
static inline int post_sends(struct ibv_qp *qp, struct ibv_send_wr *list)
{
	struct ibv_send_wr *bad = list;
	int error = ibv_post_send(qp, list, &bad);

	if (!error || (!bad && errno == ENOTCONN))
		return 0;
	return error < 0 ? error : -error;
}

#endif
