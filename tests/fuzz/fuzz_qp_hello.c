/* SPDX-License-Identifier: MIT */
/* The hello of a queue pair that meets another by number. */
#include "fuzz.h"

#include "wire/qp_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes = exact_copy(data, size), again[QP_HELLO_LEN];
	struct qp_hello hello;

	if (!qp_hello_parse(bytes, size, &hello)) {
		qp_hello_build(&hello, again);
		again[7] = bytes[7]; /* reserved: whatever it is */
		CHECK(!memcmp(bytes, again, sizeof(again)));
	}
	free(bytes);
	return 0;
}
