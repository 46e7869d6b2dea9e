/* SPDX-License-Identifier: MIT */
/*
 * What an interface lets in: a card drops frames for addresses that are not its own, but a rule
 * that names one wants them. The kernel counts memberships, and ends them with the socket.
 */
#include <linux/if_packet.h>
#include <string.h>
#include <sys/socket.h>

#include "internal.h"

/* Whether the interface is to be told; sniffers see everything. */
static bool membership_for(const struct raw_qp *raw, const struct raw_rule *rule,
			   struct packet_mreq *request)
{
	const uint8_t all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	const uint8_t *mac = rule->value.dst_mac;

	*request = (struct packet_mreq){.mr_ifindex = (int)raw->iface.index};
	if (memcmp(rule->mask.dst_mac, all, sizeof(all)) != 0) {
		request->mr_type = PACKET_MR_PROMISC;
		return rule->copies;
	}
	request->mr_type = mac[0] & 1 ? PACKET_MR_MULTICAST : PACKET_MR_UNICAST;
	request->mr_alen = sizeof(raw->iface.mac);
	memcpy(request->mr_address, mac, sizeof(raw->iface.mac));
	return memcmp(mac, raw->iface.mac, sizeof(raw->iface.mac)) != 0 &&
	       memcmp(mac, all, sizeof(all)) != 0;
}

/* What cannot be had is not worth a failure: the frames may come all the same. */
void raw_join(struct raw_qp *raw, const struct raw_rule *rule)
{
	struct packet_mreq request;

	if (membership_for(raw, rule, &request))
		setsockopt(raw->tx.source.fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request,
			   sizeof(request));
}

void raw_leave(struct raw_qp *raw, const struct raw_rule *rule)
{
	struct packet_mreq request;

	if (membership_for(raw, rule, &request))
		setsockopt(raw->tx.source.fd, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &request,
			   sizeof(request));
}
