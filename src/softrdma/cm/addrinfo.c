/* SPDX-License-Identifier: MIT */
/* rdma_getaddrinfo: names and services to addresses, by the system's resolver. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/uncancel.h"
#include "internal.h"

/*
 * librdmacm hands the resolver's codes to its caller in errno, as programs that print them with
 * gai_strerror expect.
 */
static int fail_resolver(int code)
{
	if (code != EAI_SYSTEM)
		errno = code;
	return -1;
}

static int copy_addr(struct sockaddr **to, socklen_t *to_len, const struct sockaddr *from,
		     socklen_t len)
{
	*to = malloc(len);
	if (!*to)
		return -ENOMEM;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

static int check_hints(const struct rdma_addrinfo *hints)
{
	if (hints->ai_port_space && hints->ai_port_space != RDMA_PS_TCP)
		return -EOPNOTSUPP;
	if (hints->ai_qp_type && hints->ai_qp_type != IBV_QPT_RC)
		return -EOPNOTSUPP;
	if (hints->ai_family != AF_UNSPEC && hints->ai_family != AF_INET &&
	    hints->ai_family != AF_INET6)
		return -EAFNOSUPPORT;
	return 0;
}

/* Names are resolved for the side that the hints speak of. */
static int from_names(const struct addrinfo *found, bool passive, struct rdma_addrinfo *info)
{
	char **name = passive ? &info->ai_src_canonname : &info->ai_dst_canonname;

	info->ai_family = found->ai_family;
	if (found->ai_canonname) {
		*name = strdup(found->ai_canonname);
		if (!*name)
			return -ENOMEM;
	}
	if (passive)
		return copy_addr(&info->ai_src_addr, &info->ai_src_len, found->ai_addr,
				 found->ai_addrlen);
	return copy_addr(&info->ai_dst_addr, &info->ai_dst_len, found->ai_addr, found->ai_addrlen);
}

/* What the hints give beside the names. */
static int from_hints(const struct rdma_addrinfo *hints, bool named, struct rdma_addrinfo *info)
{
	int err;

	if (!named) {
		info->ai_family = hints->ai_family;
		if (hints->ai_dst_addr && hints->ai_dst_len) {
			err = copy_addr(&info->ai_dst_addr, &info->ai_dst_len, hints->ai_dst_addr,
					hints->ai_dst_len);
			if (err)
				return err;
		}
	}
	if (!info->ai_src_len && hints->ai_src_addr && hints->ai_src_len)
		return copy_addr(&info->ai_src_addr, &info->ai_src_len, hints->ai_src_addr,
				 hints->ai_src_len);
	return 0;
}

static int look_up(const char *node, const char *service, const struct rdma_addrinfo *hints,
		   struct addrinfo **found)
{
	struct addrinfo wanted = {
		.ai_family = hints->ai_family,
		.ai_socktype = SOCK_STREAM,
		.ai_protocol = IPPROTO_TCP,
	};
	int held, error;

	if (hints->ai_flags & RAI_PASSIVE)
		wanted.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		wanted.ai_flags |= AI_NUMERICHOST;
	/* It may ask a server, and take its time. */
	held = uncancel_begin_sleep();
	error = getaddrinfo(node, service, &wanted, found);
	uncancel_end_sleep(held);
	return error;
}

int soft_rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
			  struct rdma_addrinfo **result)
{
	static const struct rdma_addrinfo no_hints;
	struct addrinfo *found = NULL;
	struct rdma_addrinfo *info;
	int err;

	if (!result || (!node && !service && !hints))
		return fail(-EINVAL);
	if (!hints)
		hints = &no_hints;
	err = check_hints(hints);
	if (err)
		return fail(err);
	if (node || service) {
		err = look_up(node, service, hints, &found);
		if (err)
			return fail_resolver(err);
	}

	err = -ENOMEM;
	info = calloc(1, sizeof(*info));
	if (info) {
		info->ai_flags = hints->ai_flags & (found ? RAI_PASSIVE : -1);
		info->ai_qp_type = IBV_QPT_RC;
		info->ai_port_space = RDMA_PS_TCP;
		err = found ? from_names(found, hints->ai_flags & RAI_PASSIVE, info) : 0;
	}
	if (!err)
		err = from_hints(hints, found, info);
	if (found)
		freeaddrinfo(found);
	if (err) {
		soft_rdma_freeaddrinfo(info);
		return fail(err);
	}
	*result = info;
	return 0;
}

void soft_rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
	while (info) {
		struct rdma_addrinfo *next = info->ai_next;

		free(info->ai_connect);
		free(info->ai_route);
		free(info->ai_src_canonname);
		free(info->ai_dst_canonname);
		free(info->ai_src_addr);
		free(info->ai_dst_addr);
		free(info);
		info = next;
	}
}
