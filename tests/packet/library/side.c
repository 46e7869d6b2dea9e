/* SPDX-License-Identifier: MIT */
/* Both ends of the veth pair. */
#include "side.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_FRAME 65536
#define WAY_TRIES 500
#define WAY_MS    10

uint8_t near_mac[6], far_mac[6];
static int far = -1;

uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

unsigned open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count - 3; /* . and .. and the folder */
}

/* ---- frames ---- */

void frame_set_ip(uint8_t ip[16], const char *text)
{
	memset(ip, 0, 16);
	assert_int_equal(inet_pton(strchr(text, ':') ? AF_INET6 : AF_INET, text, ip), 1);
}

struct frame frame_udp(uint32_t mark)
{
	struct frame frame = {
		.vlan = -1,
		.ip_version = 4,
		.protocol = IPPROTO_UDP,
		.src_port = 1111,
		.dst_port = 2222,
		.mark = mark,
		.len = 100,
	};

	memcpy(frame.dst_mac, near_mac, 6);
	memcpy(frame.src_mac, far_mac, 6);
	frame_set_ip(frame.src_ip, "10.9.0.2");
	frame_set_ip(frame.dst_ip, "10.9.0.1");
	return frame;
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t len)
{
	memcpy(at, bytes, len);
	return at + len;
}

static uint8_t *put16(uint8_t *at, unsigned number)
{
	at[0] = (uint8_t)(number >> 8);
	at[1] = (uint8_t)number;
	return at + 2;
}

static uint8_t *put_ip(uint8_t *at, const struct frame *frame, size_t len)
{
	uint32_t sum = 0;

	if (frame->ip_version == 6) {
		const uint8_t head[4] = {0x60, 0, 0, 0};

		at = put16(put(at, head, 4), (unsigned)(len - 40));
		*at++ = frame->protocol;
		*at++ = 64;
		return put(put(at, frame->src_ip, 16), frame->dst_ip, 16);
	}
	memset(at, 0, 20);
	at[0] = 0x45;
	put16(at + 2, (unsigned)len);
	at[8] = 64;
	at[9] = frame->protocol;
	memcpy(at + 12, frame->src_ip, 4);
	memcpy(at + 16, frame->dst_ip, 4);
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(at[i] << 8 | at[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(at + 10, 0xffff & ~(sum + (sum >> 16)));
	return at + 20;
}

uint32_t frame_write(const struct frame *frame, uint8_t *out)
{
	uint8_t *at = put(put(out, frame->dst_mac, 6), frame->src_mac, 6);
	unsigned type = frame->ether_type;

	memset(at, 0x5a, frame->len - 12);
	if (frame->vlan >= 0)
		at = put16(put16(at, 0x8100), (unsigned)frame->vlan);
	if (!type)
		type = frame->ip_version == 6 ? 0x86dd : frame->ip_version == 4 ? 0x0800 : 0x88b5;
	at = put16(at, type);
	if (frame->ip_version) {
		at = put_ip(at, frame, frame->len - (size_t)(at - out));
		at = put16(put16(at, frame->src_port), frame->dst_port);
		if (frame->protocol == IPPROTO_UDP)
			put16(put16(at, (unsigned)(frame->len - (at - 4 - out))), 0);
	}
	memcpy(out + frame->len - 4, &frame->mark, 4);
	return frame->len;
}

/* ---- the far end ---- */

static void read_mac(int fd, const char *name, uint8_t mac[6])
{
	struct ifreq request = {0};

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	assert_int_equal(ioctl(fd, SIOCGIFHWADDR, &request), 0);
	memcpy(mac, request.ifr_hwaddr.sa_data, 6);
}

/* A network of its own; it goes with the process. No frame of the kernel's own comes between. */
static void make_network(void)
{
	if (unshare(CLONE_NEWNET)) {
		printf("skipped: a network namespace needs root\n");
		exit(getenv("CI") ? 1 : 77);
	}
	if (system("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 &&"
		   "ip link add " NEAR
		   " mtu 9000 address 02:99:00:00:00:01 type veth peer name " FAR
		   " mtu 9000 address 02:99:00:00:00:02 &&"
		   "ip address add 10.9.0.1/24 dev " NEAR " && ip link set " NEAR " up &&"
		   "ip link set " FAR " up && ip link set lo up"))
		exit(2);
}

static int open_end(const char *name)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
				      .sll_protocol = htons(ETH_P_ALL),
				      .sll_ifindex = (int)if_nametoindex(name)};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* The kernel lets frames through some time after it has said that an interface is up. */
static void wait_for_way(int from, int to, uint8_t mark)
{
	const uint8_t probe[60] = {[12] = 0x88, [13] = 0xb5, [14] = mark};
	uint8_t got[60] = {0};

	for (int i = 0; i < WAY_TRIES && memcmp(got, probe, sizeof(probe)) != 0; i++) {
		struct pollfd pollfd = {.fd = to, .events = POLLIN};

		if (send(from, probe, sizeof(probe), 0) < 0)
			assert_int_equal(errno, ENOBUFS);
		while (memcmp(got, probe, sizeof(probe)) != 0 && poll(&pollfd, 1, WAY_MS) > 0)
			assert_true(recv(to, got, sizeof(got), MSG_DONTWAIT) > 0);
	}
	assert_memory_equal(got, probe, sizeof(probe));
}

int side_open(void **state)
{
	uint8_t rest[60];
	int near;

	(void)state;
	make_network();
	far = open_end(FAR);
	near = open_end(NEAR);
	read_mac(far, NEAR, near_mac);
	read_mac(far, FAR, far_mac);
	wait_for_way(near, far, 1);
	wait_for_way(far, near, 2);
	close(near);
	while (recv(far, rest, sizeof(rest), MSG_DONTWAIT) > 0)
		continue;
	return 0;
}

int side_close(void **state)
{
	(void)state;
	close(far);
	return 0;
}

void far_send(const struct frame *frame)
{
	uint8_t bytes[MAX_FRAME];
	uint32_t len = frame_write(frame, bytes);

	assert_int_equal(send(far, bytes, len, 0), len);
}

void far_send_udp(uint32_t mark, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct frame frame = frame_udp(mark + i);

		far_send(&frame);
	}
}

