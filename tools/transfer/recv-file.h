/* SPDX-License-Identifier: MIT */
/* The receiving end of one transfer (transfer.h). */
#ifndef IBMSG_TOOLS_RECV_FILE_H
#define IBMSG_TOOLS_RECV_FILE_H

#include <stdbool.h>

#include <ibmsg.h>

/* Sets the callbacks of @loop: the first sender with a file is served, others are turned away. */
void recv_file_init(ibmsg_event_loop *loop, const char *path, bool quiet);
/* Whether it is over. Draws the progress bar. */
bool recv_file_has_ended(void);
/* Whether bytes are arriving: the bar is to be drawn now and then. */
bool recv_file_is_moving(void);
/* Tell the sender that nothing comes of it. */
void recv_file_give_up(void);
/* The exit status. */
int recv_file_status(void);

#endif
