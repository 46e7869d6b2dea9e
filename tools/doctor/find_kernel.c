/* SPDX-License-Identifier: MIT */
/* What the kernel has: RDMA devices, their files in /dev, modules, signs of a firewall. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "root.h"

static const char *const module_files[MODULES] = {[MODULE_RXE] = "rdma_rxe",
						  [MODULE_SIW] = "siw",
						  [MODULE_UCM] = "rdma_ucm",
						  [MODULE_UVERBS] = "ib_uverbs"};

/* The next entry of @folder, hidden ones apart. */
static const char *next_entry(DIR *folder)
{
	struct dirent *entry;

	do
		entry = readdir(folder);
	while (entry && entry->d_name[0] == '.');
	return entry ? entry->d_name : NULL;
}

static void find_kernel_devices(struct machine *machine)
{
	struct kernel *kernel = &machine->kernel;
	DIR *folder = opendir(root_path(machine, "/sys/class/infiniband").text);
	const char *name;

	if (!folder)
		return;
	while (kernel->device_count < MAX_DEVICES && (name = next_entry(folder)))
		snprintf(kernel->devices[kernel->device_count++], DEVICE_NAME, "%.*s",
			 DEVICE_NAME - 1, name);
	closedir(folder);
}

/* ---- /dev/infiniband ---- */

static void add_node(struct machine *machine, const char *name)
{
	struct kernel *kernel = &machine->kernel;
	struct node *node = &kernel->nodes[kernel->node_count];
	struct path path = root_path(machine, "/dev/infiniband/%s", name);
	const struct group *group;
	struct stat status;
	int fd;

	if (kernel->node_count == MAX_NODES)
		return;
	kernel->node_count++;
	snprintf(node->name, sizeof(node->name), "%s", name);
	fd = open(path.text, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	node->error = fd < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	if (stat(path.text, &status))
		return;
	group = getgrgid(status.st_gid);
	snprintf(node->group, sizeof(node->group), "%s", group ? group->gr_name : "");
	node->group_may_write = status.st_gid && (status.st_mode & 0060) == 0060;
}

/* Those that the kernel's devices need. */
static void find_nodes(struct machine *machine)
{
	DIR *folder = opendir(root_path(machine, "/sys/class/infiniband_verbs").text);
	const char *name;

	if (machine->kernel.device_count || path_exists(root_path(machine, "/dev/infiniband")))
		add_node(machine, "rdma_cm");
	if (!folder)
		return;
	while ((name = next_entry(folder)))
		if (!strncmp(name, "uverbs", strlen("uverbs")))
			add_node(machine, name);
	closedir(folder);
}

/* ---- modules ---- */

static bool is_listed(const struct machine *machine, const char *list, const char *module)
{
	char file[64];

	snprintf(file, sizeof(file), "/%s.ko", module);
	return path_has_text(
		root_path(machine, "/lib/modules/%s/%s", machine->kernel.release, list), file);
}

static enum module_state find_module(const struct machine *machine, const char *module)
{
	if (is_listed(machine, "modules.builtin", module))
		return MODULE_BUILT_IN;
	if (path_exists(root_path(machine, "/sys/module/%s", module)))
		return MODULE_LOADED;
	return is_listed(machine, "modules.dep", module) ? MODULE_AVAILABLE : MODULE_ABSENT;
}

static void find_modules(struct machine *machine)
{
	struct kernel *kernel = &machine->kernel;
	struct utsname name;

	if (!path_read(root_path(machine, "/proc/sys/kernel/osrelease"), kernel->release,
		       sizeof(kernel->release)) &&
	    !uname(&name))
		snprintf(kernel->release, sizeof(kernel->release), "%.63s", name.release);
	kernel->has_modules_folder =
		path_exists(root_path(machine, "/lib/modules/%s", kernel->release));
	for (unsigned i = 0; i < MODULES; i++)
		kernel->modules[i] = find_module(machine, module_files[i]);
}

static void find_firewall(struct machine *machine)
{
	struct kernel *kernel = &machine->kernel;

	kernel->nf_tables = path_exists(root_path(machine, "/sys/module/nf_tables"));
	kernel->ip_tables = path_exists(root_path(machine, "/sys/module/ip_tables"));
	kernel->firewalld = path_exists(root_path(machine, "/run/firewalld"));
	kernel->ufw = path_has_text(root_path(machine, "/etc/ufw/ufw.conf"), "ENABLED=yes");
}

void find_kernel(struct machine *machine)
{
	find_kernel_devices(machine);
	find_nodes(machine);
	find_modules(machine);
	find_firewall(machine);
}
