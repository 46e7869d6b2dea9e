/* SPDX-License-Identifier: MIT */
/* Membership of multicast groups. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../common/log.h"
#include "group.h"

/* One more element for an array. NULL: no memory, and the array is as it was. */
static void *grow(void *array, unsigned count, size_t size)
{
	return reallocarray(array, (size_t)count + 1, size);
}

static int add_socket(struct group_sockets *groups, int family)
{
	struct group_socket *sockets = grow(groups->sockets, groups->num_sockets, sizeof(*sockets));
	int fd;

	if (!sockets)
		return -ENOMEM;
	groups->sockets = sockets;
	fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	sockets[groups->num_sockets++] = (struct group_socket){.fd = fd, .family = family};
	return fd;
}

int group_open(struct group_sockets *groups, unsigned ifindex, int *fd)
{
	int result;

	*groups = (struct group_sockets){.ifindex = ifindex};
	result = add_socket(groups, AF_INET);
	if (result < 0)
		return result;
	*fd = result;
	return 0;
}

void group_close(struct group_sockets *groups)
{
	for (unsigned i = 0; i < groups->num_sockets; i++)
		close(groups->sockets[i].fd);
	free(groups->sockets);
	free(groups->members);
	*groups = (struct group_sockets){0};
}

static bool is_same(const struct group *one, const struct group *other)
{
	return one->family == other->family && !memcmp(one->address, other->address, 16);
}

static struct group_member *find_member(const struct group_sockets *groups,
					const struct group *group)
{
	for (unsigned i = 0; i < groups->num_members; i++)
		if (is_same(&groups->members[i].group, group))
			return &groups->members[i];
	return NULL;
}

static int set_membership(int fd, unsigned ifindex, const struct group *group, bool joins)
{
	int result;

	if (group->family == AF_INET6) {
		struct ipv6_mreq request = {.ipv6mr_interface = ifindex};

		memcpy(&request.ipv6mr_multiaddr, group->address, 16);
		result = setsockopt(fd, IPPROTO_IPV6, joins ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP,
				    &request, sizeof(request));
	} else {
		struct ip_mreqn request = {.imr_ifindex = (int)ifindex};

		memcpy(&request.imr_multiaddr, group->address, 4);
		result = setsockopt(fd, IPPROTO_IP, joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP,
				    &request, sizeof(request));
	}
	return result ? -errno : 0;
}

/* By the first socket that has room, or by a new one. Its descriptor, or -errno. */
static int join_by_any(struct group_sockets *groups, const struct group *group)
{
	int fd, result;

	for (unsigned i = 0; i < groups->num_sockets; i++) {
		if (groups->sockets[i].family != group->family)
			continue;
		result = set_membership(groups->sockets[i].fd, groups->ifindex, group, true);
		if (!result)
			return groups->sockets[i].fd;
		if (result != -ENOBUFS && result != -ENOMEM)
			return result;
	}
	fd = add_socket(groups, group->family);
	if (fd < 0)
		return fd;
	result = set_membership(fd, groups->ifindex, group, true);
	return result ? result : fd;
}

int group_join(struct group_sockets *groups, const struct group *group)
{
	struct group_member *member, *members;
	int fd;

	if (!group->family)
		return 0;
	member = find_member(groups, group);
	if (member) {
		member->users++;
		return 0;
	}
	members = grow(groups->members, groups->num_members, sizeof(*members));
	if (!members)
		return -ENOMEM;
	groups->members = members;
	fd = join_by_any(groups, group);
	if (fd < 0) {
		log_error("the multicast group cannot be joined: %s", strerror(-fd));
		return fd;
	}
	members[groups->num_members++] =
		(struct group_member){.group = *group, .users = 1, .fd = fd};
	return 0;
}

void group_leave(struct group_sockets *groups, const struct group *group)
{
	struct group_member *member;
	int result;

	if (!group->family)
		return;
	member = find_member(groups, group);
	if (!member || --member->users)
		return;
	result = set_membership(member->fd, groups->ifindex, group, false);
	if (result)
		log_warn("a multicast group could not be left: %s", strerror(-result));
	*member = groups->members[--groups->num_members];
}
