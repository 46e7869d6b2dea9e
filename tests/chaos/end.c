/* SPDX-License-Identifier: MIT */
/* The main thread of an end: makes the verbs objects, runs the CM, commits the faults, parts. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "end.h"

enum {
	CM_TIMEOUT = 5000,
	ACCESS_REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
};

void end_fail(struct end_run *er, const char *rule, const char *call, int error)
{
	board_fail(er->run->board, rule, "end %d: %s: %s", er->end, call, strerror(error));
	for (;;)
		pause();
}

void end_check(struct end_run *er)
{
	while (er->run->board->fail_state)
		pause();
}

static void advance(struct end_run *er)
{
	er->run->board->progress++;
}

/* ---- objects ---- */

struct sockaddr_in end_own_address(void)
{
	const char *text = getenv("IBMSG_ADDR");
	struct sockaddr_in address = {.sin_family = AF_INET};

	inet_pton(AF_INET, text && *text ? text : "127.0.0.1", &address.sin_addr);
	return address;
}

static void map_memory(struct end_run *er)
{
	void *at = (void *)(uintptr_t)end_address(er->end);

	if (mmap(at, er->run->layout.size[er->end], PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED_NOREPLACE, er->run->memfd[er->end], 0) != at)
		end_fail(er, "setup", "mmap", errno);
}

