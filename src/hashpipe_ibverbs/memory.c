/* SPDX-License-Identifier: MIT */
/* Packets, their memory and their keys. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* Newer than the headers may be. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* ---- the library's own ---- */

/* Of any pages, beginning where a huge one could. */
static void *map_aligned(size_t length)
{
	const size_t room = length + HUGE_PAGE;
	char *addr, *begin;

	addr = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED)
		return addr;
	begin = (char *)(((uintptr_t)addr + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	if (begin > addr)
		munmap(addr, (size_t)(begin - addr));
	munmap(begin + length, room - length - (size_t)(begin - addr));
	return begin;
}

/* Have all pages now, huge ones where the kernel gives them: they are found faster. */
static void populate(void *memory, size_t length)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	volatile char *bytes = memory;

	madvise(memory, length, MADV_HUGEPAGE);
	if (!madvise(memory, length, MADV_POPULATE_WRITE))
		return;
	for (size_t at = 0; at < length; at += page)
		bytes[at] = 0;
}

static int map_memory(size_t length, bool huge, struct mapping *out)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *addr = MAP_FAILED;

	if (!length)
		return -EINVAL;
	if (length > SIZE_MAX - 2 * HUGE_PAGE)
		return -EOVERFLOW;
	if (huge) {
		length = (length + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
		addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_HUGETLB, -1, 0);
		if (addr == MAP_FAILED)
			log_info("no huge pages: %s; ordinary ones are used", strerror(errno));
	}
	if (addr == MAP_FAILED) {
		length = (length + page - 1) & ~(page - 1);
		addr = map_aligned(length);
		if (addr == MAP_FAILED)
			return -errno;
		populate(addr, length);
	}
	*out = (struct mapping){.addr = addr, .length = length};
	return 0;
}

/* Bytes of @count packets. */
static int packet_bytes(const struct hashpipe_ibv_context *context, uint32_t count, size_t *out)
{
	return __builtin_mul_overflow((size_t)count, (size_t)context->pkt_size_max, out)
		       ? -EOVERFLOW
		       : 0;
}

static int make_send(struct hashpipe_ibv_context *context, struct packets *packets, uint32_t count)
{
	int result = packet_bytes(context, count, &context->send_mr_size);

	if (result)
		return result;
	context->send_pkt_buf = calloc(count, sizeof(*context->send_pkt_buf));
	context->send_sge_buf = calloc(count, sizeof(*context->send_sge_buf));
	if (!context->send_pkt_buf || !context->send_sge_buf)
		return -ENOMEM;
	result = map_memory(context->send_mr_size, packets->huge_pages, &packets->send_mapping);
	if (result)
		return result;
	context->send_mr_buf = packets->send_mapping.addr;
	for (uint32_t i = 0; i < count; i++) {
		context->send_pkt_buf[i].wr.num_sge = 1;
		context->send_sge_buf[i].addr =
			(uintptr_t)context->send_mr_buf + (size_t)i * context->pkt_size_max;
		context->send_sge_buf[i].length = context->pkt_size_max;
	}
	return 0;
}

static int make_recv(struct hashpipe_ibv_context *context, struct packets *packets, uint32_t count)
{
	int result = packet_bytes(context, count, &context->recv_mr_size);

	if (result)
		return result;
	context->recv_pkt_buf = calloc(count, sizeof(*context->recv_pkt_buf));
	context->recv_sge_buf = calloc(count, sizeof(*context->recv_sge_buf));
	if (!context->recv_pkt_buf || !context->recv_sge_buf)
		return -ENOMEM;
	result = map_memory(context->recv_mr_size, packets->huge_pages, &packets->recv_mapping);
	if (result)
		return result;
	context->recv_mr_buf = packets->recv_mapping.addr;
	for (uint32_t i = 0; i < count; i++) {
		context->recv_pkt_buf[i].wr.num_sge = 1;
		context->recv_sge_buf[i].addr =
			(uintptr_t)context->recv_mr_buf + (size_t)i * context->pkt_size_max;
		context->recv_sge_buf[i].length = context->pkt_size_max;
	}
	return 0;
}

/* ---- the user's ---- */

