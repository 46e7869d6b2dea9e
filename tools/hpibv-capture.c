/* SPDX-License-Identifier: MIT */
/* hpibv-capture: packets by flow rules, counted, checked and written to a file. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packet/frame.h"
#include "packet/pcap.h"
#include "packet/program.h"
#include "packet/route.h"
#include "packet/rule_text.h"
#include "packet/sequence.h"

const char program_name[] = "hpibv-capture";

static const char help[] =
	"usage: hpibv-capture -i IFACE [-q] [--take] [-c COUNT] [-t SECONDS] [-w FILE] [RULE...]\n"
	"       hpibv-capture --help | --version\n"
	"\n"
	"Receive the packets that any RULE matches; all of them without a rule.\n"
	"\n"
	"  -i IFACE    on this network interface\n"
	"  -w FILE     write them to FILE (pcap); - is standard output\n"
	"  -c COUNT    end after so many packets\n"
	"  -t SECONDS  end after so many seconds\n"
	"  -n COUNT    with so many receive buffers; 4096\n"
	"      --take  take them away from the kernel, rather than copies\n"
	"  -q          no rate every second, only the summary\n"
	"      --help, --version\n"
	"\n"
	"A RULE is words with commas between: all ip ip6 tcp udp dst-mac=MAC src-mac=MAC\n"
	"ether-type=N vlan=ID vlan-tag=N src-ip=ADDR[/BITS] dst-ip=ADDR[/BITS] src-port=N "
	"dst-port=N\n"
	"\n"
	"hpibv-capture(1) has the details.\n";

#define MAX_STREAMS 16
#define SECOND_NS   1000000000u
#define FILE_BUFFER (1 << 20)

struct options {
	const char *ifname, *file;
	uint64_t count, receives;
	double seconds;
	bool take, quiet;
	char **rules;
	int num_rules;
};

struct capture {
	const struct options *options;
	struct hashpipe_ibv_context context;
	FILE *file;
	uint64_t packets, bytes, failed;
	struct sequence *streams[MAX_STREAMS]; /* of hpibv-generate */
	unsigned num_streams;
	uint64_t began, told; /* when the rate was last told, */
	uint64_t told_packets, told_bytes;
};

/* ---- packets ---- */

/* NULL: there are too many. */
static struct sequence *stream_of(struct capture *capture, const struct sequence_mark *mark)
{
	struct sequence *stream;

	for (unsigned i = 0; i < capture->num_streams; i++)
		if (capture->streams[i]->stream == mark->stream)
			return capture->streams[i];
	if (capture->num_streams == MAX_STREAMS)
		return NULL;
	stream = malloc(sizeof(*stream));
	if (!stream)
		return NULL;
	sequence_init(stream, mark);
	capture->streams[capture->num_streams++] = stream;
	return stream;
}

static void check_sequence(struct capture *capture, const uint8_t *frame, size_t len)
{
	struct sequence_mark mark;
	struct sequence *stream;
	size_t payload_len;
	const uint8_t *payload = frame_udp_payload(frame, len, &payload_len);

	if (!payload || !sequence_get(payload, payload_len, &mark))
		return;
	stream = stream_of(capture, &mark);
	if (stream)
		sequence_add(stream, &mark);
}

static bool has_enough(const struct capture *capture)
{
	return capture->options->count && capture->packets >= capture->options->count;
}

static int take_packet(struct capture *capture, const struct hashpipe_ibv_recv_pkt *pkt)
{
	const uint8_t *frame = (const uint8_t *)(uintptr_t)pkt->wr.sg_list->addr;

	if (!pkt->length) {
		capture->failed++;
		return 0;
	}
	if (has_enough(capture))
		return 0;
	capture->packets++;
	capture->bytes += pkt->length;
	check_sequence(capture, frame, pkt->length);
	if (!capture->file)
		return 0;
	return pcap_add(capture->file, hashpipe_ibv_timestamp_ns(&capture->context, pkt->timestamp),
			frame, pkt->length);
}

