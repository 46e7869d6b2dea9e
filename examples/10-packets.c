/* SPDX-License-Identifier: MIT */
/* Raw packets: count UDP packets for a port, by their source. 10-packets INTERFACE PORT COUNT;
 * needs CAP_NET_RAW. */
#include <hashpipe_ibverbs.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show(const struct hashpipe_ibv_recv_pkt *pkt)
{
	const unsigned char *frame = (const unsigned char *)pkt->wr.sg_list->addr;

	/* The source address is at byte 12 of the IPv4 header, that is behind 14 bytes of Ethernet.
	 */
	if (pkt->length >= 42)
		printf("%u bytes from %u.%u.%u.%u\n", pkt->length, frame[26], frame[27], frame[28],
		       frame[29]);
}

int main(int argc, char **argv)
{
	struct hashpipe_ibv_context ctx = {
		.send_pkt_num = 1, .recv_pkt_num = 1024, .pkt_size_max = 9216, .max_flows = 1};
	struct hashpipe_ibv_recv_pkt *list, *pkt;
	int left;

	if (argc != 4 || strlen(argv[1]) >= sizeof(ctx.interface_name)) {
		fprintf(stderr, "usage: %s INTERFACE PORT COUNT\n", argv[0]);
		return 2;
	}
	strcpy(ctx.interface_name, argv[1]);
	if (hashpipe_ibv_init(&ctx)) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return 1;
	}

	/* UDP packets for this port of this host: ours from now on, no longer the kernel's. */
	if (hashpipe_ibv_flow(&ctx, 0, IBV_FLOW_SPEC_UDP, NULL, NULL, 0, 0, 0, 0, 0,
			      (uint16_t)atoi(argv[2]))) {
		fprintf(stderr, "no rule: %s\n", strerror(errno));
		return 1;
	}
	hashpipe_ibv_recv_pkts(&ctx, 0);
	printf("listening\n");
	fflush(stdout);

	for (left = atoi(argv[3]); left > 0;) {
		list = hashpipe_ibv_recv_pkts(&ctx, 1000);
		for (pkt = list; pkt && left > 0; pkt = (void *)pkt->wr.next, left--)
			show(pkt);
		hashpipe_ibv_release_pkts(&ctx, list);
	}
	return hashpipe_ibv_shutdown(&ctx);
}
