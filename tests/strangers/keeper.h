/* SPDX-License-Identifier: MIT */
/*
 * A process that keeps memory, in the namespaces of the test or in some of its own. It makes Unix
 * sockets and hands them to the test, which does the talking: SO_PEERCRED names the process that
 * called listen() or connect(), so the side takes the keeper for its peer.
 *
 * One of its two pages may be blocked: it is registered with userfaultfd and missing, so whoever
 * touches it waits in the kernel. If somebody does, the keeper gives the page after a while, so
 * that a test that fails comes to its end.
 */
#ifndef STRANGERS_KEEPER_H
#define STRANGERS_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KEEPER_PAGE  65536u /* whole pages, however large they are */
#define KEEPER_VALUE 0x31   /* what each byte holds of a page that is not blocked */

struct keeper {
	int fd;         /* for commands */
	uint64_t plain; /* the address of a page in its memory */
	uint64_t other; /* of the one that may be blocked */
};

/*
 * For main(), before it has threads. @namespaces: CLONE_NEWPID, CLONE_NEWUSER, or 0. Returns NULL,
 * or what is not permitted here; errno says why. The keeper dies with its parent.
 */
const char *keeper_start(struct keeper *keeper, int namespaces, bool blocked);

/* unix_listen and unix_connect, by the keeper. */
int keeper_listen(const struct keeper *keeper, int tcp_fd);
int keeper_connect(const struct keeper *keeper, int tcp_fd);

/* Has somebody touched the blocked page since this was last asked? It is missing again then. */
bool keeper_was_touched(const struct keeper *keeper);

#endif
