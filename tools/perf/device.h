/* SPDX-License-Identifier: MIT */
/* --device: the RDMA device by its name. */
#ifndef PERF_DEVICE_H
#define PERF_DEVICE_H

#include "../common/address.h"

/*
 * An address of this host that @device serves, for a server to listen at; @wanted, unless it is
 * NULL. Leaves with an explanation if there is none.
 */
void device_choose_address(const char *device, const char *wanted, char out[static ADDRESS_TEXT]);

/* Leaves with an explanation: a connection to @address uses @used, not @wanted. */
void device_explain(const char *wanted, const char *used, const char *address)
	__attribute__((noreturn));

#endif
