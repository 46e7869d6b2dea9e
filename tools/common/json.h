/* SPDX-License-Identifier: MIT */
/* JSON text for the programs' --json. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdio.h>

/* @text in quotes. Bytes that are not UTF-8, as a host name may have, become '?'. */
void json_print_string(FILE *out, const char *text);

#endif
