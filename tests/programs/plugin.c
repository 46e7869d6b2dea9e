/* SPDX-License-Identifier: MIT */
/* A plug-in that uses verbs: built against libsoftrdma, and against the system's libraries. */
#include <netinet/in.h>

#include <rdma/rdma_cma.h>

int plugin_listen(void);

/* Listens on loopback, and goes on doing so; the port, -1 and errno on failure. */
int plugin_listen(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(id, (struct sockaddr *)&at) || rdma_listen(id, 1))
		return -1;
	return ntohs(rdma_get_src_port(id));
}
