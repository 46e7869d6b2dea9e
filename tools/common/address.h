/* SPDX-License-Identifier: MIT */
/* Addresses of this host, and the RDMA devices that serve them. */
#ifndef TOOLS_ADDRESS_H
#define TOOLS_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>

#define ADDRESS_TEXT 64
#define DEVICE_NAME  64

/* As a number, with its scope if it has one, without a port. Returns @text. */
const char *address_to_text(const struct sockaddr *address, char text[static ADDRESS_TEXT]);

/*
 * The device that a connection from @address, one of this host, would use: asked of the connection
 * manager, so it holds for hardware and for the software device. Returns 0 or -errno, -ENODEV if
 * there is none.
 */
int address_get_device(const struct sockaddr *address, char device[static DEVICE_NAME]);

#endif
