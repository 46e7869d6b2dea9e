/* SPDX-License-Identifier: MIT */
/*
 * What a messaging library does for a pair of programs that wait in its calls. A program has one
 * file with these functions; each leaves by die() when it cannot. Connections count from 0.
 */
#ifndef BENCH_BLOCKING_PAIR_H
#define BENCH_BLOCKING_PAIR_H

#include "bench.h"

/* Messages that may wait in a queue, so that long ones do not fill the memory. */
unsigned messenger_depth(const struct options *options);

/*
 * @many: further connections will come; who asks over one of them is answered by receive and send
 * at connection 0 of the server.
 */
void messenger_listen(const struct options *options, bool many);
void messenger_connect(const struct options *options, unsigned connection, bool many);

void messenger_send(unsigned connection, size_t size);
/* A message, whose contents are not looked at. */
void messenger_receive(unsigned connection);

/* What was sent has arrived afterwards. */
void messenger_close(void);

#endif
