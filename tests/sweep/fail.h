/* SPDX-License-Identifier: MIT */
/*
 * Calls of a library, one of which fails: for a copy of it that is linked with --wrap, so that its
 * own calls come here and nobody else's do. Include this behind CALLS(X), the list of X(name,
 * errno). FAIL_CALL=NAME:N[:ERRNO]  the N-th call of NAME fails once, with that number or its own
 *   FAIL_COUNTS=FILE          how often each was called, appended at the end
 */
#ifndef SWEEP_FAIL_H
#define SWEEP_FAIL_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AS_NUMBER(name, error) CALL_##name,
enum call { CALLS(AS_NUMBER) CALL_COUNT };

#define AS_ENTRY(name, error) {#name, error, 0},
static struct {
	const char *name;
	int error;
	atomic_uint count;
} calls[] = {CALLS(AS_ENTRY)};

static unsigned chosen = CALL_COUNT; /* none */
static unsigned chosen_at;

/* The program's, if it has one: told when the call has failed. */
__attribute__((weak, visibility("default"))) void sweep_failed(void);

__attribute__((constructor)) static void read_environment(void)
{
	const char *text = getenv("FAIL_CALL");
	const char *colon = text ? strchr(text, ':') : NULL;
	char *rest;

	for (unsigned i = 0; colon && i < CALL_COUNT; i++) {
		if (strlen(calls[i].name) != (size_t)(colon - text) ||
		    strncmp(calls[i].name, text, (size_t)(colon - text)) != 0)
			continue;
		chosen_at = (unsigned)strtoul(colon + 1, &rest, 10);
		if (*rest == ':')
			calls[i].error = atoi(rest + 1);
		chosen = i;
	}
	if (text && chosen == CALL_COUNT) {
		fprintf(stderr, "FAIL_CALL=%s: no such call\n", text);
		_Exit(2);
	}
}

__attribute__((destructor)) static void write_counts(void)
{
	const char *path = getenv("FAIL_COUNTS");
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	for (unsigned i = 0; i < CALL_COUNT; i++)
		fprintf(file, "%s %u\n", calls[i].name, atomic_load(&calls[i].count));
	fclose(file);
}

/* Whether this call is the one; then errno is set. */
static bool fails(enum call call)
{
	unsigned n = atomic_fetch_add(&calls[call].count, 1) + 1;

	if (call != chosen || n != chosen_at)
		return false;
	if (sweep_failed)
		sweep_failed();
	errno = calls[call].error;
	return true;
}

/* A wrapper that returns @failure, its parameters and their names in parentheses. */
#define WRAP(type, name, failure, parameters, arguments)                                           \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		if (fails(CALL_##name))                                                            \
			return failure;                                                            \
		return __real_##name arguments;                                                    \
	}

#endif
