/* SPDX-License-Identifier: MIT */
/* hpibv-generate: UDP packets with numbers, at a given rate. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "packet/frame.h"
#include "packet/program.h"
#include "packet/route.h"
#include "packet/sequence.h"

const char program_name[] = "hpibv-generate";

static const char help[] =
	"usage: hpibv-generate -i IFACE --to [MAC/]IP:PORT [--from IP[:PORT]] [--size N]\n"
	"                      [--rate R] [-c COUNT] [-t SECONDS] [-q]\n"
	"       hpibv-generate --help | --version\n"
	"\n"
	"Send numbered UDP packets at a steady rate; hpibv-capture says which of them arrive.\n"
	"\n"
	"  -i IFACE         by this network interface\n"
	"      --to         to this address; its MAC is asked for unless given\n"
	"      --from       from this one; the interface's and port 10000 unless told\n"
	"      --size N     frames of N bytes, with the Ethernet header and without FCS; 1000\n"
	"      --rate R     R packets per second (k, M and G may stand behind), or R bit per\n"
	"                   second, as in 500Mbps; 0, as fast as it goes; 1000\n"
	"  -c COUNT         end after so many packets\n"
	"  -t SECONDS       end after so many seconds\n"
	"  -q               no summary\n"
	"      --help, --version\n"
	"\n"
	"hpibv-generate(1) has the details.\n";

#define SENDS     1024
#define BURST     64
#define MIN_FRAME (FRAME_UDP_ROOM + SEQUENCE_BYTES)
#define SPIN_NS   200000 /* to be slept through, a pause must be longer */

struct options {
	const char *ifname, *to, *from, *rate;
	uint64_t size, count;
	double seconds;
	bool quiet;
};

struct generator {
	const struct options *options;
	struct hashpipe_ibv_context context;
	struct frame_path path;
	uint16_t src_port, dst_port;
	bool has_mac, has_source;
	double rate; /* packets per second; 0: no limit */
	struct sequence_mark mark;
	uint64_t began, end; /* 0: none */
};

/* ---- addresses ---- */

static bool parse_port(const char *text, uint16_t *port)
{
	uint64_t number;

	if (!program_parse_count(text, &number) || !number || number > 65535)
		return false;
	*port = (uint16_t)number;
	return true;
}

/* IP[:PORT] */
static bool parse_end(const char *text, struct in_addr *ip, uint16_t *port, bool needs_port)
{
	char copy[32];
	char *colon;

	if (strlen(text) >= sizeof(copy))
		return false;
	memcpy(copy, text, strlen(text) + 1);
	colon = strchr(copy, ':');
	if (colon)
		*colon++ = '\0';
	if (inet_pton(AF_INET, copy, ip) != 1)
		return false;
	return colon ? parse_port(colon, port) : !needs_port;
}

/* [MAC/]IP:PORT */
static bool parse_to(struct generator *generator, const char *text)
{
	const char *slash = strchr(text, '/');
	char mac[18];

	if (slash) {
		if (slash - text != sizeof(mac) - 1)
			return false;
		memcpy(mac, text, sizeof(mac) - 1);
		mac[sizeof(mac) - 1] = '\0';
		if (!frame_parse_mac(mac, generator->path.dst_mac))
			return false;
		generator->has_mac = true;
		text = slash + 1;
	}
	return parse_end(text, &generator->path.dst_ip, &generator->dst_port, true);
}

/* Packets, or bits with bps behind, per second. */
static bool parse_rate(const char *text, uint64_t size, double *rate)
{
	size_t len = strlen(text);
	bool bits = len > 3 && !strcmp(text + len - 3, "bps");
	char copy[32];
	uint64_t number;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len + 1);
	if (bits)
		copy[len - 3] = '\0';
	if (!program_parse_count(copy, &number))
		return false;
	*rate = bits ? (double)number / 8 / (double)size : (double)number;
	return true;
}

/* ---- packets ---- */

static uint8_t *frame_of(const struct hashpipe_ibv_send_pkt *pkt)
{
	return (uint8_t *)(uintptr_t)pkt->wr.sg_list->addr;
}

