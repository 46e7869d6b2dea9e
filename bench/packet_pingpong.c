/* SPDX-License-Identifier: MIT */
/*
 * Round trips of one packet between two contexts that spin:
 *   packet_pingpong pong IFACE        sends each packet back, until none comes for a while
 *   packet_pingpong ping IFACE COUNT  prints the median and the 99th percentile of a round trip
 */
#include <errno.h>
#include <hashpipe_ibverbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE     100
#define TYPE     0x88b5 /* for experiments */
#define PATIENCE 3000000000ull

static struct hashpipe_ibv_context context;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Broadcast, so that nobody needs to know the other; each side has its own source byte. */
static void fill(void *bytes, uint8_t side)
{
	uint8_t *frame = bytes;

	memset(frame, 0xff, 6);
	memset(frame + 6, 0, SIZE - 6);
	frame[6] = 0x02;
	frame[11] = side;
	frame[12] = TYPE >> 8;
	frame[13] = TYPE & 0xff;
}

static void open_side(const char *ifname, uint8_t own, uint8_t other)
{
	uint8_t broadcast[6], source[6] = {0x02, 0, 0, 0, 0, other};

	memset(broadcast, 0xff, 6);
	context = (struct hashpipe_ibv_context){
		.send_pkt_num = 64, .recv_pkt_num = 64, .pkt_size_max = 2048, .max_flows = 1};
	snprintf(context.interface_name, sizeof(context.interface_name), "%s", ifname);
	if (hashpipe_ibv_init(&context) ||
	    hashpipe_ibv_flow(&context, 0, IBV_FLOW_SPEC_ETH, broadcast, source, TYPE, 0, 0, 0, 0,
			      0))
		die(ifname);
	for (uint32_t i = 0; i < 64; i++) {
		fill((void *)(uintptr_t)context.send_sge_buf[i].addr, own);
		context.send_sge_buf[i].length = SIZE;
	}
	hashpipe_ibv_poll_pkts(&context, 0);
}

static void send_one(void)
{
	struct hashpipe_ibv_send_pkt *pkt;

	while (!(pkt = hashpipe_ibv_get_pkts(&context, 1)))
		;
	if (hashpipe_ibv_send_pkts(&context, pkt, 0))
		die("send");
}

/*
 * NULL: none came. The clock is read rarely: it would be much of what is measured. Whoever gets a
 * packet gives it back when the answer is on its way.
 */
static struct hashpipe_ibv_recv_pkt *receive_one(void)
{
	struct hashpipe_ibv_recv_pkt *pkt;
	uint64_t end = 0;

	for (unsigned i = 1; !(pkt = hashpipe_ibv_poll_pkts(&context, 1)); i++) {
		if (i % 4096)
			continue;
		if (!end)
			end = now_ns() + PATIENCE;
		else if (now_ns() > end)
			break;
	}
	return pkt;
}

static int compare(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return (one > other) - (one < other);
}

static void ping(unsigned count)
{
	uint64_t *samples = calloc(count, sizeof(*samples)), median, late;

	if (!samples)
		die("calloc");
	for (unsigned i = 0; i < count + count / 10; i++) { /* the first of them to warm up */
		uint64_t began = now_ns();
		struct hashpipe_ibv_recv_pkt *pkt;

		send_one();
		pkt = receive_one();
		if (!pkt)
			die("no answer");
		if (i >= count / 10)
			samples[i - count / 10] = now_ns() - began;
		hashpipe_ibv_release_pkts(&context, pkt);
	}
	qsort(samples, count, sizeof(*samples), compare);
	median = samples[count / 2];
	late = samples[count * 99ull / 100];
	printf("p50_us=%.3f p99_us=%.3f\n", (double)median / 1e3, (double)late / 1e3);
	free(samples);
}

int main(int argc, char **argv)
{
	struct hashpipe_ibv_recv_pkt *pkt;

	if (argc == 3 && !strcmp(argv[1], "pong")) {
		open_side(argv[2], 2, 1);
		printf("ready\n");
		fflush(stdout);
		while ((pkt = receive_one())) {
			send_one();
			hashpipe_ibv_release_pkts(&context, pkt);
		}
	} else if (argc == 4 && !strcmp(argv[1], "ping")) {
		open_side(argv[2], 1, 2);
		ping((unsigned)atoi(argv[3]));
	} else {
		fprintf(stderr, "usage: packet_pingpong pong IFACE | ping IFACE COUNT\n");
		return 2;
	}
	return hashpipe_ibv_shutdown(&context);
}
