/* SPDX-License-Identifier: MIT */
#include "proto.h"

#include <errno.h>
#include <string.h>

#include "../common/bytes.h"

static const uint8_t magic[4] = {'i', 'b', 'm', 0xb5};

/* ---- private data ---- */

size_t proto_put_private(uint8_t *out, const struct proto_private *in)
{
	memset(out, 0, PROTO_PRIVATE_LEN);
	memcpy(out, magic, sizeof(magic));
	out[4] = in->version;
	out[5] = in->user_len;
	put_be16(out + 6, in->features);
	put_be32(out + 8, in->max_send);
	put_be16(out + 12, in->data_credits);
	put_be16(out + 14, in->control_credits);
	memcpy(out + PROTO_PRIVATE_LEN, in->user, in->user_len);
	return PROTO_PRIVATE_LEN + (size_t)in->user_len;
}

enum proto_peer proto_get_private(const void *data, size_t len, struct proto_private *out)
{
	const uint8_t *at = data;

	if (!data || len < PROTO_PRIVATE_LEN || memcmp(at, magic, sizeof(magic)) != 0)
		return PEER_ORIGINAL;
	if (at[4] != PROTO_VERSION || at[5] > PROTO_MAX_USER_DATA ||
	    len < PROTO_PRIVATE_LEN + (size_t)at[5] || get_be32(at + 8) < PROTO_MIN_SEND)
		return PEER_UNKNOWN;
	*out = (struct proto_private){
		.version = at[4],
		.user_len = at[5],
		.features = get_be16(at + 6),
		.max_send = get_be32(at + 8),
		.data_credits = get_be16(at + 12),
		.control_credits = get_be16(at + 14),
	};
	memcpy(out->user, at + PROTO_PRIVATE_LEN, at[5]);
	return PEER_IBMSG;
}

/* ---- messages ---- */

size_t proto_put_message(uint8_t *out, const struct proto_message *in)
{
	put_be64(out, (uint64_t)in->type << 56 | (uint64_t)in->flags << 48 |
			      (uint64_t)in->data_credits << 32 |
			      (uint64_t)in->control_credits << 16);
	if (in->type == PROTO_DONE) {
		put_be32(out + 8, in->number);
		put_be32(out + 12, in->status);
	} else {
		bool has_length = in->type == PROTO_OFFER || in->type == PROTO_MANY;

		put_be64(out + 8, has_length ? in->length : 0);
	}
	if (in->type != PROTO_HELLO && in->type != PROTO_OFFER)
		return PROTO_HEADER_LEN;
	put_be64(out + 16, in->address);
	put_be32(out + 24, in->key);
	put_be32(out + 28, in->type == PROTO_OFFER ? in->number : 0);
	return PROTO_HEADER_LEN + PROTO_REGION_LEN;
}

static size_t expected_len(enum proto_type type)
{
	return type == PROTO_HELLO || type == PROTO_OFFER ? PROTO_HEADER_LEN + PROTO_REGION_LEN
							  : PROTO_HEADER_LEN;
}

/* As many messages as were announced, one behind the other, and nothing else. */
static bool are_parts_well(const uint8_t *at, size_t left, uint64_t count)
{
	uint16_t len;

	if (!count)
		return false;
	for (; count; count--) {
		size_t taken = proto_get_part(at, left, &len);

		if (!taken)
			return false;
		at += taken;
		left -= taken;
	}
	return !left;
}

int proto_get_message(const void *data, size_t len, struct proto_message *out)
{
	const uint8_t *at = data;

	if (len < PROTO_HEADER_LEN || at[0] < PROTO_HELLO || at[0] > PROTO_MANY)
		return -EPROTO;
	memset(out, 0, sizeof(*out));
	out->type = (enum proto_type)at[0];
	out->flags = at[1];
	out->data_credits = get_be16(at + 2);
	out->control_credits = get_be16(at + 4);
	if (out->type == PROTO_DATA)
		return 0;
	if (out->type == PROTO_MANY) {
		out->length = get_be64(at + 8);
		return are_parts_well(at + PROTO_HEADER_LEN, len - PROTO_HEADER_LEN, out->length)
			       ? 0
			       : -EPROTO;
	}
	if (len != expected_len(out->type))
		return -EPROTO;
	if (out->type == PROTO_OFFER)
		out->length = get_be64(at + 8);
	if (out->type == PROTO_DONE) {
		out->number = get_be32(at + 8);
		if (get_be32(at + 12) > PROTO_NO_MEMORY)
			return -EPROTO;
		out->status = (enum proto_status)get_be32(at + 12);
	}
	if (len > PROTO_HEADER_LEN) {
		out->address = get_be64(at + 16);
		out->key = get_be32(at + 24);
		out->number = get_be32(at + 28);
	}
	return 0;
}

/* ---- messages of a MANY ---- */

size_t proto_put_part(uint8_t *out, const void *bytes, uint16_t len)
{
	size_t whole = proto_part_len(len);

	memset(out, 0, PROTO_HEADER_LEN);
	put_be16(out, len);
	memcpy(out + PROTO_HEADER_LEN, bytes, len);
	memset(out + PROTO_HEADER_LEN + len, 0, whole - PROTO_HEADER_LEN - len);
	return whole;
}

size_t proto_get_part(const uint8_t *at, size_t left, uint16_t *len)
{
	if (left < PROTO_HEADER_LEN || left < proto_part_len(get_be16(at)))
		return 0;
	*len = get_be16(at);
	return proto_part_len(*len);
}
