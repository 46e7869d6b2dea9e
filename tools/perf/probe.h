/* SPDX-License-Identifier: MIT */
/* A first connection: who is there, and by which device. */
#ifndef PERF_PROBE_H
#define PERF_PROBE_H

#include "../common/address.h"
#include "options.h"

struct probe {
	char device[DEVICE_NAME];
	unsigned server_threads;
};

/* False, and it has been said why, if there is no server to measure with. */
bool probe_server(const struct options *options, struct probe *probe);

#endif
