/* SPDX-License-Identifier: MIT */
/* Event loops that write down what they see, and check what holds for everything they see. */
#include "side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/wait.h>

#define MAX_HUBS 8

static struct hub *hubs;
/* The callbacks of a request do not say which loop they are of. */
static struct hub *dispatched;

/* ---- memory ---- */

/* Ordered by the socket, where a thread sanitizer sees no order; see pair.c. */
#define UNWATCHED __attribute__((no_sanitize_thread))

UNWATCHED static uint64_t word_at(const uint8_t *at, size_t len)
{
	uint64_t word = 0;

	__builtin_memcpy(&word, at, len < sizeof(word) ? len : sizeof(word));
	return word;
}

UNWATCHED uint64_t checksum(const void *at, size_t len)
{
	const uint8_t *bytes = at;
	uint64_t sum = len ^ 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < len; i += 8) {
		sum = (sum ^ word_at(bytes + i, len - i)) * 0x100000001b3;
		sum ^= sum >> 29;
	}
	return sum;
}

UNWATCHED void fill_random(void *to, size_t len, uint64_t seed)
{
	uint8_t *bytes = to;
	uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < len; i += 8) {
		size_t left = len - i;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		__builtin_memcpy(bytes + i, &state, left < 8 ? left : 8);
	}
}

/* ---- what the callbacks see ---- */

static struct end *end_of(ibmsg_socket *socket)
{
	struct end *end = (struct end *)socket;

	assert_ptr_equal(socket->user_data, end);
	assert_ptr_equal(end->hub, dispatched);
	return end;
}

static void on_request(ibmsg_connection_request *request)
{
	assert_non_null(dispatched);
	assert_int_equal(request->status, IBMSG_UNDECIDED);
	dispatched->requests++;
	if (dispatched->on.request)
		dispatched->on.request(dispatched, request);
	else
		end_accept(dispatched, request);
}

static void on_established(ibmsg_socket *socket)
{
	struct end *end = end_of(socket);

	assert_int_equal(socket->status, IBMSG_CONNECTED);
	assert_int_equal(end->received, 0);
	assert_int_equal(end->closed, 0);
	end->established++;
	assert_int_equal(end->established, 1);
	if (end->hub->on.established)
		end->hub->on.established(end);
}

static struct letter *note_letter(struct end *end, ibmsg_buffer *msg)
{
	struct letter *letter;

	end->letters = realloc(end->letters, (end->received + 1) * sizeof(*end->letters));
	assert_non_null(end->letters);
	letter = &end->letters[end->received++];
	memset(letter, 0, sizeof(*letter));
	letter->size = msg->size;
	letter->sum = checksum(msg->data, msg->size);
	return letter;
}

static void on_received(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	struct end *end = end_of(socket);
	struct letter *letter;

	assert_int_equal(end->established, 1);
	assert_int_equal(end->closed, 0);
	assert_int_equal(msg->status, IBMSG_RECEIVED);
	assert_null(msg->user_data);
	letter = note_letter(end, msg);
	if (end->hub->keep == KEEP_POINTERS)
		letter->msg = msg;
	if (end->hub->keep == KEEP_COPIES) {
		letter->copy = *msg;
		letter->is_copied = true;
	}
	if (end->hub->on.received)
		end->hub->on.received(end, msg);
	else if (end->hub->keep == KEEP_NOTHING)
		assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
}

static void on_sent(ibmsg_socket *socket, ibmsg_buffer *msg)
{
	struct parcel *parcel = (struct parcel *)msg;
	struct end *end = end_of(socket);

	assert_ptr_equal(msg->user_data, parcel);
	assert_ptr_equal(parcel->end, end);
	assert_int_equal(msg->size, parcel->size);
	parcel->done++;
	assert_int_equal(parcel->done, parcel->posted);
	parcel->status = msg->status;
	parcel->error = msg->error;
	if (msg->status == IBMSG_SENT) {
		end->sent++;
	} else {
		assert_int_equal(msg->status, IBMSG_FAILED);
		assert_int_not_equal(msg->error, IBMSG_OK);
		end->failed++;
	}
	assert_int_equal(end->closed, 0);
	if (end->hub->on.sent) {
		end->hub->on.sent(end, parcel);
	} else if (!end->hub->keeps_parcels) {
		assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
		parcel->is_freed = true;
	}
}

