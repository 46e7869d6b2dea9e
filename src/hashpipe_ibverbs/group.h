/* SPDX-License-Identifier: MIT */
/* Membership of multicast groups: the kernel does IGMP and MLD for sockets that join. */
#ifndef HASHPIPE_IBVERBS_GROUP_H
#define HASHPIPE_IBVERBS_GROUP_H

#include <stdbool.h>
#include <stdint.h>

struct group {
	int family;          /* AF_INET, AF_INET6; 0: none */
	uint8_t address[16]; /* network order */
};

struct group_member {
	struct group group;
	unsigned users;
	int fd; /* of the socket that has joined */
};

struct group_socket {
	int fd, family;
};

/* The memberships of one interface. Whoever embeds it guards it. */
struct group_sockets {
	unsigned ifindex;
	struct group_socket *sockets; /* a socket joins a limited number of groups: there may be
					 several */
	unsigned num_sockets;
	struct group_member *members;
	unsigned num_members;
};

/* With a first IPv4 socket, whose descriptor is in *@fd. */
int group_open(struct group_sockets *groups, unsigned ifindex, int *fd);
void group_close(struct group_sockets *groups);
/* A group that is joined twice is left twice. 0 or -errno; a group of family 0 is none. */
int group_join(struct group_sockets *groups, const struct group *group);
void group_leave(struct group_sockets *groups, const struct group *group);

#endif