/* ---- what is told ---- */

static unsigned long long dropped(struct capture *capture)
{
	struct hashpipe_ibv_stats stats = {0};

	hashpipe_ibv_get_stats(&capture->context, &stats, sizeof(stats));
	return stats.recv_dropped + stats.recv_no_buffer;
}

static void tell_rate(struct capture *capture, uint64_t now)
{
	double seconds = (double)(now - capture->told) / 1e9;

	if (!capture->options->quiet)
		fprintf(stderr, "%.0f packets/s, %.3f Gbit/s; %llu packets, %llu dropped\n",
			(double)(capture->packets - capture->told_packets) / seconds,
			(double)(capture->bytes - capture->told_bytes) * 8 / 1e9 / seconds,
			(unsigned long long)capture->packets, dropped(capture));
	capture->told = now;
	capture->told_packets = capture->packets;
	capture->told_bytes = capture->bytes;
}

static void tell_summary(struct capture *capture)
{
	double seconds = (double)(program_now_ns() - capture->began) / 1e9;

	fprintf(stderr, "%llu packets, %llu bytes in %.3f s; %llu dropped",
		(unsigned long long)capture->packets, (unsigned long long)capture->bytes, seconds,
		dropped(capture));
	if (capture->failed)
		fprintf(stderr, ", %llu too long or failed", (unsigned long long)capture->failed);
	fputc('\n', stderr);
	for (unsigned i = 0; i < capture->num_streams; i++) {
		const struct sequence *stream = capture->streams[i];
		uint64_t lost = sequence_lost(stream);

		fprintf(stderr,
			"stream %016llx: %llu of %llu packets, %llu lost, %llu out of order, "
			"%llu twice\n",
			(unsigned long long)stream->stream, (unsigned long long)stream->received,
			(unsigned long long)stream->received + lost, (unsigned long long)lost,
			(unsigned long long)stream->out_of_order,
			(unsigned long long)stream->twice);
	}
}

/* ---- the run ---- */

static int receive_some(struct capture *capture, int timeout_ms)
{
	struct hashpipe_ibv_recv_pkt *list, *pkt;
	int result = 0;

	errno = 0;
	list = hashpipe_ibv_recv_pkts(&capture->context, timeout_ms);
	if (!list && errno && errno != EINTR)
		return -errno;
	for (pkt = list; pkt && !result; pkt = (struct hashpipe_ibv_recv_pkt *)pkt->wr.next)
		result = take_packet(capture, pkt);
	if (hashpipe_ibv_release_pkts(&capture->context, list))
		return -errno;
	return result;
}

/* Milliseconds until there is something to tell, or the end. */
static int time_left(const struct capture *capture, uint64_t now, uint64_t end)
{
	uint64_t next = capture->told + SECOND_NS;

	if (end && end < next)
		next = end;
	return now < next ? (int)((next - now) / 1000000 + 1) : 0;
}

static int receive(struct capture *capture)
{
	const struct options *options = capture->options;
	uint64_t end = 0, now = program_now_ns();
	int result;

	capture->began = capture->told = now;
	if (options->seconds > 0)
		end = capture->began + (uint64_t)(options->seconds * 1e9);
	result = receive_some(capture, 0); /* from now on */
	if (!result && !options->quiet)
		fprintf(stderr, "receiving on %s\n", options->ifname);
	while (!result && !has_enough(capture) && !program_signal()) {
		result = receive_some(capture, time_left(capture, now, end));
		now = program_now_ns();
		if (end && now >= end)
			break;
		if (now - capture->told >= SECOND_NS)
			tell_rate(capture, now);
	}
	return result;
}

