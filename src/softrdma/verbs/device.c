/* SPDX-License-Identifier: MIT */
/*
 * Devices: one for each network interface that is up; their contexts, and what they say of
 * themselves.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../fork_order.h"
#include "../settings.h"
#include "../strict.h"
#include "objects.h"

#define MAX_GIDS 64

/* libibverbs' internal ibv_query_gid_type speaks in these. */
enum { IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2 };

/* Every device that was ever seen; they live for ever, as programs keep pointers to them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards both lists and shared contexts */
static struct list devices = {&devices, &devices};
static struct list contexts = {&contexts, &contexts}; /* that are open */

/* Its address in a device says: this one is ours. */
static void marker(struct ibv_context *context)
{
	(void)context;
}

bool is_soft_device(const struct ibv_device *device)
{
	return device && device->_ops._dummy2 == marker;
}

static struct soft_device *to_device(struct ibv_device *device)
{
	return container_of(device, struct soft_device, device);
}

static bool looks_like_roce(void)
{
	return settings()->look == SETTINGS_LOOK_ROCE;
}

static struct soft_device *find_device(const char *ifname)
{
	struct list *pos;

	list_for_each (pos, &devices) {
		struct soft_device *device = container_of(pos, struct soft_device, link);

		if (!strcmp(device->ifname, ifname))
			return device;
	}
	return NULL;
}

static struct soft_device *device_get(const char *ifname)
{
	struct soft_device *device = find_device(ifname);

	if (device) {
		device->ifindex = if_nametoindex(ifname);
		return device;
	}
	device = calloc(1, sizeof(*device));
	if (!device)
		return NULL;
	device->device._ops._dummy2 = marker;
	device->device.node_type = looks_like_roce() ? IBV_NODE_CA : IBV_NODE_RNIC;
	device->device.transport_type = looks_like_roce() ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
	snprintf(device->device.name, sizeof(device->device.name), "soft_%s", ifname);
	snprintf(device->device.dev_name, sizeof(device->device.dev_name), "soft_%s", ifname);
	snprintf(device->ifname, sizeof(device->ifname), "%s", ifname);
	device->ifindex = if_nametoindex(ifname);
	list_add_tail(&devices, &device->link);
	return device;
}

static bool interface_flags(const char *ifname, unsigned *flags)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool good;

	if (fd < 0)
		return false;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", ifname);
	good = ioctl(fd, SIOCGIFFLAGS, &request) == 0;
	close(fd);
	*flags = (unsigned short)request.ifr_flags;
	return good;
}

int soft_get_devices(struct ibv_device ***list)
{
	struct if_nameindex *names = if_nameindex();
	int count = 0, room = 0;

	if (!names)
		return -errno;
	while (names[room].if_index)
		room++;
	*list = calloc((size_t)room + 1, sizeof(struct ibv_device *));
	if (!*list) {
		if_freenameindex(names);
		return -ENOMEM;
	}
	pthread_mutex_lock(&lock);
	/* Loopback last: programs that take the first device mean the network. */
	for (unsigned loopback = 0; loopback <= IFF_LOOPBACK; loopback += IFF_LOOPBACK) {
		for (int i = 0; i < room; i++) {
			struct soft_device *device;
			unsigned flags;

			if (!interface_flags(names[i].if_name, &flags) || !(flags & IFF_UP) ||
			    (flags & IFF_LOOPBACK) != loopback)
				continue;
			device = device_get(names[i].if_name);
			if (device)
				(*list)[count++] = &device->device;
		}
	}
	pthread_mutex_unlock(&lock);
	if_freenameindex(names);
	return count;
}

struct ibv_device *soft_device_by_index(unsigned ifindex)
{
	char ifname[IF_NAMESIZE];
	struct soft_device *device;
	unsigned flags;

	if (!if_indextoname(ifindex, ifname) || !interface_flags(ifname, &flags) ||
	    !(flags & IFF_UP))
		return NULL;
	pthread_mutex_lock(&lock);
	device = device_get(ifname);
	pthread_mutex_unlock(&lock);
	return device ? &device->device : NULL;
}

/* ---- contexts ---- */

/* The lock is held. */
static struct ibv_context *open_context(struct ibv_device *device)
{
	struct soft_context *context = calloc(1, sizeof(*context));
	struct ibv_context *ibcontext;

	if (!context)
		return NULL;
	ibcontext = &context->verbs.context;
	ibcontext->device = device;
	ibcontext->num_comp_vectors = 1;
	ibcontext->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	/* There is no command to give; but programs pass it on, and then it has to be open. */
	ibcontext->cmd_fd = ibcontext->async_fd;
	if (ibcontext->async_fd < 0) {
		free(context);
		return NULL;
	}
	pthread_mutex_init(&ibcontext->mutex, NULL);
	pthread_mutex_init(&context->async_lock, NULL);
	pthread_cond_init(&context->async_acked, NULL);
	list_init(&context->async_events);
	context_set_ops(&context->verbs);
	list_add_tail(&contexts, &context->link);
	return ibcontext;
}

