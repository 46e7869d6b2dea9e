/* SPDX-License-Identifier: MIT */
/*
 * Receives UDP packets for port 9 in one of several ways, and says how many came:
 *   packet_recv ours|spin|udp|ring IFACE SIZE COUNT [RULES]
 * ours: recv_pkts and release_pkts; spin: poll_pkts; udp: recvmmsg; ring: TPACKET_V3. Prints
 * "ready", then after COUNT packets or when none has come for a while "received=N". RULES: so many
 * flow rules, of which the last one matches.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <hashpipe_ibverbs.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT       9
#define PATIENCE   3000 /* ms for the first packet */
#define IDLE       150  /* ms after the last */
#define RECEIVES   8192
#define BATCH      64
#define BUFFER     (64 << 20) /* what ours takes at most; the kernel doubles it */
#define BLOCK      (128 << 10)
#define NUM_BLOCKS 1024

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void say_ready(void)
{
	printf("ready\n");
	fflush(stdout);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int patience(uint64_t received)
{
	return received ? IDLE : PATIENCE;
}

/* ---- ours ---- */

static void open_ours(struct hashpipe_ibv_context *context, const char *ifname, uint32_t size,
		      uint32_t rules)
{
	*context = (struct hashpipe_ibv_context){.send_pkt_num = 1,
						 .recv_pkt_num = RECEIVES,
						 .pkt_size_max = size + 64,
						 .max_flows = rules};
	snprintf(context->interface_name, sizeof(context->interface_name), "%s", ifname);
	if (hashpipe_ibv_init(context))
		die("init");
	for (uint32_t i = 0; i < rules; i++)
		if (hashpipe_ibv_flow(context, i, IBV_FLOW_SPEC_UDP, NULL, NULL, 0, 0, 0, 0, 0,
				      (uint16_t)(PORT + rules - 1 - i)))
			die("flow");
}

static uint64_t receive_ours(const char *ifname, uint32_t size, uint64_t count, uint32_t rules,
			     bool spins)
{
	struct hashpipe_ibv_context context;
	struct hashpipe_ibv_recv_pkt *list, *pkt;
	uint64_t received = 0, last;

	open_ours(&context, ifname, size, rules);
	hashpipe_ibv_recv_pkts(&context, 0);
	say_ready();
	last = now_ms();
	while (received < count) {
		list = spins ? hashpipe_ibv_poll_pkts(&context, 0)
			     : hashpipe_ibv_recv_pkts(&context, patience(received));
		if (!list && (!spins || now_ms() - last > (uint64_t)patience(received)))
			break;
		if (!list)
			continue;
		for (pkt = list; pkt; pkt = (struct hashpipe_ibv_recv_pkt *)pkt->wr.next)
			received += pkt->length == size;
		hashpipe_ibv_release_pkts(&context, list);
		if (spins)
			last = now_ms();
	}
	hashpipe_ibv_shutdown(&context);
	return received;
}

/* ---- UDP ---- */

static int open_udp(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int buffer = BUFFER;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)))
		die("udp");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)))
		die("SO_RCVBUFFORCE");
	return fd;
}

static uint64_t receive_udp(uint32_t size, uint64_t count)
{
	int fd = open_udp(), num;
	uint8_t *memory = malloc((size_t)RECEIVES * size);
	struct mmsghdr messages[BATCH];
	struct iovec pieces[BATCH];
	uint64_t received = 0;
	unsigned next = 0;

	if (!memory)
		die("malloc");
	memset(memory, 1, (size_t)RECEIVES * size);
	say_ready();
	while (received < count) {
		struct pollfd pollfd = {.fd = fd, .events = POLLIN};

		/* Each packet in the next buffer, as with all the others. */
		for (unsigned i = 0; i < BATCH; i++) {
			pieces[i] = (struct iovec){memory + (size_t)((next + i) % RECEIVES) * size,
						   size};
			messages[i] = (struct mmsghdr){
				.msg_hdr = {.msg_iov = &pieces[i], .msg_iovlen = 1}};
		}
		num = recvmmsg(fd, messages, BATCH, MSG_DONTWAIT, NULL);
		if (num > 0) {
			received += (unsigned)num;
			next = (next + (unsigned)num) % RECEIVES;
		} else if (poll(&pollfd, 1, patience(received)) <= 0) {
			break;
		}
	}
	free(memory);
	close(fd);
	return received;
}

