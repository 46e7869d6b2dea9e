/* SPDX-License-Identifier: MIT */
/*
 * The log: which lines are wanted, and how one looks. Each library has its own, by LOG_NAME and
 * LOG_VARIABLE.
 */
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "uncancel.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static bool original; /* the lines as the original ibmsg wrote them; it had no levels */
static pthread_once_t once = PTHREAD_ONCE_INIT;

unsigned log_levels;

static void read_environment(void)
{
	/* Not of a process with more rights than its user: its stderr may be anybody's. */
	const char *wanted = secure_getenv(LOG_VARIABLE);
	enum log_level most = LOG_WARN;
	bool known = !wanted || !*wanted;
	unsigned levels;

	for (unsigned i = 0; !known && i < sizeof(level_names) / sizeof(*level_names); i++) {
		known = !strcmp(wanted, level_names[i]);
		if (known)
			most = (enum log_level)i;
	}
	levels = (2u << most) - 1;
	original = wanted && !strcmp(wanted, "original");
	if (original)
		levels = 1u << LOG_ERROR | 1u << LOG_WARN | 1u << LOG_DEBUG;
	__atomic_store_n(&log_levels, levels, __ATOMIC_RELEASE);
	if (!known && !original)
		log_line(LOG_WARN, "%s=%s: not one of error, warn, info, debug; warn is used",
			 LOG_VARIABLE, wanted);
}

unsigned log_read_levels(void)
{
	pthread_once(&once, read_environment);
	return __atomic_load_n(&log_levels, __ATOMIC_ACQUIRE);
}

/* Returns its length. */
static int put_head(char *line, size_t size, enum log_level level)
{
	if (original)
		return snprintf(line, size, "LOG: ");
	return snprintf(line, size, LOG_NAME "[%d] %s: ", (int)getpid(), level_names[level]);
}

void log_line(enum log_level level, const char *format, ...)
{
	int saved = errno;
	char line[512];
	va_list args;
	int head, body;

	head = put_head(line, sizeof(line), level);
	va_start(args, format);
	body = vsnprintf(line + head, sizeof(line) - (size_t)head, format, args);
	va_end(args);
	if (body >= 0) {
		size_t len = (size_t)head + (size_t)body;

		if (len > sizeof(line) - 1)
			len = sizeof(line) - 1;
		line[len] = '\n'; /* in place of the NUL: the line goes out in one piece */
		UNCANCELLABLE;    /* whoever says something may hold a lock */
		if (write(STDERR_FILENO, line, len + 1) < 0)
			errno = 0; /* nowhere to say so */
	}
	errno = saved;
}