struct ibv_context *soft_ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context;

	pthread_mutex_lock(&lock);
	context = open_context(device);
	pthread_mutex_unlock(&lock);
	return context;
}

int soft_ibv_close_device(struct ibv_context *ibcontext)
{
	struct soft_context *context = to_context(ibcontext);

	if (ibcontext == to_device(ibcontext->device)->shared)
		return 0; /* the CM's, kept for the process */
	/* As libibverbs, this never fails. What the program has not given back still needs it. */
	if (atomic_load(&context->objects)) {
		log_info("%s: closed with objects that are still there", ibcontext->device->name);
		return 0;
	}
	pthread_mutex_lock(&lock);
	list_del(&context->link);
	pthread_mutex_unlock(&lock);
	close(ibcontext->async_fd);
	pthread_mutex_destroy(&ibcontext->mutex);
	pthread_mutex_destroy(&context->async_lock);
	pthread_cond_destroy(&context->async_acked);
	free(context);
	return 0;
}

struct ibv_context *soft_shared_context(struct ibv_device *ibdevice)
{
	struct soft_device *device = to_device(ibdevice);
	struct ibv_context *context;

	pthread_mutex_lock(&lock);
	if (!device->shared)
		device->shared = open_context(ibdevice);
	context = device->shared;
	pthread_mutex_unlock(&lock);
	return context;
}

/* A child may go on with its parent's contexts; their events are the parent's. */
static void renew_contexts(void)
{
	struct list *pos;

	list_for_each (pos, &contexts)
		async_renew(&container_of(pos, struct soft_context, link)->verbs.context);
}

FORK_MUTEX(FORK_DEVICES, &lock, renew_contexts);

/* ---- addresses as GIDs ---- */

static void gid_from_ipv4(union ibv_gid *gid, const struct in_addr *addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

/* The link-local address that the interface's MAC makes. */
static void gid_from_mac(union ibv_gid *gid, const unsigned char *mac)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	gid->raw[8] = mac[0] ^ 2;
	gid->raw[9] = mac[1];
	gid->raw[10] = mac[2];
	gid->raw[11] = 0xff;
	gid->raw[12] = 0xfe;
	gid->raw[13] = mac[3];
	gid->raw[14] = mac[4];
	gid->raw[15] = mac[5];
}

static bool has_gid(const union ibv_gid *gids, int count, const union ibv_gid *gid)
{
	for (int i = 0; i < count; i++)
		if (!memcmp(&gids[i], gid, sizeof(*gid)))
			return true;
	return false;
}

/* GID 0 from the MAC, then the IPv4-mapped and the IPv6 addresses. Returns their number. */
static int gather_gids(struct soft_device *device, union ibv_gid gids[MAX_GIDS])
{
	struct ifaddrs *all, *each;
	const unsigned char no_mac[6] = {0};
	int count = 1;

	gid_from_mac(&gids[0], no_mac);
	if (getifaddrs(&all))
		return count;
	for (int round = 0; round < 2; round++) {
		for (each = all; each && count < MAX_GIDS; each = each->ifa_next) {
			union ibv_gid gid;

			if (!each->ifa_addr || strcmp(each->ifa_name, device->ifname) != 0)
				continue;
			if (!round && each->ifa_addr->sa_family == AF_PACKET) {
				gid_from_mac(&gids[0],
					     ((struct sockaddr_ll *)each->ifa_addr)->sll_addr);
				continue;
			}
			if (!round && each->ifa_addr->sa_family == AF_INET)
				gid_from_ipv4(&gid,
					      &((struct sockaddr_in *)each->ifa_addr)->sin_addr);
			else if (round && each->ifa_addr->sa_family == AF_INET6)
				memcpy(&gid, &((struct sockaddr_in6 *)each->ifa_addr)->sin6_addr,
				       sizeof(gid));
			else
				continue;
			if (!has_gid(gids, count, &gid))
				gids[count++] = gid;
		}
	}
	freeifaddrs(all);
	return count;
}

static __be64 guid_of(struct ibv_device *ibdevice)
{
	union ibv_gid gids[MAX_GIDS];
	__be64 guid;

	gather_gids(to_device(ibdevice), gids);
	memcpy(&guid, gids[0].raw + 8, sizeof(guid));
	return guid;
}

__be64 soft_ibv_get_device_guid(struct ibv_device *device)
{
	return guid_of(device);
}

int soft_ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1; /* the kernel knows no such device */
}

/* ---- queries ---- */

static int max_sge(void)
{
	return is_strict() ? STRICT_MAX_SGE : RC_MAX_SGE;
}

