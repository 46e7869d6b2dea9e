/* SPDX-License-Identifier: MIT */
/* hpibv-ping: ICMP echo over raw packets. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "packet/frame.h"
#include "packet/program.h"
#include "packet/route.h"

const char program_name[] = "hpibv-ping";

static const char help[] =
	"usage: hpibv-ping [-q] [-I IFACE] [-c COUNT] [-i INTERVAL] [-s SIZE] [-W TIMEOUT] "
	"ADDRESS\n"
	"       hpibv-ping --help | --version\n"
	"\n"
	"Send ICMP echo requests to ADDRESS as raw packets, and wait for the replies.\n"
	"\n"
	"  -I IFACE     by this network interface; that of the route unless told\n"
	"  -c COUNT     so many requests; until it is interrupted unless told\n"
	"  -i INTERVAL  so many seconds from one to the next; 1\n"
	"  -s SIZE      with so many bytes of data; 56\n"
	"  -W TIMEOUT   wait so many seconds for the last replies; 1\n"
	"  -q           only the summary\n"
	"      --help, --version\n"
	"\n"
	"hpibv-ping(1) has the details.\n";

#define MAX_DATA   65507
#define MAX_NUMBER 65536 /* of sequence numbers */
#define RECEIVES   256

struct options {
	const char *ifname, *address;
	uint64_t count; /* 0: no end */
	double interval, timeout;
	uint64_t size;
	bool quiet;
};

struct ping {
	const struct options *options;
	struct hashpipe_ibv_context context;
	struct frame_path path;
	uint16_t id;
	uint64_t sent, received, twice;
	uint64_t sent_at[MAX_NUMBER];
	bool answered[MAX_NUMBER];
	double min, max, sum, sum_of_squares; /* round trips, in ms */
};

/* ---- sending ---- */

static int send_request(struct ping *ping)
{
	struct hashpipe_ibv_send_pkt *pkt = hashpipe_ibv_get_pkts(&ping->context, 1);
	uint16_t seq = (uint16_t)(ping->sent + 1);
	uint8_t *frame;

	if (!pkt)
		return errno && errno != EAGAIN ? -errno : -ENOBUFS;
	frame = (uint8_t *)(uintptr_t)pkt->wr.sg_list->addr;
	for (size_t i = 0; i < ping->options->size; i++)
		frame[FRAME_ECHO_ROOM + i] = (uint8_t)i;
	pkt->wr.sg_list->length = (uint32_t)frame_put_echo_request(frame, &ping->path, ping->id,
								   seq, ping->options->size);
	ping->sent_at[seq] = program_now_ns();
	ping->answered[seq] = false;
	ping->sent++;
	return hashpipe_ibv_send_pkts(&ping->context, pkt, 0) ? -errno : 0;
}

/* ---- replies ---- */

static void count_time(struct ping *ping, double ms)
{
	if (!ping->received || ms < ping->min)
		ping->min = ms;
	if (!ping->received || ms > ping->max)
		ping->max = ms;
	ping->sum += ms;
	ping->sum_of_squares += ms * ms;
	ping->received++;
}

static void take_reply(struct ping *ping, const struct hashpipe_ibv_recv_pkt *pkt, uint64_t now)
{
	const uint8_t *frame = (const uint8_t *)(uintptr_t)pkt->wr.sg_list->addr;
	struct frame_echo echo;
	char from[INET_ADDRSTRLEN];
	bool again;
	double ms;

	if (!frame_is_echo_reply(frame, pkt->length, &echo) || echo.id != ping->id ||
	    echo.from.s_addr != ping->path.dst_ip.s_addr || !ping->sent_at[echo.seq])
		return;
	ms = (double)(now - ping->sent_at[echo.seq]) / 1e6;
	again = ping->answered[echo.seq];
	ping->answered[echo.seq] = true;
	if (again)
		ping->twice++;
	else
		count_time(ping, ms);
	if (ping->options->quiet)
		return;
	inet_ntop(AF_INET, &echo.from, from, sizeof(from));
	printf("%zu bytes from %s: icmp_seq=%u ttl=%u time=%.3f ms%s\n", echo.len, from, echo.seq,
	       echo.ttl, ms, again ? " (DUP!)" : "");
}

/* Take what comes until @end, or until all has come if @all. */
static int take_replies(struct ping *ping, uint64_t end, bool all)
{
	uint64_t now;

	while ((now = program_now_ns()) < end && !program_signal() &&
	       !(all && ping->received == ping->sent)) {
		int left = (int)((end - now) / 1000000 + 1);
		struct hashpipe_ibv_recv_pkt *list, *pkt;

		errno = 0;
		list = hashpipe_ibv_recv_pkts(&ping->context, left);
		if (!list && errno && errno != EINTR)
			return -errno;
		now = program_now_ns();
		for (pkt = list; pkt; pkt = (struct hashpipe_ibv_recv_pkt *)pkt->wr.next)
			take_reply(ping, pkt, now);
		if (hashpipe_ibv_release_pkts(&ping->context, list))
			return -errno;
	}
	return 0;
}

/* ---- the run ---- */

static void print_summary(const struct ping *ping, uint64_t began)
{
	uint64_t lost = ping->sent - ping->received;

	printf("\n--- %s ping statistics ---\n", ping->options->address);
	printf("%llu packets transmitted, %llu received, ", (unsigned long long)ping->sent,
	       (unsigned long long)ping->received);
	if (ping->twice)
		printf("+%llu duplicates, ", (unsigned long long)ping->twice);
	printf("%.4g%% packet loss, time %llums\n",
	       ping->sent ? 100.0 * (double)lost / (double)ping->sent : 0,
	       (unsigned long long)((program_now_ns() - began) / 1000000));
	if (ping->received) {
		double mean = ping->sum / (double)ping->received;
		double spread = ping->sum_of_squares / (double)ping->received - mean * mean;

		printf("rtt min/avg/max/mdev = %.3f/%.3f/%.3f/%.3f ms\n", ping->min, mean,
		       ping->max, spread > 0 ? sqrt(spread) : 0);
	}
}

