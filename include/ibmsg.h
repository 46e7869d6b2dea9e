/* SPDX-License-Identifier: MIT */
/*
 * ibmsg: reliable asynchronous messages on an event loop, over InfiniBand, RoCE and iWARP, and over
 * TCP where a machine has no RDMA device.
 *
 * The rules, in short:
 *  1. The structs are the application's. They need no zeroing, and stay where they are while in
 * use: a loop from init to destroy, a socket until connection_closed, a buffer that was posted
 * until its status changes.
 *  2. Nothing happens but in ibmsg_dispatch_event_loop: it calls the callbacks, without a lock
 * held. A callback may call everything but dispatch and destroy.
 *  3. One thread at a time dispatches a loop. Meanwhile other threads may connect, disconnect,
 * alloc, free and post; they read a status with ibmsg_socket_status and ibmsg_buffer_status.
 *  4. Every message that ibmsg_post_send took completes exactly once: IBMSG_SENT or IBMSG_FAILED.
 *  5. A message that message_received was given belongs to the application until ibmsg_free_msg, by
 *     that pointer or by a copy of what it points to.
 *  6. All functions return IBMSG_OK or an error of the enum below; ibmsg_strerror has its text.
 */
#ifndef IBMSG_RDMA_H
#define IBMSG_RDMA_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What fits one message of an original ibmsg peer. Between two of ours any size is sent. */
#define IBMSG_MAX_MSGSIZE   (4096)
/* Bytes that may travel with ibmsg_connect_with, ibmsg_accept_with and ibmsg_reject. */
#define IBMSG_MAX_USER_DATA (32)

enum {
	IBMSG_OK,
	IBMSG_FCNTL_FAILED,
	IBMSG_GETADDRINFO_FAILED,
	IBMSG_CREATE_ID_FAILED,
	IBMSG_BIND_FAILED,
	IBMSG_LISTEN_FAILED,
	IBMSG_ADDRESS_RESOLUTION_FAILED,
	IBMSG_FETCH_EVENT_FAILED,
	IBMSG_ACK_EVENT_FAILED,
	IBMSG_ALLOC_FAILED,
	IBMSG_MEMORY_REGISTRATION_FAILED,
	IBMSG_POST_SEND_FAILED,
	IBMSG_DISCONNECT_FAILED,
	IBMSG_FREE_BUFFER_FAILED,
	IBMSG_CREATE_QP_FAILED,
	IBMSG_ACCEPT_FAILED,
	IBMSG_EPOLL_FAILED,
	IBMSG_EPOLL_ADD_FD_FAILED,
	IBMSG_EPOLL_WAIT_FAILED,
	/* The original's end here. */
	IBMSG_INVALID_ARGUMENT,
	IBMSG_NOT_CONNECTED,      /* the socket has no connection, or no longer */
	IBMSG_NO_DEVICE,          /* no RDMA device could be used */
	IBMSG_UNREACHABLE,        /* no route to the host */
	IBMSG_REFUSED,            /* nobody listens there */
	IBMSG_REJECTED,           /* the peer did not want the connection */
	IBMSG_TIMED_OUT,          /* it was not established, or did not close, in time */
	IBMSG_PEER_SILENT,        /* the peer's host does not answer any more */
	IBMSG_CONNECTION_LOST,    /* it ended without a goodbye */
	IBMSG_CLOSED,             /* closed here before the message was sent */
	IBMSG_PROTOCOL_ERROR,     /* the peer sent what it must not */
	IBMSG_MESSAGE_TOO_LARGE,  /* for the peer */
	IBMSG_PEER_OUT_OF_MEMORY, /* its bound for arriving messages is reached */
	IBMSG_DEVICE_REMOVED,
	IBMSG_BUSY /* the loop is being dispatched, or the message is on its way */
};

/* ---- the inherited interface ---- */

