/* SPDX-License-Identifier: MIT */
/* Connections by ibmsg, tried for real. */
#ifndef DOCTOR_TRY_H
#define DOCTOR_TRY_H

#include <stdint.h>

#include "../common/address.h"

#define TRY_SECONDS 5

/*
 * Connect to @host and close. Returns IBMSG_OK with the device that was used, or an error of ibmsg.
 */
int try_connect(const char *host, unsigned short port, char device[static DEVICE_NAME]);

/* Listen at @address, connect to it, send one message. Likewise. */
int try_self(const char *address, char device[static DEVICE_NAME]);

#endif
