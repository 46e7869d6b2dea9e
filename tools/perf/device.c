/* SPDX-License-Identifier: MIT */
/* --device: a device is chosen by an address that it serves. */
#include "device.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/softrdma/interpose/redirect.h"
#include "options.h"

/* Leaves, unless there is a device of that name. */
static void must_exist(const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	bool found = false;

	for (int i = 0; list && i < count; i++)
		found = found || !strcmp(name, ibv_get_device_name(list[i]));
	if (found) {
		ibv_free_device_list(list);
		return;
	}
	fprintf(stderr, "ibmsg-perf: there is no device %s; there are:", name);
	for (int i = 0; list && i < count; i++)
		fprintf(stderr, " %s", ibv_get_device_name(list[i]));
	fprintf(stderr, "\n");
	exit(EXIT_FAILED);
}

/* Whether a server at @address would use @device. */
static bool is_served(const struct sockaddr *address, const char *device, const char *wanted)
{
	char name[DEVICE_NAME], text[ADDRESS_TEXT];

	if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
		return false;
	if (wanted && strcmp(address_to_text(address, text), wanted) != 0)
		return false;
	return !address_get_device(address, name) && !strcmp(name, device);
}

void device_choose_address(const char *device, const char *wanted, char out[static ADDRESS_TEXT])
{
	struct ifaddrs *all = NULL, *entry;

	must_exist(device);
	if (getifaddrs(&all))
		all = NULL;
	entry = all;
	while (entry && !is_served(entry->ifa_addr, device, wanted))
		entry = entry->ifa_next;
	if (!entry) {
		fprintf(stderr,
			"ibmsg-perf: %s does not serve %s. Where a machine has hardware, the "
			"software device serves with SOFTRDMA=on only; ibmsg-doctor shows the "
			"addresses of devices\n",
			device, wanted ? wanted : "any address of this host");
		exit(EXIT_FAILED);
	}
	address_to_text(entry->ifa_addr, out);
	freeifaddrs(all);
}

static bool is_soft(const char *device)
{
	return !strncmp(device, "soft_", strlen("soft_"));
}

void device_explain(const char *wanted, const char *used, const char *address)
{
	must_exist(wanted);
	fprintf(stderr,
		"ibmsg-perf: %s is reached by %s, not by %s. The route to an address decides the "
		"device: use an address of the server in the network of %s (ip route get "
		"ADDRESS)%s\n",
		address, used, wanted, wanted,
		is_soft(wanted) && !is_soft(used) ? ", or set SOFTRDMA=on at both ends" : "");
	exit(EXIT_FAILED);
}
