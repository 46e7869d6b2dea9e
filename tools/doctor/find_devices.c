/* SPDX-License-Identifier: MIT */
/* Devices as libibverbs and libsoftrdma show them: whether they open, their ports and GIDs. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../../src/softrdma/interpose/redirect.h"
#include "root.h"

#define SOFT_PREFIX "soft_"

static void find_port(struct ibv_context *context, unsigned number, struct port *port)
{
	struct ibv_port_attr attr;

	port->number = number;
	port->state = "unknown";
	if (ibv_query_port(context, (uint8_t)number, &attr))
		return;
	port->active = attr.state == IBV_PORT_ACTIVE;
	port->state = ibv_port_state_str(attr.state);
	port->mtu = 128u << attr.active_mtu;
	port->layer =
		attr.link_layer == IBV_LINK_LAYER_ETHERNET ? LAYER_ETHERNET : LAYER_INFINIBAND;
}

static bool is_by_address(const union ibv_gid *gid)
{
	struct in6_addr address;

	memcpy(&address, gid->raw, sizeof(address));
	return IN6_IS_ADDR_V4MAPPED(&address) || gid->raw[0] == 0xfd ||
	       (gid->raw[0] & 0xe0) == 0x20;
}

static void find_gids(struct ibv_context *context, struct device *device)
{
	static const union ibv_gid none;
	union ibv_gid gid;

	for (int index = 0; !ibv_query_gid(context, 1, index, &gid) && index < 256; index++) {
		bool by_address = is_by_address(&gid);

		if (!memcmp(&gid, &none, sizeof(gid)))
			continue;
		if (!device->gids || (by_address && !device->gids_by_address))
			inet_ntop(AF_INET6, gid.raw, device->gid, sizeof(device->gid));
		device->gids++;
		device->gids_by_address += by_address;
	}
}

static void find_device(const struct machine *machine, struct ibv_device *from,
			struct device *device)
{
	struct ibv_context *context;
	struct ibv_device_attr attr;

	snprintf(device->name, sizeof(device->name), "%s", ibv_get_device_name(from));
	device->soft = !strncmp(device->name, SOFT_PREFIX, strlen(SOFT_PREFIX));
	path_read(root_path(machine, "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0",
			    device->name),
		  device->interface, sizeof(device->interface));
	device->iwarp = from->transport_type == IBV_TRANSPORT_IWARP;
	errno = 0;
	context = ibv_open_device(from);
	if (!context) {
		device->error = errno ? errno : EIO;
		return;
	}
	if (!ibv_query_device(context, &attr))
		for (unsigned i = 0; i < attr.phys_port_cnt && i < MAX_PORTS; i++)
			find_port(context, i + 1, &device->ports[device->port_count++]);
	find_gids(context, device);
	ibv_close_device(context);
}

void find_devices(struct machine *machine)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	for (int i = 0; list && i < count && i < MAX_DEVICES; i++)
		find_device(machine, list[i], &machine->devices[machine->device_count++]);
	if (list)
		ibv_free_device_list(list);
}
