/* SPDX-License-Identifier: MIT */
/*
 * Terminate messages. Input: the payload of one as a peer sends it; the same bytes also serve as
 * code, segment length and offending header of one that we send.
 */
#include "fuzz.h"

#include "../../src/common/bytes.h"
#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/terminate.h"

#define CANARY 0xee

/* Built and read again: one valid message that says the same. Returns its code. */
static uint16_t check_build(uint16_t code, const uint8_t *offending, size_t len)
{
	uint8_t out[TERMINATE_MAX_FPDU], *ulpdu = out + FPDU_LENGTH_LEN;
	struct ddp_header header;
	struct ddp_order order;
	uint16_t why;
	size_t built;

	memset(out, CANARY, sizeof(out));
	built = terminate_build(out, code, offending, len, (uint16_t)len);
	CHECK(built % 4 == 0 && built + FPDU_CRC_LEN <= TERMINATE_MAX_FPDU);
	for (size_t i = built; i < sizeof(out); i++)
		CHECK(out[i] == CANARY);
	CHECK(fpdu_len(get_be16(out)) == built + FPDU_CRC_LEN);

	CHECK(ddp_parse(ulpdu, get_be16(out), get_be16(out), false, &header, &why) == 0);
	CHECK(header.opcode == RDMAP_TERMINATE);
	ddp_order_init(&order);
	CHECK(ddp_order_check(&order, &header, &why) == 0);
	CHECK(get_be16(ulpdu + header.header_len) == code);
	return terminate_parse(ulpdu + header.header_len, header.payload_len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint16_t code = terminate_parse(data, size);
	uint8_t *copy;

	CHECK(terminate_text(code)[0]);
	/* What was read is in the RFC's order, and stays what it is. */
	CHECK(check_build(code, NULL, 0) == code);

	for (size_t len = 0; len <= size && len <= DDP_MAX_HEADER; len++) {
		copy = exact_copy(data, len);
		CHECK(check_build(code, copy, len) == code);
		free(copy);
	}
	if (size >= 2)
		CHECK(terminate_text(get_be16(data))[0]);
	return 0;
}
