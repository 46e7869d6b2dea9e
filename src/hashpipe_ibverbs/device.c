/* SPDX-License-Identifier: MIT */
/* Interfaces, and the devices that serve them. */
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

/* ---- interfaces ---- */

/* Modified EUI-64: RFC 4291, appendix A. */
static uint64_t id_from_mac(const uint8_t mac[6])
{
	const uint8_t id[8] = {mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
	uint64_t number = 0;

	for (int i = 0; i < 8; i++)
		number = number << 8 | id[i];
	return number;
}

int hashpipe_ibv_get_interface_info(const char *interface_name, uint8_t *mac,
				    uint64_t *interface_id)
{
	struct ifreq request = {0};
	uint8_t address[6];
	int fd, error;

	if (!interface_name || !*interface_name) {
		errno = EINVAL;
		return 1;
	}
	if (strlen(interface_name) >= sizeof(request.ifr_name)) {
		errno = ENODEV;
		return 3;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 2;
	memcpy(request.ifr_name, interface_name, strlen(interface_name));
	error = ioctl(fd, SIOCGIFHWADDR, &request) ? errno : 0;
	close(fd);
	if (error) {
		errno = error;
		return 3;
	}
	memcpy(address, request.ifr_hwaddr.sa_data, sizeof(address));
	if (mac)
		memcpy(mac, address, sizeof(address));
	if (interface_id)
		*interface_id = id_from_mac(address);
	return 0;
}

/* ---- devices ---- */

bool device_lacks_packets(int error)
{
	return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL ||
	       error == EPROTONOSUPPORT;
}

static bool is_gid_of(const union ibv_gid *gid, uint64_t interface_id)
{
	uint64_t prefix = 0, id = 0;

	for (int i = 0; i < 8; i++) {
		prefix = prefix << 8 | gid->raw[i];
		id = id << 8 | gid->raw[i + 8];
	}
	return prefix == 0xfe80000000000000u && id == interface_id;
}

/* -ENODEV: it has none that fits. */
static int find_gid(struct ibv_context *verbs, uint8_t port, uint64_t interface_id,
		    unsigned ifindex)
{
	struct ibv_port_attr attr;

	if (ibv_query_port(verbs, port, &attr))
		return -EIO;
	for (int i = 0; i < attr.gid_tbl_len; i++) {
		struct ibv_gid_entry entry = {0};

		/* Older kernels do not tell the interface. */
		if (ibv_query_gid_ex(verbs, port, (uint32_t)i, &entry, 0) &&
		    ibv_query_gid(verbs, port, i, &entry.gid))
			continue;
		if (ifindex && entry.ndev_ifindex && entry.ndev_ifindex != ifindex)
			continue;
		if (is_gid_of(&entry.gid, interface_id))
			return 0;
	}
	return -ENODEV;
}

/* 0 if @device serves the interface; it is open then. */
static int try_device(struct ibv_device *device, uint64_t interface_id, unsigned ifindex,
		      struct found_device *out)
{
	int result = -ENODEV;

	out->verbs = ibv_open_device(device);
	if (!out->verbs)
		return -EIO;
	if (ibv_query_device(out->verbs, &out->attr)) {
		result = -EIO;
		goto undo_open;
	}
	for (unsigned port = 1; port <= out->attr.phys_port_cnt; port++) {
		result = find_gid(out->verbs, (uint8_t)port, interface_id, ifindex);
		if (!result) {
			out->port = (uint8_t)port;
			return 0;
		}
	}

undo_open:
	ibv_close_device(out->verbs);
	return result;
}

int device_open(uint64_t interface_id, unsigned ifindex, unsigned skip, struct found_device *out,
		int *failures)
{
	int count, result = -ENODEV;
	struct ibv_device **devices = ibv_get_device_list(&count);

	*failures = 0;
	if (!devices)
		return errno ? -errno : -ENODEV;
	for (int i = 0; i < count; i++) {
		struct found_device found;
		int error = try_device(devices[i], interface_id, ifindex, &found);

		if (error == -EIO) {
			log_warn("device %s cannot be asked", ibv_get_device_name(devices[i]));
			++*failures;
		}
		if (error)
			continue;
		if (!skip--) {
			*out = found;
			result = 0;
			break;
		}
		ibv_close_device(found.verbs);
	}
	ibv_free_device_list(devices);
	return result;
}

/* Only an attempt tells. A missing right is not a missing ability. */
static bool has_raw_packets(struct ibv_context *verbs)
{
	struct ibv_pd *pd = ibv_alloc_pd(verbs);
	struct ibv_cq *cq = ibv_create_cq(verbs, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	struct ibv_qp *qp = NULL;
	bool has = false;

	if (pd && cq) {
		qp = ibv_create_qp(pd, &attr);
		has = qp || !device_lacks_packets(errno);
	}
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return has;
}

/* device_open, but only what has raw packets. */
static int open_for_packets(uint64_t interface_id, unsigned ifindex, struct found_device *out,
			    int *failures)
{
	for (unsigned skip = 0;; skip++) {
		int result = device_open(interface_id, ifindex, skip, out, failures);

		if (result || has_raw_packets(out->verbs))
			return result;
		ibv_close_device(out->verbs);
	}
}

int hashpipe_ibv_open_device_for_interface_id(uint64_t interface_id, struct ibv_context **found_ctx,
					      struct ibv_device_attr *found_dev_attr,
					      uint8_t *found_port)
{
	int saved = errno, failures = 0;
	struct found_device found = {0};

	if (open_for_packets(interface_id, 0, &found, &failures)) {
		errno = ENODEV;
		return 1 + failures;
	}
	if (found_dev_attr)
		*found_dev_attr = found.attr;
	if (found_port)
		*found_port = found.port;
	if (found_ctx)
		*found_ctx = found.verbs;
	else
		ibv_close_device(found.verbs);
	errno = saved;
	return 0;
}

int hashpipe_ibv_query_max_wr(const char *interface_name)
{
	int saved = errno, failures;
	struct found_device found = {0};
	uint64_t interface_id;

	if (hashpipe_ibv_get_interface_info(interface_name, NULL, &interface_id))
		return -1;
	if (open_for_packets(interface_id, if_nametoindex(interface_name), &found, &failures)) {
		errno = ENODEV;
		return -1;
	}
	ibv_close_device(found.verbs);
	errno = saved;
	return found.attr.max_qp_wr;
}