static int set_rules(struct capture *capture)
{
	const struct options *options = capture->options;
	char all[] = "all";
	char *no_rules[] = {all};
	char **texts = options->num_rules ? options->rules : no_rules;
	int count = options->num_rules ? options->num_rules : 1;

	for (int i = 0; i < count; i++) {
		struct hashpipe_ibv_rule rule;
		const char *wrong;
		int result;

		if (!rule_text_parse(texts[i], &rule, &wrong))
			return program_fails("rule %d: not understood: %s", i + 1, wrong);
		if (options->take)
			result = hashpipe_ibv_flow_rule(&capture->context, (uint32_t)i, &rule)
					 ? -errno
					 : 0;
		else
			result = program_set_copy_rule(&capture->context, (uint32_t)i, &rule);
		if (result)
			return program_fails("rule %d: %s", i + 1, strerror(-result));
	}
	return 0;
}

static int open_file(struct capture *capture, uint32_t max_len)
{
	const char *name = capture->options->file;
	int result;

	if (!name)
		return 0;
	capture->file = strcmp(name, "-") ? fopen(name, "we") : stdout;
	if (!capture->file)
		return program_fails("%s: %s", name, strerror(errno));
	setvbuf(capture->file, NULL, _IOFBF, FILE_BUFFER);
	result = pcap_begin(capture->file, max_len);
	return result ? program_fails("%s: %s", name, strerror(-result)) : 0;
}

static int close_file(struct capture *capture)
{
	FILE *file = capture->file;
	int failed;

	if (!file)
		return 0;
	failed = fflush(file);
	if (file != stdout)
		failed |= fclose(file);
	return failed ? program_fails("%s: %s", capture->options->file, strerror(errno)) : 0;
}

static int run(struct capture *capture, uint32_t max_len)
{
	int result = set_rules(capture), error;

	if (!result)
		result = open_file(capture, max_len);
	if (result)
		return result;
	error = receive(capture);
	if (error)
		result = program_fails("%s", strerror(-error));
	tell_summary(capture);
	error = close_file(capture);
	return result ? result : error;
}

static int run_on_interface(const struct options *options)
{
	struct capture capture = {.options = options};
	uint32_t max_len = route_mtu(options->ifname) + FRAME_ETH + 4;
	uint32_t flows = options->num_rules ? (uint32_t)options->num_rules : 1;
	int result = program_open(&capture.context, options->ifname, 1, (uint32_t)options->receives,
				  max_len, flows);

	if (result)
		return result;
	result = run(&capture, max_len);
	for (unsigned i = 0; i < capture.num_streams; i++)
		free(capture.streams[i]);
	if (hashpipe_ibv_shutdown(&capture.context))
		return program_fails("not everything could be given back");
	return result;
}

/* ---- arguments ---- */

enum { HELP = 256, VERSION, TAKE };

/* Whether the value is right. */
static bool take_option(struct options *options, int option)
{
	switch (option) {
	case 'i':
		options->ifname = optarg;
		return true;
	case 'w':
		options->file = optarg;
		return true;
	case 'c':
		return program_parse_count(optarg, &options->count) && options->count;
	case 'n':
		return program_parse_count(optarg, &options->receives) && options->receives &&
		       options->receives <= UINT32_MAX;
	case 't':
		return program_parse_seconds(optarg, &options->seconds) && options->seconds > 0;
	case 'q':
		options->quiet = true;
		return true;
	case TAKE:
		options->take = true;
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
		{"take", no_argument, NULL, TAKE},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.receives = 4096};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "i:w:c:n:t:q", known, NULL)) != -1) {
		if (option == HELP || option == VERSION) {
			fputs(option == HELP ? help : "hpibv-capture " TOOLS_VERSION "\n", stdout);
			return 0;
		}
		if (!take_option(&options, option))
			return program_usage_fails("illegal option");
	}
	if (!options.ifname)
		return program_usage_fails("an interface is needed: -i");
	options.rules = argv + optind;
	options.num_rules = argc - optind;
	program_catch_signals();
	return run_on_interface(&options);
}
