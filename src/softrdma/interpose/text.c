/* SPDX-License-Identifier: MIT */
/*
 * Texts for values: the system's where it has them, so that both sides of a program say the same.
 */
#include "system.h"

#define TEXT(table, value)                                                                         \
	((size_t)(value) < sizeof(table) / sizeof(*(table)) && (table)[value] ? (table)[value]     \
									      : "unknown")

static const char *const wc_status_texts[] = {
	[IBV_WC_SUCCESS] = "success",
	[IBV_WC_LOC_LEN_ERR] = "local length error",
	[IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
	[IBV_WC_LOC_PROT_ERR] = "local protection error",
	[IBV_WC_WR_FLUSH_ERR] = "work request flushed",
	[IBV_WC_MW_BIND_ERR] = "memory window bind error",
	[IBV_WC_BAD_RESP_ERR] = "bad response",
	[IBV_WC_LOC_ACCESS_ERR] = "local access error",
	[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
	[IBV_WC_REM_ACCESS_ERR] = "remote access error",
	[IBV_WC_REM_OP_ERR] = "remote operation error",
	[IBV_WC_RETRY_EXC_ERR] = "too many retries",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "receiver not ready too often",
	[IBV_WC_REM_ABORT_ERR] = "aborted by the remote side",
	[IBV_WC_FATAL_ERR] = "fatal error",
	[IBV_WC_RESP_TIMEOUT_ERR] = "no response in time",
	[IBV_WC_GENERAL_ERR] = "general error",
};

static const char *const async_event_texts[] = {
	[IBV_EVENT_CQ_ERR] = "completion queue error",
	[IBV_EVENT_QP_FATAL] = "queue pair failed",
	[IBV_EVENT_QP_REQ_ERR] = "queue pair: invalid request",
	[IBV_EVENT_QP_ACCESS_ERR] = "queue pair: access violation",
	[IBV_EVENT_COMM_EST] = "communication established",
	[IBV_EVENT_SQ_DRAINED] = "send queue drained",
	[IBV_EVENT_PATH_MIG] = "path migrated",
	[IBV_EVENT_PATH_MIG_ERR] = "path migration error",
	[IBV_EVENT_DEVICE_FATAL] = "device failed",
	[IBV_EVENT_PORT_ACTIVE] = "port active",
	[IBV_EVENT_PORT_ERR] = "port error",
	[IBV_EVENT_LID_CHANGE] = "LID change",
	[IBV_EVENT_PKEY_CHANGE] = "P_Key change",
	[IBV_EVENT_SM_CHANGE] = "SM change",
	[IBV_EVENT_SRQ_ERR] = "shared receive queue error",
	[IBV_EVENT_SRQ_LIMIT_REACHED] = "shared receive queue limit reached",
	[IBV_EVENT_QP_LAST_WQE_REACHED] = "last work request reached",
	[IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
	[IBV_EVENT_GID_CHANGE] = "GID table change",
	[IBV_EVENT_WQ_FATAL] = "work queue failed",
};

static const char *const node_type_texts[] = {
	[IBV_NODE_CA] = "InfiniBand channel adapter",
	[IBV_NODE_SWITCH] = "InfiniBand switch",
	[IBV_NODE_ROUTER] = "InfiniBand router",
	[IBV_NODE_RNIC] = "iWARP NIC",
	[IBV_NODE_USNIC] = "usNIC",
	[IBV_NODE_USNIC_UDP] = "usNIC UDP",
	[IBV_NODE_UNSPECIFIED] = "unspecified",
};

static const char *const port_state_texts[] = {
	[IBV_PORT_NOP] = "no change", [IBV_PORT_DOWN] = "down",
	[IBV_PORT_INIT] = "init",     [IBV_PORT_ARMED] = "armed",
	[IBV_PORT_ACTIVE] = "active", [IBV_PORT_ACTIVE_DEFER] = "active defer",
};

static const char *const cm_event_texts[] = {
#define CM_EVENT(name) [name] = #name
	CM_EVENT(RDMA_CM_EVENT_ADDR_RESOLVED),   CM_EVENT(RDMA_CM_EVENT_ADDR_ERROR),
	CM_EVENT(RDMA_CM_EVENT_ROUTE_RESOLVED),  CM_EVENT(RDMA_CM_EVENT_ROUTE_ERROR),
	CM_EVENT(RDMA_CM_EVENT_CONNECT_REQUEST), CM_EVENT(RDMA_CM_EVENT_CONNECT_RESPONSE),
	CM_EVENT(RDMA_CM_EVENT_CONNECT_ERROR),   CM_EVENT(RDMA_CM_EVENT_UNREACHABLE),
	CM_EVENT(RDMA_CM_EVENT_REJECTED),        CM_EVENT(RDMA_CM_EVENT_ESTABLISHED),
	CM_EVENT(RDMA_CM_EVENT_DISCONNECTED),    CM_EVENT(RDMA_CM_EVENT_DEVICE_REMOVAL),
	CM_EVENT(RDMA_CM_EVENT_MULTICAST_JOIN),  CM_EVENT(RDMA_CM_EVENT_MULTICAST_ERROR),
	CM_EVENT(RDMA_CM_EVENT_ADDR_CHANGE),     CM_EVENT(RDMA_CM_EVENT_TIMEWAIT_EXIT),
#undef CM_EVENT
};

#pragma GCC visibility push(default)

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return SYSTEM(TEXT(wc_status_texts, status), ibv_wc_status_str, status);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return SYSTEM(TEXT(async_event_texts, event), ibv_event_type_str, event);
}

const char *ibv_node_type_str(enum ibv_node_type node_type)
{
	return SYSTEM(TEXT(node_type_texts, node_type), ibv_node_type_str, node_type);
}

const char *ibv_port_state_str(enum ibv_port_state port_state)
{
	return SYSTEM(TEXT(port_state_texts, port_state), ibv_port_state_str, port_state);
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	return SYSTEM(TEXT(cm_event_texts, event), rdma_event_str, event);
}

SOFTRDMA_VERBS_TEXT_NAMES(EXPORT_PREFIXED)
SOFTRDMA_CM_TEXT_NAMES(EXPORT_PREFIXED)
