/* SPDX-License-Identifier: MIT */
/* What the error codes mean, and what to do about them. */
#include "internal.h"

struct text {
	const char *what, *hint;
};

static const struct text texts[] = {
	[IBMSG_OK] = {"success", ""},
	[IBMSG_FCNTL_FAILED] = {"a descriptor could not be made non-blocking", ""},
	[IBMSG_GETADDRINFO_FAILED] = {"the host name is not known",
				      "check the spelling, then: getent ahosts NAME"},
	[IBMSG_CREATE_ID_FAILED] = {"no RDMA communication id could be created",
				    "descriptors may be used up: ulimit -n"},
	[IBMSG_BIND_FAILED] =
		{"the address cannot be bound",
		 "it must be an address of this host, and its port free: ip addr; ss -ltn"},
	[IBMSG_LISTEN_FAILED] = {"cannot listen", "the port may be in use: ss -ltn"},
	[IBMSG_ADDRESS_RESOLUTION_FAILED] = {"the address cannot be resolved to a device",
					     "is there a route? ip route get ADDRESS"},
	[IBMSG_FETCH_EVENT_FAILED] = {"an event could not be fetched", ""},
	[IBMSG_ACK_EVENT_FAILED] = {"an event could not be acknowledged", ""},
	[IBMSG_ALLOC_FAILED] = {"out of memory", "ulimit -v; free -m"},
	[IBMSG_MEMORY_REGISTRATION_FAILED] =
		{"memory could not be registered",
		 "the limit for locked memory is the usual cause: ulimit -l, "
		 "or memlock in /etc/security/limits.conf"},
	[IBMSG_POST_SEND_FAILED] = {"the device did not take a request",
				    "its log line says why: IBMSG_LOG=debug"},
	[IBMSG_DISCONNECT_FAILED] = {"cannot disconnect", ""},
	[IBMSG_FREE_BUFFER_FAILED] = {"the message is not one of the library's", ""},
	[IBMSG_CREATE_QP_FAILED] =
		{"no queue pair could be created",
		 "locked memory may be used up (ulimit -l), or the device's queue "
		 "pairs: rdma resource show"},
	[IBMSG_ACCEPT_FAILED] = {"the connection cannot be accepted", ""},
	[IBMSG_EPOLL_FAILED] = {"no epoll instance could be created",
				"descriptors may be used up: ulimit -n"},
	[IBMSG_EPOLL_ADD_FD_FAILED] = {"a descriptor cannot be watched", ""},
	[IBMSG_EPOLL_WAIT_FAILED] = {"waiting for events failed", ""},
	[IBMSG_INVALID_ARGUMENT] = {"invalid argument", ""},
	[IBMSG_NOT_CONNECTED] = {"the socket has no connection", ""},
	[IBMSG_NO_DEVICE] = {"no RDMA device can be used",
			     "SOFTRDMA=on uses the software device; for hardware: ibv_devinfo, "
			     "rdma link, ls -l /dev/infiniband"},
	[IBMSG_UNREACHABLE] = {"the host cannot be reached", "ip route get ADDRESS; ping ADDRESS"},
	[IBMSG_REFUSED] = {"nobody listens at that address and port",
			   "is the server running, and at this port? ss -ltn there"},
	[IBMSG_REJECTED] = {"the peer rejected the connection", ""},
	[IBMSG_TIMED_OUT] = {"the peer did not answer in time",
			     "ping ADDRESS; a firewall may drop the packets"},
	[IBMSG_PEER_SILENT] = {"the peer's host does not answer any more",
			       "ping ADDRESS; rdma link"},
	[IBMSG_CONNECTION_LOST] = {"the connection was lost",
				   "the peer has ended or was killed: see its log"},
	[IBMSG_CLOSED] = {"the connection was closed before the message was sent", ""},
	[IBMSG_PROTOCOL_ERROR] = {"the peer does not keep to the protocol",
				  "both ends should run the same version of libibmsg"},
	[IBMSG_MESSAGE_TOO_LARGE] =
		{"the message is too large for the peer",
		 "raise its limit with ibmsg_set_max_message; an original ibmsg "
		 "takes 4096 bytes"},
	[IBMSG_PEER_OUT_OF_MEMORY] = {"the peer has no memory for the message",
				      "it must free messages, or raise ibmsg_set_max_memory"},
	[IBMSG_DEVICE_REMOVED] = {"the RDMA device was removed", "rdma link"},
	[IBMSG_BUSY] = {"busy: being dispatched, or still on its way", ""},
};

static const struct text *text_of(int error)
{
	static const struct text unknown = {"unknown error", ""};

	if (error < 0 || (unsigned)error >= sizeof(texts) / sizeof(*texts))
		return &unknown;
	return &texts[error];
}

const char *ibmsg_strerror(int error)
{
	return text_of(error)->what;
}

const char *ibmsg_error_hint(int error)
{
	return text_of(error)->hint;
}
