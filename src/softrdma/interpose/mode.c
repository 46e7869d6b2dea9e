/* SPDX-License-Identifier: MIT */
/* Decides where connections go: to a usable device of the system, or to the software device. */
#include "mode.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../../common/uncancel.h"
#include "../settings.h"
#include "system.h"

#define RDMA_CM_FILE "/dev/infiniband/rdma_cm"

/* ---- what the machine has ---- */

/* The number of @device's first active port, 0 if it has none or does not open. */
static int first_active_port(struct ibv_device *device)
{
	struct ibv_context *context = SYSTEM(NULL, ibv_open_device, device);
	struct ibv_device_attr attr;
	int active = 0;

	if (!context)
		return 0;
	if (SYSTEM(ENOSYS, ibv_query_device, context, &attr))
		attr.phys_port_cnt = 0;
	for (int port = 1; port <= attr.phys_port_cnt && !active; port++) {
		struct ibv_port_attr port_attr = {0};

		/* The exported function knows the struct without its last member; see verbs.h. */
		if (!SYSTEM(ENOSYS, ibv_query_port, context, (uint8_t)port,
			    (struct _compat_ibv_port_attr *)&port_attr) &&
		    port_attr.state == IBV_PORT_ACTIVE)
			active = port;
	}
	SYSTEM(ENOSYS, ibv_close_device, context);
	return active;
}

/* Whether the system can make connections; @why says what decided it. */
static bool system_is_usable(char *why, size_t size)
{
	struct ibv_device **list;
	bool usable = false;
	int fd, num = 0;

	fd = open(RDMA_CM_FILE, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		snprintf(why, size, RDMA_CM_FILE ": %s", strerror(errno));
		return false;
	}
	close(fd);
	if (!system_function(SYSTEM_rdma_create_event_channel)) {
		snprintf(why, size, "the system has no librdmacm");
		return false;
	}
	list = SYSTEM(NULL, ibv_get_device_list, &num);
	if (!list || !num)
		snprintf(why, size, "the system has no RDMA device");
	else
		snprintf(why, size, "no RDMA device of the system opens and has an active port");
	for (int i = 0; list && i < num && !usable; i++) {
		int port = first_active_port(list[i]);

		if (port) {
			snprintf(why, size, "%s has an active port %d", list[i]->name, port);
			usable = true;
		}
	}
	if (list)
		SYSTEM((void)0, ibv_free_device_list, list);
	return usable;
}

/* ---- the decision ---- */

static bool software;
static pthread_once_t decided = PTHREAD_ONCE_INIT;
/* The system's libraries, asked for the decision, may call back: those calls are theirs. */
static __thread bool is_deciding;

static void decide(void)
{
	char why[256] = "SOFTRDMA is set";

	UNCANCELLABLE;
	is_deciding = true;
	switch (settings()->mode) {
	case MODE_ON:
		software = true;
		break;
	case MODE_OFF:
		software = false;
		break;
	case MODE_AUTO:
		software = !system_is_usable(why, sizeof(why));
		break;
	}
	is_deciding = false;
	log_info("connections go to %s: %s",
		 software ? "the software device" : "the system's librdmacm", why);
}

bool mode_is_software(void)
{
	if (is_deciding)
		return false;
	pthread_once(&decided, decide);
	if (software)
		mode_warn_if_bypassed();
	return software;
}

/* ---- the warning ---- */

static void warn_if_bypassed(void)
{
	UNCANCELLABLE;
	void *program = dlopen(NULL, RTLD_LAZY);
	void *found = program ? dlsym(program, "ibv_create_qp") : NULL;

	if (system_has_code(found))
		log_warn(
			"the program's own ibv_* and rdma_* calls go past the software device to "
			"the system's libraries: run it with 'softrdma', or link -lsoftrdma first");
	if (program)
		dlclose(program);
	dlerror();
}

void mode_warn_if_bypassed(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, warn_if_bypassed);
}
