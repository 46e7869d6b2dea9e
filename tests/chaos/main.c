/* SPDX-License-Identifier: MIT */
/* chaos: runs random verbs programs and reports the first one that breaks a rule. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lie.h"
#include "program.h"
#include "run.h"

struct settings {
	struct options options;
	const char *transport; /* as the summary names it */
	const struct features *features;
	uint64_t seed;
	int seconds, programs, jobs, shrink_seconds;
	const char *file;
	bool print, shrink, keep_going;
};

/* What the runners share. */
struct hall {
	_Atomic uint64_t next_seed;
	atomic_int done, failures;
	atomic_bool failed; /* the one who sets it writes the rest */
	atomic_bool written;
	struct program program;
	struct verdict verdict;
};

static void print_failure(const struct settings *settings, const struct program *program,
			  const struct verdict *verdict)
{
	printf("chaos: seed %llu on %s broke the rule \"%s\"\n%s\n%s",
	       (unsigned long long)program->seed, settings->transport, verdict->rule, verdict->text,
	       verdict->logs);
}

static void print_program(const struct program *program, const char *title)
{
	printf("---- %s ----\n", title);
	text_print(program, stdout);
	printf("----\n");
	fflush(stdout);
}

static void be_runner(const struct settings *settings, struct hall *hall, double until)
{
	static struct program program;
	static struct verdict verdict;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!hall->failed && now() < until) {
		uint64_t seed = hall->next_seed++;
		const char *flaw;

		if (settings->programs && seed >= settings->seed + (uint64_t)settings->programs) {
			hall->next_seed--;
			break;
		}
		generate(&program, seed, settings->features);
		flaw = program_flaw(&program);
		if (flaw) {
			verdict = (struct verdict){.failed = true, .rule = "generator"};
			snprintf(verdict.text, sizeof(verdict.text), "%s", flaw);
		} else {
			run_program(&program, &settings->options, &verdict);
		}
		hall->done++;
		if (verdict.failed && settings->keep_going) {
			hall->failures++;
			printf("chaos: seed %llu: %s: %.*s\n", (unsigned long long)seed,
			       verdict.rule, (int)strcspn(verdict.text, "\n"), verdict.text);
			fflush(stdout);
		} else if (verdict.failed && !atomic_exchange(&hall->failed, true)) {
			hall->program = program;
			hall->verdict = verdict;
			hall->written = true;
		}
	}
	_exit(0);
}

/* A line every few seconds, where somebody is watching. */
static void show_progress(const struct hall *hall, double started)
{
	static double shown;

	if (!isatty(STDOUT_FILENO) || now() - shown < 2)
		return;
	shown = now();
	printf("chaos: %d programs in %.0f s\n", hall->done, now() - started);
	fflush(stdout);
}

/* Run programs until the time is over or one fails. */
static void run_many(const struct settings *settings, struct hall *hall)
{
	double started = now(),
	       until = settings->seconds ? started + settings->seconds : started + 1e9;
	int left = settings->jobs;

	hall->next_seed = settings->seed;
	for (int i = 0; i < settings->jobs; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			exit(2);
		}
		if (pid == 0)
			be_runner(settings, hall, until);
	}
	while (left > 0) {
		while (left > 0 && waitpid(-1, NULL, WNOHANG) > 0)
			left--;
		show_progress(hall, started);
		usleep(5000);
	}
}

static void shrink_and_print(const struct settings *settings, struct program *program,
			     struct verdict *verdict)
{
	print_failure(settings, program, verdict);
	if (!settings->shrink || !strcmp(verdict->rule, "generator")) {
		print_program(program, "program");
		return;
	}
	print_program(program, "program as generated");
	shrink(program, &settings->options, verdict, settings->shrink_seconds);
	print_failure(settings, program, verdict);
	print_program(program, "shrunk program");
}

/* 0, or 2: there is no lawful program in the file. */
static int read_file(const char *name, struct program *program)
{
	FILE *file = strcmp(name, "-") == 0 ? stdin : fopen(name, "r");
	const char *flaw;
	int line;

	if (!file) {
		fprintf(stderr, "chaos: cannot read %s: %s\n", name, strerror(errno));
		return 2;
	}
	line = text_parse(program, file);
	if (file != stdin)
		fclose(file);
	if (line) {
		fprintf(stderr, "chaos: %s: line %d is not part of a program\n", name, line);
		return 2;
	}
	flaw = program_flaw(program);
	if (flaw)
		fprintf(stderr, "chaos: %s: not a lawful program: %s\n", name, flaw);
	return flaw ? 2 : 0;
}

static int run_file(const struct settings *settings)
{
	static struct program program;
	static struct verdict verdict;
	int error, times = settings->programs ? settings->programs : 1;

	error = read_file(settings->file, &program);
	if (error)
		return error;
	for (int i = 0; i < times; i++) {
		run_program(&program, &settings->options, &verdict);
		if (!verdict.failed)
			continue;
		printf("chaos: run %d of %d\n", i + 1, times);
		shrink_and_print(settings, &program, &verdict);
		return 1;
	}
	printf("chaos: %s: %d runs on %s, 0 failures\n", settings->file, times,
	       settings->transport);
	return 0;
}

