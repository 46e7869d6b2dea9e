/* SPDX-License-Identifier: MIT */
/*
 * What the software device counts for a raw packet queue pair and verbs have no call for: for this
 * project's libraries. On hardware such counters are files below /sys/class/infiniband.
 */
#ifndef SOFTRDMA_INTERPOSE_COUNTERS_H
#define SOFTRDMA_INTERPOSE_COUNTERS_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct softrdma_raw_counters {
	uint64_t received;  /* frames that went into a receive */
	uint64_t dropped;   /* by the kernel: nobody fetched them in time */
	uint64_t no_buffer; /* the same, while no receive was posted */
};

/* 0, or EOPNOTSUPP: not a raw packet queue pair of the software device. */
int softrdma_raw_counters(struct ibv_qp *qp, struct softrdma_raw_counters *counters);

#endif