static void assert_all_completed(const struct end *end)
{
	for (unsigned i = 0; i < end->posted; i++)
		if (end->parcels[i]->done != end->parcels[i]->posted)
			fail_msg("message %u of %u, posted %u times, completed %u times", i,
				 end->posted, end->parcels[i]->posted, end->parcels[i]->done);
}

static void on_closed(ibmsg_socket *socket, int error)
{
	struct end *end = end_of(socket);

	assert_int_not_equal(socket->status, IBMSG_CONNECTED);
	end->closed++;
	assert_int_equal(end->closed, 1);
	end->error = error;
	assert_all_completed(end);
	if (error == IBMSG_OK)
		assert_int_equal(socket->status, IBMSG_UNCONNECTED);
	if (end->hub->on.closed)
		end->hub->on.closed(end, error);
}

/* ---- hubs ---- */

char *hub_address(void)
{
	char *text = getenv("IBMSG_ADDR");
	static char loopback[] = "127.0.0.1";

	return text ? text : loopback;
}

const char *hub_device(void)
{
	const char *device = getenv("IBMSG_DEVICE"), *mode = getenv("SOFTRDMA");

	return device && !(mode && !strcmp(mode, "on")) ? device : "";
}

struct hub *hub_new(void)
{
	struct hub *hub = calloc(1, sizeof(*hub));

	assert_non_null(hub);
	memset(&hub->loop, 0xff, sizeof(hub->loop));
	memset(&hub->listener, 0xff, sizeof(hub->listener));
	hub->next = hubs;
	assert_int_equal(ibmsg_init_event_loop(&hub->loop), IBMSG_OK);
	assert_null(hub->loop.connection_request);
	assert_null(hub->loop.connection_established);
	assert_null(hub->loop.message_received);
	assert_null(hub->loop.message_sent);
	assert_null(hub->loop.connection_closed);
	hub->loop.connection_request = on_request;
	hub->loop.connection_established = on_established;
	hub->loop.message_received = on_received;
	hub->loop.message_sent = on_sent;
	hub->loop.connection_closed = on_closed;
	hub->loop.user_data = hub;
	hubs = hub;
	return hub;
}

uint16_t port_of(const struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)addr)->sin6_port);
	assert_int_equal(addr->ss_family, AF_INET);
	return ntohs(((const struct sockaddr_in *)addr)->sin_port);
}

void hub_listen(struct hub *hub)
{
	struct sockaddr_storage at;

	assert_int_equal(ibmsg_listen(&hub->loop, &hub->listener, hub_address(), 0, 128), IBMSG_OK);
	assert_int_equal(ibmsg_local_address(&hub->listener, &at), IBMSG_OK);
	hub->port = port_of(&at);
	assert_int_not_equal(hub->port, 0);
}

struct hub *hub_new_listening(void)
{
	struct hub *hub = hub_new();

	hub_listen(hub);
	return hub;
}

static void unlist(struct hub *hub)
{
	for (struct hub **at = &hubs; *at; at = &(*at)->next)
		if (*at == hub) {
			*at = hub->next;
			return;
		}
}

static bool is_listed(const struct hub *hub)
{
	for (const struct hub *one = hubs; one; one = one->next)
		if (one == hub)
			return true;
	return false;
}

void hub_destroy(struct hub *hub)
{
	dispatched = hub;
	assert_int_equal(ibmsg_destroy_event_loop(&hub->loop), IBMSG_OK);
	dispatched = NULL;
	unlist(hub);
	for (struct end *end = hub->ends; end; end = end->next)
		assert_all_completed(end);
}

static void free_end(struct end *end)
{
	end_free_letters(end);
	for (unsigned i = 0; i < end->posted; i++) {
		struct parcel *parcel = end->parcels[i];

		if (!parcel->is_freed)
			assert_int_equal(ibmsg_free_msg(&parcel->msg), IBMSG_OK);
		free(parcel);
	}
	free(end->parcels);
	free(end->letters);
	free(end);
}

