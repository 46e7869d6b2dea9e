/* SPDX-License-Identifier: MIT */
/*
 * Lines on stderr for the user of a library: SOFTRDMA_LOG, IBMSG_LOG=error|warn|info|debug, warn
 * unless told. IBMSG_LOG=original: the lines of the original ibmsg, warnings and errors, each
 * behind "LOG: ".
 */
#ifndef IBMSG_COMMON_LOG_H
#define IBMSG_COMMON_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* A bit for each level that is wanted; none are known until somebody asks. */
extern unsigned log_levels __attribute__((visibility("hidden")));
unsigned log_read_levels(void);

static inline bool log_is_on(enum log_level level)
{
	unsigned levels = __atomic_load_n(&log_levels, __ATOMIC_ACQUIRE);

	return (levels ? levels : log_read_levels()) & 1u << level;
}

/*
 * One line, one write(2); errno is left as it was. The function that decides an error logs it,
 * once.
 */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if (log_is_on(level))                                                              \
			log_line(level, __VA_ARGS__);                                              \
	} while (0)

#endif
