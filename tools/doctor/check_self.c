/* SPDX-License-Identifier: MIT */
/* Whether ibmsg works here at all: one message from this process to itself. */
#include <string.h>

#include <ibmsg.h>

#include "checks.h"
#include "try.h"

/* One that the device in use serves; loopback's if it has one. */
static const struct address *choose_address(const struct machine *machine)
{
	const struct address *chosen = NULL;

	for (unsigned i = 0; i < machine->interface_count; i++) {
		const struct interface *interface = &machine->interfaces[i];

		for (unsigned j = 0; j < interface->address_count; j++) {
			const struct address *address = &interface->addresses[j];

			if (*address->device && (!chosen || (interface->loopback && !j)))
				chosen = address;
		}
	}
	return chosen;
}

static bool is_loopback_down(const struct machine *machine)
{
	for (unsigned i = 0; i < machine->interface_count; i++)
		if (machine->interfaces[i].loopback && !machine->interfaces[i].up)
			return true;
	return false;
}

void check_self(const struct machine *machine, struct report *report)
{
	const struct address *address = choose_address(machine);
	char device[DEVICE_NAME] = "";
	int error;

	/* Traffic to one's own addresses goes by loopback, whichever interface they are on. */
	if (is_loopback_down(machine)) {
		report_note(report, "not tried: loopback is down");
		return;
	}
	/* Without an address, or without a device that serves one, others have said so already. */
	if (!address) {
		report_note(report, "not tried: no address that a device serves");
		return;
	}
	error = try_self(address->text, device);
	if (!error) {
		report_ok(report, "a message to itself at %s, by %s", address->text, device);
		return;
	}
	report_problem(report, "a message to itself at %s: %s", address->text,
		       ibmsg_strerror(error));
	report_cure(report, "%s",
		    *ibmsg_error_hint(error) ? ibmsg_error_hint(error)
					     : "IBMSG_LOG=debug SOFTRDMA_LOG=debug "
					       "ibmsg-doctor");
}
