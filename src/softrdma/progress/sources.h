/* SPDX-License-Identifier: MIT */
/* The descriptors behind progress.h: two epoll sets, and what is lent to pollers. */
#ifndef SOFTRDMA_PROGRESS_SOURCES_H
#define SOFTRDMA_PROGRESS_SOURCES_H

#include "progress.h"

int sources_open(void); /* 0 or -errno */
void sources_close(void);
/* Readable: a source of @set is ready. */
int sources_fd(enum progress_set set);

bool progress_trylock(enum progress_set set);
/* Run the callbacks of what is ready in @set; its lock is held. Whether there was any. */
bool sources_dispatch(enum progress_set set);
/* Is there something ready in DATA that no poller had in hand since the last call? */
bool sources_lie_unread(void);

/*
 * Stop watching a DATA source if @may, asked once everybody who takes back sees that it is about to
 * be lent.
 */
void sources_lend(struct progress_source *source, bool (*may)(void));
/* Is there no DATA source to be looked at but those that are lent? A hint. */
bool sources_are_quiet(void);
/* Watch again what is lent: all, or what nobody looked at since the last call. */
void sources_take_back(bool all);

/* Around a fork, beside the locks of both sets. */
void sources_freeze(void);
void sources_thaw(void);
/* In the child, frozen: close every descriptor. */
void sources_let_go(void);

#endif
