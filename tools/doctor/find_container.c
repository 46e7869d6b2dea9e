/* SPDX-License-Identifier: MIT */
/* Signs of a container: its marks, namespaces, and what its control group allows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "root.h"

static void find_kind(const struct machine *machine, struct process *process)
{
	static const struct {
		const char *file, *text, *kind;
	} signs[] = {
		{"/run/.containerenv", NULL, "podman"},
		{"/.dockerenv", NULL, "docker"},
		{"/proc/1/cgroup", "kubepods", "kubernetes"},
		{"/proc/1/cgroup", "/docker", "docker"},
		{"/proc/1/cgroup", "/lxc", "lxc"},
		{"/proc/1/environ", "container=", "container"},
	};

	if (getenv("KUBERNETES_SERVICE_HOST")) {
		snprintf(process->container, sizeof(process->container), "kubernetes");
		return;
	}
	for (unsigned i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
		struct path path = root_path(machine, "%s", signs[i].file);

		if (signs[i].text ? !path_has_text(path, signs[i].text) : !path_exists(path))
			continue;
		snprintf(process->container, sizeof(process->container), "%s", signs[i].kind);
		return;
	}
}

/* Whether this process's namespace is not that of process 1; false if that cannot be seen. */
static bool has_own_namespace(const struct machine *machine, const char *name)
{
	char own[64] = "", first[64] = "";

	if (readlink(root_path(machine, "/proc/self/ns/%s", name).text, own, sizeof(own) - 1) < 0 ||
	    readlink(root_path(machine, "/proc/1/ns/%s", name).text, first, sizeof(first) - 1) < 0)
		return false;
	return strcmp(own, first) != 0;
}

static bool has_own_ids(const struct machine *machine)
{
	unsigned long inside, outside, count;
	char text[128];

	return path_read(root_path(machine, "/proc/self/uid_map"), text, sizeof(text)) &&
	       sscanf(text, "%lu %lu %lu", &inside, &outside, &count) == 3 &&
	       (inside || outside || count != UINT32_MAX);
}

/* ---- control groups ---- */

/* @file of this process's group: in the unified tree, or in the one of @controller. */
static bool find_cgroup_file(const struct machine *machine, const char *controller,
			     const char *file, struct path *out)
{
	FILE *groups = fopen(root_path(machine, "/proc/self/cgroup").text, "re");
	char line[1024];
	bool found = false;

	if (!groups)
		return false;
	while (!found && fgets(line, sizeof(line), groups)) {
		char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (!names[1])
			*out = root_path(machine, "/sys/fs/cgroup%s/%s", group, file);
		else if (!strcmp(names + 1, controller))
			*out = root_path(machine, "/sys/fs/cgroup/%s%s/%s", controller, group,
					 file);
		else
			continue;
		found = path_exists(*out);
	}
	fclose(groups);
	return found;
}

static void find_rdma_limits(const struct machine *machine, struct process *process)
{
	char text[1024], *line, *rest;
	struct path path;

	if (!find_cgroup_file(machine, "rdma", "rdma.max", &path) ||
	    !path_read(path, text, sizeof(text)))
		return;
	snprintf(process->rdma_limits_file, sizeof(process->rdma_limits_file), "%.255s", path.text);
	for (line = strtok_r(text, "\n", &rest); line && process->rdma_limit_count < MAX_LIMITS;
	     line = strtok_r(NULL, "\n", &rest))
		if (!strstr(line, "hca_handle=max") || !strstr(line, "hca_object=max"))
			snprintf(process->rdma_limits[process->rdma_limit_count++],
				 sizeof(*process->rdma_limits), "%.127s", line);
}

static void find_memory_limit(const struct machine *machine, struct process *process)
{
	struct path path;
	char text[64];

	process->memory_max = UNLIMITED;
	if ((find_cgroup_file(machine, "memory", "memory.max", &path) ||
	     find_cgroup_file(machine, "memory", "memory.limit_in_bytes", &path)) &&
	    path_read(path, text, sizeof(text)) && strcmp(text, "max") != 0)
		process->memory_max = strtoull(text, NULL, 10);
	/* The old tree's way to say that there is none: about 8 EiB. */
	if (process->memory_max > UINT64_C(1) << 60)
		process->memory_max = UNLIMITED;
}

static void find_cpu_limit(const struct machine *machine, struct process *process)
{
	unsigned long quota, period;
	struct path path;
	char text[64];

	if (find_cgroup_file(machine, "cpu", "cpu.max", &path) &&
	    path_read(path, text, sizeof(text)) && sscanf(text, "%lu %lu", &quota, &period) == 2 &&
	    period)
		process->cpus = (double)quota / (double)period;
}

void find_container(struct machine *machine)
{
	struct process *process = &machine->process;

	find_kind(machine, process);
	process->own_network = has_own_namespace(machine, "net");
	process->own_user_namespace = has_own_ids(machine);
	find_rdma_limits(machine, process);
	find_memory_limit(machine, process);
	find_cpu_limit(machine, process);
}
