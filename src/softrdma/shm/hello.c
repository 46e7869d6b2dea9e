/* SPDX-License-Identifier: MIT */
#include "hello.h"

#include <errno.h>
#include <string.h>

#define VERSION 3 /* of this and of all that lies in shared memory */

static const char magic[8] = {'s', 'o', 'f', 't', 'r', 'd', 'm', 'a'};

void hello_make(struct hello *hello, bool has_table, const uint64_t *probe)
{
	*hello = (struct hello){
		.version = VERSION,
		.has_table = has_table,
		.probe_at = (uintptr_t)probe,
		.probe_value = *probe,
	};
	memcpy(hello->magic, magic, sizeof(magic));
}

int hello_parse(const void *bytes, size_t len, unsigned num_fds, bool from_responder,
		struct hello *out)
{
	struct hello hello;

	if (len != sizeof(hello))
		return -EPROTO;
	memcpy(&hello, bytes, sizeof(hello));
	if (memcmp(hello.magic, magic, sizeof(magic)) != 0 || hello.version != VERSION ||
	    hello.has_table > 1 || num_fds != hello.has_table + (from_responder ? 1 : 0))
		return -EPROTO;
	*out = hello;
	return 0;
}
