/* SPDX-License-Identifier: MIT */
/* ibmsg-perf: latency, message rate and bandwidth between two processes or hosts. */
#include <sys/resource.h>

#include "client.h"
#include "server.h"

/* A connection takes descriptors, and the usual limit is far below what is allowed. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
	struct options options;

	options_parse(&options, argc, argv);
	allow_descriptors();
	return options.server ? server_run(&options) : client_run(&options);
}
