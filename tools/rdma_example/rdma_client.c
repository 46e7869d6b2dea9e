/* SPDX-License-Identifier: MIT */
/*
 * rdma_client: writes a string or a file to the memory of rdma_server, reads it back, and compares.
 *
 *   1. set up RDMA resources
 *   2. connect to the server
 *   3. exchange buffer information with the server, by SEND and RECEIVE
 *   4. RDMA write: from our first buffer to the server's
 *   5. RDMA read: from the server's buffer to our second one
 *   6. compare the first buffer with the second
 *   7. disconnect
 *
 * Read from the bottom: run_steps() has the steps in a row. client_wait.c has the waits between
 * them, endpoint.h tells which object needs which.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "common.h"
#include "file.h"
#include "progress.h"

#define CHUNK      (1u << 20) /* bytes of one request; every device takes that many */
#define GOODBYE_MS 2000
#define BETWEEN_MS 100 /* two tries to connect */

/* ---- step 1: set up RDMA resources ---- */

/* The address decides the device: by it the server is reached. */
static int resolve(struct client *client, struct sockaddr *address)
{
	int ms = client->options->timeout_ms, error;

	if (rdma_resolve_addr(client->id, NULL, address, ms)) {
		error = -errno;
		report_error("Resolving the address failed with errno : (%d), %s", error,
			     strerror(-error));
		if (error == -ENODEV)
			common_hint_device();
		return error;
	}
	error = client_expect_event(client, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (error)
		return error;
	if (rdma_resolve_route(client->id, ms)) {
		error = -errno;
		report_error("Resolving the route failed with errno : (%d)", error);
		return error;
	}
	return client_expect_event(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/*
 * The first buffer: our own requests read it, and they need no right for that. Nobody else has any
 * business with it, so its key, though the server is told it, opens nothing.
 */
static int register_source(struct client *client)
{
	client->source_mr = ibv_reg_mr(client->endpoint.pd, client->source, client->length, 0);
	if (!client->source_mr) {
		int error = -errno;

		report_error("Registering %zu bytes failed with errno : (%d), %s", client->length,
			     error, strerror(-error));
		return error;
	}
	return 0;
}

/*
 * The second buffer is written by the answer to our read. On iWARP that answer comes as a write of
 * the peer, and the buffer must allow that; elsewhere it need not.
 */
static int make_copy(struct client *client)
{
	unsigned access = IBV_ACCESS_LOCAL_WRITE;

	if (endpoint_is_iwarp(&client->endpoint))
		access |= IBV_ACCESS_REMOTE_WRITE;
	return region_init(&client->copy, client->endpoint.pd, client->length, access);
}

static int set_up(struct client *client, struct sockaddr *address)
{
	int error;

	if (rdma_create_id(client->events, &client->id, NULL, RDMA_PS_TCP)) {
		error = -errno;
		report_error("Creating the cm id failed with errno : (%d)", error);
		return error;
	}
	error = resolve(client, address);
	if (error)
		return error;
	/* PD, completion channel, CQ, QP; the receive for the server's record is posted. */
	error = endpoint_init(&client->endpoint, client->id);
	if (error)
		return error;
	error = register_source(client);
	return error ? error : make_copy(client);
}

/* ---- step 2: connect to the server ---- */

static int connect_to_server(struct client *client)
{
	struct rdma_conn_param param = {
		.initiator_depth = MAX_READS,
		.responder_resources = MAX_READS,
		.retry_count = 6,     /* 7 would be for ever on some devices */
		.rnr_retry_count = 7, /* for ever: a server without a receive gets one soon */
	};
	int error;

	if (rdma_connect(client->id, &param)) {
		error = -errno;
		if (error != -ECONNREFUSED)
			report_error("Connecting failed with errno : (%d), %s", error,
				     strerror(-error));
		return error;
	}
	error = client_expect_event(client, RDMA_CM_EVENT_ESTABLISHED);
	if (error)
		return error;
	client->is_connected = client->was_connected = true;
	printf("The client is connected successfully \n");
	return 0;
}

/* ---- step 3: exchange buffer information ---- */

static int judge_server(struct client *client, uint32_t bytes)
{
	int error = buffer_attr_get(client->endpoint.records.received, bytes, UINT32_MAX,
				    &client->server);

	if (error) {
		report_error("The server's buffer information is refused, errno : (%d): %s", error,
			     buffer_attr_strerror(error));
		return error;
	}
	buffer_attr_print(&client->server);
	if (client->server.length < client->length) {
		report_error("The server offers %u of %zu bytes", client->server.length,
			     client->length);
		return -ENOSPC;
	}
	return 0;
}

/* Ours tells how much room we need; the server's, where it is. Each completes when it wants to. */
static int exchange_buffer_attrs(struct client *client)
{
	static const char what[] = "Exchange of buffer information";
	int nudges = endpoint_is_iwarp(&client->endpoint) ? 3 : 0, error;
	struct buffer_attr ours = buffer_attr_of(client->source_mr);
	bool has_sent = false, has_received = false;
	uint32_t bytes = 0;

	error = endpoint_send_attr(&client->endpoint, &ours);
	while (!error && !(has_sent && has_received)) {
		struct ibv_wc wc;

		error = client_await_completion(client, what, nudges, &wc);
		if (error)
			break;
		has_sent = has_sent || wc.wr_id == WR_SEND;
		if (wc.wr_id == WR_RECEIVE) {
			has_received = true;
			bytes = wc.byte_len;
		}
	}
	if (error == -ECONNRESET && !has_received)
		fprintf(stderr,
			"HINT : a server ends the connection if it does not want to give %zu "
			"bytes; rdma_server --max-length says how many it gives.\n",
			client->length);
	return error ? error : judge_server(client, bytes);
}

/* ---- steps 4 and 5: RDMA write, RDMA read ---- */

/* One request: the server's CPU has no part in it. Its key and address are those of the record. */
static int post_chunk(struct client *client, enum ibv_wr_opcode opcode, const struct ibv_mr *local,
		      uint64_t at)
{
	uint64_t left = client->length - at;
	struct ibv_sge piece = {
		.addr = (uintptr_t)local->addr + at,
		.length = left < CHUNK ? (uint32_t)left : CHUNK,
		.lkey = local->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = WR_DATA,
		.sg_list = &piece,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = client->server.address + at,
			    .rkey = client->server.stag},
	};
	struct ibv_send_wr *bad;
	int error = ibv_post_send(client->id->qp, &wr, &bad);

	if (error)
		report_error("Posting a request failed with errno : (%d)", -abs(error));
	return -abs(error);
}

/* All bytes, in requests of a MiB, a few of them at a time; they complete in order. */
static int transfer(struct client *client, enum ibv_wr_opcode opcode, const struct ibv_mr *local,
		    const char *what)
{
	uint64_t posted = 0, done = 0;
	struct progress progress;
	int error = 0;

	progress_start(&progress, what, client->length, client->options->file);
	while (!error && done < client->length) {
		struct ibv_wc wc;

		if (posted < client->length && posted - done < (uint64_t)MAX_READS * CHUNK) {
			error = post_chunk(client, opcode, local, posted);
			posted += CHUNK;
			continue;
		}
		error = client_await_completion(client, what, 0, &wc);
		if (!error) {
			done += CHUNK;
			progress_show(&progress, done < client->length ? done : client->length);
		}
	}
	progress_stop(&progress, done < client->length ? done : client->length);
	if (error)
		fprintf(stderr, "%s: %zu of %zu bytes were done.\n", what,
			done < client->length ? (size_t)done : client->length, client->length);
	return error;
}

/* ---- step 6: compare ---- */

static int compare(const struct client *client)
{
	printf("...\n");
	if (memcmp(client->source, client->copy.data, client->length) != 0) {
		report_error("src and dst buffers do not match");
		return -EIO;
	}
	printf("SUCCESS, source and destination buffers match \n");
	return 0;
}

/* ---- step 7: disconnect ---- */

/* In any state. The QP goes before what its requests use, the id last. */
static void clean_up(struct client *client)
{
	/* The server is told, and tells us that it has heard; if it cannot, we go anyway. */
	if (client->is_connected && !rdma_disconnect(client->id))
		(void)client_await_event(client, RDMA_CM_EVENT_DISCONNECTED, GOODBYE_MS);
	endpoint_destroy_qp(&client->endpoint);
	region_fini(&client->copy);
	if (client->source_mr)
		ibv_dereg_mr(client->source_mr);
	endpoint_fini(&client->endpoint);
	if (client->id)
		rdma_destroy_id(client->id);
	client->source_mr = NULL;
	client->id = NULL;
	client->is_connected = false;
}

/* ---- the whole ---- */

static int run_steps(struct client *client, struct sockaddr *address)
{
	int error;

	error = set_up(client, address); /* 1 */
	if (error)
		return error;
	error = connect_to_server(client); /* 2 */
	if (error)
		return error;
	error = exchange_buffer_attrs(client); /* 3 */
	if (error)
		return error;
	error = transfer(client, IBV_WR_RDMA_WRITE, client->source_mr, "RDMA write"); /* 4 */
	if (error)
		return error;
	error = transfer(client, IBV_WR_RDMA_READ, client->copy.mr, "RDMA read"); /* 5 */
	if (error)
		return error;
	return compare(client); /* 6 */
}

static int client_run(struct client *client, struct sockaddr *address)
{
	char text[ADDRESS_TEXT];
	int error;

	printf("Trying to connect to server at : %s port: %d \n",
	       common_address_text(address, text), client->options->port);
	error = run_steps(client, address);
	clean_up(client); /* 7 */
	if (client->was_connected)
		printf("Client resource clean up is complete \n");
	return error;
}

/* A name may have several addresses: the first at which somebody listens. */
static int try_addresses(struct client *client, const struct addrinfo *first)
{
	uint64_t deadline = common_now_ms() + (uint64_t)client->options->retry_ms;
	struct pollfd signals[1];
	int error = -EINVAL;

	for (;;) {
		for (const struct addrinfo *one = first; one; one = one->ai_next) {
			error = client_run(client, one->ai_addr);
			if (error != -ECONNREFUSED)
				return error;
		}
		if (!common_ms_until(deadline) || common_wait(signals, 1, BETWEEN_MS) < 0)
			break;
	}
	report_error("Nobody listens at %s port %d, errno : (%d)", client->options->address,
		     client->options->port, error);
	return error;
}

static int run_client(struct client *client)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	char port[8];
	int error;

	snprintf(port, sizeof(port), "%d", client->options->port);
	error = getaddrinfo(client->options->address, port, &hints, &found);
	if (error) {
		report_error("%s is no address: %s", client->options->address, gai_strerror(error));
		return -EINVAL;
	}
	/* Where all events of the connection manager arrive. It takes a device to make one. */
	client->events = rdma_create_event_channel();
	if (client->events) {
		error = try_addresses(client, found);
		rdma_destroy_event_channel(client->events);
	} else {
		error = errno ? -errno : -ENODEV;
		report_error("Creating cm event channel failed with errno : (%d)", error);
		report_error("RDMA client failed to start cleanly, ret = %d ", error);
		common_hint_device();
	}
	freeaddrinfo(found);
	return error;
}

/* The first buffer: exactly the bytes of the string, or the file and its proof. */
static int load_source(struct client *client)
{
	const struct client_options *options = client->options;
	int error = 0;

	if (options->file) {
		error = file_load(options->file, UINT32_MAX, &client->source, &client->length);
		if (!error)
			printf("Passed file is : %s , with count %zu \n", options->file,
			       client->length - FILE_PROOF_BYTES);
		return error;
	}
	client->length = strlen(options->string);
	client->source = malloc(client->length);
	if (!client->source)
		return -ENOMEM;
	memcpy(client->source, options->string, client->length);
	printf("Passed string is : %s , with count %zu \n", options->string, client->length);
	return 0;
}

int main(int argc, char **argv)
{
	struct client_options options;
	struct client client = {.options = &options};
	int error;

	if (!client_options_parse(&options, argc, argv, &error))
		return error;
	setvbuf(stdout, NULL, _IOLBF, 0);
	error = common_catch_signals();
	if (!error)
		error = load_source(&client);
	if (!error)
		error = run_client(&client);
	free(client.source);
	return common_exit_status(error);
}
