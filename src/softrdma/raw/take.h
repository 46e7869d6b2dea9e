/* SPDX-License-Identifier: MIT */
/*
 * Taking frames away from the kernel, for the back ends that only get copies: a TCX program, which
 * runs behind the packet sockets, drops what NORMAL rules match. It ends with the process.
 */
#ifndef SOFTRDMA_RAW_TAKE_H
#define SOFTRDMA_RAW_TAKE_H

#include "rx.h"

struct raw_take {
	int link; /* -1: nothing is taken away */
};

/* Whether frames of the interface could be taken away: by the kernel's age, and by right. */
bool take_is_possible(const struct raw_interface *iface);

void take_init(struct raw_take *take);
/* What cannot be taken away is delivered as a copy, and the log says so, once. */
void take_set_rules(struct raw_take *take, const struct raw_interface *iface,
		    const struct raw_rules *rules);
void take_fini(struct raw_take *take);

#endif
