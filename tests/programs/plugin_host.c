/* SPDX-License-Identifier: MIT */
/*
 * A program without verbs of its own that opens a plug-in with them:
 * plugin_host PLUGIN keep|deepbind|close. The plug-in listens, and somebody who speaks no MPA is
 * sent away. With "close" that happens when the plug-in is closed already.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 20000

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "plugin_host: %s: %s\n", what, why);
	return 1;
}

/* The device's thread hears us, and hangs up. */
static int visit(int port)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	char bytes[20] = "this is not a reque";

	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)))
		return complain("connect", strerror(errno));
	if (write(fd, bytes, sizeof(bytes)) != sizeof(bytes))
		return complain("write", strerror(errno));
	if (poll(&pollfd, 1, PATIENCE_MS) != 1)
		return complain("poll", "nobody hangs up");
	if (read(fd, bytes, sizeof(bytes)) > 0)
		return complain("read", "an answer came");
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	int (*plugin_listen)(void);
	int mode = RTLD_NOW | RTLD_LOCAL, port;
	void *plugin;

	if (argc != 3)
		return complain("usage", "plugin_host PLUGIN keep|deepbind|close");
	if (!strcmp(argv[2], "deepbind"))
		mode |= RTLD_DEEPBIND;
	plugin = dlopen(argv[1], mode);
	if (!plugin)
		return complain(argv[1], dlerror());
	*(void **)&plugin_listen = dlsym(plugin, "plugin_listen");
	if (!plugin_listen)
		return complain(argv[1], dlerror());
	port = plugin_listen();
	if (port < 0)
		return complain("plugin_listen", strerror(errno));
	if (!strcmp(argv[2], "close") && dlclose(plugin))
		return complain("dlclose", dlerror());
	return visit(port);
}
