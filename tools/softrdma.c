/* SPDX-License-Identifier: MIT */
/* softrdma: runs a program on the software RDMA device by preloading libsoftrdma into it. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_LIBRARY  "libsoftrdma.so.0"
#define PRELOAD_LIBRARY "libsoftrdma_preload.so"

/* Must come first in a program that was not built with the sanitizer of the libraries. */
#ifndef SOFTRDMA_SANITIZER_RUNTIME
#define SOFTRDMA_SANITIZER_RUNTIME ""
#endif

/* Exit statuses, as those of env(1) and nohup(1). */
enum { USAGE = 2, CANNOT_PREPARE = 125, CANNOT_RUN = 126, NOT_FOUND = 127 };

/*
 * Where the libraries are, seen from the folder of this program: installed, and in the build tree.
 */
static const char *const library_folders[] = {SOFTRDMA_LIBDIR, "../lib"};

static const char usage[] = "usage: softrdma [-v] PROGRAM [ARGUMENT...]\n"
			    "       softrdma --help | --version\n";

static const char help[] =
	"\n"
	"Run an unmodified RDMA program on a machine without an RDMA device: every rdma_* and\n"
	"ibv_* call of PROGRAM reaches a software device that speaks iWARP over TCP.\n"
	"\n"
	"  -v, --verbose  say on stderr which device is used, and why (SOFTRDMA_LOG=info)\n"
	"      --help     this\n"
	"      --version  the version\n"
	"\n"
	"Environment:\n"
	"  SOFTRDMA=auto|on|off  auto: an RDMA device of the system if there is a usable one, the\n"
	"                        software device if not (the default); on: the software device;\n"
	"                        off: the system's devices, as without softrdma\n"
	"  SOFTRDMA_LOG=error|warn|info|debug\n"
	"                        how much to say on stderr; warn unless set\n"
	"  SOFTRDMA_SHM=on|off|ring\n"
	"                        between processes of one host shared memory (the default),\n"
	"                        TCP, or shared memory without single copies\n"
	"  SOFTRDMA_CRC=1        ask for a CRC on every frame\n"
	"  SOFTRDMA_MPA=1        connect with revision 1 of MPA; with 2 unless set\n"
	"  SOFTRDMA_P2P=1        connect in MPA's peer-to-peer mode\n"
	"  SOFTRDMA_STRICT=1     behave as hardware would, and name the fault\n"
	"  SOFTRDMA_RECV_TIMEOUT=MS  how long a message waits for a receive (30000)\n"
	"  SOFTRDMA_LOOK=iwarp|roce  what the devices say they are (iwarp)\n"
	"  SOFTRDMA_PORTS=FROM-TO    TCP ports for queue pairs by number (any)\n"
	"softrdma(1) has the details.\n";

static void complain(const char *about, const char *what)
{
	fprintf(stderr, "softrdma: %s: %s\n", about, what);
}

/* The folder that this program was started from, in @folder. */
static bool find_own_folder(char *folder, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", folder, size);

	if (length < 0) {
		complain("/proc/self/exe", strerror(errno));
		return false;
	}
	if ((size_t)length == size) {
		complain("/proc/self/exe", strerror(ENAMETOOLONG));
		return false;
	}
	folder[length] = '\0';
	*strrchr(folder, '/') = '\0';
	return true;
}

/* The folder of the libraries, in @folder; free of symbolic links and "..". */
static bool find_libraries(char folder[static PATH_MAX])
{
	char own[PATH_MAX], path[3 * PATH_MAX];

	if (!find_own_folder(own, sizeof(own)))
		return false;
	for (unsigned i = 0; i < sizeof(library_folders) / sizeof(*library_folders); i++) {
		snprintf(path, sizeof(path), "%s/%s/" PRELOAD_LIBRARY, own, library_folders[i]);
		if (access(path, R_OK) || !realpath(path, folder))
			continue;
		*strrchr(folder, '/') = '\0';
		return true;
	}
	complain(own, "there is no " PRELOAD_LIBRARY " in " SOFTRDMA_LIBDIR " from here");
	return false;
}

/* Put the libraries of @folder in front of what is preloaded already. */
static bool set_preload(const char *folder)
{
	const char *sanitizer = SOFTRDMA_SANITIZER_RUNTIME;
	const char *before = getenv("LD_PRELOAD");
	char *value;
	bool done;

	if (strpbrk(folder, ": ")) {
		complain(folder, "a path with a space or a colon cannot be preloaded");
		return false;
	}
	/*
	 * The preload object precedes the device: its dlopen() must not be the next one that the
	 * device finds.
	 */
	if (asprintf(&value, "%s%s%s/" PRELOAD_LIBRARY ":%s/" DEVICE_LIBRARY "%s%s", sanitizer,
		     *sanitizer ? ":" : "", folder, folder, before && *before ? ":" : "",
		     before ? before : "") < 0) {
		complain("LD_PRELOAD", strerror(ENOMEM));
		return false;
	}
	done = !setenv("LD_PRELOAD", value, 1);
	if (!done)
		complain("LD_PRELOAD", strerror(errno));
	free(value);
	return done;
}

int main(int argc, char **argv)
{
	enum { HELP = 256, VERSION };
	static const struct option options[] = {
		{"help", no_argument, NULL, HELP},
		{"version", no_argument, NULL, VERSION},
		{"verbose", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	char folder[PATH_MAX];
	int option, status;

	while ((option = getopt_long(argc, argv, "+v", options, NULL)) != -1) {
		switch (option) {
		case HELP:
			printf("%s%s", usage, help);
			return 0;
		case VERSION:
			puts("softrdma " SOFTRDMA_VERSION);
			return 0;
		case 'v':
			setenv("SOFTRDMA_LOG", "info", 0);
			break;
		default:
			fputs(usage, stderr);
			return USAGE;
		}
	}
	if (optind == argc) {
		fputs(usage, stderr);
		return USAGE;
	}
	if (!find_libraries(folder) || !set_preload(folder))
		return CANNOT_PREPARE;
	if (*SOFTRDMA_SANITIZER_RUNTIME) /* what the program itself leaks is its own affair */
		setenv("ASAN_OPTIONS", "detect_leaks=0", 0);

	execvp(argv[optind], argv + optind);
	status = errno == ENOENT ? NOT_FOUND : CANNOT_RUN;
	complain(argv[optind], strerror(errno));
	return status;
}