static int send_and_receive(struct ping *ping)
{
	const struct options *options = ping->options;
	uint64_t due = program_now_ns();
	int result = 0;

	while (!result && !program_signal() && (!options->count || ping->sent < options->count)) {
		result = send_request(ping);
		due += (uint64_t)(options->interval * 1e9);
		if (!result && !(options->count && ping->sent == options->count))
			result = take_replies(ping, due, false);
	}
	if (!result)
		result = take_replies(ping, program_now_ns() + (uint64_t)(options->timeout * 1e9),
				      true);
	return result;
}

/* Echo replies, and whatever else that host sends by IP, as copies: the kernel has them, too. */
static int set_rule(struct ping *ping)
{
	struct hashpipe_ibv_rule rule = {
		.size = sizeof(rule),
		.match = HASHPIPE_IBV_DST_MAC | HASHPIPE_IBV_SRC_IP | HASHPIPE_IBV_DST_IP,
		.ip_version = 4,
	};

	memcpy(rule.dst_mac, ping->context.mac, FRAME_MAC);
	memcpy(rule.src_ip, &ping->path.dst_ip, 4);
	memcpy(rule.dst_ip, &ping->path.src_ip, 4);
	return program_set_copy_rule(&ping->context, 0, &rule);
}

static int run(struct ping *ping, const struct route *route)
{
	const struct options *options = ping->options;
	uint64_t began;
	char source[INET_ADDRSTRLEN];
	int result;

	memcpy(ping->path.src_mac, ping->context.mac, FRAME_MAC);
	ping->path.src_ip = route->source;
	result = program_resolve(&ping->context, 0, route->source, route->next_hop,
				 ping->path.dst_mac);
	if (result == -EINTR)
		return 128 + program_signal();
	if (result)
		return program_fails("%s: %s", options->address, strerror(-result));
	result = set_rule(ping);
	if (result)
		return program_fails("%s: no rule for replies: %s", route->ifname,
				     strerror(-result));
	inet_ntop(AF_INET, &route->source, source, sizeof(source));
	printf("PING %s (%s) from %s %s: %llu(%llu) bytes of data.\n", options->address,
	       options->address, source, route->ifname, (unsigned long long)options->size,
	       (unsigned long long)options->size + FRAME_IP + FRAME_ICMP);
	began = program_now_ns();
	result = send_and_receive(ping);
	if (result)
		program_fails("%s", strerror(-result));
	print_summary(ping, began);
	return result ? PROGRAM_FAILED : ping->received ? 0 : 1;
}

static int run_on_route(const struct options *options)
{
	static struct ping ping; /* large */
	struct route route;
	unsigned mtu;
	int result;

	ping = (struct ping){.options = options, .id = (uint16_t)getpid()};
	if (inet_pton(AF_INET, options->address, &ping.path.dst_ip) != 1)
		return program_fails("%s: not an IPv4 address", options->address);
	result = route_find(ping.path.dst_ip, options->ifname, &route);
	if (result == -EADDRINUSE)
		return program_fails("%s is this host's own address: it is not on the network",
				     options->address);
	if (result)
		return program_fails("%s: no route%s%s: %s", options->address,
				     options->ifname ? " by " : "",
				     options->ifname ? options->ifname : "", strerror(-result));
	mtu = route_mtu(route.ifname);
	if (options->size + FRAME_IP + FRAME_ICMP > mtu)
		return program_fails("-s %llu: %s takes up to %u",
				     (unsigned long long)options->size, route.ifname,
				     mtu - FRAME_IP - FRAME_ICMP);
	result = program_open(&ping.context, route.ifname, 16, RECEIVES, mtu + FRAME_ETH + 4, 1);
	if (result)
		return result;
	result = run(&ping, &route);
	if (hashpipe_ibv_shutdown(&ping.context))
		return program_fails("not everything could be given back");
	return result;
}

/* ---- arguments ---- */

/* Whether the value is right. */
static bool take_option(struct options *options, int option)
{
	switch (option) {
	case 'I':
		options->ifname = optarg;
		return true;
	case 'c':
		return program_parse_count(optarg, &options->count) && options->count;
	case 'i':
		return program_parse_seconds(optarg, &options->interval);
	case 's':
		return program_parse_count(optarg, &options->size) && options->size <= MAX_DATA;
	case 'W':
		return program_parse_seconds(optarg, &options->timeout);
	case 'q':
		options->quiet = true;
		return true;
	default:
		return false;
	}
}

int main(int argc, char **argv)
{
	enum { HELP = 256, VERSION };
	static const struct option known[] = {
		{"help", no_argument, NULL, HELP},
		{"version", no_argument, NULL, VERSION},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.interval = 1, .timeout = 1, .size = 56};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "I:c:i:s:W:q", known, NULL)) != -1) {
		if (option == HELP || option == VERSION) {
			fputs(option == HELP ? help : "hpibv-ping " TOOLS_VERSION "\n", stdout);
			return 0;
		}
		if (!take_option(&options, option))
			return program_usage_fails("illegal option");
	}
	if (argc - optind != 1)
		return program_usage_fails("one address is needed");
	options.address = argv[optind];
	setvbuf(stdout, NULL, _IOLBF, 0);
	program_catch_signals();
	return run_on_route(&options);
}
