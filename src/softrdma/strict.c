/* SPDX-License-Identifier: MIT */
/* Whether SOFTRDMA_STRICT is set; read once. */
#include "strict.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static bool strict;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
	const char *value = getenv("SOFTRDMA_STRICT");

	strict = value && !strcmp(value, "1");
}

bool is_strict(void)
{
	pthread_once(&once, read_environment);
	return strict;
}
