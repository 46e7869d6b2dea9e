/* SPDX-License-Identifier: MIT */
/*
 * A thread of the program's that uses synchronous ids: its calls block until the peer has answered,
 * while the input goes on.
 */
#ifndef FUZZ_CM_SYNC_H
#define FUZZ_CM_SYNC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Connect to @to, as @how says. */
void sync_connect(const struct sockaddr_storage *to, uint8_t how);
/* Listen at @at, and answer as @how says until the honest peer comes. Returns the port. */
uint16_t sync_listen(const struct sockaddr_storage *at, uint8_t how);
bool sync_is_running(void);
/* Until the thread has found no descriptor, or for a moment. */
void sync_await_lack(void);
/* Waits for the end of the thread. Peers must be gone, or have come. */
void sync_await(void);

#endif
