/* SPDX-License-Identifier: MIT */
/* A file of packets, as tcpdump and Wireshark read it: pcap with nanoseconds. */
#ifndef TOOLS_PACKET_PCAP_H
#define TOOLS_PACKET_PCAP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* 0 or -errno. */
int pcap_begin(FILE *file, uint32_t max_len);
int pcap_add(FILE *file, uint64_t time_ns, const void *frame, uint32_t len);

#endif
