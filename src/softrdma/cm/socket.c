/* SPDX-License-Identifier: MIT */
/* Socket addresses, and TCP sockets as the CM wants them. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../common/log.h"
#include "internal.h"

/* ---- addresses ---- */

socklen_t addr_len(const struct sockaddr *addr)
{
	switch (addr ? addr->sa_family : AF_UNSPEC) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

static const struct sockaddr_in *as_v4(const struct sockaddr *addr)
{
	return (const struct sockaddr_in *)(const void *)addr;
}

static const struct sockaddr_in6 *as_v6(const struct sockaddr *addr)
{
	return (const struct sockaddr_in6 *)(const void *)addr;
}

bool addr_is_any(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return as_v4(addr)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&as_v6(addr)->sin6_addr);
}

bool addr_is_equal(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return as_v4(a)->sin_addr.s_addr == as_v4(b)->sin_addr.s_addr;
	if (!IN6_ARE_ADDR_EQUAL(&as_v6(a)->sin6_addr, &as_v6(b)->sin6_addr))
		return false;
	/* Every interface may have the same link-local address. */
	return !IN6_IS_ADDR_LINKLOCAL(&as_v6(a)->sin6_addr) ||
	       as_v6(a)->sin6_scope_id == as_v6(b)->sin6_scope_id;
}

in_port_t addr_port(const struct sockaddr *addr)
{
	switch (addr->sa_family) {
	case AF_INET:
		return as_v4(addr)->sin_port;
	case AF_INET6:
		return as_v6(addr)->sin6_port;
	default:
		return 0;
	}
}

void addr_set_port(struct sockaddr *addr, in_port_t port)
{
	if (addr->sa_family == AF_INET)
		((struct sockaddr_in *)(void *)addr)->sin_port = port;
	else
		((struct sockaddr_in6 *)(void *)addr)->sin6_port = port;
}

void addr_unmap(struct sockaddr_storage *addr)
{
	const struct sockaddr_in6 *v6 = as_v6((struct sockaddr *)addr);
	struct sockaddr_in v4 = {.sin_family = AF_INET};

	if (addr->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return;
	v4.sin_port = v6->sin6_port;
	memcpy(&v4.sin_addr, &v6->sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
	memset(addr, 0, sizeof(*addr));
	memcpy(addr, &v4, sizeof(v4));
}

void addr_copy(struct sockaddr_storage *to, const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from, addr_len(from));
}

struct addr_text addr_text(const struct sockaddr *addr)
{
	char host[INET6_ADDRSTRLEN] = "?";
	struct addr_text out;

	if (addr->sa_family == AF_INET) {
		inet_ntop(AF_INET, &as_v4(addr)->sin_addr, host, sizeof(host));
		snprintf(out.text, sizeof(out.text), "%s:%u", host, ntohs(addr_port(addr)));
	} else if (addr->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &as_v6(addr)->sin6_addr, host, sizeof(host));
		snprintf(out.text, sizeof(out.text), "[%s]:%u", host, ntohs(addr_port(addr)));
	} else {
		snprintf(out.text, sizeof(out.text), "(no address)");
	}
	return out;
}

/* ---- sockets ---- */

static void set_option(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)))
		log_debug("socket option %d/%d: %m", level, name);
}

void socket_prepare(const struct cm_id *cm, int fd, int family)
{
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (cm->tos < 0)
		return;
	if (family == AF_INET)
		set_option(fd, IPPROTO_IP, IP_TOS, cm->tos);
	else
		set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, cm->tos);
}

static int socket_open(const struct cm_id *cm, int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0)
		return -errno;
	/* A port whose last connection is in TIME_WAIT is free. */
	set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (family == AF_INET6)
		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, cm->v6only);
	socket_prepare(cm, fd, family);
	return fd;
}

int socket_bind(const struct cm_id *cm, const struct sockaddr *addr, bool outgoing)
{
	int fd = socket_open(cm, addr->sa_family);
	int err;

	if (fd < 0)
		return fd;
	if (outgoing && !addr_port(addr)) /* so one port serves connections to many peers */
		set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	if (!bind(fd, addr, addr_len(addr)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* Connecting a datagram socket sends nothing, and asks the routing table. */
static int route_by(int fd, const struct sockaddr *src, const struct sockaddr *dst,
		    struct sockaddr_storage *out)
{
	struct sockaddr_storage any_port;
	socklen_t len = sizeof(*out);

	if (src && !addr_is_any(src)) {
		addr_copy(&any_port, src);
		addr_set_port((struct sockaddr *)&any_port, 0);
		if (bind(fd, (struct sockaddr *)&any_port, addr_len(src)))
			return -errno;
	}
	if (connect(fd, dst, addr_len(dst)))
		return -errno;
	memset(out, 0, sizeof(*out));
	if (getsockname(fd, (struct sockaddr *)out, &len))
		return -errno;
	return 0;
}

int socket_route(const struct sockaddr *src, const struct sockaddr *dst,
		 struct sockaddr_storage *out)
{
	int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	err = route_by(fd, src, dst, out);
	close(fd);
	if (!err)
		addr_set_port((struct sockaddr *)out, src ? addr_port(src) : 0);
	return err;
}
