/* SPDX-License-Identifier: MIT */
/*
 * The memory that the two ends of one connection share: a part for what each says of itself, and
 * a ring in each direction. Both can write all of it. Nobody believes what it finds here: own
 * indices are kept elsewhere, and the peer's are checked.
 */
#ifndef SOFTRDMA_SHM_AREA_H
#define SOFTRDMA_SHM_AREA_H

#include <sys/uio.h>

#include "ring.h"

/*
 * The one piece of the peer's memory that an end is about to copy from or to. The vector is what
 * the system call is given: the owner of that memory, when it has waited long enough for a copier
 * that was stopped, makes it empty, and the copy that comes too late finds nothing to do.
 */
struct area_hold {
	_Atomic uint32_t key; /* 0: no copy is in flight */
	struct iovec remote;
};

/* Written by its end alone, but where it says so. Lines that change often lie apart. */
struct area_side {
	_Atomic uint32_t consumed; /* cells read of the peer's ring */
	_Atomic uint32_t placed;   /* cells whose frames have taken effect */
	uint8_t apart[120];
	_Atomic uint32_t asleep;     /* "ring when there is something"; cleared by who rings */
	_Atomic uint32_t wants_room; /* it found the ring that it writes full */
	_Atomic uint32_t domain;     /* of its queue pair; 0: it may not be copied from or to */
	_Atomic uint32_t may_copy;   /* it can read the peer's memory */
	uint8_t apart_too[112];
	struct area_hold hold; /* emptied by the peer */
	uint8_t apart_as_well[104];
};
_Static_assert(sizeof(struct area_side) == 3ul * 128, "parts begin at lines of their own");

enum area_end { AREA_INITIATOR, AREA_RESPONDER };

struct area {
	struct area_side side[2];
	uint8_t rest_of_page[4096 - 2 * sizeof(struct area_side)];
	uint8_t ring[2][RING_BYTES]; /* by who writes it */
};
_Static_assert(sizeof(struct area) % 4096 == 0, "whole pages");

#endif
