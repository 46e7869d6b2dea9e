/* SPDX-License-Identifier: MIT */
/*
 * Receiving by AF_XDP: a program at the interface sends what the rules match to one socket per
 * queue, before the kernel sees it. No system call per frame, and no copy for the kernel: so rules
 * that copy go elsewhere.
 */
#include <errno.h>
#include <linux/if_link.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../tuning.h"
#include "bpf.h"
#include "rx.h"
#include "internal.h"
#include "xsk.h"

/* Newer than the headers may be. */
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

#define BUSY_TRIES 40 /* 5 ms each: a socket that was closed holds its queue for a while */

struct rx_xdp {
	struct raw_rx rx;
	int map, link;
	unsigned num_queues;
	unsigned turn; /* the queue that is looked at first */
	struct xsk queues[];
};

/* ---- receiving ---- */

/* The frame at the head of @xsk; the number of its descriptors, 0 if it is not all there. */
static uint32_t look_at_frame(const struct xsk *xsk, uint32_t available, struct iovec *pieces,
			      struct raw_frame *frame)
{
	*frame = (struct raw_frame){.pieces = pieces};
	for (uint32_t i = 0; i < available; i++) {
		const struct xdp_desc *desc = xsk_peek(xsk, i);

		if (frame->num < FRAME_PIECES) {
			pieces[frame->num++] = (struct iovec){.iov_base = xsk->memory + desc->addr,
							      .iov_len = desc->len};
			frame->len += desc->len;
		}
		if (!(desc->options & XDP_PKT_CONTD))
			return i + 1;
	}
	return 0;
}

static unsigned receive_from(struct raw_qp *raw, struct xsk *xsk, unsigned budget)
{
	uint32_t available = xsk_available(xsk);
	unsigned count = 0;

	if (!available)
		return 0;
	while (count < budget && available) {
		struct iovec pieces[FRAME_PIECES];
		struct raw_frame frame;
		uint32_t used = look_at_frame(xsk, available, pieces, &frame);

		if (!used || !raw_deliver(raw, &frame))
			break;
		xsk_release(xsk, used);
		available -= used;
		count++;
	}
	xsk_publish(xsk);
	return count;
}

static unsigned receive(struct raw_rx *base, unsigned budget)
{
	struct rx_xdp *rx = container_of(base, struct rx_xdp, rx);
	unsigned count = 0;

	for (unsigned i = 0; i < rx->num_queues && count < budget; i++) {
		struct xsk *xsk = &rx->queues[(rx->turn + i) % rx->num_queues];

		count += receive_from(base->raw, xsk, budget - count);
	}
	rx->turn++;
	return count;
}

static uint64_t read_drops(struct raw_rx *base)
{
	struct rx_xdp *rx = container_of(base, struct rx_xdp, rx);
	uint64_t drops = 0;

	for (unsigned i = 0; i < rx->num_queues; i++)
		drops += xsk_read_drops(&rx->queues[i]);
	return drops;
}

/* ---- rules ---- */

static int set_rules(struct raw_rx *base, const struct raw_rules *rules)
{
	struct rx_xdp *rx = container_of(base, struct rx_xdp, rx);
	int program = bpf_load_filter(FILTER_XDP, rules->rules, rules->num, rx->map);
	int error;

	if (program < 0)
		return program;
	error = bpf_relink(rx->link, program);
	close(program);
	return error;
}

/* ---- life ---- */

static void stop(struct raw_rx *base)
{
	struct rx_xdp *rx = container_of(base, struct rx_xdp, rx);

	if (rx->link >= 0)
		close(rx->link);
	rx->link = -1;
}

static void close_queues(struct rx_xdp *rx)
{
	while (rx->num_queues)
		xsk_close(&rx->queues[--rx->num_queues]);
}

static void rx_xdp_close(struct raw_rx *base)
{
	struct rx_xdp *rx = container_of(base, struct rx_xdp, rx);
	bool many = rx->num_queues > 1;

	stop(base);
	close_queues(rx);
	if (many && base->source.fd >= 0)
		close(base->source.fd);
	if (rx->map >= 0)
		close(rx->map);
	free(rx);
}

