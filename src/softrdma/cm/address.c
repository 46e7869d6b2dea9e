/* SPDX-License-Identifier: MIT */
/* Binding ids to addresses, and resolving where they connect to. */
#include <string.h>
#include <unistd.h>

#include "../../common/log.h"
#include "internal.h"

static int bound_address(int fd, struct sockaddr_storage *out)
{
	socklen_t len = sizeof(*out);

	memset(out, 0, sizeof(*out));
	return getsockname(fd, (struct sockaddr *)out, &len) ? -errno : 0;
}

int address_bind(struct cm_id *cm, const struct sockaddr *addr)
{
	struct sockaddr_storage bound;
	int fd, err;

	if (cm->state != CM_IDLE || !addr_len(addr))
		return -EINVAL;
	fd = socket_bind(cm, addr, false);
	if (fd < 0) {
		if (fd == -EADDRINUSE)
			log_warn("bind %s: another program listens at that TCP port",
				 addr_text(addr).text);
		else
			log_info("bind %s: %s", addr_text(addr).text, strerror(-fd));
		return fd;
	}
	err = bound_address(fd, &bound);
	if (!err && !addr_is_any(addr))
		err = device_assign(cm, addr);
	if (err) {
		log_info("bind %s: %s", addr_text(addr).text, strerror(-err));
		close(fd);
		return err;
	}
	cm->id.route.addr.src_storage = bound;
	cm->fd = fd;
	cm->state = CM_BOUND;
	return 0;
}

int soft_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int err;

	if (!id || !addr)
		return fail(-EINVAL);
	cm_lock();
	err = address_bind(to_cm(id), addr);
	cm_unlock();
	return err ? fail(err) : 0;
}

/* ---- resolving ---- */

/* A source with a port of its own occupies it from now on, like a bound id. */
static int bind_source(struct cm_id *cm, const struct sockaddr *src)
{
	if (cm->state != CM_IDLE || !src || !addr_port(src))
		return 0;
	return address_bind(cm, src);
}

static int resolve_addr(struct cm_id *cm, const struct sockaddr *src, const struct sockaddr *dst)
{
	struct sockaddr_storage from;
	int err;

	if ((cm->state != CM_IDLE && cm->state != CM_BOUND) || !addr_len(dst))
		return -EINVAL;
	err = bind_source(cm, src);
	if (err)
		return err;
	if (cm->state == CM_BOUND)
		src = cm_src(cm);
	if (src && src->sa_family != dst->sa_family)
		return -EINVAL;
	err = socket_route(src, dst, &from);
	if (err) {
		log_info("resolve %s: %s", addr_text(dst).text, strerror(-err));
		return err;
	}
	addr_copy(&cm->id.route.addr.dst_storage, dst);
	err = device_assign(cm, (struct sockaddr *)&from);
	if (err) {
		log_info("resolve %s: no device has %s", addr_text(dst).text,
			 addr_text((struct sockaddr *)&from).text);
		event_post(cm, RDMA_CM_EVENT_ADDR_ERROR, err, NULL);
		return 0;
	}
	cm->id.route.addr.src_storage = from;
	cm->state = CM_ADDR_RESOLVED;
	event_post(cm, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
	return 0;
}

int soft_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
			   int timeout_ms)
{
	int err;

	(void)timeout_ms; /* the routing table answers at once */
	if (!id || !dst || (src && !addr_len(src)))
		return fail(-EINVAL);
	cm_lock();
	err = resolve_addr(to_cm(id), src, dst);
	cm_unlock();
	return err ? fail(err) : endpoint_complete(id);
}

int soft_rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct cm_id *cm;
	int err = 0;

	(void)timeout_ms;
	if (!id)
		return fail(-EINVAL);
	cm = to_cm(id);
	cm_lock();
	if (cm->state == CM_ADDR_RESOLVED) {
		cm->state = CM_ROUTE_RESOLVED;
		event_post(cm, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	} else {
		err = -EINVAL;
	}
	cm_unlock();
	return err ? fail(err) : endpoint_complete(id);
}
