/* SPDX-License-Identifier: MIT */
/* The system's libibverbs and librdmacm, found when first needed; either may be absent. */
#ifndef SOFTRDMA_INTERPOSE_SYSTEM_H
#define SOFTRDMA_INTERPOSE_SYSTEM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "../../common/uncancel.h"
#include "names.h"

/* The headers cover these functions with macros. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Exported for ibv_devinfo but in no header; the type is an enum there. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index,
		       unsigned *type);

enum system_name {
#define SYSTEM_NAME(name, node) SYSTEM_##name,
	SOFTRDMA_IBVERBS_NAMES(SYSTEM_NAME) SOFTRDMA_RDMACM_NAMES(SYSTEM_NAME)
#undef SYSTEM_NAME
		SYSTEM_NAMES
};

/*
 * The system's function, NULL if there is none or SOFTRDMA=on. It may be called from anywhere:
 * another thread, a library's constructor, or from within the system's libraries.
 */
void *system_function(enum system_name name);

/* Whether @address is inside the system's libibverbs or librdmacm. */
bool system_has_code(const void *address);

/* Call the system's @name; @absent is the value where there is none. */
#define SYSTEM(absent, name, ...)                                                                  \
	({                                                                                         \
		__typeof__(&name) system_##name = system_function(SYSTEM_##name);                  \
		system_##name ? system_##name(__VA_ARGS__) : absent;                               \
	})

/*
 * Call the software device's function. Here is the edge at which a cancellation is held off; the
 * system's functions are called in the caller's state.
 */
#define SOFT(name, ...)                                                                            \
	({                                                                                         \
		UNCANCELLABLE_CALL;                                                                \
		soft_##name(__VA_ARGS__);                                                          \
	})

/* The software device's function if the object is @ours, the system's otherwise. */
#define DISPATCH(ours, absent, name, ...)                                                          \
	((ours) ? SOFT(name, __VA_ARGS__) : SYSTEM(absent, name, __VA_ARGS__))

/* The error conventions that go through errno. */
static inline void *fail_null(int error)
{
	errno = error;
	return NULL;
}

static inline int fail_minus_one(int error)
{
	errno = error;
	return -1;
}

/* The same function under its prefixed name, which redirect.h calls. */
#define EXPORT_PREFIXED(name, node)                                                                \
	extern __typeof__(name) softrdma_##name __attribute__((alias(#name)));

#endif
