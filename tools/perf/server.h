/* SPDX-License-Identifier: MIT */
/* The server: it answers as hello.h says, until a signal ends it. */
#ifndef PERF_SERVER_H
#define PERF_SERVER_H

#include "options.h"

/* Returns the exit status. */
int server_run(const struct options *options);

#endif
