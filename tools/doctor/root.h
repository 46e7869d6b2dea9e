/* SPDX-License-Identifier: MIT */
/* Small files of /proc, /sys and /dev, under the machine's root. */
#ifndef DOCTOR_ROOT_H
#define DOCTOR_ROOT_H

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "machine.h"

struct path {
	char text[PATH_MAX];
};

struct path root_path(const struct machine *machine, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

bool path_exists(struct path path);
/* The first @size - 1 bytes at most, without a newline at the end. False if it cannot be read. */
bool path_read(struct path path, char *out, size_t size);
/* Whether a line of the file contains @text. */
bool path_has_text(struct path path, const char *text);
/*
 * What follows @prefix in the first line that begins with it, without blanks around it. False if
 * there is none.
 */
bool path_find_line(struct path path, const char *prefix, char *out, size_t size);

#endif