enum ibmsg_request_status { IBMSG_UNDECIDED, IBMSG_ACCEPTED };
enum ibmsg_buffer_status { IBMSG_WAITING, IBMSG_SENT, IBMSG_RECEIVED, IBMSG_FAILED };
enum ibmsg_event_type { IBMSG_CMA, IBMSG_SEND_COMPLETION, IBMSG_RECV_COMPLETION };
enum ibmsg_socket_status {
	IBMSG_UNCONNECTED,
	IBMSG_ADDRESS_RESOLVED,
	IBMSG_ROUTE_RESOLVED,
	IBMSG_CONNECTED,
	IBMSG_DISCONNECTING,
	IBMSG_ERROR
};
enum ibmsg_socket_type { IBMSG_LISTEN_SOCKET, IBMSG_RECV_SOCKET, IBMSG_SEND_SOCKET };

/* Given to the connection_request callback, and valid only in it. */
typedef struct {
	struct rdma_cm_id *cmid;
	enum ibmsg_request_status status;
	const void *user_data; /* what the peer passed to ibmsg_connect_with */
	size_t user_data_len;
	void *private_[5];
} ibmsg_connection_request;

typedef struct {
	struct ibv_mr *mr; /* covers data if the library keeps it registered; else NULL */
	void *data;
	size_t size;
	enum ibmsg_buffer_status status;
	int error;       /* why, if status is IBMSG_FAILED */
	void *user_data; /* the application's; NULL at first */
	void *private_[8];
} ibmsg_buffer;

struct _ibmsg_event_description {
	enum ibmsg_event_type type;
	void *ptr;
};

typedef struct {
	struct rdma_cm_id *cmid;
	enum ibmsg_socket_status status;
	enum ibmsg_socket_type socket_type;
	ibmsg_buffer recv_buffer; /* of the original: not used */
	struct _ibmsg_event_description send_event_description;
	struct _ibmsg_event_description recv_event_description;
	void *user_data; /* the application's; the library never touches it */
	int error;       /* why, if status is IBMSG_ERROR */
	void *private_[8];
} ibmsg_socket;

/* The callbacks are NULL after init; set them before the first dispatch. */
typedef struct {
	struct rdma_event_channel *event_channel;
	int epollfd;
	void (*connection_request)(ibmsg_connection_request *);
	void (*connection_established)(ibmsg_socket *);
	void (*message_received)(ibmsg_socket *, ibmsg_buffer *);
	struct _ibmsg_event_description event_description;
	/* A message is IBMSG_SENT or IBMSG_FAILED. It may be freed or posted anew in the callback.
	 */
	void (*message_sent)(ibmsg_socket *, ibmsg_buffer *);
	/*
	 * A connection has ended; every message of it has completed. IBMSG_OK: all that was posted
	 * at either side has arrived. Else the reason, and what was in flight may be lost. Also
	 * called for a connection that could not be established. The socket is free afterwards.
	 */
	void (*connection_closed)(ibmsg_socket *, int error);
	void *user_data; /* the application's */
	void *private_[8];
} ibmsg_event_loop;

int ibmsg_init_event_loop(ibmsg_event_loop *event_loop);
/*
 * Ends every connection and listener of the loop without waiting for peers; messages outstanding
 * fail, and the callbacks hear of it. Messages that the application kept stay valid.
 */
int ibmsg_destroy_event_loop(ibmsg_event_loop *event_loop);

/*
 * Begin a connection to a host name or address. It goes on in dispatch, up to IBMSG_CONNECTED or
 * IBMSG_ERROR.
 */
int ibmsg_connect(ibmsg_event_loop *event_loop, ibmsg_socket *connection, char *ip,
		  unsigned short port);
/*
 * Close: what was posted is delivered, then both sides say goodbye, then connection_closed is
 * called at both. For a listener, at once and without a callback. May be called in every state.
 */
int ibmsg_disconnect(ibmsg_socket *socket);
/* @ip NULL or "*": every address. */
int ibmsg_listen(ibmsg_event_loop *event_loop, ibmsg_socket *socket, char *ip, short port,
		 int max_connections);
/* In the connection_request callback: without one of these the request is rejected. */
int ibmsg_accept(ibmsg_connection_request *request, ibmsg_socket *connection);

/* @connection has resolved its address at least. The contents are not initialised. */
int ibmsg_alloc_msg(ibmsg_buffer *msg, ibmsg_socket *connection, size_t size);
int ibmsg_free_msg(ibmsg_buffer *msg);
/* Never blocks: what cannot leave yet waits in @msg. Messages arrive in the order of posting. */
int ibmsg_post_send(ibmsg_socket *connection, ibmsg_buffer *msg);

