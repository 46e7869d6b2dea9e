/* SPDX-License-Identifier: MIT */
/* What goes in comes out in order, however it grows meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fifo.h"

static void test_items_come_out_in_order_while_it_grows(void **state)
{
	unsigned next_in = 0, next_out = 0, seed = 1;
	struct fifo fifo;

	(void)state;
	fifo_init(&fifo, sizeof(unsigned));
	for (unsigned round = 0; round < 2000; round++) {
		unsigned in = (unsigned)rand_r(&seed) % 8, out = (unsigned)rand_r(&seed) % 7;

		assert_int_equal(fifo_reserve(&fifo, in), 0);
		for (; in; in--, next_in++)
			*(unsigned *)fifo_push(&fifo) = next_in;
		assert_int_equal(fifo.count, next_in - next_out);
		for (size_t i = 0; i < fifo.count; i++)
			assert_int_equal(*(unsigned *)fifo_at(&fifo, i), next_out + i);
		for (; out && fifo.count; out--, next_out++)
			assert_int_equal(*(unsigned *)fifo_pop(&fifo), next_out);
	}
	assert_true(fifo.room > 32);
	fifo_fini(&fifo);
	assert_int_equal(fifo.count, 0);
	assert_int_equal(fifo_reserve(&fifo, 1), 0);
	fifo_fini(&fifo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_items_come_out_in_order_while_it_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
