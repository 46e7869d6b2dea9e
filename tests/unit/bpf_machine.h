/* SPDX-License-Identifier: MIT */
/* Runs generated filters without a kernel: as much of classic BPF and of eBPF as they use. */
#ifndef TESTS_UNIT_BPF_MACHINE_H
#define TESTS_UNIT_BPF_MACHINE_H

#include "raw/filter.h"

/* A frame as a packet socket sees it, its tag taken out, and as XDP does. */
struct machine_frame {
	uint8_t bytes[512]; /* without the tag */
	size_t len;
	struct raw_tag tag;
	uint8_t on_wire[516];
	size_t wire_len;
};

/* From the bytes on the wire. */
void machine_set_frame(struct machine_frame *frame, const void *bytes, size_t len);

/* Whether a frame is accepted. Anything wrong with the program ends the test: abort(). */
bool machine_run_classic(const struct sock_filter *code, int num,
			 const struct machine_frame *frame);
bool machine_run_ebpf(enum filter_place place, const struct filter_program *program,
		      const struct machine_frame *frame);

#endif
