/* SPDX-License-Identifier: MIT */
/* What the packet programs share. */
#include "program.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frame.h"

#define ARP_TRIES   6
#define ARP_WAIT_NS 500000000u

int program_fails(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", program_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return PROGRAM_FAILED;
}

int program_usage_fails(const char *what)
{
	return program_fails("%s; see %s --help", what, program_name);
}

bool program_parse_count(const char *text, uint64_t *out)
{
	unsigned long long number, scale = 1;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return false;
	if (*end && strchr("kKMG", *end)) {
		scale = *end == 'G' ? 1000000000 : *end == 'M' ? 1000000 : 1000;
		end++;
	}
	return !*end && !__builtin_mul_overflow(number, scale, out);
}

bool program_parse_seconds(const char *text, double *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*out = strtod(text, &end);
	return !*end && *out < 1e6;
}

/* ---- signals ---- */

static volatile sig_atomic_t caught;

static void remember(int number)
{
	caught = number;
}

void program_catch_signals(void)
{
	struct sigaction action = {.sa_handler = remember}; /* no SA_RESTART: waits end */

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int program_signal(void)
{
	return caught;
}

uint64_t program_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- contexts ---- */

int program_open(struct hashpipe_ibv_context *context, const char *ifname, uint32_t sends,
		 uint32_t receives, uint32_t size, uint32_t flows)
{
	*context = (struct hashpipe_ibv_context){
		.send_pkt_num = sends,
		.recv_pkt_num = receives,
		.pkt_size_max = size,
		.max_flows = flows,
	};
	if (strlen(ifname) >= sizeof(context->interface_name))
		return program_fails("%s: no such interface", ifname);
	memcpy(context->interface_name, ifname, strlen(ifname));
	if (!hashpipe_ibv_init(context))
		return 0;
	program_fails("%s: %s", ifname, strerror(errno));
	if (errno == EPERM || errno == EACCES)
		program_fails("raw packets need the capability CAP_NET_RAW: run it as root, or "
			      "once: sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon=ep "
			      "$(command -v %s)",
			      program_name);
	return PROGRAM_FAILED;
}

int program_set_copy_rule(struct hashpipe_ibv_context *context, uint32_t index,
			  struct hashpipe_ibv_rule *rule)
{
	rule->flags = HASHPIPE_IBV_COPY;
	if (!hashpipe_ibv_flow_rule(context, index, rule))
		return 0;
	rule->flags = 0;
	return hashpipe_ibv_flow_rule(context, index, rule) ? -errno : 0;
}

/* ---- ARP ---- */

static int send_request(struct hashpipe_ibv_context *context, const struct frame_path *path)
{
	struct hashpipe_ibv_send_pkt *pkt = hashpipe_ibv_get_pkts(context, 1);

	if (!pkt)
		return -EAGAIN;
	pkt->wr.sg_list->length =
		(uint32_t)frame_put_arp_request((uint8_t *)(uintptr_t)pkt->wr.sg_list->addr, path);
	return hashpipe_ibv_send_pkts(context, pkt, 0) ? -errno : 0;
}

/* Whether the answer has come. */
static bool find_reply(struct hashpipe_ibv_context *context, struct in_addr ip, uint8_t mac[6],
		       int timeout_ms)
{
	struct hashpipe_ibv_recv_pkt *list = hashpipe_ibv_recv_pkts(context, timeout_ms), *pkt;
	bool found = false;

	for (pkt = list; pkt; pkt = (struct hashpipe_ibv_recv_pkt *)pkt->wr.next)
		found = found ||
			frame_is_arp_reply((const uint8_t *)(uintptr_t)pkt->wr.sg_list->addr,
					   pkt->length, ip, mac);
	hashpipe_ibv_release_pkts(context, list);
	return found;
}

static int ask_for(struct hashpipe_ibv_context *context, const struct frame_path *path,
		   uint8_t mac[6])
{
	for (int i = 0; i < ARP_TRIES; i++) {
		uint64_t end = program_now_ns() + ARP_WAIT_NS;
		int result = send_request(context, path);

		if (result)
			return result;
		for (uint64_t now; (now = program_now_ns()) < end;) {
			if (find_reply(context, path->dst_ip, mac,
				       (int)((end - now) / 1000000 + 1)))
				return 0;
			if (program_signal())
				return -EINTR;
		}
	}
	return -EHOSTUNREACH;
}

int program_resolve(struct hashpipe_ibv_context *context, uint32_t index, struct in_addr source,
		    struct in_addr ip, uint8_t mac[6])
{
	struct hashpipe_ibv_rule rule = {
		.size = sizeof(rule),
		.match = HASHPIPE_IBV_DST_MAC | HASHPIPE_IBV_ETHER_TYPE,
		.ether_type = FRAME_ARP_TYPE,
	};
	struct frame_path path = {.src_ip = source, .dst_ip = ip};
	int result;

	if (frame_group_mac(ip, mac))
		return 0;
	memcpy(rule.dst_mac, context->mac, 6);
	memcpy(path.src_mac, context->mac, 6);
	result = program_set_copy_rule(context, index, &rule);
	if (result)
		return result;
	find_reply(context, ip, mac, 0); /* receive from now on */
	result = ask_for(context, &path, mac);
	hashpipe_ibv_flow_rule(context, index, NULL);
	return result;
}
