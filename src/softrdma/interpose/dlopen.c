/* SPDX-License-Identifier: MIT */
/*
 * What `softrdma` preloads beside libsoftrdma: a program that opens libibverbs or librdmacm with
 * dlopen() gets a handle in which dlsym() and dlvsym() find libsoftrdma's functions first, then the
 * system's. Without this it would find the system's alone: a handle is not searched in the order of
 * the preloaded libraries. Nor is it with RTLD_DEEPBIND, so no library is opened with that.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Depends on libsoftrdma, libibverbs and librdmacm, in this order; see handle.c. */
#define HANDLE_LIBRARY "libsoftrdma_handle.so"
#define DEVICE_LIBRARY "libsoftrdma.so.0"

typedef void *dlopen_function(const char *file, int mode);

static bool is_rdma_library(const char *file)
{
	const char *name = strrchr(file, '/');

	name = name ? name + 1 : file;
	return !strncmp(name, "libibverbs.so", strlen("libibverbs.so")) ||
	       !strncmp(name, "librdmacm.so", strlen("librdmacm.so"));
}

static bool is_switched_off(void)
{
	const char *value = secure_getenv("SOFTRDMA");

	return value && !strcmp(value, "off");
}

/* Open @library from the folder this object came from. */
static void *open_beside(dlopen_function *next, const char *library, int mode)
{
	char path[PATH_MAX];
	const char *slash;
	Dl_info info;
	int length;

	if (!dladdr(&is_rdma_library, &info) || !(slash = strrchr(info.dli_fname, '/')))
		return next(library, mode);
	length = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - info.dli_fname),
			  info.dli_fname, library);
	if (length < 0 || (size_t)length >= sizeof(path))
		return NULL;
	return next(path, mode);
}

static void *open_in_front(dlopen_function *next, const char *file, int mode)
{
	void *system = next(file, mode);
	void *handle;

	if (!system && (mode & RTLD_NOLOAD))
		return NULL;
	mode &= ~RTLD_NOLOAD;
	handle = open_beside(next, HANDLE_LIBRARY, mode);
	if (!handle) /* one of the system's libraries is absent */
		handle = open_beside(next, DEVICE_LIBRARY, mode);
	if (!handle)
		return system;
	if (system)
		dlclose(system); /* the handle's dependencies hold it */
	dlerror();
	return handle;
}

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode)
{
	dlopen_function *next = dlsym(RTLD_NEXT, "dlopen");

	if (!next)
		return NULL;
	if (is_switched_off())
		return next(file, mode);
	/*
	 * With this flag a library, and all that it depends on, would find the system's libibverbs
	 * ahead of what is preloaded.
	 */
	mode &= ~RTLD_DEEPBIND;
	if (file && is_rdma_library(file))
		return open_in_front(next, file, mode);
	/* A tail call, so that the C library sees our caller and searches that one's run path. */
	return next(file, mode);
}
