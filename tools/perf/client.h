/* SPDX-License-Identifier: MIT */
/* The client: runs the tests, and shows the results. */
#ifndef PERF_CLIENT_H
#define PERF_CLIENT_H

#include "options.h"

/* Returns the exit status. */
int client_run(const struct options *options);

#endif
