/* SPDX-License-Identifier: MIT */
/*
 * The process-wide locks of the device, in the order in which they are taken. Locks of objects
 * (queue pairs, CQs, channels) are not among them: a child does not use those of its parent.
 */
#ifndef SOFTRDMA_FORK_ORDER_H
#define SOFTRDMA_FORK_ORDER_H

#include "../common/fork.h"

enum fork_order {
	FORK_RAW,         /* raw/raw.c: rules and back ends */
	FORK_PROGRESS,    /* progress/: start, CM set, DATA set, timers and work, sources */
	FORK_MEETINGS,    /* meet/: has no lock of its own, but the CM set's */
	FORK_CM,          /* cm/channel.c: acknowledgements */
	FORK_DEVICE_LIST, /* interpose/device_list.c */
	FORK_DEVICES,     /* verbs/device.c: devices and contexts */
	FORK_QPS,         /* verbs/qp.c: queue pairs by number */
	FORK_DEFERRED,    /* verbs/deferred.c: queue pairs that have something to send */
	FORK_SHM_REGIONS, /* shm/regions.c: what peers may copy */
	FORK_REGIONS,     /* verbs/region.c: regions by key */
};

#endif
