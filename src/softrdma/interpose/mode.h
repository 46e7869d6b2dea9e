/* SPDX-License-Identifier: MIT */
/* System or software: where the connections of this process go, decided once. */
#ifndef SOFTRDMA_INTERPOSE_MODE_H
#define SOFTRDMA_INTERPOSE_MODE_H

#include <stdbool.h>

/*
 * Whether this process's connections (all rdma_* calls) go to the software device. The first call
 * may open the system's devices to find out.
 */
bool mode_is_software(void);

/*
 * The software device is going to be used: warn, once, if the program's own calls to standard names
 * would go past it to the system's libraries.
 */
void mode_warn_if_bypassed(void);

#endif
