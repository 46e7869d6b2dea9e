/* SPDX-License-Identifier: MIT */
/*
 * Where received bytes go: standard output, a device or pipe, or a file that gets its name only
 * when all of it is there.
 */
#ifndef IBMSG_TOOLS_OUTPUT_H
#define IBMSG_TOOLS_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct output {
	int fd;
	bool aside;           /* written without its final name */
	char final[PATH_MAX]; /* its name; also for complaints */
	char part[PATH_MAX];  /* the name meanwhile; "" if it has none */
};

/* Whether a file could be made there: 0, or -errno. */
int output_check(const char *path);
/* @path "-": standard output; a folder: the file @name in it. 0, or -errno and nothing is open. */
int output_open(struct output *output, const char *path, const char *name);
/* 0, or -errno; -EINTR if a signal came while it waited. */
int output_write(const struct output *output, const void *data, size_t len);
/* The file gets its name, in place of what had it. 0, or -errno and it is gone. */
int output_commit(struct output *output);
void output_discard(struct output *output);

#endif