/* Wait until something happened, process all that is due, return. */
int ibmsg_dispatch_event_loop(ibmsg_event_loop *event_loop);

/* ---- beyond the original ---- */

/* Readable when there is something to dispatch: for poll, epoll and other loops. */
int ibmsg_event_loop_fd(const ibmsg_event_loop *event_loop);
/* The same as dispatch, for at most @timeout_ms: 0 only what is due, -1 no limit. */
int ibmsg_dispatch_event_loop_timeout(ibmsg_event_loop *event_loop, int timeout_ms);
/* Let a dispatch that waits return, from any thread or signal handler. */
int ibmsg_wake_event_loop(ibmsg_event_loop *event_loop);
/* Look for this long before sleeping: lower latency for CPU time. 0: sleep at once (default). */
int ibmsg_set_busy_poll(ibmsg_event_loop *event_loop, unsigned microseconds);
/* Until a connection is established; 0: no limit. 10000 unless told. */
int ibmsg_set_connect_timeout(ibmsg_event_loop *event_loop, unsigned milliseconds);
/*
 * A silent peer is asked for a sign of life after this long, and given up after as long again; 0:
 * never. 4000 unless told. For connections that are established afterwards.
 */
int ibmsg_set_keepalive(ibmsg_event_loop *event_loop, unsigned milliseconds);
/* The largest message that is taken from a peer, 4096 bytes at least; 1 GiB unless told. */
int ibmsg_set_max_message(ibmsg_event_loop *event_loop, uint64_t bytes);
/* What arriving messages may take in all, more or less, until they are freed; 2 GiB unless told. */
int ibmsg_set_max_memory(ibmsg_event_loop *event_loop, uint64_t bytes);

/* Connect and accept with up to IBMSG_MAX_USER_DATA bytes for the peer. */
int ibmsg_connect_with(ibmsg_event_loop *event_loop, ibmsg_socket *connection, const char *host,
		       unsigned short port, const void *user_data, size_t len);
int ibmsg_accept_with(ibmsg_connection_request *request, ibmsg_socket *connection,
		      const void *user_data, size_t len);
/* In the connection_request callback: say no, with a reason. */
int ibmsg_reject(ibmsg_connection_request *request, const void *reason, size_t len);
/*
 * What the peer passed to ibmsg_accept_with, ibmsg_reject or ibmsg_connect_with: from
 * connection_established to the end of connection_closed. Returns its length; copies at most @size.
 */
size_t ibmsg_peer_data(const ibmsg_socket *connection, void *out, size_t size);

int ibmsg_local_address(const ibmsg_socket *socket, struct sockaddr_storage *out);
int ibmsg_peer_address(const ibmsg_socket *socket, struct sockaddr_storage *out);

/* The status, for threads other than the one that dispatches. */
enum ibmsg_socket_status ibmsg_socket_status(const ibmsg_socket *socket);
enum ibmsg_buffer_status ibmsg_buffer_status(const ibmsg_buffer *msg);

const char *ibmsg_strerror(int error);
/* What is likely to be the cause, and what to do next; "" if there is nothing to say. */
const char *ibmsg_error_hint(int error);

typedef struct {
	uint64_t messages_sent, messages_received;
	uint64_t bytes_sent, bytes_received;
	uint64_t messages_failed;
	uint64_t rendezvous_sent, rendezvous_received; /* of the messages: the large ones */
	uint64_t stalls;           /* times that messages had to wait for the peer's receives */
	uint64_t registered_bytes; /* now; of the loop's devices */
	uint64_t arriving_bytes;   /* now: receives, and messages not yet freed; of the loop */
	uint64_t connections;      /* now; of the loop */
	uint64_t reserved[5];
} ibmsg_stats;

/* Of one connection, or with @socket NULL of all that the loop has had. */
int ibmsg_get_stats(const ibmsg_event_loop *event_loop, const ibmsg_socket *socket,
		    ibmsg_stats *out);

#ifdef __cplusplus
}
#endif

#endif
