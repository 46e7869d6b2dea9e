/* SPDX-License-Identifier: MIT */
/* The hello of a peer on this host. Input: descriptors and role, then its bytes. */
#include "fuzz.h"

#include "shm/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint8_t options = take_byte(&input);
	bool from_responder = options & 1;
	unsigned num_fds = options >> 1;
	uint8_t *bytes = exact_copy(input.at, input.left);
	struct hello hello;

	if (!hello_parse(bytes, input.left, num_fds, from_responder, &hello)) {
		struct hello again;

		CHECK(input.left == sizeof(hello));
		CHECK(num_fds == hello.has_table + from_responder && num_fds <= HELLO_MAX_FDS);
		hello_make(&again, hello.has_table, &hello.probe_value);
		again.probe_at = hello.probe_at;
		CHECK(!memcmp(&again, &hello, sizeof(hello)));
	}
	free(bytes);
	return 0;
}
