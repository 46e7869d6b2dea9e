/* SPDX-License-Identifier: MIT */
/* What this process may do: capabilities, limits, sockets. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "root.h"

static uint64_t find_hex(const struct machine *machine, const char *name)
{
	char text[64];

	return path_find_line(root_path(machine, "/proc/self/status"), name, text, sizeof(text))
		       ? strtoull(text, NULL, 16)
		       : 0;
}

static uint64_t parse_limit(char **text)
{
	while (**text == ' ')
		(*text)++;
	if (!strncmp(*text, "unlimited", strlen("unlimited"))) {
		*text += strlen("unlimited");
		return UNLIMITED;
	}
	return strtoull(*text, text, 10);
}

static void find_memlock(const struct machine *machine, struct process *process)
{
	char line[256], *at = line;

	process->memlock = process->memlock_max = UNLIMITED;
	if (!path_find_line(root_path(machine, "/proc/self/limits"), "Max locked memory", line,
			    sizeof(line)))
		return;
	process->memlock = parse_limit(&at);
	process->memlock_max = parse_limit(&at);
}

/* Protocol 0: it hears nothing. */
static int try_socket(int family)
{
	int fd = socket(family, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

void find_process(struct machine *machine)
{
	struct process *process = &machine->process;

	process->is_root = geteuid() == 0;
	process->capabilities = find_hex(machine, "CapEff:");
	process->bounding_set = find_hex(machine, "CapBnd:");
	process->seccomp = find_hex(machine, "Seccomp:") == 2;
	find_memlock(machine, process);
	process->raw_error = try_socket(AF_PACKET);
	process->xdp_error = try_socket(AF_XDP);
}
