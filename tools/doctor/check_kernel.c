/* SPDX-License-Identifier: MIT */
/* Judges modules, the files in /dev/infiniband, and signs of a firewall. */
#include <errno.h>
#include <string.h>

#include "checks.h"

static const char *const module_names[MODULES] = {[MODULE_RXE] = "rdma_rxe",
						  [MODULE_SIW] = "siw",
						  [MODULE_UCM] = "rdma_ucm",
						  [MODULE_UVERBS] = "ib_uverbs"};

static const char *const state_names[] = {[MODULE_ABSENT] = "not available",
					  [MODULE_AVAILABLE] = "available, not loaded",
					  [MODULE_BUILT_IN] = "built in",
					  [MODULE_LOADED] = "loaded"};

/* ---- modules ---- */

/* With a device, programs reach it through these. */
static bool is_needed(const struct machine *machine, enum module_name module)
{
	return (module == MODULE_UCM || module == MODULE_UVERBS) && machine->kernel.device_count;
}

static void judge_module(const struct machine *machine, enum module_name module,
			 struct report *report)
{
	enum module_state state = machine->kernel.modules[module];
	const char *name = module_names[module];

	if (state >= MODULE_BUILT_IN) {
		report_ok(report, "%s: %s", name, state_names[state]);
	} else if (!is_needed(machine, module)) {
		report_note(report, "%s: %s", name, state_names[state]);
	} else {
		report_problem(report, "%s: %s, but %s needs it", name, state_names[state],
			       machine->kernel.devices[0]);
		if (state == MODULE_AVAILABLE || *machine->process.container)
			report_cure(report, "%smodprobe %s%s", machine_sudo(machine), name,
				    *machine->process.container ? " (on the host)" : "");
		else
			report_cure(report,
				    "%sapt-get install linux-modules-extra-%s; %smodprobe %s",
				    machine_sudo(machine), machine->kernel.release,
				    machine_sudo(machine), name);
	}
}

void check_modules(const struct machine *machine, struct report *report)
{
	if (!machine->kernel.has_modules_folder)
		report_note(report,
			    "no modules of the running kernel %s here: a container, or a "
			    "kernel without modules",
			    machine->kernel.release);
	for (unsigned i = 0; i < MODULES; i++)
		judge_module(machine, i, report);
}

/* ---- /dev/infiniband ---- */

static void cure_missing(const struct machine *machine, const struct node *node,
			 struct report *report)
{
	if (*machine->process.container)
		report_cure(report, "start the container with --device=/dev/infiniband/%s",
			    node->name);
	else
		report_cure(report, "%smodprobe %s", machine_sudo(machine),
			    strcmp(node->name, "rdma_cm") ? "ib_uverbs" : "rdma_ucm");
}

static void cure_forbidden(const struct machine *machine, const struct node *node,
			   struct report *report)
{
	if (machine->process.is_root) /* and yet not allowed: a device cgroup says so */
		report_cure(report, "start the container with --device=/dev/infiniband/%s",
			    node->name);
	else if (node->group_may_write && *node->group)
		report_cure(report, "sudo usermod -aG %s $USER (then log in again)", node->group);
	else
		report_cure(report, "sudo chmod 666 /dev/infiniband/%s", node->name);
}

static void judge_node(const struct machine *machine, const struct node *node,
		       struct report *report)
{
	if (!node->error) {
		report_ok(report, "/dev/infiniband/%s: can be opened", node->name);
		return;
	}
	/* Nobody needs what was left over from a device that has gone. */
	if (!machine->kernel.device_count) {
		report_note(report, "/dev/infiniband/%s: %s", node->name, strerror(node->error));
		return;
	}
	report_problem(report, "/dev/infiniband/%s: %s", node->name, strerror(node->error));
	if (node->error == ENOENT)
		cure_missing(machine, node, report);
	else if (node->error == EACCES || node->error == EPERM)
		cure_forbidden(machine, node, report);
	else
		report_cure(report, "%sdmesg | grep -i -e rdma -e infiniband",
			    machine_sudo(machine));
}

void check_nodes(const struct machine *machine, struct report *report)
{
	if (!machine->kernel.node_count)
		report_note(report, "no /dev/infiniband; softrdma needs none");
	for (unsigned i = 0; i < machine->kernel.node_count; i++)
		judge_node(machine, &machine->kernel.nodes[i], report);
}

/* ---- a firewall ---- */

/* Only a hint: the rules can be read by root alone, and this program never asks for that. */
void check_firewall(const struct machine *machine, struct report *report)
{
	const struct kernel *kernel = &machine->kernel;
	static const char what[] = "may drop packets: RoCE is UDP port 4791, iWARP and softrdma "
				   "are TCP at the port itself";

	if (kernel->ufw)
		report_note(report, "ufw is enabled and %s; look: sudo ufw status", what);
	if (kernel->firewalld)
		report_note(report, "firewalld runs and %s; look: sudo firewall-cmd --list-all",
			    what);
	if (kernel->nf_tables || kernel->ip_tables)
		report_note(report, "%s is loaded and %s; look: sudo %s",
			    kernel->nf_tables ? "nf_tables" : "ip_tables", what,
			    kernel->nf_tables ? "nft list ruleset" : "iptables -S");
	if (!kernel->ufw && !kernel->firewalld && !kernel->nf_tables && !kernel->ip_tables)
		report_ok(report, "no sign of a firewall on this host");
}