/* ---- TPACKET_V3 ---- */

static uint8_t *open_ring(const char *ifname, int *fd)
{
	struct tpacket_req3 request = {.tp_block_size = BLOCK,
				       .tp_block_nr = NUM_BLOCKS,
				       .tp_frame_size = 2048,
				       .tp_frame_nr = NUM_BLOCKS * (BLOCK / 2048),
				       .tp_retire_blk_tov = 1};
	struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
	int version = TPACKET_V3;
	uint8_t *ring;

	*fd = socket(AF_PACKET, SOCK_RAW, 0);
	address.sll_ifindex = (int)if_nametoindex(ifname);
	if (*fd < 0 || setsockopt(*fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) ||
	    setsockopt(*fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request)))
		die("ring");
	ring = mmap(NULL, (size_t)BLOCK * NUM_BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (ring == MAP_FAILED || bind(*fd, (struct sockaddr *)&address, sizeof(address)))
		die("ring");
	return ring;
}

/* Copies the packets to where a user wants them, as the others do. */
static uint64_t take_block(const struct tpacket_block_desc *block, uint8_t *memory, uint32_t size)
{
	const uint8_t *at = (const uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
	uint64_t received = 0;
	static unsigned next;

	for (unsigned i = 0; i < block->hdr.bh1.num_pkts; i++) {
		const struct tpacket3_hdr *packet = (const struct tpacket3_hdr *)at;

		if (packet->tp_snaplen == size) {
			memcpy(memory + (size_t)next * size, at + packet->tp_mac, size);
			next = (next + 1) % RECEIVES;
			received++;
		}
		at += packet->tp_next_offset;
	}
	return received;
}

static uint64_t receive_ring(const char *ifname, uint32_t size, uint64_t count)
{
	uint8_t *memory = malloc((size_t)RECEIVES * size);
	uint64_t received = 0;
	unsigned at = 0;
	int fd;
	uint8_t *ring = open_ring(ifname, &fd);

	if (!memory)
		die("malloc");
	memset(memory, 1, (size_t)RECEIVES * size);
	say_ready();
	while (received < count) {
		struct tpacket_block_desc *block =
			(struct tpacket_block_desc *)(ring + (size_t)at * BLOCK);
		struct pollfd pollfd = {.fd = fd, .events = POLLIN};

		if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) &
		      TP_STATUS_USER)) {
			if (poll(&pollfd, 1, patience(received)) <= 0)
				break;
			continue;
		}
		received += take_block(block, memory, size);
		__atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		at = (at + 1) % NUM_BLOCKS;
	}
	free(memory);
	close(fd);
	return received;
}

int main(int argc, char **argv)
{
	uint64_t count, received;
	uint32_t size;

	if (argc < 5) {
		fprintf(stderr, "usage: packet_recv ours|spin|udp|ring IFACE SIZE COUNT [RULES]\n");
		return 2;
	}
	size = (uint32_t)atoi(argv[3]);
	count = strtoull(argv[4], NULL, 10);
	if (!strcmp(argv[1], "udp"))
		received = receive_udp(size, count);
	else if (!strcmp(argv[1], "ring"))
		received = receive_ring(argv[2], size, count);
	else
		received =
			receive_ours(argv[2], size, count, argc > 5 ? (uint32_t)atoi(argv[5]) : 1,
				     !strcmp(argv[1], "spin"));
	printf("received=%llu\n", (unsigned long long)received);
	return 0;
}