static int check_user_memory(const struct hashpipe_ibv_context *context,
			     const struct packets *packets)
{
	const int max_sge = context->dev_attr.max_sge;
	const uint32_t sends = packets_total(context->send_pkt_num, packets);
	const uint32_t receives = packets_total(context->recv_pkt_num, packets);

	for (uint32_t i = 0; i < sends; i++)
		if (context->send_pkt_buf[i].wr.num_sge < 1 ||
		    context->send_pkt_buf[i].wr.num_sge > max_sge)
			goto wrong;
	for (uint32_t i = 0; i < receives; i++)
		if (context->recv_pkt_buf[i].wr.num_sge < 1 ||
		    context->recv_pkt_buf[i].wr.num_sge > max_sge)
			goto wrong;
	return 0;

wrong:
	log_error("user-managed packets: num_sge of each must be from 1 to %d", max_sge);
	return -EINVAL;
}

int memory_prepare(struct hashpipe_ibv_context *context, struct packets *packets)
{
	const uint32_t sends = packets_total(context->send_pkt_num, packets);
	const uint32_t receives = packets_total(context->recv_pkt_num, packets);
	int result;

	packets->send_place = calloc(sends, 1);
	packets->recv_place = calloc(receives, 1);
	if (!packets->send_place || !packets->recv_place)
		return -ENOMEM;
	if (packets->user_managed)
		return check_user_memory(context, packets);
	result = make_send(context, packets, sends);
	return result ? result : make_recv(context, packets, receives);
}

uint32_t memory_max_send_sge(const struct hashpipe_ibv_context *context,
			     const struct packets *packets)
{
	int max = 1;

	for (uint32_t i = 0; i < packets_total(context->send_pkt_num, packets); i++)
		if (context->send_pkt_buf[i].wr.num_sge > max)
			max = context->send_pkt_buf[i].wr.num_sge;
	return (uint32_t)max;
}

uint32_t memory_max_recv_sge(const struct hashpipe_ibv_context *context,
			     const struct packets *packets)
{
	int max = 1;

	for (uint32_t i = 0; i < packets_total(context->recv_pkt_num, packets); i++)
		if (context->recv_pkt_buf[i].wr.num_sge > max)
			max = context->recv_pkt_buf[i].wr.num_sge;
	return (uint32_t)max;
}

/* ---- keys ---- */

static int register_region(struct ibv_pd *pd, void *addr, size_t length, int access,
			   struct ibv_mr **out)
{
	*out = ibv_reg_mr(pd, addr, length, access);
	if (*out)
		return 0;
	log_error("%zu bytes of packets cannot be registered: %s", length, strerror(errno));
	return errno ? -errno : -ENOMEM;
}

int memory_register(struct hashpipe_ibv_context *context, struct packets *packets,
		    const struct hashpipe_ibv_options *options)
{
	int result = register_region(context->pd, context->send_mr_buf, context->send_mr_size, 0,
				     &context->send_mr);

	if (!result)
		result = register_region(context->pd, context->recv_mr_buf, context->recv_mr_size,
					 IBV_ACCESS_LOCAL_WRITE, &context->recv_mr);
	if (result || !options || !options->num_regions)
		return result;
	packets->regions = calloc(options->num_regions, sizeof(struct ibv_mr *));
	if (!packets->regions)
		return -ENOMEM;
	for (uint32_t i = 0; i < options->num_regions && !result; i++) {
		result = register_region(context->pd, options->regions[i].addr,
					 options->regions[i].length, IBV_ACCESS_LOCAL_WRITE,
					 &packets->regions[i]);
		packets->num_regions += !result;
	}
	return result;
}

static bool covers(const struct ibv_mr *mr, uint64_t addr, size_t length)
{
	uint64_t offset = addr - (uintptr_t)mr->addr;

	return addr >= (uintptr_t)mr->addr && offset <= mr->length && length <= mr->length - offset;
}

/* NULL: no region has it. */
static const struct ibv_mr *find_region(const struct hashpipe_ibv_context *context,
					const struct packets *packets, uint64_t addr, size_t length)
{
	if (covers(context->recv_mr, addr, length))
		return context->recv_mr;
	for (uint32_t i = 0; i < packets->num_regions; i++)
		if (covers(packets->regions[i], addr, length))
			return packets->regions[i];
	return NULL;
}

