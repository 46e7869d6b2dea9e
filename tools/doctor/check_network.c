/* SPDX-License-Identifier: MIT */
/* Judges network interfaces: link, MTU, addresses. */
#include <string.h>

#include "checks.h"

/* Of a RoCE packet with 4096 bytes: the headers and the check sum take up to 104 more. */
#define MTU_FOR_4096 4200

static void list_addresses(const struct interface *interface, char *out, size_t size)
{
	size_t used = 0;

	snprintf(out, size, "no address");
	for (unsigned i = 0; i < interface->address_count && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "",
					 interface->addresses[i].text);
}

static bool has_address(const struct machine *machine)
{
	for (unsigned i = 0; i < machine->interface_count; i++)
		if (machine->interfaces[i].up && machine->interfaces[i].address_count)
			return true;
	return false;
}

static void judge_interface(const struct machine *machine, const struct interface *interface,
			    struct report *report)
{
	char addresses[512];

	list_addresses(interface, addresses, sizeof(addresses));
	if (!interface->up && interface->loopback && has_address(machine)) {
		report_problem(report,
			       "%s is down: nothing on this host can be reached at 127.0.0.1",
			       interface->name);
		report_cure(report, "%sip link set %s up", machine_sudo(machine), interface->name);
	} else if (!interface->up) {
		report_note(report, "%s: down", interface->name);
	} else if (!interface->running) {
		report_note(report, "%s: up, but without a link: is the cable in? MTU %u, %s",
			    interface->name, interface->mtu, addresses);
	} else if (!interface->address_count) {
		report_note(report, "%s: up, MTU %u, no address", interface->name, interface->mtu);
	} else {
		report_ok(report, "%s: up, MTU %u, %s", interface->name, interface->mtu, addresses);
	}
}

static bool serves_roce(const struct machine *machine, const struct interface *interface)
{
	for (unsigned i = 0; i < machine->device_count; i++) {
		const struct device *device = &machine->devices[i];

		if (device->soft || device->iwarp || !device->port_count ||
		    device->ports[0].layer != LAYER_ETHERNET)
			continue;
		for (unsigned j = 0; j < interface->address_count; j++)
			if (!strcmp(interface->addresses[j].device, device->name))
				return true;
	}
	return false;
}

/* Loopback aside, which everybody has. */
static bool reaches_others(const struct machine *machine)
{
	for (unsigned i = 0; i < machine->interface_count; i++) {
		const struct interface *interface = &machine->interfaces[i];

		if (!interface->loopback && interface->up && interface->address_count)
			return true;
	}
	return false;
}

void check_interfaces(const struct machine *machine, struct report *report)
{
	for (unsigned i = 0; i < machine->interface_count; i++) {
		const struct interface *interface = &machine->interfaces[i];

		judge_interface(machine, interface, report);
		if (interface->mtu < MTU_FOR_4096 && serves_roce(machine, interface))
			report_note(report,
				    "%s: MTU %u keeps RoCE packets small; 4096 bytes fit with: "
				    "%sip link set %s mtu %u, at every host of the link",
				    interface->name, interface->mtu, machine_sudo(machine),
				    interface->name, MTU_FOR_4096);
	}
	if (!has_address(machine)) {
		report_problem(report, "no interface that is up has an address");
		report_cure(report, "%sip link set lo up", machine_sudo(machine));
	} else if (!reaches_others(machine)) {
		report_note(report, "no address but loopback's: other hosts cannot be reached");
	}
}
