/* SPDX-License-Identifier: MIT */
/* The way of a packet, as the kernel's routing table has it. */
#ifndef TOOLS_PACKET_ROUTE_H
#define TOOLS_PACKET_ROUTE_H

#include <net/if.h>
#include <netinet/in.h>

struct route {
	char ifname[IF_NAMESIZE];
	struct in_addr source;   /* the address to send from */
	struct in_addr next_hop; /* whom to hand it to: the destination, or a gateway */
};

/*
 * The route to @to, by way of @ifname unless that is NULL. 0 or -errno: -ENETUNREACH, -ENODEV;
 * -EADDRINUSE: it is an address of this host.
 */
int route_find(struct in_addr to, const char *ifname, struct route *out);

/* 0: not known. */
unsigned route_mtu(const char *ifname);

#endif