uint32_t far_recv(uint8_t *out, uint32_t size, int timeout_ms)
{
	uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)timeout_ms * 1000000;

	for (;;) {
		struct pollfd pollfd = {.fd = far, .events = POLLIN};
		uint64_t now = now_ns(CLOCK_MONOTONIC);
		ssize_t len;

		if (poll(&pollfd, 1, now < end ? (int)((end - now) / 1000000 + 1) : 0) <= 0)
			return 0;
		len = recv(far, out, size, MSG_DONTWAIT | MSG_TRUNC);
		if (len >= 14 && !memcmp(out + 6, near_mac, 6))
			return (uint32_t)len;
		if (now >= end)
			return 0;
	}
}

/* ---- the near end ---- */

void near_init(struct hashpipe_ibv_context *context, uint32_t sends, uint32_t receives,
	       uint32_t size, uint32_t flows)
{
	*context = (struct hashpipe_ibv_context){
		.send_pkt_num = sends,
		.recv_pkt_num = receives,
		.pkt_size_max = size,
		.max_flows = flows,
		.interface_name = NEAR,
	};
	if (hashpipe_ibv_init(context))
		fail_msg("init: %s", strerror(errno));
}

void near_shutdown(struct hashpipe_ibv_context *context)
{
	assert_int_equal(hashpipe_ibv_shutdown(context), 0);
}

void near_listen(struct hashpipe_ibv_context *context)
{
	assert_int_equal(hashpipe_ibv_flow(context, 0, IBV_FLOW_SPEC_UDP, NULL, far_mac, 0, 0, 0, 0,
					   0, 2222),
			 0);
	assert_null(hashpipe_ibv_recv_pkts(context, 0));
}

uint8_t *bytes_of(const struct hashpipe_ibv_recv_pkt *pkt)
{
	return (uint8_t *)(uintptr_t)pkt->wr.sg_list->addr;
}

uint32_t mark_of(const struct hashpipe_ibv_recv_pkt *pkt)
{
	uint32_t mark;

	assert_true(pkt->length >= 4);
	memcpy(&mark, bytes_of(pkt) + pkt->length - 4, 4);
	return mark;
}

struct hashpipe_ibv_recv_pkt *next_of(const struct hashpipe_ibv_recv_pkt *pkt)
{
	return (struct hashpipe_ibv_recv_pkt *)pkt->wr.next;
}

unsigned length_of(const struct hashpipe_ibv_recv_pkt *list)
{
	unsigned count = 0;

	for (; list; list = next_of(list))
		count++;
	return count;
}

void near_expect_nothing(struct hashpipe_ibv_context *context)
{
	struct hashpipe_ibv_recv_pkt *list = hashpipe_ibv_recv_pkts(context, QUIET_MS);

	if (list)
		fail_msg("a packet of %u bytes arrives that must not", list->length);
}

void near_expect(struct hashpipe_ibv_context *context, uint32_t mark, unsigned count)
{
	unsigned seen = 0;

	while (seen < count) {
		struct hashpipe_ibv_recv_pkt *list = hashpipe_ibv_recv_pkts(context, PATIENCE_MS);

		if (!list)
			fail_msg("packet %u of %u does not arrive", seen, count);
		for (struct hashpipe_ibv_recv_pkt *pkt = list; pkt; pkt = next_of(pkt))
			assert_int_equal(mark_of(pkt), mark + seen++);
		assert_int_equal(hashpipe_ibv_release_pkts(context, list), 0);
	}
	assert_int_equal(seen, count);
	near_expect_nothing(context);
}

struct hashpipe_ibv_recv_pkt *near_take(struct hashpipe_ibv_context *context)
{
	struct hashpipe_ibv_recv_pkt *pkt;

	assert_int_equal(hashpipe_ibv_set_max_batch(context, 1), 0);
	pkt = hashpipe_ibv_recv_pkts(context, PATIENCE_MS);
	assert_int_equal(hashpipe_ibv_set_max_batch(context, 0), 0);
	assert_non_null(pkt);
	assert_null(pkt->wr.next);
	return pkt;
}

void near_fill(struct hashpipe_ibv_send_pkt *pkt, uint32_t len, uint32_t mark)
{
	struct frame frame = frame_udp(mark);

	memcpy(frame.dst_mac, far_mac, 6);
	memcpy(frame.src_mac, near_mac, 6);
	frame.len = len;
	frame_write(&frame, (uint8_t *)(uintptr_t)pkt->wr.sg_list->addr);
	pkt->wr.sg_list->length = len;
}