void hub_free(struct hub *hub)
{
	struct end *next;

	if (is_listed(hub))
		hub_destroy(hub);
	for (struct end *end = hub->ends; end; end = next) {
		next = end->next;
		free_end(end);
	}
	free(hub);
}

int hub_dispatch(struct hub *hub, int ms)
{
	int result;

	assert_null(dispatched);
	dispatched = hub;
	result = ibmsg_dispatch_event_loop_timeout(&hub->loop, ms);
	dispatched = NULL;
	return result;
}

unsigned hub_closed(const struct hub *hub)
{
	unsigned count = 0;

	for (const struct end *end = hub->ends; end; end = end->next)
		count += end->closed;
	return count;
}

unsigned hub_established(const struct hub *hub)
{
	unsigned count = 0;

	for (const struct end *end = hub->ends; end; end = end->next)
		count += end->established;
	return count;
}

unsigned hub_received(const struct hub *hub)
{
	unsigned count = 0;

	for (const struct end *end = hub->ends; end; end = end->next)
		count += end->received;
	return count;
}

uint16_t hub_unused_port(void)
{
	struct hub *hub = hub_new_listening();
	uint16_t port = hub->port;

	hub_free(hub);
	return port;
}

/*
 * With one hub to dispatch it sleeps in the library; with several, on their descriptors, but not
 * for long: whether those wake is loop.c's question.
 */
void hubs_step(void)
{
	struct pollfd fds[MAX_HUBS];
	struct hub *awake[MAX_HUBS];
	nfds_t count = 0;

	for (struct hub *hub = hubs; hub; hub = hub->next) {
		if (hub->sleeps)
			continue;
		assert_true(count < MAX_HUBS);
		awake[count] = hub;
		fds[count++] =
			(struct pollfd){.fd = ibmsg_event_loop_fd(&hub->loop), .events = POLLIN};
	}
	if (count == 1) {
		assert_int_equal(hub_dispatch(awake[0], 10), IBMSG_OK);
		return;
	}
	poll(fds, count, 2);
	for (nfds_t i = 0; i < count; i++)
		assert_int_equal(hub_dispatch(awake[i], 0), IBMSG_OK);
}

void hubs_linger(void)
{
	uint64_t end = now_ms() + QUIET_MS;

	while (now_ms() < end)
		hubs_step();
}

int hubs_forget(void **state)
{
	(void)state;
	hubs = NULL;
	dispatched = NULL;
	return 0;
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	return info.si_pid == pid;
}

int hubs_await_peer(pid_t pid)
{
	await(has_ended(pid));
	return peer_wait(pid);
}

/* ---- ends ---- */

struct end *end_new(struct hub *hub)
{
	struct end *end = calloc(1, sizeof(*end));

	assert_non_null(end);
	memset(&end->socket, 0xff, sizeof(end->socket));
	end->hub = hub;
	end->next = hub->ends;
	end->socket.user_data = end;
	hub->ends = end;
	return end;
}

struct end *end_connect(struct hub *hub, uint16_t port)
{
	struct end *end = end_new(hub);

	assert_int_equal(ibmsg_connect(&hub->loop, &end->socket, hub_address(), port), IBMSG_OK);
	assert_int_equal(end->socket.socket_type, IBMSG_SEND_SOCKET);
	return end;
}

struct end *end_accept(struct hub *hub, ibmsg_connection_request *request)
{
	struct end *end = end_new(hub);

	end->is_server = true;
	assert_int_equal(ibmsg_accept(request, &end->socket), IBMSG_OK);
	assert_int_equal(request->status, IBMSG_ACCEPTED);
	assert_int_equal(end->socket.socket_type, IBMSG_RECV_SOCKET);
	hub->accepted = end;
	return end;
}

void end_try_accept(struct hub *hub, ibmsg_connection_request *request)
{
	struct end *end = end_new(hub);

	end->is_server = true;
	if (ibmsg_accept(request, &end->socket) == IBMSG_OK) {
		hub->accepted = end;
		return;
	}
	assert_int_equal(request->status, IBMSG_UNDECIDED);
	hub->ends = end->next;
	free(end);
}

