/* SPDX-License-Identifier: MIT */
/* A side that connects to a stranger, and offers to share memory. */
#ifndef STRANGERS_VISIT_H
#define STRANGERS_VISIT_H

#include "house.h"

struct visit {
	int listener;
	struct stranger stranger;
	struct side side;
	struct mpa_frame request;
	uint8_t request_bytes[MPA_MAX_FRAME];
};

/* The side's request has come, with the offer. One receive of 64 bytes is posted. */
void visit_open(struct visit *visit);
/* Accept it. @shm: the reply says that the stranger has been at the side's Unix socket. */
void visit_say_reply(struct visit *visit, bool shm);
/* The same, and the side is connected. */
void visit_reply(struct visit *visit, bool shm);
void visit_close(struct visit *visit);

#endif