/* What all packets have in common, once. */
static void fill_packets(struct generator *generator)
{
	struct hashpipe_ibv_context *context = &generator->context;
	size_t payload = generator->options->size - FRAME_UDP_ROOM;

	for (uint32_t i = 0; i < context->send_pkt_num; i++) {
		struct hashpipe_ibv_send_pkt *pkt = &context->send_pkt_buf[i];
		uint8_t *frame = frame_of(pkt);

		for (size_t k = SEQUENCE_BYTES; k < payload; k++)
			frame[FRAME_UDP_ROOM + k] = (uint8_t)k;
		pkt->wr.sg_list->length = (uint32_t)frame_put_udp(
			frame, &generator->path, generator->src_port, generator->dst_port, payload);
	}
}

/* Up to @count packets. How many, or -errno. */
static int send_burst(struct generator *generator, uint32_t count)
{
	struct hashpipe_ibv_send_pkt *list, *pkt;
	uint64_t first = generator->mark.number;

	errno = 0;
	list = hashpipe_ibv_get_pkts(&generator->context, count);
	if (!list)
		return -errno;
	for (pkt = list; pkt; pkt = (struct hashpipe_ibv_send_pkt *)pkt->wr.next) {
		sequence_put(frame_of(pkt) + FRAME_UDP_ROOM, &generator->mark);
		generator->mark.number++;
	}
	if (hashpipe_ibv_send_pkts(&generator->context, list, 0))
		return -errno;
	return (int)(generator->mark.number - first);
}

/* ---- pacing ---- */

/* How many packets are due; 0: not yet, *@next says when. */
static uint64_t packets_due(const struct generator *generator, uint64_t now, uint64_t *next)
{
	uint64_t sent = generator->mark.number, due;

	if (generator->rate <= 0)
		return BURST;
	due = 1 + (uint64_t)((double)(now - generator->began) / 1e9 * generator->rate);
	*next = generator->began + (uint64_t)((double)sent / generator->rate * 1e9) + 1;
	return due > sent ? due - sent : 0;
}

static void wait_until(uint64_t now, uint64_t next)
{
	struct timespec pause = {.tv_nsec = 100000};

	if (next <= now + SPIN_NS)
		return;
	if (next - now > 1000000000u)
		next = now + 1000000000u;
	pause.tv_sec = (time_t)((next - now - SPIN_NS / 2) / 1000000000u);
	pause.tv_nsec = (long)((next - now - SPIN_NS / 2) % 1000000000u);
	nanosleep(&pause, NULL);
}

static int send_all(struct generator *generator)
{
	uint64_t total = generator->mark.total, now, next = 0;

	generator->began = program_now_ns();
	if (generator->options->seconds > 0)
		generator->end = generator->began + (uint64_t)(generator->options->seconds * 1e9);
	while (!program_signal() && (!total || generator->mark.number < total)) {
		uint64_t due;
		int sent;

		now = program_now_ns();
		if (generator->end && now >= generator->end)
			break;
		due = packets_due(generator, now, &next);
		if (!due) {
			wait_until(now, next);
			continue;
		}
		if (total && due > total - generator->mark.number)
			due = total - generator->mark.number;
		sent = send_burst(generator, due < BURST ? (uint32_t)due : BURST);
		if (sent < 0)
			return sent;
	}
	return 0;
}

/* ---- the run ---- */

static void tell_summary(struct generator *generator)
{
	struct hashpipe_ibv_stats stats = {0};
	double seconds = (double)(program_now_ns() - generator->began) / 1e9;

	hashpipe_ibv_get_stats(&generator->context, &stats, sizeof(stats));
	fprintf(stderr,
		"stream %016llx: %llu packets, %llu bytes in %.3f s: %.0f packets/s, %.3f Gbit/s; "
		"%llu failed\n",
		(unsigned long long)generator->mark.stream,
		(unsigned long long)generator->mark.number, (unsigned long long)stats.send_bytes,
		seconds, (double)generator->mark.number / seconds,
		(double)stats.send_bytes * 8 / 1e9 / seconds,
		(unsigned long long)stats.send_errors);
}

