/* SPDX-License-Identifier: MIT */
/* Finds the functions of the system's libibverbs and librdmacm, and its code. */
#include "system.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "../../common/log.h"
#include "../settings.h"

/* Stands for "looked for and not there". */
static char missing;

struct system_library {
	const char *soname;
	_Atomic(void *) handle; /* NULL: not opened yet */
};

static struct system_library ibverbs = {.soname = "libibverbs.so.1"};
static struct system_library rdmacm = {.soname = "librdmacm.so.1"};

static struct {
	struct system_library *library;
	const char *name;
	const char *version;
	_Atomic(void *) address; /* NULL: not looked for yet */
} functions[SYSTEM_NAMES] = {
#define IN_IBVERBS(name, version) {&ibverbs, #name, version, NULL},
#define IN_RDMACM(name, version)  {&rdmacm, #name, version, NULL},
	SOFTRDMA_IBVERBS_NAMES(IN_IBVERBS) SOFTRDMA_RDMACM_NAMES(IN_RDMACM)
#undef IN_IBVERBS
#undef IN_RDMACM
};

/*
 * No lock and no pthread_once here or below: opening a library runs its constructors, which may
 * call our exported functions and so come back. Threads that arrive together do the same work and
 * find the same.
 */
static void *open_library(struct system_library *library)
{
	void *handle = atomic_load(&library->handle);
	void *(*next_dlopen)(const char *, int);

	if (handle)
		return handle;
	UNCANCELLABLE; /* the dynamic linker has a lock, and constructors are anybody's */
	/* Not the one of our preload object, which would open ourselves in the system's place. */
	next_dlopen = dlsym(RTLD_NEXT, "dlopen");
	handle = (next_dlopen ? next_dlopen : dlopen)(library->soname, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *why = dlerror();

		log_debug("no %s: %s", library->soname, why ? why : "not found");
		handle = &missing;
	}
	atomic_store(&library->handle, handle);
	return handle;
}

void *system_function(enum system_name name)
{
	void *address = atomic_load_explicit(&functions[name].address, memory_order_acquire);
	void *handle;

	if (address)
		return address == &missing ? NULL : address;
	if (settings()->mode == MODE_ON)
		return NULL;
	handle = open_library(functions[name].library);
	if (handle != &missing) {
		address = dlvsym(handle, functions[name].name, functions[name].version);
		if (!address)
			dlerror(); /* the program's next dlerror() is about the program's calls */
	}
	atomic_store_explicit(&functions[name].address, address ? address : &missing,
			      memory_order_release);
	return address;
}

bool system_has_code(const void *address)
{
	const char *file;
	Dl_info info;

	if (!address || !dladdr(address, &info) || !info.dli_fname)
		return false;
	file = strrchr(info.dli_fname, '/');
	file = file ? file + 1 : info.dli_fname;
	return !strncmp(file, "libibverbs.so", strlen("libibverbs.so")) ||
	       !strncmp(file, "librdmacm.so", strlen("librdmacm.so"));
}
