/* SPDX-License-Identifier: MIT */
/* What the peer is told of a fault that its request met. */
#ifndef SOFTRDMA_FAULT_H
#define SOFTRDMA_FAULT_H

#include "rc.h"
#include "wire/terminate.h"

static inline uint16_t write_fault(enum rc_fault fault)
{
	switch (fault) {
	case RC_FAULT_BOUNDS:
		return TERM_DDP_BOUNDS;
	case RC_FAULT_PD:
		return TERM_DDP_FOREIGN_STAG;
	case RC_FAULT_WRAP:
		return TERM_DDP_TO_WRAP;
	default:
		return TERM_DDP_INVALID_STAG; /* DDP has no code for missing rights: as siw */
	}
}

static inline uint16_t read_fault(enum rc_fault fault)
{
	switch (fault) {
	case RC_FAULT_BOUNDS:
		return TERM_RDMAP_BOUNDS;
	case RC_FAULT_PD:
		return TERM_RDMAP_FOREIGN_STAG;
	case RC_FAULT_WRAP:
		return TERM_RDMAP_TO_WRAP;
	case RC_FAULT_ACCESS:
		return TERM_RDMAP_ACCESS;
	default:
		return TERM_RDMAP_INVALID_STAG;
	}
}

/* A message that its receive does not take: see rc_recv_check. */
static inline uint16_t recv_fault(enum ibv_wc_status status)
{
	return status == IBV_WC_LOC_LEN_ERR ? TERM_DDP_TOO_LONG : TERM_DDP_LOCAL;
}

#endif