static int find_addresses(struct generator *generator)
{
	const struct options *options = generator->options;
	struct route route;
	int result;

	memcpy(generator->path.src_mac, generator->context.mac, FRAME_MAC);
	if (generator->has_mac && generator->has_source)
		return 0;
	result = route_find(generator->path.dst_ip, options->ifname, &route);
	if (result)
		return program_fails("%s: no route by %s: %s; give a MAC and --from", options->to,
				     options->ifname, strerror(-result));
	if (!generator->has_source)
		generator->path.src_ip = route.source;
	if (generator->has_mac)
		return 0;
	result = program_resolve(&generator->context, 0, generator->path.src_ip, route.next_hop,
				 generator->path.dst_mac);
	return result ? program_fails("%s: %s; give a MAC", options->to, strerror(-result)) : 0;
}

static int run(struct generator *generator)
{
	int result = find_addresses(generator), error;

	if (result)
		return result;
	fill_packets(generator);
	error = send_all(generator);
	if (error)
		result = program_fails("%s", strerror(-error));
	if (!generator->options->quiet)
		tell_summary(generator);
	return result;
}

static int run_on_interface(const struct options *options)
{
	struct generator generator = {.options = options, .src_port = 10000};
	unsigned mtu = route_mtu(options->ifname);
	int result;

	if (!parse_to(&generator, options->to))
		return program_usage_fails("--to is not [MAC/]IP:PORT");
	if (options->from &&
	    !parse_end(options->from, &generator.path.src_ip, &generator.src_port, false))
		return program_usage_fails("--from is not IP[:PORT]");
	generator.has_source = options->from;
	if (!parse_rate(options->rate, options->size, &generator.rate))
		return program_usage_fails("illegal rate");
	if (mtu && options->size > mtu + FRAME_ETH)
		return program_fails("--size %llu: %s takes up to %u",
				     (unsigned long long)options->size, options->ifname,
				     mtu + FRAME_ETH);
	generator.mark.total = options->count;
	if (getrandom(&generator.mark.stream, sizeof(generator.mark.stream), 0) < 0)
		generator.mark.stream = program_now_ns();
	result = program_open(&generator.context, options->ifname, SENDS, 64,
			      (uint32_t)options->size + 64, 1);
	if (result)
		return result;
	result = run(&generator);
	if (hashpipe_ibv_shutdown(&generator.context))
		return program_fails("not everything could be given back");
	return result;
}

/* ---- arguments ---- */

enum { HELP = 256, VERSION, TO, FROM, SIZE, RATE };

/* Whether the value is right. */
static bool take_option(struct options *options, int option)
{
	switch (option) {
	case 'i':
		options->ifname = optarg;
		return true;
	case TO:
		options->to = optarg;
		return true;
	case FROM:
		options->from = optarg;
		return true;
	case SIZE:
		return program_parse_count(optarg, &options->size) && options->size >= MIN_FRAME &&
		       options->size <= 65535;
	case RATE:
		options->rate = optarg;
		return true;
	case 'c':
		return program_parse_count(optarg, &options->count) && options->count;
	case 't':
		return program_parse_seconds(optarg, &options->seconds) && options->seconds > 0;
	case 'q':
		options->quiet = true;
		return true;
	default:
		return false;
	}
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{"help", no_argument, NULL, HELP},
		{"version", no_argument, NULL, VERSION},
		{"to", required_argument, NULL, TO},
		{"from", required_argument, NULL, FROM},
		{"size", required_argument, NULL, SIZE},
		{"rate", required_argument, NULL, RATE},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.rate = "1000", .size = 1000};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "i:c:t:q", known, NULL)) != -1) {
		if (option == HELP || option == VERSION) {
			fputs(option == HELP ? help : "hpibv-generate " TOOLS_VERSION "\n", stdout);
			return 0;
		}
		if (!take_option(&options, option))
			return program_usage_fails("illegal option");
	}
	if (argc != optind || !options.ifname || !options.to)
		return program_usage_fails("-i and --to are needed, and nothing else");
	program_catch_signals();
	return run_on_interface(&options);
}