/* The device that the address belongs to: an id that has resolved it knows. */
static void open_device(struct end_run *er)
{
	struct sockaddr_in address = end_own_address();
	struct rdma_cm_id *probe;

	if (rdma_create_id(NULL, &probe, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(probe, NULL, (struct sockaddr *)&address, CM_TIMEOUT) ||
	    !probe->verbs)
		end_fail(er, "setup", "rdma_resolve_addr", errno);
	er->verbs = probe->verbs;
	er->pd = ibv_alloc_pd(er->verbs);
	if (!er->pd)
		end_fail(er, "setup", "ibv_alloc_pd", errno);
}

static struct ibv_mr *register_memory(struct end_run *er, size_t offset, size_t len, int access)
{
	struct ibv_mr *mr =
		ibv_reg_mr(er->pd, (void *)(uintptr_t)(end_address(er->end) + offset), len, access);

	if (!mr)
		end_fail(er, "setup", "ibv_reg_mr", errno);
	return mr;
}

/* The arena that the peer of a local side writes to, and the regions that it invalidates. */
static void register_arena(struct end_run *er, int q, int s)
{
	struct run *run = er->run;
	const struct side *writer = &run->program->qps[q].sides[s];
	struct side_board *sb = &run->board->sides[q][s];

	pattern_fill(run->view[er->end] + run->layout.arena[q][s], run->layout.arena_len[q][s],
		     make_tag(run->program, TAG_INITIAL, q, s, 0), 0);
	er->arenas[q][s] = register_memory(er, run->layout.arena[q][s], run->layout.arena_len[q][s],
					   ACCESS_REMOTE);
	sb->arena_key = er->arenas[q][s]->rkey;
	for (int i = 0; i < writer->num_ops; i++)
		if (writer->ops[i].kind == OP_SEND_INV) {
			er->spares[q][s][i] =
				register_memory(er, run->layout.spare[er->end], 64, ACCESS_REMOTE);
			sb->spare_keys[i] = er->spares[q][s][i]->rkey;
		}
}

static void register_all(struct end_run *er)
{
	struct run *run = er->run;
	const struct program *program = run->program;
	bool atomics = false;

	er->local = register_memory(er, 0, run->layout.size[er->end], IBV_ACCESS_LOCAL_WRITE);
	for (int q = 0; q < program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			const struct side *side = &program->qps[q].sides[s];

			if (peer_of(program, q, s)->end == er->end)
				register_arena(er, q, s);
			for (int i = 0; i < side->num_ops; i++)
				atomics |= op_is_atomic(&side->ops[i]);
		}
	if (!atomics) /* siw knows no such right */
		return;
	er->words = register_memory(er, run->layout.words[er->end], MAX_WORDS * 8,
				    ACCESS_REMOTE | IBV_ACCESS_REMOTE_ATOMIC);
	run->board->ends[er->end].words_key = er->words->rkey;
}

static void make_queues(struct end_run *er)
{
	const struct program *program = er->run->program;
	const struct end *end = &program->ends[er->end];

	for (int t = 0; t < end->num_threads; t++) {
		if (end->threads[t].wait != WAIT_EVENT && end->threads[t].wait != WAIT_EPOLL)
			continue;
		er->channels[t] = ibv_create_comp_channel(er->verbs);
		if (!er->channels[t])
			end_fail(er, "setup", "ibv_create_comp_channel", errno);
	}
	for (int c = 0; c < program->num_cqs; c++) {
		const struct cq *cq = &program->cqs[c];

		if (cq->end != er->end)
			continue;
		er->cqs[c] = ibv_create_cq(er->verbs, cq_needs(program, c) + cq->extra, NULL,
					   er->channels[cq->thread], 0);
		if (!er->cqs[c])
			end_fail(er, "setup", "ibv_create_cq", errno);
		/* Before anything can complete, so that its thread may sleep before it polls. */
		if (er->channels[cq->thread] && end->threads[cq->thread].arm_early &&
		    ibv_req_notify_cq(er->cqs[c], cq->solicited))
			end_fail(er, "setup", "ibv_req_notify_cq", errno);
	}
	for (int i = 0; i < program->num_srqs; i++) {
		struct ibv_srq_init_attr attr = {
			.attr = {.max_wr = (uint32_t)program->srqs[i].depth, .max_sge = MAX_SGE}};

		if (program->srqs[i].end != er->end)
			continue;
		attr.attr.max_sge = (uint32_t)program->srqs[i].recv_sge;
		er->srqs[i] = ibv_create_srq(er->pd, &attr);
		if (!er->srqs[i])
			end_fail(er, "setup", "ibv_create_srq", errno);
		if (!program->srqs[i].late)
			post_srq_receives(er, i);
	}
}

void end_make_qp(struct end_run *er, int q, int s)
{
	const struct side *side = &er->run->program->qps[q].sides[s];
	struct conn *conn = &er->conns[q][s];
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = er->cqs[side->send_cq],
		.recv_cq = er->cqs[side->recv_cq],
		.srq = side->srq >= 0 ? er->srqs[side->srq] : NULL,
		/* One more: the mark that is posted when the queue pair has failed. */
		.cap = {.max_send_wr = (uint32_t)side->sq_depth + 1,
			.max_recv_wr = side->srq >= 0 ? 0 : (uint32_t)side->rq_depth + 1,
			.max_send_sge = (uint32_t)side->max_sge,
			.max_recv_sge = (uint32_t)side->recv_sge},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = side->sig_all,
		.pd = er->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};

	for (int i = 0; i < side->num_ops; i++)
		if (side->ops[i].inlined)
			attr.cap.max_inline_data = INLINE_BYTES;
	if (side->modern) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				      IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
				      IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
	if (!conn->id)
		conn->qp = ibv_create_qp_ex(er->verbs, &attr);
	else if (!rdma_create_qp_ex(conn->id, &attr))
		conn->qp = conn->id->qp;
	if (!conn->qp)
		end_fail(er, "setup", "making a queue pair", errno);
}

void end_publish_qp(struct end_run *er, int q, int s)
{
	const struct side *side = &er->run->program->qps[q].sides[s];

	er->run->board->sides[q][s].qp_num = er->conns[q][s].qp->qp_num;
	if (side->srq < 0 && !side->late)
		post_receives(er, q, s);
}

/* ---- connecting ---- */

/* The private data of a request. Other runs beside this one may find a port that was theirs. */
struct greeting {
	uint32_t run;
	int32_t qp;
};

