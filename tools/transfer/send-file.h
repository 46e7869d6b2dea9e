/* SPDX-License-Identifier: MIT */
/* The sending end of one transfer (transfer.h). */
#ifndef IBMSG_TOOLS_SEND_FILE_H
#define IBMSG_TOOLS_SEND_FILE_H

#include <stdbool.h>

#include <ibmsg.h>

/* Connects, sends @path ("-": standard input), waits for the confirmation. Returns the exit status.
 */
int send_file(ibmsg_event_loop *loop, const char *host, unsigned short port, const char *path,
	      bool quiet);

#endif
