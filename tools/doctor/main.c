/* SPDX-License-Identifier: MIT */
/* ibmsg-doctor: what this machine offers, and why something does not work. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

/* The exit status is the number of problems; above that is room for our own. */
enum { MOST_PROBLEMS = 125, USAGE = 126 };

static const char usage[] = "usage: ibmsg-doctor [--json] [-q] [PEER [PORT]]\n"
			    "       ibmsg-doctor --help | --version\n";

static const char help[] =
	"\n"
	"Say what this machine offers for RDMA and why something does not work: devices real and\n"
	"soft, drivers, files and rights, limits, the network, and the way to PEER. With PORT, "
	"try\n"
	"to connect to it by ibmsg. One line for each finding; for each problem one more, with "
	"the\n"
	"command that cures it.\n"
	"\n"
	"  -q, --quiet    only problems\n"
	"      --json     the same as JSON\n"
	"      --help     this\n"
	"      --version  the version\n"
	"\n"
	"Exit status: the number of problems, 125 at most; 126 if the arguments are wrong.\n"
	"ibmsg-doctor(1) has the details.\n";

struct check {
	const char *name;
	void (*run)(const struct machine *machine, struct report *report);
};

static const struct check checks[] = {
	{"choice", check_choice},         {"devices", check_devices},
	{"softrdma", check_soft_devices}, {"gids", check_gids},
	{"modules", check_modules},       {"files", check_nodes},
	{"memlock", check_memlock},       {"network", check_interfaces},
	{"firewall", check_firewall},     {"container", check_container},
	{"rights", check_rights},         {"self", check_self},
};

struct options {
	bool json, quiet;
	struct peer peer;
};

static void __attribute__((noreturn)) complain(const char *what, const char *about)
{
	fprintf(stderr, "ibmsg-doctor: %s%s\n%s", what, about, usage);
	exit(USAGE);
}

static unsigned short parse_port(const char *text)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || !port || port > 65535)
		complain("not a port: ", text);
	return (unsigned short)port;
}

static void parse(struct options *options, int argc, char **argv)
{
	enum { HELP = 256, VERSION, JSON };
	static const struct option long_options[] = {
		{"help", no_argument, NULL, HELP},
		{"version", no_argument, NULL, VERSION},
		{"json", no_argument, NULL, JSON},
		{"quiet", no_argument, NULL, 'q'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "q", long_options, NULL)) != -1) {
		switch (option) {
		case HELP:
			printf("%s%s", usage, help);
			exit(0);
		case VERSION:
			puts("ibmsg-doctor " TOOLS_VERSION);
			exit(0);
		case JSON:
			options->json = true;
			break;
		case 'q':
			options->quiet = true;
			break;
		default:
			fputs(usage, stderr);
			exit(USAGE);
		}
	}
	if (argc - optind > 2)
		complain("too many arguments: ", argv[optind + 2]);
	if (argc > optind)
		options->peer.host = argv[optind];
	if (argc > optind + 1)
		options->peer.port = parse_port(argv[optind + 1]);
}

static enum choice parse_choice(const char *value)
{
	if (!*value || !strcmp(value, "auto"))
		return CHOICE_AUTO;
	if (!strcmp(value, "on"))
		return CHOICE_ON;
	return strcmp(value, "off") ? CHOICE_INVALID : CHOICE_OFF;
}

static void find_machine(struct machine *machine)
{
	const char *root = getenv(ROOT_VARIABLE), *softrdma = getenv("SOFTRDMA");

	machine->root = root ? root : "";
	machine->softrdma = softrdma ? softrdma : "";
	machine->choice = parse_choice(machine->softrdma);
	find_process(machine);
	find_container(machine);
	find_kernel(machine);
	find_devices(machine);
	find_network(machine);
}

int main(int argc, char **argv)
{
	static struct machine machine;
	struct options options = {0};
	struct report report = {0};
	unsigned problems;

	parse(&options, argc, argv);
	find_machine(&machine);
	for (unsigned i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
		report.check = checks[i].name;
		checks[i].run(&machine, &report);
	}
	if (options.peer.host) {
		report.check = "peer";
		check_peer(&machine, &options.peer, &report);
	}
	if (options.json)
		report_print_json(&report, stdout, TOOLS_VERSION);
	else
		report_print_text(&report, stdout, options.quiet);
	problems = report.problems;
	report_fini(&report);
	return problems < MOST_PROBLEMS ? (int)problems : MOST_PROBLEMS;
}