static struct rdma_conn_param conn_param(const struct qp *qp, const struct greeting *greeting,
					 bool connects)
{
	return (struct rdma_conn_param){
		.private_data = greeting,
		.private_data_len = greeting ? sizeof(*greeting) : 0,
		.initiator_depth = (uint8_t)(connects ? qp->ord : qp->ird),
		.responder_resources = (uint8_t)(connects ? qp->ird : qp->ord),
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

static void start_connecting(struct end_run *er, int q)
{
	struct conn *conn = &er->conns[q][0];
	struct sockaddr_in address = end_own_address();

	address.sin_port =
		htons((uint16_t)er->run->board->ends[peer_of(er->run->program, q, 0)->end].port);
	if (rdma_create_id(er->events, &conn->id, conn, RDMA_PS_TCP) ||
	    rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&address, CM_TIMEOUT))
		end_fail(er, "cm", "rdma_resolve_addr", errno);
}

static void start_listening(struct end_run *er)
{
	struct sockaddr_in address = end_own_address();

	er->events = rdma_create_event_channel();
	if (!er->events || rdma_create_id(er->events, &er->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(er->listener, (struct sockaddr *)&address) ||
	    rdma_listen(er->listener, MAX_QPS * 2))
		end_fail(er, "setup", "rdma_listen", errno);
	er->run->board->ends[er->end].port = ntohs(rdma_get_src_port(er->listener));
}

static void find_conn(struct end_run *er, const struct rdma_cm_id *id, int *q, int *s)
{
	ptrdiff_t index = (struct conn *)id->context - &er->conns[0][0];

	*q = (int)(index / 2);
	*s = (int)(index % 2);
}

static bool is_from_this_run(const struct end_run *er, const struct rdma_cm_event *event)
{
	struct greeting greeting;

	if (event->param.conn.private_data_len < sizeof(greeting))
		return false;
	memcpy(&greeting, event->param.conn.private_data, sizeof(greeting));
	return greeting.run == er->run->board->number;
}

static void refuse_stranger(struct end_run *er, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;

	if (rdma_reject(id, NULL, 0))
		end_fail(er, "cm", "rdma_reject", errno);
	rdma_ack_cm_event(event);
	rdma_destroy_id(id);
}

static void accept_request(struct end_run *er, struct rdma_cm_event *event)
{
	struct rdma_conn_param param;
	struct greeting greeting;
	int q;

	memcpy(&greeting, event->param.conn.private_data, sizeof(greeting));
	q = greeting.qp;
	if (q < 0 || q >= er->run->program->num_qps)
		end_fail(er, "cm", "private data", EPROTO);
	er->conns[q][1].id = event->id;
	event->id->context = &er->conns[q][1];
	end_make_qp(er, q, 1);
	end_publish_qp(er, q, 1);
	param = conn_param(&er->run->program->qps[q], NULL, false);
	if (rdma_accept(event->id, &param))
		end_fail(er, "cm", "rdma_accept", errno);
}

/* ---- the end of a queue pair ---- */

static void move_to_error(struct end_run *er, struct conn *conn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int error = ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE);

	if (error)
		end_fail(er, "cm", "ibv_modify_qp to the error state", error);
}

static void disconnect(struct conn *conn)
{
	if (!conn->disconnected && conn->id)
		rdma_disconnect(conn->id); /* may have ended already */
	conn->disconnected = true;
}

void end_bury(struct end_run *er, int q, int s)
{
	struct side_board *sb = &er->run->board->sides[q][s];
	struct conn *conn = &er->conns[q][s];

	pthread_mutex_lock(&conn->lock);
	if (!sb->buried) {
		disconnect(conn);
		move_to_error(er, conn);
		sb->buried = true;
		conn->up = true; /* as far as it ever will be */
		post_marks(er, q, s);
		move_to_error(er, conn); /* rxe flushes a receive only when it is told so */
	}
	pthread_mutex_unlock(&conn->lock);
}

static void give_qp_back(struct end_run *er, struct conn *conn)
{
	int error = 0;

	if (conn->id)
		rdma_destroy_qp(conn->id);
	else
		error = ibv_destroy_qp(conn->qp);
	if (error)
		end_fail(er, "teardown", "ibv_destroy_qp", error);
	conn->qp = NULL;
}

static void destroy_qp(struct end_run *er, int q, int s)
{
	struct conn *conn = &er->conns[q][s];

	pthread_mutex_lock(&conn->lock);
	er->run->board->sides[q][s].buried = true;
	er->run->board->sides[q][s].gone = true;
	give_qp_back(er, conn);
	disconnect(conn);
	pthread_mutex_unlock(&conn->lock);
}

/* What the program does to itself at a random moment. */
static void commit_fault(struct end_run *er)
{
	struct board *board = er->run->board;
	const struct fault *fault = &er->run->program->fault;
	int q = fault->qp, s = er->run->program->qps[q].sides[0].end == fault->end ? 0 : 1;

	if (fault->end != er->end || board->fault_done || board->completions < fault->after ||
	    fault->kind == FAULT_NONE || fault->kind == FAULT_KILL || fault->kind == FAULT_STOP ||
	    er->run->program->qps[q].sides[s].end != er->end)
		return;
	board->fault_done = true;
	board->sides[q][0].ended = board->sides[q][1].ended = true;
	if (fault->kind == FAULT_DESTROY) {
		destroy_qp(er, q, s);
		return;
	}
	if (fault->kind == FAULT_ERR)
		move_to_error(er, &er->conns[q][s]);
	end_bury(er, q, s);
}

/* ---- CM events ---- */

static bool all_finished(const struct end_run *er)
{
	const struct fault *fault = &er->run->program->fault;

	for (int e = 0; e < er->run->program->num_ends; e++)
		if (!er->run->board->ends[e].finished &&
		    !(er->run->board->fault_done && fault->kind == FAULT_KILL && fault->end == e))
			return false;
	return true;
}

static void handle_disconnected(struct end_run *er, const struct rdma_cm_id *id)
{
	int q, s;

	find_conn(er, id, &q, &s);
	if (all_finished(er) || er->run->board->sides[q][s].gone)
		return;
	if (!er->run->board->sides[q][s].ended) {
		board_fail(er->run->board, "ended",
			   "qp %d side %d was disconnected, though nothing ended", q, s);
		end_check(er);
	}
	end_bury(er, q, s);
}

static void handle_event(struct end_run *er, struct rdma_cm_event *event)
{
	struct greeting greeting = {.run = er->run->board->number};
	struct rdma_conn_param param;
	int q, s;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(event->id, CM_TIMEOUT))
			end_fail(er, "cm", "rdma_resolve_route", errno);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		find_conn(er, event->id, &q, &s);
		end_make_qp(er, q, s);
		end_publish_qp(er, q, s);
		greeting.qp = q;
		param = conn_param(&er->run->program->qps[q], &greeting, true);
		if (rdma_connect(event->id, &param))
			end_fail(er, "cm", "rdma_connect", errno);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		accept_request(er, event);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		((struct conn *)event->id->context)->up = true;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		handle_disconnected(er, event->id);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		board_fail(er->run->board, "cm", "end %d: %s, status %d", er->end,
			   rdma_event_str(event->event), event->status);
		end_check(er);
	}
}

