/* SPDX-License-Identifier: MIT */
/* Judges what this process may do: locked memory, containers, raw sockets and XDP. */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <string.h>

#include "checks.h"

#ifndef CAP_BPF
#define CAP_BPF 39
#endif

/* Queues and receives of some dozen connections on hardware. */
#define MEMLOCK_NEEDED (UINT64_C(64) << 20)

#define MIB (1 << 20)

/* ---- locked memory ---- */

/* siw counts also what those pin who may lock without a limit. */
static bool is_siw(const struct device *device)
{
	return !strncmp(device->name, "siw", 3);
}

static void cure_memlock(const struct machine *machine, struct report *report)
{
	const struct process *process = &machine->process;

	if (process->memlock_max == UNLIMITED || process_has(process, CAP_SYS_RESOURCE))
		report_cure(report, "ulimit -l unlimited");
	else if (*process->container)
		report_cure(report, "start the container with --ulimit memlock=-1 "
				    "--cap-add=IPC_LOCK");
	else
		report_cure(report,
			    "echo '* - memlock unlimited' | %stee "
			    "/etc/security/limits.d/rdma.conf (then log in again)",
			    machine_sudo(machine));
}

void check_memlock(const struct machine *machine, struct report *report)
{
	const struct device *usable = machine_usable_device(machine);
	const struct process *process = &machine->process;

	if (process->memlock == UNLIMITED)
		report_ok(report, "locked memory: no limit");
	else if (machine_uses_software(machine) || !usable)
		report_ok(report, "locked memory: at most %" PRIu64 " KiB; softrdma locks none",
			  process->memlock / 1024);
	else if (process_has(process, CAP_IPC_LOCK) && !is_siw(usable))
		report_ok(report, "locked memory: no limit by CAP_IPC_LOCK");
	else if (process->memlock >= MEMLOCK_NEEDED)
		report_ok(report, "locked memory: at most %" PRIu64 " MiB", process->memlock / MIB);
	else {
		report_problem(report,
			       "locked memory: at most %" PRIu64
			       " KiB, too little for hardware, which locks all that it uses",
			       process->memlock / 1024);
		cure_memlock(machine, report);
	}
}

/* ---- containers ---- */

static void judge_limits(const struct machine *machine, struct report *report)
{
	const struct process *process = &machine->process;

	for (unsigned i = 0; i < process->rdma_limit_count; i++) {
		const char *limit = process->rdma_limits[i];

		if (!strstr(limit, "hca_handle=0") && !strstr(limit, "hca_object=0")) {
			report_note(report, "the control group limits RDMA: %s", limit);
			continue;
		}
		report_problem(report, "the control group forbids RDMA: %s", limit);
		report_cure(report, "echo '%.*s hca_handle=max hca_object=max' | %stee %s",
			    (int)strcspn(limit, " "), limit, machine_sudo(machine),
			    process->rdma_limits_file);
	}
	if (process->memory_max != UNLIMITED)
		report_note(report, "the control group allows %" PRIu64 " MiB of memory",
			    process->memory_max / MIB);
	if (process->cpus > 0 && process->cpus < 2)
		report_note(
			report,
			"the control group allows %.2f CPUs: threads that poll without sleeping "
			"will be stopped now and then",
			process->cpus);
}

static void judge_bounding_set(const struct process *process, struct report *report)
{
	static const struct {
		unsigned capability;
		const char *name;
	} wanted[] = {{CAP_IPC_LOCK, "CAP_IPC_LOCK"},
		      {CAP_NET_RAW, "CAP_NET_RAW"},
		      {CAP_NET_ADMIN, "CAP_NET_ADMIN"},
		      {CAP_BPF, "CAP_BPF"}};
	char missing[128] = "";

	for (unsigned i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		if (!(process->bounding_set >> wanted[i].capability & 1))
			snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing),
				 " %s", wanted[i].name);
	if (*missing)
		report_note(report, "even root has not here:%s", missing);
}

void check_container(const struct machine *machine, struct report *report)
{
	const struct process *process = &machine->process;

	if (*process->container)
		report_note(report, "this looks like a container (%s)", process->container);
	if (process->own_user_namespace)
		report_note(report, "a user namespace: root here is not the machine's root");
	if (process->own_network)
		report_note(report, "a network namespace: it has its own interfaces and addresses");
	if (process->seccomp)
		report_note(report, "system calls are filtered (seccomp)");
	judge_bounding_set(process, report);
	judge_limits(machine, report);
	if (!*process->container && !process->own_network && !process->own_user_namespace)
		report_ok(report, "no sign of a container");
}

/* ---- packets ---- */

/* Nothing of ibmsg needs these rights; programs that send raw packets do. */
void check_rights(const struct machine *machine, struct report *report)
{
	const struct process *process = &machine->process;
	bool bpf = process_has(process, CAP_BPF) || process_has(process, CAP_SYS_ADMIN);

	if (!process->raw_error)
		report_ok(report, "raw sockets: allowed");
	else
		report_note(report,
			    "raw sockets: %s; for raw packets a program needs "
			    "CAP_NET_RAW: sudo setcap cap_net_raw+ep PROGRAM",
			    strerror(process->raw_error));
	if (process->xdp_error == EAFNOSUPPORT)
		report_note(report, "XDP sockets: this kernel has none");
	else if (process->xdp_error)
		report_note(report,
			    "XDP sockets: %s; they need CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF",
			    strerror(process->xdp_error));
	else if (!bpf || !process_has(process, CAP_NET_ADMIN))
		report_note(report, "XDP sockets: allowed, but not to load a program, which needs "
				    "CAP_NET_ADMIN and CAP_BPF");
	else
		report_ok(report, "XDP sockets: allowed");
}
