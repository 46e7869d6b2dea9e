/* SPDX-License-Identifier: MIT */
/*
 * Layout, in network order: "sQPn", version 1, answer, path MTU, a zero byte; then from, to, psn
 * and expected in 32 bits each; then the GID.
 */
#include "qp_hello.h"

#include <errno.h>
#include <string.h>

#include "../../common/bytes.h"

#define VERSION 1
#define MTU_MIN 1 /* IBV_MTU_256 */
#define MTU_MAX 5 /* IBV_MTU_4096 */
#define MAX_24  0xffffffu

static const uint8_t magic[4] = {'s', 'Q', 'P', 'n'};

void qp_hello_build(const struct qp_hello *hello, uint8_t out[QP_HELLO_LEN])
{
	memcpy(out, magic, sizeof(magic));
	out[4] = VERSION;
	out[5] = hello->answer;
	out[6] = hello->path_mtu;
	out[7] = 0;
	put_be32(out + 8, hello->from);
	put_be32(out + 12, hello->to);
	put_be32(out + 16, hello->psn);
	put_be32(out + 20, hello->expected);
	memcpy(out + 24, hello->gid, sizeof(hello->gid));
}

int qp_hello_parse(const uint8_t *bytes, size_t len, struct qp_hello *out)
{
	struct qp_hello hello;

	if (len != QP_HELLO_LEN || memcmp(bytes, magic, sizeof(magic)) != 0 || bytes[4] != VERSION)
		return -EPROTO;
	hello.answer = bytes[5];
	hello.path_mtu = bytes[6];
	hello.from = get_be32(bytes + 8);
	hello.to = get_be32(bytes + 12);
	hello.psn = get_be32(bytes + 16);
	hello.expected = get_be32(bytes + 20);
	memcpy(hello.gid, bytes + 24, sizeof(hello.gid));
	if (hello.answer >= MEET_ANSWERS || hello.path_mtu < MTU_MIN || hello.path_mtu > MTU_MAX ||
	    hello.from > MAX_24 || hello.to > MAX_24 || hello.psn > MAX_24 ||
	    hello.expected > MAX_24)
		return -EPROTO;
	*out = hello;
	return 0;
}
