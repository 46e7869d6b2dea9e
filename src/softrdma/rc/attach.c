/* SPDX-License-Identifier: MIT */
#include "attach.h"

#include "../shm/shm.h"
#include "../tcp/tcp.h"

int rc_fall_back(struct rc_qp *qp, int fd, const struct mpa_agreed *agreed, bool initiator)
{
	return tcp_attach(qp, fd, agreed, initiator);
}

int rc_attach(struct rc_qp *qp, int fd, struct shm_link *link, const struct mpa_agreed *agreed,
	      bool initiator)
{
	if (link)
		return shm_attach(qp, link, fd, agreed, initiator);
	return tcp_attach(qp, fd, agreed, initiator);
}
