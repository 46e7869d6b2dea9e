/* SPDX-License-Identifier: MIT */
/* Which software device an address belongs to, and what ids get from it. */
#include <endian.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/*
 * The default protection domain of each shared context; both live for ever. Guarded by the CM lock.
 */
struct default_pd {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct default_pd *next;
};

static struct default_pd *default_pds;

static struct ibv_pd *default_pd_of(struct ibv_context *context)
{
	struct default_pd *entry;

	for (entry = default_pds; entry; entry = entry->next)
		if (entry->context == context)
			return entry->pd;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	entry->context = context;
	entry->pd = soft_ibv_alloc_pd(context);
	if (!entry->pd) {
		free(entry);
		return NULL;
	}
	entry->next = default_pds;
	default_pds = entry;
	return entry->pd;
}

/* All of 127.0.0.0/8 is local, though the interface shows one address of it. */
static bool is_loopback_net(const struct ifaddrs *entry, const struct sockaddr *addr)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)addr;

	return addr->sa_family == AF_INET && (entry->ifa_flags & IFF_LOOPBACK) &&
	       ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static unsigned interface_of(const struct sockaddr *addr)
{
	struct ifaddrs *all, *entry;
	unsigned index = 0;

	if (getifaddrs(&all))
		return 0;
	for (entry = all; entry && !index; entry = entry->ifa_next)
		if (entry->ifa_addr && addr_is_equal(entry->ifa_addr, addr))
			index = if_nametoindex(entry->ifa_name);
	for (entry = all; entry && !index; entry = entry->ifa_next)
		if (is_loopback_net(entry, addr))
			index = if_nametoindex(entry->ifa_name);
	freeifaddrs(all);
	return index;
}

int device_assign(struct cm_id *cm, const struct sockaddr *addr)
{
	struct sockaddr_storage plain;
	struct ibv_context *context;
	struct ibv_device *device;
	struct ibv_pd *pd;
	unsigned index;

	addr_copy(&plain, addr);
	addr_unmap(&plain);
	index = interface_of((struct sockaddr *)&plain);
	device = index ? soft_device_by_index(index) : NULL;
	if (!device)
		return -ENODEV;
	context = soft_shared_context(device);
	if (!context)
		return -errno;
	pd = default_pd_of(context);
	if (!pd)
		return -ENOMEM;
	cm->id.verbs = context;
	cm->id.pd = pd;
	cm->id.port_num = 1;
	cm->id.route.addr.addr.ibaddr.pkey = htobe16(0xffff);
	soft_ibv_query_gid(context, 1, 0, &cm->id.route.addr.addr.ibaddr.sgid);
	return 0;
}

/* ---- the list of devices ---- */

static struct ibv_context **open_all(int *num)
{
	struct ibv_context **contexts;
	struct ibv_device **devices;
	int count = soft_get_devices(&devices);
	int opened = 0;

	if (count < 0) {
		errno = -count;
		return NULL;
	}
	contexts = calloc((size_t)count + 1, sizeof(struct ibv_context *));
	for (int i = 0; contexts && i < count; i++) {
		contexts[opened] = soft_shared_context(devices[i]);
		if (contexts[opened])
			opened++;
	}
	free(devices);
	*num = opened;
	return contexts;
}

struct ibv_context **soft_rdma_get_devices(int *num)
{
	struct ibv_context **contexts;
	int count = 0;

	contexts = open_all(&count);
	if (contexts && !count) {
		free(contexts);
		contexts = NULL;
		errno = ENODEV;
	}
	if (num)
		*num = count;
	return contexts;
}

void soft_rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
