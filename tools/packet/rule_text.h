/* SPDX-License-Identifier: MIT */
/* Flow rules as text: udp,dst-ip=239.1.2.3,dst-port=60000 */
#ifndef TOOLS_PACKET_RULE_TEXT_H
#define TOOLS_PACKET_RULE_TEXT_H

#include <hashpipe_ibverbs.h>
#include <stdbool.h>

/*
 * Words, separated by commas: all, ip, ip6, tcp, udp, and
 * dst-mac= src-mac= ether-type= vlan= vlan-tag= src-ip= dst-ip= src-port= dst-port=
 * False: *@wrong says which part is wrong, in @text's memory, which is cut to pieces.
 */
bool rule_text_parse(char *text, struct hashpipe_ibv_rule *out, const char **wrong);

#endif
