/* SPDX-License-Identifier: MIT */
/* Flow rules as text. */
#include "rule_text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"

static bool parse_number(const char *text, unsigned long max, uint16_t *out)
{
	unsigned long number;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoul(text, &end, 0);
	if (errno || *end || number > max)
		return false;
	*out = (uint16_t)number;
	return true;
}

static bool set_ip_version(struct hashpipe_ibv_rule *rule, uint16_t version)
{
	if (rule->ip_version && rule->ip_version != version)
		return false;
	rule->ip_version = version;
	return true;
}

/* ADDRESS or ADDRESS/BITS, of either version. */
static bool parse_ip(char *text, struct hashpipe_ibv_rule *rule, uint8_t ip[16], uint8_t *bits)
{
	char *slash = strchr(text, '/');
	uint16_t version = strchr(text, ':') ? 6 : 4, number = 0;

	if (slash) {
		*slash++ = '\0';
		if (!parse_number(slash, version == 6 ? 128 : 32, &number) || !number)
			return false;
	}
	*bits = (uint8_t)number;
	return set_ip_version(rule, version) &&
	       inet_pton(version == 6 ? AF_INET6 : AF_INET, text, ip) == 1;
}

static bool set_protocol(struct hashpipe_ibv_rule *rule, uint16_t protocol)
{
	if (rule->ip_protocol && rule->ip_protocol != protocol)
		return false;
	rule->ip_protocol = protocol;
	return true;
}

static bool parse_word(const char *word, struct hashpipe_ibv_rule *rule)
{
	if (!strcmp(word, "all"))
		return true;
	if (!strcmp(word, "ip"))
		return set_ip_version(rule, 4);
	if (!strcmp(word, "ip6"))
		return set_ip_version(rule, 6);
	if (!strcmp(word, "tcp"))
		return set_protocol(rule, IPPROTO_TCP);
	if (!strcmp(word, "udp"))
		return set_protocol(rule, IPPROTO_UDP);
	return false;
}

static bool parse_criterion(const char *key, char *value, struct hashpipe_ibv_rule *rule)
{
	enum hashpipe_ibv_match match;
	bool good;

	if (!strcmp(key, "dst-mac")) {
		match = HASHPIPE_IBV_DST_MAC;
		good = frame_parse_mac(value, rule->dst_mac);
	} else if (!strcmp(key, "src-mac")) {
		match = HASHPIPE_IBV_SRC_MAC;
		good = frame_parse_mac(value, rule->src_mac);
	} else if (!strcmp(key, "ether-type")) {
		match = HASHPIPE_IBV_ETHER_TYPE;
		good = parse_number(value, 0xffff, &rule->ether_type);
	} else if (!strcmp(key, "vlan")) {
		match = HASHPIPE_IBV_VLAN_ID;
		good = parse_number(value, 0xfff, &rule->vlan);
	} else if (!strcmp(key, "vlan-tag")) {
		match = HASHPIPE_IBV_VLAN_TAG;
		good = parse_number(value, 0xffff, &rule->vlan);
	} else if (!strcmp(key, "src-ip")) {
		match = HASHPIPE_IBV_SRC_IP;
		good = parse_ip(value, rule, rule->src_ip, &rule->src_ip_bits);
	} else if (!strcmp(key, "dst-ip")) {
		match = HASHPIPE_IBV_DST_IP;
		good = parse_ip(value, rule, rule->dst_ip, &rule->dst_ip_bits);
	} else if (!strcmp(key, "src-port")) {
		match = HASHPIPE_IBV_SRC_PORT;
		good = parse_number(value, 0xffff, &rule->src_port);
	} else if (!strcmp(key, "dst-port")) {
		match = HASHPIPE_IBV_DST_PORT;
		good = parse_number(value, 0xffff, &rule->dst_port);
	} else {
		return false;
	}
	if (rule->match & match)
		return false; /* twice */
	rule->match |= match;
	return good;
}

static bool parse_part(char *part, struct hashpipe_ibv_rule *rule)
{
	char *value = strchr(part, '=');

	if (!value)
		return parse_word(part, rule);
	*value++ = '\0';
	return parse_criterion(part, value, rule);
}

bool rule_text_parse(char *text, struct hashpipe_ibv_rule *out, const char **wrong)
{
	struct hashpipe_ibv_rule rule = {.size = sizeof(rule)};
	char *part, *rest = text;

	while ((part = strsep(&rest, ","))) {
		*wrong = part;
		if (!parse_part(part, &rule))
			return false;
	}
	/* What is not said follows from the rest. */
	if (rule.match & (HASHPIPE_IBV_SRC_PORT | HASHPIPE_IBV_DST_PORT) && !rule.ip_protocol) {
		*wrong = "a port without tcp or udp";
		return false;
	}
	if (rule.ip_protocol && !rule.ip_version)
		rule.ip_version = 4;
	if ((rule.match & HASHPIPE_IBV_VLAN_ID) && (rule.match & HASHPIPE_IBV_VLAN_TAG)) {
		*wrong = "both vlan and vlan-tag";
		return false;
	}
	*out = rule;
	return true;
}