struct parcel *end_alloc(struct end *end, size_t size)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel));
	ibmsg_buffer *msg = &parcel->msg;
	static uint64_t seed;

	assert_non_null(parcel);
	memset(msg, 0xff, sizeof(*msg));
	parcel->end = end;
	parcel->size = size;
	assert_int_equal(ibmsg_alloc_msg(msg, &end->socket, size), IBMSG_OK);
	assert_int_equal(msg->size, size);
	assert_int_equal(msg->status, IBMSG_WAITING);
	assert_null(msg->user_data);
	assert_true(msg->data || !size);
	msg->user_data = parcel;
	fill_random(msg->data, size, seed++);
	parcel->sum = checksum(msg->data, size);
	return parcel;
}

void end_post_parcel(struct end *end, struct parcel *parcel)
{
	if (!parcel->posted) {
		size_t bytes = (end->posted + 1) * sizeof(struct parcel *);

		end->parcels = realloc(end->parcels, bytes);
		assert_non_null(end->parcels);
		end->parcels[end->posted++] = parcel;
	}
	parcel->posted++;
	assert_int_equal(ibmsg_post_send(&end->socket, &parcel->msg), IBMSG_OK);
}

struct parcel *end_post(struct end *end, size_t size)
{
	struct parcel *parcel = end_alloc(end, size);

	end_post_parcel(end, parcel);
	return parcel;
}

void end_free_letters(struct end *end)
{
	for (unsigned i = 0; i < end->received; i++) {
		struct letter *letter = &end->letters[i];
		ibmsg_buffer *msg = letter->is_copied ? &letter->copy : letter->msg;

		if (!msg)
			continue;
		assert_int_equal(msg->size, letter->size);
		assert_true(checksum(msg->data, msg->size) == letter->sum);
		assert_int_equal(ibmsg_free_msg(msg), IBMSG_OK);
		letter->msg = NULL;
		letter->is_copied = false;
	}
}

bool end_has_delivered(const struct end *from, const struct end *to)
{
	return to->received == from->posted && from->sent == from->posted;
}

void end_assert_delivered(const struct end *from, const struct end *to)
{
	assert_int_equal(to->received, from->posted);
	assert_int_equal(from->sent, from->posted);
	for (unsigned i = 0; i < from->posted; i++) {
		const struct parcel *parcel = from->parcels[i];
		const struct letter *letter = &to->letters[i];

		if (letter->size != parcel->size || letter->sum != parcel->sum)
			fail_msg("message %u: %zu bytes were sent, %zu came, contents %s", i,
				 parcel->size, letter->size,
				 letter->sum == parcel->sum ? "equal" : "different");
	}
}

void end_ping(struct end *from, struct end *to)
{
	unsigned before = to->received;
	struct parcel *parcel = end_post(from, 100);

	await(to->received > before && parcel->done);
	assert_int_equal(to->received, before + 1);
	assert_int_equal(parcel->status, IBMSG_SENT);
	assert_true(to->letters[before].sum == parcel->sum);
}

/* ---- a connection ---- */

void link_join(struct link *link, struct hub *client_hub, struct hub *server_hub)
{
	struct end *before = server_hub->accepted;

	link->client_hub = client_hub;
	link->server_hub = server_hub;
	link->client = end_connect(client_hub, server_hub->port);
	await(server_hub->accepted != before);
	link->server = server_hub->accepted;
	await(link->client->established && link->server->established);
}

void link_open(struct link *link, enum link_loops loops)
{
	struct hub *server = hub_new_listening();

	link_join(link, loops == ONE_LOOP ? server : hub_new(), server);
}

void link_await_closed(struct link *link)
{
	await(link->client->closed && link->server->closed);
	assert_int_equal(link->client->error, IBMSG_OK);
	assert_int_equal(link->server->error, IBMSG_OK);
}

void link_close(struct link *link)
{
	assert_int_equal(ibmsg_disconnect(&link->client->socket), IBMSG_OK);
	link_await_closed(link);
	hub_free(link->client_hub);
	if (link->server_hub != link->client_hub)
		hub_free(link->server_hub);
}
