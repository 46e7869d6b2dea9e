/* SPDX-License-Identifier: MIT */
/* What has happened in a context, and when. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

uint64_t stats_port_drops(const struct hashpipe_ibv_context *context)
{
	unsigned long long drops = 0;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/hw_counters/out_of_buffer",
		 ibv_get_device_name(context->ctx->device), context->port_num);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%llu", &drops) != 1)
		drops = 0;
	fclose(file);
	return drops;
}

static void add_drops(const struct hashpipe_ibv_context *context, const struct packets *packets,
		      struct hashpipe_ibv_stats *stats)
{
	for (uint32_t i = 0; i < packets->nqp; i++) {
		struct softrdma_raw_counters counters;

		if (softrdma_raw_counters(packets->qp[i], &counters)) {
			stats->recv_no_buffer = stats_port_drops(context) - packets->port_drops;
			return; /* hardware: one number for all */
		}
		stats->recv_dropped += counters.dropped;
		stats->recv_no_buffer += counters.no_buffer;
	}
}

int hashpipe_ibv_get_stats(struct hashpipe_ibv_context *hibv_ctx, struct hashpipe_ibv_stats *stats,
			   size_t size)
{
	struct packets *packets = packets_of(hibv_ctx);
	struct hashpipe_ibv_stats full;

	if (!packets)
		return -1;
	if (!stats) {
		errno = EINVAL;
		return -1;
	}
	full = (struct hashpipe_ibv_stats){
		.recv_pkts = packets->recv_pkts,
		.recv_bytes = packets->recv_bytes,
		.recv_errors = packets->recv_errors,
		.recv_lists = packets->recv_lists,
		.recv_sleeps = packets->recv_sleeps,
		.send_pkts = packets->send_pkts,
		.send_bytes = packets->send_bytes,
		.send_errors = packets->send_errors,
		.pkts_held = packets->held,
		.pkts_out = packets->out,
	};
	add_drops(hibv_ctx, packets, &full);
	/* The caller may have been compiled with a shorter or a longer struct. */
	memset(stats, 0, size);
	memcpy(stats, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

/* The device's clock now; without one, time stamps are of CLOCK_MONOTONIC. */
static uint64_t read_clock(struct hashpipe_ibv_context *context, struct packets *packets)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	if (packets->recv[0].extended && !ibv_query_rt_values_ex(context->ctx, &values))
		return (uint64_t)values.raw_clock.tv_sec * 1000000000u +
		       (uint64_t)values.raw_clock.tv_nsec;
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t hashpipe_ibv_timestamp_ns(struct hashpipe_ibv_context *hibv_ctx, uint64_t timestamp)
{
	struct packets *packets = packets_of(hibv_ctx);
	uint64_t now, result;
	__int128 ticks;

	if (!packets)
		return 0;
	now = clock_ns(CLOCK_REALTIME);
	pthread_mutex_lock(&packets->lock);
	/* Clocks drift apart: compare them every second. */
	if (now - packets->reference_ns > 1000000000u) {
		packets->reference_stamp = read_clock(hibv_ctx, packets);
		packets->reference_ns = clock_ns(CLOCK_REALTIME);
	}
	ticks = (__int128)timestamp - (__int128)packets->reference_stamp;
	result = packets->reference_ns +
		 (uint64_t)(int64_t)(ticks * 1000000 / (__int128)packets->clock_khz);
	pthread_mutex_unlock(&packets->lock);
	return result;
}
