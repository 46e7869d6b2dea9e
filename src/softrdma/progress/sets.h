/* SPDX-License-Identifier: MIT */
/* The two sets behind progress.h: each is an epoll instance and a lock. */
#ifndef SOFTRDMA_PROGRESS_SETS_H
#define SOFTRDMA_PROGRESS_SETS_H

#include <sys/epoll.h>

#include "progress.h"

int sets_open(void); /* 0 or -errno; after a failure too sets_close is due */
void sets_close(void);

/* Readable: a source of @set is ready. */
int sets_fd(enum progress_set set);
/* Whether the lock of @set was free, and is held now. */
bool sets_trylock(enum progress_set set);
/* As epoll_ctl; 0 or -errno. */
int sets_control(enum progress_set set, int operation, int fd, struct epoll_event *event);
/* What is ready now, without waiting: at most @most. How many. */
int sets_poll(enum progress_set set, struct epoll_event *events, int most);

#endif
