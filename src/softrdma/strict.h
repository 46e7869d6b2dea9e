/* SPDX-License-Identifier: MIT */
/*
 * SOFTRDMA_STRICT=1: behave as iWARP hardware would where the software device is kinder, and name
 * the fault, so that programs are ready for hardware.
 */
#ifndef SOFTRDMA_STRICT_H
#define SOFTRDMA_STRICT_H

#include <stdbool.h>

#include "settings.h"

static inline bool is_strict(void)
{
	return settings()->strict;
}

#endif
