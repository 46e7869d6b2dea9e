/* SPDX-License-Identifier: MIT */
/* Addresses of this host, and the RDMA devices that serve them. */
#include "address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>

#include "../../src/softrdma/interpose/redirect.h"

const char *address_to_text(const struct sockaddr *address, char text[static ADDRESS_TEXT])
{
	socklen_t length = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							  : sizeof(struct sockaddr_in);

	if (getnameinfo(address, length, text, ADDRESS_TEXT, NULL, 0, NI_NUMERICHOST))
		snprintf(text, ADDRESS_TEXT, "?");
	return text;
}

int address_get_device(const struct sockaddr *address, char device[static DEVICE_NAME])
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int error = 0;

	if (!channel)
		return errno ? -errno : -ENODEV;
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		error = errno ? -errno : -ENODEV;
		goto undo_channel;
	}
	/* It does not change the address, but its type is not const. */
	if (rdma_bind_addr(id, (struct sockaddr *)address))
		error = errno ? -errno : -ENODEV;
	else if (!id->verbs)
		error = -ENODEV;
	else
		snprintf(device, DEVICE_NAME, "%s", ibv_get_device_name(id->verbs->device));
	rdma_destroy_id(id);
undo_channel:
	rdma_destroy_event_channel(channel);
	return error;
}
