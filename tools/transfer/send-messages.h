/* SPDX-License-Identifier: MIT */
/* Bare messages, as the original ibmsg-send sent one. */
#ifndef IBMSG_TOOLS_SEND_MESSAGES_H
#define IBMSG_TOOLS_SEND_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ibmsg.h>

struct messages {
	uint64_t count;
	size_t size;      /* of each */
	const char *text; /* its bytes; NULL: letters */
	bool quiet;       /* not to say how many were sent */
};

/* Connects, sends, closes. Returns the exit status. */
int send_messages(ibmsg_event_loop *loop, char *host, unsigned short port,
		  const struct messages *messages);

#endif
