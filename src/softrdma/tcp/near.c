/* SPDX-License-Identifier: MIT */
#include "near.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "../tuning.h"

static bool is_loopback(in_addr_t address)
{
	return ntohl(address) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

bool near_is(const struct sockaddr *own, const struct sockaddr *peer)
{
	if (own->sa_family != peer->sa_family)
		return false;
	if (peer->sa_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)own)->sin6_addr,
					  &((const struct sockaddr_in6 *)peer)->sin6_addr);
	if (peer->sa_family == AF_INET) {
		in_addr_t from = ((const struct sockaddr_in *)own)->sin_addr.s_addr;
		in_addr_t to = ((const struct sockaddr_in *)peer)->sin_addr.s_addr;

		return from == to || is_loopback(from) || is_loopback(to);
	}
	return false;
}

static bool has_near_peer(int fd)
{
	struct sockaddr_storage own = {0}, peer = {0};
	socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

	return !getsockname(fd, (struct sockaddr *)&own, &own_len) &&
	       !getpeername(fd, (struct sockaddr *)&peer, &peer_len) &&
	       near_is((struct sockaddr *)&own, (struct sockaddr *)&peer);
}

static void set_queue(int fd)
{
	const int bytes = TCP_NEAR_QUEUE_BYTES;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

/*
 * A queue whose length was set does not grow any more, and one that is much shorter, where the
 * kernel allows no longer ones, is worse than one that is too long. So another socket is asked.
 */
static bool is_allowed(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = 0;
	socklen_t len = sizeof(bytes);

	if (fd < 0)
		return false;
	set_queue(fd);
	getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len);
	close(fd);
	return bytes >= 2 * TCP_NEAR_QUEUE_BYTES;
}

void near_shorten_queue(int fd)
{
	if (has_near_peer(fd) && is_allowed())
		set_queue(fd);
}
