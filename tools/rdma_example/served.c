/* SPDX-License-Identifier: MIT */
/* One client of the server: accepted, asked, given a buffer, gone. */
#include "served.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

/* ---- steps 1 and 2: resources for a client, and its connection ---- */

static int accept_client(struct served *client)
{
	struct rdma_conn_param param = {
		.responder_resources = MAX_READS, /* without them it could not read */
		.initiator_depth = MAX_READS,
		.rnr_retry_count = 7,
	};
	int error;

	if (!rdma_accept(client->endpoint.id, &param))
		return 0;
	error = -errno;
	report_error("Accepting %s failed with errno : (%d), %s", client->name, error,
		     strerror(-error));
	return error;
}

int served_new(struct served **out, struct rdma_cm_id *id, const struct server_options *options)
{
	struct served *client = calloc(1, sizeof(*client));
	int error;

	if (!client)
		return -ENOMEM;
	client->options = options;
	client->deadline_ms = common_now_ms() + (uint64_t)options->timeout_ms;
	common_address_text(rdma_get_peer_addr(id), client->name);
	/* A client speaks first, so the receive for its record is posted before it is accepted. */
	error = endpoint_init(&client->endpoint, id);
	if (!error)
		error = accept_client(client);
	if (error) {
		endpoint_fini(&client->endpoint);
		free(client);
		return error;
	}
	/* An event of the connection manager brings the id, and the id now leads to the client. */
	id->context = client;
	*out = client;
	return 0;
}

void served_established(struct served *client)
{
	client->state = SERVED_CONNECTED;
	printf("A new connection is accepted from %s \n", client->name);
}

/* ---- steps 3 to 5: its buffer ---- */

static int judge_completion(const struct served *client, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	/* So requests come back when a connection ends; that it has is told by an event. */
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		return 0;
	report_error("%s: %s failed: %s (%d)%s", client->name,
		     wc->wr_id == WR_RECEIVE ? "receiving its buffer information"
					     : "sending the buffer information",
		     ibv_wc_status_str(wc->status), wc->status,
		     wc->status == IBV_WC_LOC_LEN_ERR ? ": it is not a record of 16 bytes" : "");
	return wc->status == IBV_WC_LOC_LEN_ERR ? -EBADMSG : -ECONNRESET;
}

int served_complete(struct served *client)
{
	struct ibv_wc wc;
	int error = endpoint_take_event(&client->endpoint), count = 0;

	while (!error && (count = endpoint_poll(&client->endpoint, &wc)) > 0) {
		error = judge_completion(client, &wc);
		if (wc.status == IBV_WC_SUCCESS && wc.wr_id == WR_RECEIVE) {
			client->has_asked = true;
			client->asked_bytes = wc.byte_len;
		}
	}
	return error ? error : count < 0 ? count : 0;
}

/* What it asks for is bounded before any memory is taken for it. */
static int read_wish(struct served *client, uint64_t room, struct buffer_attr *wish)
{
	uint64_t most = client->options->max_length;
	int error =
		buffer_attr_get(client->endpoint.records.received, client->asked_bytes, most, wish);

	if (!error && wish->length > room)
		error = -ENOBUFS;
	if (error == -EMSGSIZE)
		report_error("%s is refused: it asks for more than %" PRIu64
			     " bytes, which is --max-length",
			     client->name, most);
	else if (error == -ENOBUFS)
		report_error("%s is refused: all clients together would have more than "
			     "--max-total",
			     client->name);
	else if (error)
		report_error("The buffer information of %s is refused, errno : (%d): %s",
			     client->name, error, buffer_attr_strerror(error));
	return error;
}

/* The client may read it and write it; nobody but this client has the key's protection domain. */
#define BUFFER_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

int served_answer(struct served *client, uint64_t room)
{
	struct buffer_attr wish, offer;
	int error;

	if (client->state != SERVED_CONNECTED || !client->has_asked)
		return 0;
	error = read_wish(client, room, &wish);
	if (error)
		return error;
	printf("Client side buffer information is received...\n");
	buffer_attr_print(&wish);
	printf("The client has requested buffer length of : %u bytes \n", wish.length);
	/* Registering pins the memory: the device can reach it without asking the CPU. */
	error = region_init(&client->buffer, client->endpoint.pd, wish.length, BUFFER_RIGHTS);
	if (error)
		return error;
	offer = buffer_attr_of(client->buffer.mr);
	error = endpoint_send_attr(&client->endpoint, &offer);
	if (!error)
		client->state = SERVED_OFFERED;
	return error;
}

/* ---- step 6: its end ---- */

/* All that has been written is in the buffer: it says itself whether that is a file. */
static int store_file(const struct served *client)
{
	const struct region *buffer = &client->buffer;
	uint32_t checksum;
	int64_t length = file_check_proof(buffer->data, buffer->length, &checksum);
	int error;

	if (length < 0) {
		report_error("%s has gone and its file is not whole, errno : (%d): %s. Nothing is "
			     "stored",
			     client->name, (int)length,
			     length == -EBADMSG ? "it has no end" : "its checksum is wrong");
		return (int)length;
	}
	error = file_store(client->options->file, buffer->data, (size_t)length);
	if (!error)
		printf("The file is stored in %s , %" PRId64 " bytes, checksum 0x%08x \n",
		       client->options->file, length, checksum);
	return error;
}

int served_finish(struct served *client)
{
	printf("A disconnect event is received from the client...\n");
	/* The answer to its disconnect; and nothing more is written from here on. */
	(void)rdma_disconnect(client->endpoint.id);
	endpoint_destroy_qp(&client->endpoint);
	if (client->state != SERVED_OFFERED) {
		report_error("%s has gone before it had its buffer", client->name);
		return -ECONNRESET;
	}
	return client->options->file ? store_file(client) : 0;
}

void served_free(struct served *client)
{
	struct rdma_cm_id *id = client->endpoint.id;

	if (id->qp)
		(void)rdma_disconnect(id);
	endpoint_destroy_qp(&client->endpoint);
	region_fini(&client->buffer);
	endpoint_fini(&client->endpoint);
	rdma_destroy_id(id);
	free(client);
}
