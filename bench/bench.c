/* SPDX-License-Identifier: MIT */
/* What the measuring programs share. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const struct option long_options[] = {
	{"address", required_argument, NULL, 'a'},
	{"connect", required_argument, NULL, 'c'},
	{"count", required_argument, NULL, 'n'},
	{"size", required_argument, NULL, 's'},
	{"buffers", required_argument, NULL, 'f'},
	{"batch", required_argument, NULL, 'b'},
	{"idle", required_argument, NULL, 'i'},
	{"limit", required_argument, NULL, 'l'},
	{"one-cq", no_argument, NULL, '1'},
	{"credits", no_argument, NULL, 'r'},
	{"sleep", no_argument, NULL, 'z'},
	{"wait-in-poll", no_argument, NULL, 'w'},
	{"spin", no_argument, NULL, 'p'},
	{"local", no_argument, NULL, 'u'},
	{NULL, 0, NULL, 0},
};

static void __attribute__((noreturn)) usage(const char *program, const char *tests)
{
	fprintf(stderr,
		"usage: %s TEST [--address ADDRESS] [--connect PORT] [--count N] [--size BYTES]\n"
		"       [--buffers N] [--batch N] [--idle N] [--limit SECONDS] [--one-cq] "
		"[--credits]\n"
		"       [--sleep] [--wait-in-poll] [--spin] [--local]\n"
		"TEST is one of: %s\n"
		"Without --connect: listen at the address, of the loopback interface unless told,\n"
		"and say where.\n",
		program, tests);
	exit(2);
}

static unsigned number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || !value || value > 1u << 30) {
		fprintf(stderr, "not a number that can be used: %s\n", text);
		exit(2);
	}
	return (unsigned)value;
}

static void options_parse(struct options *options, int argc, char **argv, const char *tests)
{
	int letter;

	*options = (struct options){.address = "127.0.0.1",
				    .count = 10000,
				    .size = 64,
				    .buffers = 1,
				    .batch = 1,
				    .limit = 60};
	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (letter) {
		case 'a':
			options->address = optarg;
			break;
		case 'c':
			options->port = (int)number(optarg);
			break;
		case 'n':
			options->count = number(optarg);
			break;
		case 's':
			options->size = number(optarg);
			break;
		case 'f':
			options->buffers = number(optarg);
			break;
		case 'b':
			options->batch = number(optarg);
			break;
		case 'i':
			options->idle = number(optarg);
			break;
		case 'l':
			options->limit = number(optarg);
			break;
		case '1':
			options->one_cq = true;
			break;
		case 'r':
			options->credits = true;
			break;
		case 'w':
			options->waits_in_poll = true;
			break;
		case 'p':
			options->spins = true;
			break;
		case 'u':
			options->local = true;
			break;
		case 'z':
			options->sleeps = true;
			break;
		default:
			usage(argv[0], tests);
		}
	}
	if (optind + 1 != argc || options->port > 65535)
		usage(argv[0], tests);
	options->test = argv[optind];
	alarm(options->limit);
}

socklen_t options_address(const struct options *options, struct sockaddr_storage *out)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				       .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	socklen_t length;
	char port[8];

	errno = 0;
	snprintf(port, sizeof(port), "%d", options->port);
	if (getaddrinfo(options->address, port, &hints, &found))
		die("--address takes an IP address");
	length = found->ai_addrlen;
	memcpy(out, found->ai_addr, length);
	freeaddrinfo(found);
	return length;
}

int run_test(const struct test *tests, int argc, char **argv)
{
	struct options options;
	char names[128] = "";

	for (const struct test *test = tests; test->name; test++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s ", test->name);
	options_parse(&options, argc, argv, names);
	/* Fixed, or the samples' free() would change how what is measured later gets its memory. */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	for (const struct test *test = tests; test->name; test++) {
		if (strcmp(test->name, options.test) != 0)
			continue;
		test->run(&options);
		printf("\n");
		return 0;
	}
	usage(argv[0], names);
}

void die(const char *what)
{
	if (errno)
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
	else
		fprintf(stderr, "%s\n", what);
	exit(1);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void say_listening(const struct sockaddr *address)
{
	in_port_t port = address->sa_family == AF_INET6
				 ? ((const struct sockaddr_in6 *)(const void *)address)->sin6_port
				 : ((const struct sockaddr_in *)(const void *)address)->sin_port;

	say_listening_at(ntohs(port));
}

void say_listening_at(unsigned port)
{
	printf("listening %u\n", port);
	fflush(stdout);
}

int tcp_listen(const struct options *options)
{
	struct sockaddr_storage address;
	socklen_t length = options_address(options, &address);
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) ||
	    listen(fd, (int)options->idle + 1) ||
	    getsockname(fd, (struct sockaddr *)&address, &length))
		die("listen");
	say_listening((struct sockaddr *)&address);
	return fd;
}

static void send_at_once(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int tcp_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		die("accept");
	send_at_once(fd);
	return fd;
}

int tcp_connect(const struct options *options)
{
	struct sockaddr_storage address;
	socklen_t length = options_address(options, &address);
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, length))
		die("connect");
	send_at_once(fd);
	return fd;
}

unsigned rss_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long total, resident = 0;

	if (!file || fscanf(file, "%ld %ld", &total, &resident) != 2)
		die("/proc/self/statm");
	fclose(file);
	return (unsigned)(resident * (sysconf(_SC_PAGESIZE) / 1024));
}

void print_idle_memory(const struct options *options, unsigned rss_kib_before)
{
	printf("idle_bytes=%.0f ", ((double)rss_kib() - rss_kib_before) * 1024 / options->idle);
}

void allow_descriptors(unsigned connections)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("getrlimit");
	if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < connections + 64) {
		errno = 0;
		die("the limit of open files (ulimit -Hn) is too low for so many connections");
	}
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
}

void samples_init(struct samples *samples, unsigned room)
{
	samples->ns = malloc(room * sizeof(*samples->ns));
	if (!samples->ns)
		die("samples");
	/* Touched, or one in 512 samples would be of a round trip with a page fault. */
	memset(samples->ns, 1, room * sizeof(*samples->ns));
	samples->count = 0;
	samples->room = room;
	samples->lap = now_ns();
}

void samples_fini(struct samples *samples)
{
	free(samples->ns);
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static double one_way_us(const struct samples *samples, unsigned permille)
{
	uint64_t rank = (uint64_t)(samples->count - 1) * permille / 1000;

	return (double)samples->ns[rank] / 2000;
}

void samples_print(struct samples *samples, const char *prefix)
{
	uint64_t sum = 0;

	if (!samples->count)
		return;
	qsort(samples->ns, samples->count, sizeof(*samples->ns), compare);
	for (unsigned i = 0; i < samples->count; i++)
		sum += samples->ns[i];
	printf("%smean_us=%.4f %sp50_us=%.4f %sp99_us=%.4f %sp999_us=%.4f ", prefix,
	       (double)sum / samples->count / 2000, prefix, one_way_us(samples, 500), prefix,
	       one_way_us(samples, 990), prefix, one_way_us(samples, 999));
}

void print_rate(uint64_t count, size_t size, uint64_t ns)
{
	double seconds = (double)ns / 1e9;

	printf("messages_per_s=%.0f gib_per_s=%.6f seconds=%.3f ", (double)count / seconds,
	       (double)count * (double)size / seconds / (1 << 30), seconds);
}
