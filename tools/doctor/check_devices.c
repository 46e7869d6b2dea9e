/* SPDX-License-Identifier: MIT */
/* Judges devices: which one is used, whether they open, their ports and GIDs. */
#include <string.h>

#include "checks.h"

static const char *interface_name(const struct device *device)
{
	return *device->interface ? device->interface : "INTERFACE";
}

static const char *transport_name(const struct device *device, const struct port *port)
{
	if (device->iwarp)
		return "iWARP";
	return port->layer == LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

/* ---- which one is used ---- */

static void judge_software(const struct machine *machine, struct report *report)
{
	if (!machine->kernel.device_count)
		report_note(report,
			    "no RDMA hardware: softrdma, the software device, will be used");
	else if (machine->choice == CHOICE_ON)
		report_note(report,
			    "SOFTRDMA=on: softrdma, the software device, will be used, not %s",
			    machine->kernel.devices[0]);
	else
		report_note(
			report,
			"%s is there but cannot be used: softrdma, the software device, will be",
			machine->kernel.devices[0]);
}

void check_choice(const struct machine *machine, struct report *report)
{
	const struct device *usable = machine_usable_device(machine);

	if (machine->choice == CHOICE_INVALID) {
		report_problem(report, "SOFTRDMA=%s is none of auto, on and off; taken as auto",
			       machine->softrdma);
		report_cure(report, "unset SOFTRDMA");
	}
	if (machine_uses_software(machine)) {
		judge_software(machine, report);
	} else if (usable) {
		report_ok(report, "connections will use %s", usable->name);
	} else {
		report_problem(report, "SOFTRDMA=off, and no RDMA hardware can be used");
		report_cure(report, "unset SOFTRDMA");
	}
}

/* ---- real devices ---- */

static bool is_listed(const struct machine *machine, const char *name)
{
	for (unsigned i = 0; i < machine->device_count; i++)
		if (!strcmp(machine->devices[i].name, name))
			return true;
	return false;
}

/* Devices of the kernel that libibverbs does not show. Without ib_uverbs it shows none. */
static void judge_unlisted(const struct machine *machine, struct report *report)
{
	if (machine->choice == CHOICE_ON ||
	    machine->kernel.modules[MODULE_UVERBS] < MODULE_BUILT_IN)
		return;
	for (unsigned i = 0; i < machine->kernel.device_count; i++) {
		const char *name = machine->kernel.devices[i];

		if (is_listed(machine, name))
			continue;
		report_problem(report,
			       "the kernel has %s, but libibverbs does not show it: its "
			       "provider is missing",
			       name);
		report_cure(report, "%sapt-get install ibverbs-providers", machine_sudo(machine));
	}
}

/* A port that is down matters if there is no other. */
static void judge_port(const struct machine *machine, const struct device *device,
		       const struct port *port, struct report *report)
{
	const char *transport = transport_name(device, port);

	if (port->active) {
		report_ok(report, "%s: %s, port %u active, MTU %u", device->name, transport,
			  port->number, port->mtu);
	} else if (machine_usable_device(machine)) {
		report_note(report, "%s: %s, port %u is %s", device->name, transport, port->number,
			    port->state);
	} else {
		report_problem(report, "%s: %s, port %u is %s", device->name, transport,
			       port->number, port->state);
		if (port->layer == LAYER_ETHERNET)
			report_cure(report, "%sip link set %s up; rdma link show %s/%u",
				    machine_sudo(machine), interface_name(device), device->name,
				    port->number);
		else
			report_cure(report,
				    "%sibstat %s; is the cable in, and does a subnet "
				    "manager run? %ssystemctl start opensm",
				    machine_sudo(machine), device->name, machine_sudo(machine));
	}
}

static bool has_closed_node(const struct kernel *kernel)
{
	for (unsigned i = 0; i < kernel->node_count; i++)
		if (kernel->nodes[i].error && strcmp(kernel->nodes[i].name, "rdma_cm") != 0)
			return true;
	return false;
}

static void judge_device(const struct machine *machine, const struct device *device,
			 struct report *report)
{
	/* The check of the files has the cure. errno says little: libibverbs tries this and that.
	 */
	if (device->error && has_closed_node(&machine->kernel)) {
		report_note(report, "%s: does not open (see files)", device->name);
	} else if (device->error) {
		report_problem(report, "%s: does not open: %s", device->name,
			       strerror(device->error));
		report_cure(report, "%sdmesg | grep -i -e rdma -e infiniband -e %s",
			    machine_sudo(machine), device->name);
	}
	for (unsigned i = 0; i < device->port_count; i++)
		judge_port(machine, device, &device->ports[i], report);
}

void check_devices(const struct machine *machine, struct report *report)
{
	for (unsigned i = 0; i < machine->device_count; i++)
		if (!machine->devices[i].soft)
			judge_device(machine, &machine->devices[i], report);
	judge_unlisted(machine, report);
	if (!machine->kernel.device_count)
		report_note(report, "no RDMA device of the kernel");
}

/* ---- software devices ---- */

void check_soft_devices(const struct machine *machine, struct report *report)
{
	unsigned count = 0;

	for (unsigned i = 0; i < machine->device_count; i++) {
		const struct device *device = &machine->devices[i];

		if (!device->soft)
			continue;
		count++;
		report_ok(report, "%s: iWARP over TCP, port 1 %s, MTU %u", device->name,
			  device->port_count && device->ports[0].active ? "active" : "not active",
			  device->port_count ? device->ports[0].mtu : 0);
	}
	/* The interfaces' check has the cure. */
	if (!count)
		report_note(report, machine->choice == CHOICE_OFF
					    ? "SOFTRDMA=off: softrdma is not used"
					    : "softrdma has no device: no network interface is up");
}

/* ---- GIDs and addresses ---- */

static const struct address *address_of(const struct machine *machine, const struct device *device,
					const char **interface)
{
	for (unsigned i = 0; i < machine->interface_count; i++) {
		*interface = machine->interfaces[i].name;
		for (unsigned j = 0; j < machine->interfaces[i].address_count; j++)
			if (!strcmp(machine->interfaces[i].addresses[j].device, device->name))
				return &machine->interfaces[i].addresses[j];
	}
	return NULL;
}

static void judge_gids(const struct machine *machine, const struct device *device,
		       struct report *report)
{
	const char *interface;
	const struct address *address = address_of(machine, device, &interface);

	if (!device->gids)
		report_note(report, "%s: no GID", device->name);
	else
		report_ok(report, "%s: %u GID%s, among them %s", device->name, device->gids,
			  device->gids > 1 ? "s" : "", device->gid);
	if (address)
		report_ok(report, "%s: reached at %s (%s)", device->name, address->text, interface);
	else if (device->port_count && device->ports[0].active) {
		report_problem(report, "%s: no address of this host leads to it", device->name);
		report_cure(report,
			    "%sip address add ADDRESS/24 dev %s (rdma link shows interfaces)",
			    machine_sudo(machine), interface_name(device));
	}
}

/* Software devices get theirs from the interfaces, which are looked at anyway. */
void check_gids(const struct machine *machine, struct report *report)
{
	if (machine_uses_software(machine))
		return;
	for (unsigned i = 0; i < machine->device_count; i++)
		if (!machine->devices[i].soft && !machine->devices[i].error)
			judge_gids(machine, &machine->devices[i], report);
}
