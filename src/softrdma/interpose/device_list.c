/* SPDX-License-Identifier: MIT */
/* The list of devices: those of the system first, then the software device's. */
#include "system.h"

#include <pthread.h>
#include <stdlib.h>

#include "../fork_order.h"
#include "../settings.h"
#include "../verbs/verbs.h"

struct device_list {
	struct device_list *next;
	struct ibv_device **system; /* the system's own list: it holds their references. Or NULL */
	struct ibv_device *devices[]; /* what the program gets: NULL at the end */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards lists */
static struct device_list *lists;                        /* those that programs hold */

FORK_MUTEX(FORK_DEVICE_LIST, &lock, NULL);

static struct device_list *make_list(struct ibv_device **system, int num_system,
				     struct ibv_device **soft, int num_soft)
{
	size_t num = (size_t)num_system + (size_t)num_soft;
	struct device_list *list =
		calloc(1, sizeof(*list) + (num + 1) * sizeof(struct ibv_device *));
	struct ibv_device **end;

	if (!list)
		return NULL;
	list->system = system;
	end = list->devices;
	for (int i = 0; i < num_system; i++)
		*end++ = system[i];
	for (int i = 0; i < num_soft; i++)
		*end++ = soft[i];
	pthread_mutex_lock(&lock);
	list->next = lists;
	lists = list;
	pthread_mutex_unlock(&lock);
	return list;
}

/* The list behind @devices, which no program holds from now on; NULL if we did not make it. */
static struct device_list *take_list(struct ibv_device **devices)
{
	struct device_list **link, *list;

	pthread_mutex_lock(&lock);
	for (link = &lists; *link && (*link)->devices != devices; link = &(*link)->next)
		;
	list = *link;
	if (list)
		*link = list->next;
	pthread_mutex_unlock(&lock);
	return list;
}

#pragma GCC visibility push(default)

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **system, **soft = NULL;
	struct device_list *list;
	int num_system = 0, num_soft;

	if (num_devices)
		*num_devices = 0;
	/* The system's libraries look for their own devices, and look behind them. */
	if (settings()->mode == MODE_OFF || system_has_code(__builtin_return_address(0)))
		return SYSTEM(fail_null(ENOSYS), ibv_get_device_list, num_devices);

	UNCANCELLABLE_CALL;
	num_soft = soft_get_devices(&soft);
	if (num_soft < 0)
		return fail_null(-num_soft);
	/* NULL where the kernel knows no RDMA: there are no devices then. */
	system = SYSTEM(NULL, ibv_get_device_list, &num_system);
	if (!system)
		num_system = 0;
	list = make_list(system, num_system, soft, num_soft);
	free(soft);
	if (!list) {
		if (system)
			SYSTEM((void)0, ibv_free_device_list, system);
		return fail_null(ENOMEM);
	}
	if (num_devices)
		*num_devices = num_system + num_soft;
	return list->devices;
}

void ibv_free_device_list(struct ibv_device **list)
{
	struct device_list *ours = take_list(list);
	struct ibv_device **system = ours ? ours->system : list;

	UNCANCELLABLE_CALL;
	if (system)
		SYSTEM((void)0, ibv_free_device_list, system);
	free(ours);
}

SOFTRDMA_DEVICE_LIST_NAMES(EXPORT_PREFIXED)
