/* SPDX-License-Identifier: MIT */
/* What the kernel says of a network interface. */
#ifndef SOFTRDMA_RAW_INTERFACE_H
#define SOFTRDMA_RAW_INTERFACE_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

struct raw_interface {
	unsigned index;
	char name[IF_NAMESIZE];
	uint8_t mac[6];
	unsigned mtu;
	unsigned num_queues; /* that receive */
	bool strips_tags;    /* VLAN tags are taken out of frames before XDP sees them */
	bool is_virtual;     /* veth: its frames are the kernel's own buffers from the start */
};

/* -EOPNOTSUPP: its frames are not Ethernet's. */
int interface_look_up(struct raw_interface *iface, unsigned index, const char *name);

#endif