static void fill_device_attr(struct ibv_device *device, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.fw_ver = "0.1.0",
		.node_guid = guid_of(device),
		.sys_image_guid = guid_of(device),
		.max_mr_size = ~0ull,
		.page_size_cap = 0xfffff000,
		.vendor_id = SOFT_VENDOR_ID,
		.vendor_part_id = SOFT_PART_ID,
		.hw_ver = 1,
		.max_qp = SOFT_MAX_QP,
		.max_qp_wr = SOFT_MAX_WR,
		/* The second says that SEND_WITH_INV works; siw has it, too. */
		.device_cap_flags =
			IBV_DEVICE_MANAGED_FLOW_STEERING | IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_sge = max_sge(),
		.max_sge_rd = is_strict() ? 1 : RC_MAX_SGE,
		.max_cq = SOFT_MAX_QP * 2,
		.max_cqe = SOFT_MAX_CQE,
		.max_mr = SOFT_MAX_MR,
		.max_pd = SOFT_MAX_QP,
		.max_qp_rd_atom = SOFT_MAX_RD,
		.max_res_rd_atom = SOFT_MAX_RD * SOFT_MAX_QP,
		.max_qp_init_rd_atom = SOFT_MAX_RD,
		.atomic_cap = IBV_ATOMIC_GLOB /* between two softrdma ends */,
		.max_raw_ethy_qp = SOFT_MAX_QP,
		.max_srq = SOFT_MAX_QP,
		.max_srq_wr = SOFT_MAX_WR,
		.max_srq_sge = RC_MAX_SGE,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
}

int soft_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	fill_device_attr(context->device, attr);
	return 0;
}

int soft_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex full = {0};

	if ((input && input->comp_mask) || size < sizeof(full.orig_attr))
		return EINVAL;
	fill_device_attr(context->device, &full.orig_attr);
	full.phys_port_cnt_ex = 1;
	full.completion_timestamp_mask = UINT64_MAX;
	full.hca_core_clock = 1000000; /* kHz: time stamps are in ns */
	/* The caller may have been compiled against a shorter or a longer struct. */
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

static enum ibv_mtu mtu_of(const char *ifname)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	enum ibv_mtu mtu = IBV_MTU_1024;

	if (fd < 0)
		return mtu;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", ifname);
	if (ioctl(fd, SIOCGIFMTU, &request) == 0) {
		while (mtu < IBV_MTU_4096 && (128 << (mtu + 1)) <= request.ifr_mtu)
			mtu++;
	}
	close(fd);
	return mtu;
}

int soft_ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
			size_t size)
{
	struct soft_device *device = to_device(context->device);
	union ibv_gid gids[MAX_GIDS];
	struct ibv_port_attr full = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_of(device->ifname),
		.max_msg_sz = SOFT_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2, /* 4X */
		.active_speed = 1, /* 2.5 Gbit/s: a number, as there is none to be had */
		.phys_state = 5,   /* LinkUp */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	if (port != SOFT_PORT)
		return EINVAL;
	full.gid_tbl_len = gather_gids(device, gids);
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

int soft_ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	union ibv_gid gids[MAX_GIDS];
	int count = gather_gids(to_device(context->device), gids);

	if (port != SOFT_PORT || index < 0 || index >= count) {
		errno = EINVAL;
		return -1;
	}
	*gid = gids[index];
	return 0;
}

static void fill_gid_entry(struct soft_device *device, const union ibv_gid *gid, uint32_t index,
			   void *out, size_t size)
{
	struct ibv_gid_entry entry = {
		.gid = *gid,
		.gid_index = index,
		.port_num = SOFT_PORT,
		.gid_type = looks_like_roce() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1,
		.ndev_ifindex = device->ifindex,
	};

	memset(out, 0, size);
	memcpy(out, &entry, size < sizeof(entry) ? size : sizeof(entry));
}

int soft__ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
			   struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct soft_device *device = to_device(context->device);
	union ibv_gid gids[MAX_GIDS];
	int count = gather_gids(device, gids);

	if (flags || port != SOFT_PORT)
		return EINVAL;
	if (index >= (uint32_t)count)
		return ENODATA;
	fill_gid_entry(device, &gids[index], index, entry, entry_size);
	return 0;
}

ssize_t soft__ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				  size_t max, uint32_t flags, size_t entry_size)
{
	struct soft_device *device = to_device(context->device);
	union ibv_gid gids[MAX_GIDS];
	int count = gather_gids(device, gids);

	if (flags)
		return -EINVAL;
	if ((size_t)count > max)
		return -EINVAL;
	for (int i = 0; i < count; i++)
		fill_gid_entry(device, &gids[i], (uint32_t)i,
			       (char *)entries + (size_t)i * entry_size, entry_size);
	return count;
}

int soft_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
			    unsigned *type)
{
	union ibv_gid gids[MAX_GIDS];

	if (port != SOFT_PORT || index >= (unsigned)gather_gids(to_device(context->device), gids)) {
		errno = EINVAL;
		return -1;
	}
	*type = looks_like_roce() ? IBV_GID_TYPE_SYSFS_ROCE_V2 : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

int soft_ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port != SOFT_PORT || index) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(SOFT_PKEY);
	return 0;
}

int soft_ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	return port == SOFT_PORT && pkey == htobe16(SOFT_PKEY) ? 0 : -1;
}