static void let_go(struct raw_rx *base)
{
	struct rx_xdp *rx = container_of(base, struct rx_xdp, rx);

	stop(base);
	for (unsigned i = 0; rx->num_queues > 1 && i < rx->num_queues; i++)
		close(rx->queues[i].fd);
	close(rx->map);
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static int open_queue(struct rx_xdp *rx, struct xsk_place *place)
{
	struct xsk *xsk = &rx->queues[place->queue];
	int error = xsk_open(xsk, place), tries = 0;

	while (error) {
		if (error == -EBUSY && ++tries < BUSY_TRIES)
			pause_ms(5);
		else if ((error == -ENOBUFS || error == -ENOMEM) &&
			 place->num_chunks > RAW_XDP_LEAST_CHUNKS)
			place->num_chunks /= 2; /* the limit of locked memory */
		else
			return error;
		error = xsk_open(xsk, place);
	}
	rx->num_queues++;
	error = bpf_update_map(rx->map, &place->queue, &xsk->fd);
	return error;
}

static int open_queues(struct rx_xdp *rx, const struct raw_interface *iface, bool zero_copy)
{
	const unsigned num = iface->num_queues;
	struct xsk_place place = {.ifindex = iface->index,
				  .mtu = iface->mtu,
				  .num_chunks = RAW_XDP_MOST_CHUNKS,
				  .zero_copy = zero_copy};
	int error = 0;

	/* A jumbo frame needs three. */
	if (iface->mtu > RAW_XDP_JUMBO_MTU)
		place.num_chunks *= 2;
	while (place.num_chunks > RAW_XDP_LEAST_CHUNKS &&
	       place.num_chunks * num > 2 * RAW_XDP_MOST_CHUNKS)
		place.num_chunks /= 2;
	for (; place.queue < num && !error; place.queue++)
		error = open_queue(rx, &place);
	if (error)
		close_queues(rx);
	return error;
}

/* The program first: if another process has one there, this costs no time. */
static int try_mode(struct rx_xdp *rx, const struct raw_interface *iface, int program,
		    uint32_t flags)
{
	bool native = flags == XDP_FLAGS_DRV_MODE;
	int error;

	rx->link = bpf_link(program, iface->index, FILTER_XDP, flags);
	if (rx->link < 0)
		return rx->link;
	error = native ? open_queues(rx, iface, true) : -EOPNOTSUPP;
	if (!error) {
		log_info("soft_%s: XDP in the driver, zero copy", iface->name);
		return 0;
	}
	error = open_queues(rx, iface, false);
	if (!error)
		log_info("soft_%s: XDP %s", iface->name,
			 native ? "in the driver" : "in the kernel's generic part");
	else
		stop(&rx->rx);
	return error;
}

/* One descriptor for all queues. */
static int make_descriptor(struct rx_xdp *rx)
{
	int fd, error = 0;

	if (rx->num_queues == 1) {
		rx->rx.source.fd = rx->queues[0].fd;
		return 0;
	}
	fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0)
		return -errno;
	rx->rx.source.fd = fd;
	for (unsigned i = 0; i < rx->num_queues && !error; i++) {
		struct epoll_event event = {.events = EPOLLIN};

		if (epoll_ctl(fd, EPOLL_CTL_ADD, rx->queues[i].fd, &event))
			error = -errno;
	}
	return error;
}

/* Before the kernel makes a buffer of a frame is best, unless it has been one all along. */
static int try_modes(struct rx_xdp *rx, const struct raw_interface *iface, int program)
{
	const uint32_t first = iface->is_virtual ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
	int error = try_mode(rx, iface, program, first);

	if (error)
		error = try_mode(rx, iface, program,
				 first ^ (XDP_FLAGS_SKB_MODE | XDP_FLAGS_DRV_MODE));
	return error;
}

static int start(struct rx_xdp *rx, const struct raw_interface *iface,
		 const struct raw_rules *rules)
{
	int program, error;

	rx->map = bpf_create_map(BPF_MAP_TYPE_XSKMAP, sizeof(int), sizeof(int), iface->num_queues);
	if (rx->map < 0)
		return rx->map;
	program = bpf_load_filter(FILTER_XDP, rules->rules, rules->num, rx->map);
	if (program < 0)
		return program;
	error = try_modes(rx, iface, program);
	close(program);
	return error ? error : make_descriptor(rx);
}

static int rx_xdp_open(struct raw_rx **out, struct raw_qp *raw, const struct raw_rules *rules)
{
	unsigned num = raw->iface.num_queues;
	struct rx_xdp *rx;
	int error;

	rx = calloc(1, sizeof(*rx) + num * sizeof(*rx->queues));
	if (!rx)
		return -ENOMEM;
	rx->rx.ops = &raw_rx_xdp;
	rx->rx.raw = raw;
	rx->rx.source.fd = -1;
	rx->map = rx->link = -1;
	error = start(rx, &raw->iface, rules);
	if (error)
		rx_xdp_close(&rx->rx);
	else
		*out = &rx->rx;
	return error;
}

const struct raw_rx_ops raw_rx_xdp = {
	.name = "xdp",
	.open = rx_xdp_open,
	.set_rules = set_rules,
	.receive = receive,
	.read_drops = read_drops,
	.stop = stop,
	.let_go = let_go,
	.close = rx_xdp_close,
};
