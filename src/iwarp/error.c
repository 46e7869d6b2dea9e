/* SPDX-License-Identifier: MIT */
/* What went wrong, in words: one text for each thread. */
#include <stdarg.h>
#include <stdio.h>

#include "../common/log.h"
#include "internal.h"

static __thread char text[256];

void error_put(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_info("%s", text);
}

const char *iw_error_text(void)
{
	return text;
}