/* Handle events that are there, or wait so many milliseconds for one. */
static void handle_events(struct end_run *er, int timeout)
{
	struct pollfd poll_fd = {.fd = er->events->fd, .events = POLLIN};
	struct rdma_cm_event *event, copy;
	bool is_end;

	end_check(er);
	while (poll(&poll_fd, 1, timeout) > 0) {
		if (rdma_get_cm_event(er->events, &event))
			end_fail(er, "cm", "rdma_get_cm_event", errno);
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && !is_from_this_run(er, event)) {
			refuse_stranger(er, event);
			continue;
		}
		copy = *event;
		/* Private data is gone with the event; a queue pair may be destroyed only after. */
		is_end = copy.event == RDMA_CM_EVENT_DISCONNECTED;
		if (is_end)
			rdma_ack_cm_event(event);
		handle_event(er, is_end ? &copy : event);
		if (!is_end)
			rdma_ack_cm_event(event);
		advance(er);
		timeout = 0;
	}
}

/* ---- life ---- */

static bool is_connected(const struct end_run *er)
{
	for (int q = 0; q < er->run->program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			if (er->run->program->qps[q].sides[s].end == er->end && !er->conns[q][s].up)
				return false;
	return true;
}

static void set_up(struct end_run *er)
{
	const struct program *program = er->run->program;

	map_memory(er);
	open_device(er);
	register_all(er);
	make_queues(er);
	start_listening(er);
	er->run->board->ends[er->end].ready = true;
	advance(er);
	for (int e = 0; e < program->num_ends; e++)
		while (!er->run->board->ends[e].ready) {
			end_check(er);
			usleep(100);
		}
	for (int q = 0; q < program->num_qps; q++)
		if (program->qps[q].sides[0].end == er->end && !program->qps[q].number)
			start_connecting(er, q);
	number_connect(er);
	while (!is_connected(er))
		handle_events(er, 1);
	er->run->board->ends[er->end].started = true;
}

/*
 * Where a WRITE may complete before it is placed, the end that it goes to waits for it; else its
 * peer could leave too early.
 */
static void await_memory(struct end_run *er)
{
	struct run *run = er->run;

	for (int q = 0; q < run->program->num_qps; q++)
		for (int s = 0; s < 2; s++)
			while (!run->placed && peer_of(run->program, q, s)->end == er->end &&
			       !run->board->sides[q][s].ended && !arena_is_complete(run, q, s))
				handle_events(er, 1);
}

static void run_threads(struct end_run *er)
{
	int num = er->run->program->ends[er->end].num_threads;
	struct worker workers[MAX_THREADS];
	pthread_t threads[MAX_THREADS];

	for (int t = 0; t < num; t++) {
		workers[t] = (struct worker){er, t};
		if (pthread_create(&threads[t], NULL, work, &workers[t]))
			end_fail(er, "setup", "pthread_create", errno);
	}
	while (er->threads_over < num) {
		handle_events(er, 1);
		number_look(er);
		commit_fault(er);
	}
	for (int t = 0; t < num; t++)
		pthread_join(threads[t], NULL);
	await_memory(er);
	er->run->board->ends[er->end].finished = true;
	advance(er);
	while (!all_finished(er))
		handle_events(er, 1);
}

static void check_given_back(struct end_run *er, const char *call, int error)
{
	if (error)
		end_fail(er, "teardown", call, error);
}

static void tear_down(struct end_run *er)
{
	for (int q = 0; q < er->run->program->num_qps; q++)
		for (int s = 0; s < 2; s++) {
			struct conn *conn = &er->conns[q][s];

			if (er->run->program->qps[q].sides[s].end != er->end)
				continue;
			disconnect(conn);
			if (conn->qp)
				give_qp_back(er, conn);
			check_given_back(er, "rdma_destroy_id",
					 conn->id && rdma_destroy_id(conn->id) ? errno : 0);
		}
	for (int i = 0; i < MAX_SRQS; i++)
		if (er->srqs[i])
			check_given_back(er, "ibv_destroy_srq", ibv_destroy_srq(er->srqs[i]));
	for (int c = 0; c < MAX_CQS; c++)
		if (er->cqs[c])
			check_given_back(er, "ibv_destroy_cq", ibv_destroy_cq(er->cqs[c]));
	for (int t = 0; t < MAX_THREADS; t++)
		if (er->channels[t])
			check_given_back(er, "ibv_destroy_comp_channel",
					 ibv_destroy_comp_channel(er->channels[t]));
	for (int q = 0; q < MAX_QPS; q++)
		for (int s = 0; s < 2; s++) {
			if (er->arenas[q][s])
				check_given_back(er, "ibv_dereg_mr",
						 ibv_dereg_mr(er->arenas[q][s]));
			for (int i = 0; i < MAX_OPS; i++)
				if (er->spares[q][s][i])
					check_given_back(er, "ibv_dereg_mr",
							 ibv_dereg_mr(er->spares[q][s][i]));
		}
	if (er->words)
		check_given_back(er, "ibv_dereg_mr", ibv_dereg_mr(er->words));
	check_given_back(er, "ibv_dereg_mr", ibv_dereg_mr(er->local));
	check_given_back(er, "ibv_dealloc_pd", ibv_dealloc_pd(er->pd));
	rdma_destroy_id(er->listener);
	rdma_destroy_event_channel(er->events);
}

void end_main(struct run *run, int end)
{
	static struct end_run er;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(run->log[end], STDERR_FILENO);
	er = (struct end_run){.run = run, .end = end};
	for (int q = 0; q < MAX_QPS; q++)
		for (int s = 0; s < 2; s++)
			pthread_mutex_init(&er.conns[q][s].lock, NULL);
	set_up(&er);
	run_threads(&er);
	if (run->program->ends[end].tidy)
		tear_down(&er);
	_exit(0);
}
