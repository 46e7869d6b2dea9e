/* SPDX-License-Identifier: MIT */
/* Network interfaces, their addresses, and the RDMA devices that serve these. */
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "machine.h"

static unsigned find_mtu(const char *name)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return 0;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%.*s", IF_NAMESIZE - 1, name);
	if (ioctl(fd, SIOCGIFMTU, &request))
		request.ifr_mtu = 0;
	close(fd);
	return (unsigned)request.ifr_mtu;
}

static struct interface *get_interface(struct machine *machine, const struct ifaddrs *entry)
{
	struct interface *interface = machine->interfaces;

	for (unsigned i = 0; i < machine->interface_count; i++, interface++)
		if (!strcmp(interface->name, entry->ifa_name))
			return interface;
	if (machine->interface_count == MAX_INTERFACES)
		return NULL;
	machine->interface_count++;
	snprintf(interface->name, sizeof(interface->name), "%s", entry->ifa_name);
	interface->up = entry->ifa_flags & IFF_UP;
	interface->running = entry->ifa_flags & IFF_RUNNING;
	interface->loopback = entry->ifa_flags & IFF_LOOPBACK;
	interface->mtu = find_mtu(interface->name);
	return interface;
}

static void add_address(struct interface *interface, const struct sockaddr *from)
{
	struct address *address = &interface->addresses[interface->address_count];

	if (interface->address_count == MAX_ADDRESSES)
		return;
	interface->address_count++;
	memcpy(&address->storage, from,
	       from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					   : sizeof(struct sockaddr_in));
	address_to_text(from, address->text);
	if (interface->up && address_get_device(from, address->device))
		address->device[0] = '\0';
}

void find_network(struct machine *machine)
{
	struct ifaddrs *all, *entry;

	if (getifaddrs(&all))
		return;
	for (entry = all; entry; entry = entry->ifa_next) {
		struct interface *interface = get_interface(machine, entry);

		if (interface && entry->ifa_addr &&
		    (entry->ifa_addr->sa_family == AF_INET ||
		     entry->ifa_addr->sa_family == AF_INET6))
			add_address(interface, entry->ifa_addr);
	}
	freeifaddrs(all);
}
