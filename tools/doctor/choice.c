/* SPDX-License-Identifier: MIT */
/* Where connections go: the same rule as that of libsoftrdma, applied to what was found. */
#include <string.h>

#include "machine.h"

static bool can_use_cm(const struct kernel *kernel)
{
	for (unsigned i = 0; i < kernel->node_count; i++)
		if (!strcmp(kernel->nodes[i].name, "rdma_cm"))
			return !kernel->nodes[i].error;
	return false;
}

static bool has_active_port(const struct device *device)
{
	for (unsigned i = 0; i < device->port_count; i++)
		if (device->ports[i].active)
			return true;
	return false;
}

const struct device *machine_usable_device(const struct machine *machine)
{
	if (!can_use_cm(&machine->kernel))
		return NULL;
	for (unsigned i = 0; i < machine->device_count; i++) {
		const struct device *device = &machine->devices[i];

		if (!device->soft && !device->error && has_active_port(device))
			return device;
	}
	return NULL;
}

bool machine_uses_software(const struct machine *machine)
{
	switch (machine->choice) {
	case CHOICE_ON:
		return true;
	case CHOICE_OFF:
		return false;
	default:
		return !machine_usable_device(machine);
	}
}
