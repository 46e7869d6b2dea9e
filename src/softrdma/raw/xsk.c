/* SPDX-License-Identifier: MIT */
#include "xsk.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Newer than the headers may be. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif

#define HEADROOM       256 /* the kernel's, ahead of the frame */
#define FRAME_OVERHEAD 22  /* an Ethernet header and two tags */
#define SMALL_CHUNK    2048
#define LARGE_CHUNK    4096
#define UNUSED_RING    64

static uint32_t chunk_bytes_for(unsigned mtu)
{
	return mtu + FRAME_OVERHEAD + HEADROOM <= SMALL_CHUNK ? SMALL_CHUNK : LARGE_CHUNK;
}

/* ---- memory and rings ---- */

static int register_memory(struct xsk *xsk, const struct xsk_place *place)
{
	struct xdp_umem_reg registration = {0};
	int error;

	xsk->chunk_bytes = chunk_bytes_for(place->mtu);
	xsk->num_chunks = place->num_chunks;
	xsk->bytes = (size_t)xsk->chunk_bytes * xsk->num_chunks;
	xsk->memory =
		mmap(NULL, xsk->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (xsk->memory == MAP_FAILED) {
		xsk->memory = NULL;
		return -errno;
	}
	/* The kernel writes here: a child that shares it would make it copy. */
	madvise(xsk->memory, xsk->bytes, MADV_DONTFORK);
	registration.addr = (uintptr_t)xsk->memory;
	registration.len = xsk->bytes;
	registration.chunk_size = xsk->chunk_bytes;
	error = setsockopt(xsk->fd, SOL_XDP, XDP_UMEM_REG, &registration, sizeof(registration));
	return error ? -errno : 0;
}

static int map_ring(struct xsk *xsk, struct xsk_ring *ring, uint32_t num, size_t entry, off_t place,
		    const struct xdp_ring_offset *offsets)
{
	char *base;

	ring->mask = num - 1;
	ring->mapped = offsets->desc + num * entry;
	base = mmap(NULL, ring->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, xsk->fd,
		    place);
	if (base == MAP_FAILED)
		return -errno;
	/* A child that has the mapping would keep the socket. */
	madvise(base, ring->mapped, MADV_DONTFORK);
	ring->mapping = base;
	ring->producer = (void *)(base + offsets->producer);
	ring->consumer = (void *)(base + offsets->consumer);
	ring->flags = (void *)(base + offsets->flags);
	ring->entries = base + offsets->desc;
	return 0;
}

static int make_rings(struct xsk *xsk)
{
	const uint32_t num = xsk->num_chunks, unused = UNUSED_RING;
	struct xdp_mmap_offsets offsets;
	socklen_t len = sizeof(offsets);
	int error;

	if (setsockopt(xsk->fd, SOL_XDP, XDP_UMEM_FILL_RING, &num, sizeof(num)) ||
	    setsockopt(xsk->fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &unused, sizeof(unused)) ||
	    setsockopt(xsk->fd, SOL_XDP, XDP_RX_RING, &num, sizeof(num)) ||
	    getsockopt(xsk->fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &len))
		return -errno;
	error = map_ring(xsk, &xsk->fill, num, sizeof(uint64_t), XDP_UMEM_PGOFF_FILL_RING,
			 &offsets.fr);
	if (!error)
		error = map_ring(xsk, &xsk->completion, unused, sizeof(uint64_t),
				 XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr);
	if (!error)
		error = map_ring(xsk, &xsk->rx, num, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING,
				 &offsets.rx);
	return error;
}

static void give_all_chunks(struct xsk *xsk)
{
	uint64_t *entries = xsk->fill.entries;

	for (uint32_t i = 0; i < xsk->num_chunks; i++)
		entries[i] = (uint64_t)i * xsk->chunk_bytes;
	xsk->fill.at = xsk->num_chunks;
	atomic_store_explicit(xsk->fill.producer, xsk->fill.at, memory_order_release);
}

/* ---- life ---- */

static int bind_to(struct xsk *xsk, const struct xsk_place *place)
{
	struct sockaddr_xdp address = {
		.sxdp_family = AF_XDP,
		.sxdp_ifindex = place->ifindex,
		.sxdp_queue_id = place->queue,
		.sxdp_flags = (uint16_t)((place->zero_copy ? XDP_ZEROCOPY : XDP_COPY) |
					 XDP_USE_NEED_WAKEUP),
	};

	/* Frames that are longer than a chunk come as several descriptors. */
	if (place->mtu + FRAME_OVERHEAD + HEADROOM > xsk->chunk_bytes)
		address.sxdp_flags |= XDP_USE_SG;
	return bind(xsk->fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
}

int xsk_open(struct xsk *xsk, const struct xsk_place *place)
{
	int error;

	*xsk = (struct xsk){.fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)};
	if (xsk->fd < 0)
		return -errno;
	error = register_memory(xsk, place);
	if (!error)
		error = make_rings(xsk);
	if (!error) {
		give_all_chunks(xsk);
		error = bind_to(xsk, place);
	}
	if (error)
		xsk_close(xsk);
	return error;
}

static void unmap_ring(struct xsk_ring *ring)
{
	if (ring->mapping)
		munmap(ring->mapping, ring->mapped);
}

void xsk_close(struct xsk *xsk)
{
	unmap_ring(&xsk->fill);
	unmap_ring(&xsk->completion);
	unmap_ring(&xsk->rx);
	close(xsk->fd);
	if (xsk->memory)
		munmap(xsk->memory, xsk->bytes);
	*xsk = (struct xsk){.fd = -1};
}

/* ---- moving ---- */

void xsk_release(struct xsk *xsk, uint32_t num)
{
	uint64_t *entries = xsk->fill.entries;

	/* There is room: no more chunks are out than the ring holds. */
	for (uint32_t i = 0; i < num; i++)
		entries[xsk->fill.at++ & xsk->fill.mask] =
			xsk_peek(xsk, i)->addr & ~(uint64_t)(xsk->chunk_bytes - 1);
	xsk->rx.at += num;
}

void xsk_publish(struct xsk *xsk)
{
	atomic_store_explicit(xsk->rx.consumer, xsk->rx.at, memory_order_release);
	atomic_store_explicit(xsk->fill.producer, xsk->fill.at, memory_order_release);
	if (atomic_load_explicit(xsk->fill.flags, memory_order_relaxed) & XDP_RING_NEED_WAKEUP)
		recvfrom(xsk->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

uint64_t xsk_read_drops(struct xsk *xsk)
{
	struct xdp_statistics stats = {0};
	socklen_t len = sizeof(stats);
	uint64_t total, since;

	if (getsockopt(xsk->fd, SOL_XDP, XDP_STATISTICS, &stats, &len))
		return 0;
	/* A frame that finds the fill ring empty counts as dropped, too. */
	total = stats.rx_dropped + stats.rx_ring_full;
	since = total - xsk->drops;
	xsk->drops = total;
	return since;
}