int hashpipe_ibv_get_lkey(struct hashpipe_ibv_context *hibv_ctx, const void *addr, size_t length,
			  uint32_t *lkey)
{
	const struct packets *packets = packets_of(hibv_ctx);
	const struct ibv_mr *mr;

	if (!packets)
		return 1;
	mr = find_region(hibv_ctx, packets, (uintptr_t)addr, length);
	if (!mr && covers(hibv_ctx->send_mr, (uintptr_t)addr, length))
		mr = hibv_ctx->send_mr;
	if (!mr || !lkey) {
		errno = mr ? EINVAL : EFAULT;
		return 1;
	}
	*lkey = mr->lkey;
	return 0;
}

/* ---- in order ---- */

static void link_send(struct hashpipe_ibv_context *context, struct packets *packets)
{
	const uint32_t count = packets_total(context->send_pkt_num, packets);
	struct ibv_sge *sge = context->send_sge_buf;

	for (uint32_t i = 0; i < count; i++) {
		struct ibv_send_wr *wr = &context->send_pkt_buf[i].wr;

		wr->wr_id = i;
		wr->next = i + 1 < count ? &context->send_pkt_buf[i + 1].wr : NULL;
		wr->sg_list = sge;
		wr->opcode = IBV_WR_SEND;
		wr->send_flags = 0;
		for (int k = 0; k < wr->num_sge; k++)
			(sge++)->lkey = context->send_mr->lkey;
		packets->send_place[i] = PKT_FREE;
	}
	context->send_pkt_head = context->send_pkt_buf;
}

static int link_recv(struct hashpipe_ibv_context *context, struct packets *packets)
{
	const uint32_t count = packets_total(context->recv_pkt_num, packets);
	struct ibv_sge *sge = context->recv_sge_buf;

	for (uint32_t i = 0; i < count; i++) {
		struct ibv_recv_wr *wr = &context->recv_pkt_buf[i].wr;

		wr->wr_id = i;
		wr->next = NULL;
		wr->sg_list = sge;
		for (int k = 0; k < wr->num_sge; k++, sge++) {
			const struct ibv_mr *mr =
				find_region(context, packets, sge->addr, sge->length);

			if (!mr) {
				log_error("packet %u lies outside the memory for packets", i);
				return -EFAULT;
			}
			sge->lkey = mr->lkey;
		}
		packets->recv_place[i] = PKT_USER;
	}
	return 0;
}

int memory_link(struct hashpipe_ibv_context *context, struct packets *packets)
{
	link_send(context, packets);
	return link_recv(context, packets);
}

/* ---- back ---- */

static int deregister(struct ibv_mr **mr)
{
	int error = *mr ? ibv_dereg_mr(*mr) : 0;

	*mr = NULL;
	return error != 0;
}

int memory_deregister(struct hashpipe_ibv_context *context, struct packets *packets)
{
	int failures = deregister(&context->send_mr) + deregister(&context->recv_mr);

	for (uint32_t i = 0; i < packets->num_regions; i++)
		failures += deregister(&packets->regions[i]);
	free(packets->regions);
	packets->regions = NULL;
	packets->num_regions = 0;
	return failures;
}

static int unmap(const struct mapping *mapping)
{
	return mapping->addr && munmap(mapping->addr, mapping->length) != 0;
}

int memory_free(struct hashpipe_ibv_context *context, struct packets *packets)
{
	int failures = 0;

	free(packets->send_place);
	free(packets->recv_place);
	/* What the flag says now: a user may hand memory over, or keep what the library made. */
	if (context->user_managed_flag)
		return 0;
	free(context->send_pkt_buf);
	free(context->recv_pkt_buf);
	free(context->send_sge_buf);
	free(context->recv_sge_buf);
	if (packets->user_managed) {
		free(context->send_mr_buf);
		free(context->recv_mr_buf);
	} else {
		failures = unmap(&packets->send_mapping) + unmap(&packets->recv_mapping);
	}
	context->send_pkt_buf = NULL;
	context->recv_pkt_buf = NULL;
	context->send_sge_buf = NULL;
	context->recv_sge_buf = NULL;
	context->send_mr_buf = NULL;
	context->recv_mr_buf = NULL;
	context->send_mr_size = context->recv_mr_size = 0;
	return failures;
}