static int run_seeds(const struct settings *settings)
{
	struct hall *hall = mmap(NULL, sizeof(*hall), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (hall == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	printf("chaos: from seed %llu on %s\n", (unsigned long long)settings->seed,
	       settings->transport);
	fflush(stdout);
	run_many(settings, hall);
	if (hall->failed) {
		shrink_and_print(settings, &hall->program, &hall->verdict);
		return 1;
	}
	printf("chaos: %d programs on %s, %d failures, next seed %llu\n", hall->done,
	       settings->transport, hall->failures, (unsigned long long)hall->next_seed);
	return hall->failures > 0;
}

/* ---- options ---- */

static const char usage[] =
	"usage: chaos [OPTION...]\n"
	"Run random verbs programs and check what they see.\n"
	"\n"
	"  --transport NAME  what the device can do: soft (default), rxe or siw; other names: as "
	"soft\n"
	"  --seed N          the first program (default: from the time)\n"
	"  --seconds N       for how long (default: 20, unless --programs is given)\n"
	"  --programs N      how many\n"
	"  --program FILE    run this program, --programs times (default: once)\n"
	"  --print           print the program of --seed or --program and run nothing\n"
	"  --jobs N          so many at a time (default: 2)\n"
	"  --placed, --no-placed\n"
	"                    a request that has completed is, or need not be, in the peer's "
	"memory\n"
	"                    (default: it is, but not on siw)\n"
	"  --patience N      seconds without progress that count as a hang (default: 20)\n"
	"  --no-shrink       do not shrink a program that fails\n"
	"  --keep-going      name every program that fails, and shrink none\n"
	"  --shrink-seconds N\n"
	"                    for how long to shrink at most (default: 120)\n"
	"  --lie KIND        lie to the model, which must notice: drop, twice, swap, byte, read,\n"
	"                    atomic, status, length\n"
	"\n"
	"Exit status: 0 all is well, 1 a rule was broken, 2 wrong usage.\n";

enum {
	OPT_TRANSPORT = 1000,
	OPT_SEED,
	OPT_SECONDS,
	OPT_PROGRAMS,
	OPT_PROGRAM,
	OPT_PRINT,
	OPT_JOBS,
	OPT_PLACED,
	OPT_NO_PLACED,
	OPT_PATIENCE,
	OPT_NO_SHRINK,
	OPT_KEEP_GOING,
	OPT_SHRINK_SECONDS,
	OPT_LIE,
	OPT_HELP
};

static const struct option long_options[] = {
	{"transport", required_argument, NULL, OPT_TRANSPORT},
	{"seed", required_argument, NULL, OPT_SEED},
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"programs", required_argument, NULL, OPT_PROGRAMS},
	{"program", required_argument, NULL, OPT_PROGRAM},
	{"print", no_argument, NULL, OPT_PRINT},
	{"jobs", required_argument, NULL, OPT_JOBS},
	{"placed", no_argument, NULL, OPT_PLACED},
	{"no-placed", no_argument, NULL, OPT_NO_PLACED},
	{"patience", required_argument, NULL, OPT_PATIENCE},
	{"no-shrink", no_argument, NULL, OPT_NO_SHRINK},
	{"keep-going", no_argument, NULL, OPT_KEEP_GOING},
	{"shrink-seconds", required_argument, NULL, OPT_SHRINK_SECONDS},
	{"lie", required_argument, NULL, OPT_LIE},
	{"help", no_argument, NULL, OPT_HELP},
	{NULL, 0, NULL, 0},
};

static int parse_lie(const char *name)
{
	for (int i = 0; i < LIE_KINDS; i++)
		if (!strcmp(lie_names[i], name))
			return i;
	fprintf(stderr, "chaos: there is no lie '%s'\n%s", name, usage);
	exit(2);
}

static void parse_options(struct settings *settings, int argc, char **argv)
{
	int option, placed = -1;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case OPT_TRANSPORT:
			settings->transport = optarg;
			break;
		case OPT_SEED:
			settings->seed = strtoull(optarg, NULL, 10);
			break;
		case OPT_SECONDS:
			settings->seconds = atoi(optarg);
			break;
		case OPT_PROGRAMS:
			settings->programs = atoi(optarg);
			break;
		case OPT_PROGRAM:
			settings->file = optarg;
			break;
		case OPT_PRINT:
			settings->print = true;
			break;
		case OPT_JOBS:
			settings->jobs = atoi(optarg);
			break;
		case OPT_PLACED:
		case OPT_NO_PLACED:
			placed = option == OPT_PLACED;
			break;
		case OPT_PATIENCE:
			settings->options.patience = atoi(optarg);
			break;
		case OPT_NO_SHRINK:
			settings->shrink = false;
			break;
		case OPT_KEEP_GOING:
			settings->keep_going = true;
			break;
		case OPT_SHRINK_SECONDS:
			settings->shrink_seconds = atoi(optarg);
			break;
		case OPT_LIE:
			settings->options.lie = parse_lie(optarg);
			break;
		case OPT_HELP:
			fputs(usage, stdout);
			exit(0);
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	settings->features = features_of(settings->transport);
	settings->options.placed = placed < 0 ? strcmp(settings->transport, "siw") != 0 : placed;
	if (!settings->seconds && !settings->programs)
		settings->seconds = 20;
}

int main(int argc, char **argv)
{
	struct settings settings = {
		.options = {.patience = 20},
		.transport = "soft",
		.seed = (uint64_t)time(NULL) * 1000,
		.jobs = 2,
		.shrink_seconds = 120,
		.shrink = true,
	};
	static struct program program;

	parse_options(&settings, argc, argv);
	if (settings.print) {
		int error = 0;

		if (settings.file)
			error = read_file(settings.file, &program);
		else
			generate(&program, settings.seed, settings.features);
		if (!error)
			text_print(&program, stdout);
		return error;
	}
	return settings.file ? run_file(&settings) : run_seeds(&settings);
}
