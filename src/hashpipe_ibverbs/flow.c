/* SPDX-License-Identifier: MIT */
/* The rules of a context: set, replaced, removed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "internal.h"

static struct ibv_flow **flow_at(const struct hashpipe_ibv_context *context, uint32_t qp,
				 uint32_t index)
{
	return &context->ibv_flows[(size_t)qp * context->max_flows + index];
}

static struct group group_of(const struct hashpipe_ibv_rule *rule)
{
	struct group group = {0};

	if (rule_has_group(rule)) {
		group.family = rule->ip_version == 6 ? AF_INET6 : AF_INET;
		memcpy(group.address, rule->dst_ip, sizeof(group.address));
	}
	return group;
}

/* How many could not be destroyed. */
static int destroy_flows(struct ibv_flow **flows, uint32_t count)
{
	int failures = 0;

	for (uint32_t i = 0; i < count; i++) {
		failures += flows[i] && ibv_destroy_flow(flows[i]);
		flows[i] = NULL;
	}
	return failures;
}

/* One for each queue pair, or none. */
static int create_flows(const struct hashpipe_ibv_context *context, struct packets *packets,
			const struct hashpipe_ibv_rule *rule, struct ibv_flow **flows)
{
	struct rule_flow flow;

	rule_to_flow(rule, context->port_num, &flow);
	for (uint32_t i = 0; i < packets->nqp; i++) {
		flows[i] = ibv_create_flow(packets->qp[i], &flow.attr);
		if (!flows[i]) {
			int error = errno ? errno : EINVAL;

			log_error("the device does not take the rule: %s", strerror(error));
			destroy_flows(flows, i);
			return -error;
		}
	}
	return 0;
}

/* The rule at @index, its flows in @flows, in place of the one that is there. */
static int replace(struct hashpipe_ibv_context *context, struct packets *packets, uint32_t index,
		   const struct flow_slot *with, struct ibv_flow **flows)
{
	struct flow_slot *slot = &packets->slots[index];
	int failures = 0;

	for (uint32_t i = 0; i < packets->nqp; i++) {
		failures += destroy_flows(flow_at(context, i, index), 1);
		*flow_at(context, i, index) = flows ? flows[i] : NULL;
	}
	group_leave(&packets->groups, &slot->group);
	*slot = *with;
	context->flow_dst_ips[index] = 0;
	if (with->group.family == AF_INET)
		memcpy(&context->flow_dst_ips[index], with->group.address, sizeof(uint32_t));
	return failures;
}

static int remove_rule(struct hashpipe_ibv_context *context, struct packets *packets,
		       uint32_t index)
{
	const struct flow_slot none = {0};

	return replace(context, packets, index, &none, NULL) ? -EIO : 0;
}

/* The new rule works before the old one ends, so that packets of both are not lost. */
static int set_rule(struct hashpipe_ibv_context *context, struct packets *packets, uint32_t index,
		    const struct hashpipe_ibv_rule *rule)
{
	struct flow_slot slot = {.used = true, .rule = *rule, .group = group_of(rule)};
	struct ibv_flow **flows;
	int result;

	if (packets->slots[index].used && !memcmp(&packets->slots[index].rule, rule, sizeof(*rule)))
		return 0;
	flows = calloc(packets->nqp, sizeof(struct ibv_flow *));
	if (!flows)
		return -ENOMEM;
	result = group_join(&packets->groups, &slot.group);
	if (result)
		goto undo_flows;
	result = create_flows(context, packets, rule, flows);
	if (result)
		group_leave(&packets->groups, &slot.group);
	else
		replace(context, packets, index, &slot, flows);

undo_flows:
	free(flows);
	return result;
}

int flow_remove_all(struct hashpipe_ibv_context *context, struct packets *packets)
{
	int failures = 0;

	for (uint32_t i = 0; i < context->max_flows; i++)
		failures += remove_rule(context, packets, i) != 0;
	return failures;
}

/* ---- the public calls ---- */

/* NULL: remove it. */
static int change_rule(struct hashpipe_ibv_context *context, struct packets *packets,
		       uint32_t index, const struct hashpipe_ibv_rule *rule)
{
	struct hashpipe_ibv_rule normal;
	int saved = errno;
	int result = rule ? rule_normalize(rule, &normal) : 0;

	if (!result) {
		pthread_mutex_lock(&packets->lock);
		result = rule ? set_rule(context, packets, index, &normal)
			      : remove_rule(context, packets, index);
		pthread_mutex_unlock(&packets->lock);
	}
	errno = result ? -result : saved;
	return result ? 1 : 0;
}

/* NULL, with errno: it cannot have a rule of that index. */
static struct packets *packets_for_rule(const struct hashpipe_ibv_context *context, uint32_t index)
{
	struct packets *packets = packets_of(context);

	if (!packets)
		return NULL;
	if (!context->ibv_flows || !context->flow_dst_ips) {
		errno = EFAULT;
		return NULL;
	}
	if (index >= context->max_flows) {
		errno = EINVAL;
		return NULL;
	}
	return packets;
}

int hashpipe_ibv_flow(struct hashpipe_ibv_context *hibv_ctx, uint32_t flow_idx,
		      enum ibv_flow_spec_type flow_type, uint8_t *dst_mac, uint8_t *src_mac,
		      uint16_t ether_type, uint16_t vlan_tag, uint32_t src_ip, uint32_t dst_ip,
		      uint16_t src_port, uint16_t dst_port)
{
	const struct rule_arguments arguments = {
		.flow_type = flow_type,
		.dst_mac = dst_mac,
		.src_mac = src_mac,
		.ether_type = ether_type,
		.vlan_tag = vlan_tag,
		.src_ip = src_ip,
		.dst_ip = dst_ip,
		.src_port = src_port,
		.dst_port = dst_port,
	};
	struct packets *packets = packets_for_rule(hibv_ctx, flow_idx);
	struct hashpipe_ibv_rule rule;

	if (!packets)
		return 1;
	if (!rule_is_known_type(flow_type)) {
		errno = EINVAL;
		return 1;
	}
	if (rule_is_removal(&arguments))
		return change_rule(hibv_ctx, packets, flow_idx, NULL);
	rule_from_arguments(&arguments, hibv_ctx->mac, &rule);
	return change_rule(hibv_ctx, packets, flow_idx, &rule);
}

int hashpipe_ibv_flow_rule(struct hashpipe_ibv_context *hibv_ctx, uint32_t flow_idx,
			   const struct hashpipe_ibv_rule *rule)
{
	struct packets *packets = packets_for_rule(hibv_ctx, flow_idx);

	return packets ? change_rule(hibv_ctx, packets, flow_idx, rule) : 1;
}
