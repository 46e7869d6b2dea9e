/* SPDX-License-Identifier: MIT */
/* Raw packet queue pairs: their life, their rules, and who moves their frames. */
#include "raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/log.h"
#include "../fork_order.h"
#include "../tuning.h"
#include "internal.h"

static pthread_mutex_t config = PTHREAD_MUTEX_INITIALIZER; /* guards rules and back ends; raw.h */
static struct list all = {&all, &all};

struct raw_flow {
	struct raw_qp *raw;
	struct raw_rule rule;
	struct list link; /* in raw_qp.flows */
};

/* ---- receiving ---- */

/* The queue pair's lock is held. */
static bool may_receive(const struct raw_qp *raw)
{
	return raw->rx && (raw->qp->state == IBV_QPS_RTR || raw->qp->state == IBV_QPS_RTS ||
			   raw->qp->state == IBV_QPS_SQD);
}

static unsigned receive(struct raw_qp *raw, unsigned budget)
{
	unsigned num = 0;

	if (!may_receive(raw))
		return 0;
	raw->starved = false;
	rc_begin_batch(raw->qp);
	if (raw->finishing)
		num = raw->finishing->ops->receive(raw->finishing, budget);
	if (!num && !raw->starved)
		num = raw->rx->ops->receive(raw->rx, budget);
	rc_end_batch(raw->qp);
	return num;
}

/* What came before the tag, the tag, and what comes behind. */
static void scatter_tagged(const struct rc_recv *recv, const struct raw_frame *frame)
{
	const uint8_t tag[4] = {(uint8_t)(frame->tag.tpid >> 8), (uint8_t)frame->tag.tpid,
				(uint8_t)(frame->tag.tci >> 8), (uint8_t)frame->tag.tci};
	const char *first = frame->pieces[0].iov_base;
	uint64_t offset = 16;

	rc_sge_scatter(recv->sge, recv->num_sge, 0, first, 12);
	rc_sge_scatter(recv->sge, recv->num_sge, 12, tag, sizeof(tag));
	rc_sge_scatter(recv->sge, recv->num_sge, offset, first + 12, frame->pieces[0].iov_len - 12);
	offset += frame->pieces[0].iov_len - 12;
	for (unsigned i = 1; i < frame->num; i++) {
		rc_sge_scatter(recv->sge, recv->num_sge, offset, frame->pieces[i].iov_base,
			       frame->pieces[i].iov_len);
		offset += frame->pieces[i].iov_len;
	}
}

static void scatter(const struct rc_recv *recv, const struct raw_frame *frame)
{
	uint64_t offset = 0;

	for (unsigned i = 0; i < frame->num; i++) {
		const struct iovec *piece = &frame->pieces[i];

		rc_sge_scatter(recv->sge, recv->num_sge, offset, piece->iov_base, piece->iov_len);
		offset += piece->iov_len;
	}
}

bool raw_deliver(struct raw_qp *raw, const struct raw_frame *frame)
{
	bool tagged = frame->tag.is_there && frame->pieces[0].iov_len >= 12;
	struct rc_arrival arrival = {.opcode = IBV_WC_RECV,
				     .length = frame->len + (tagged ? 4 : 0)};
	struct rc_recv *recv = rc_recv_begin(raw->qp);

	/* A receive with a wrong piece ends as such; the frame takes the next one. */
	while (recv && rc_recv_check(raw->qp, recv, arrival.length) == IBV_WC_LOC_PROT_ERR) {
		rc_recv_done(
			raw->qp, recv,
			&(struct rc_arrival){.status = IBV_WC_LOC_PROT_ERR, .opcode = IBV_WC_RECV});
		recv = rc_recv_begin(raw->qp);
	}
	if (!recv) {
		raw->starved = true;
		return false;
	}
	if (frame->is_cut || arrival.length > recv->length) {
		arrival.status = IBV_WC_LOC_LEN_ERR;
		arrival.length = 0;
	} else if (tagged) {
		scatter_tagged(recv, frame);
	} else {
		scatter(recv, frame);
	}
	rc_recv_done(raw->qp, recv, &arrival);
	raw->counters.received++;
	return true;
}

void raw_delivered(struct raw_qp *raw, uint32_t len)
{
	const struct rc_arrival arrival = {.opcode = IBV_WC_RECV, .length = len};

	rc_recv_done(raw->qp, rc_recv_begin(raw->qp), &arrival);
	raw->counters.received++;
}

static void rx_ready(struct progress_source *source, uint32_t events)
{
	struct raw_rx *rx = container_of(source, struct raw_rx, source);
	struct raw_qp *raw = rx->raw;
	int error;
	socklen_t len = sizeof(error);

	/* The interface went down, or is gone: reading it ends the event. */
	if (events & EPOLLERR)
		getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	lock_take(&raw->qp->lock);
	if (raw->rx == rx || raw->finishing == rx) {
		receive(raw, RAW_READY_FRAMES);
		/* Frames wait where they are until a receive is posted. */
		if (raw->starved && !rx->paused)
			rx->paused = !progress_rewatch(source, 0);
	}
	lock_give(&raw->qp->lock);
}

/* ---- what verbs asks ---- */

static void op_send(struct rc_qp *qp)
{
	raw_tx_run(qp->conn);
}

static bool op_drive(struct rc_qp *qp, unsigned looks)
{
	struct raw_qp *raw = qp->conn;
	unsigned found = receive(raw, RAW_POLL_FRAMES);
	bool any = found > 0;

	(void)looks;
	if (raw->rx && !raw->rx->paused) {
		progress_looked(&raw->rx->source, found, qp->slept_for);
		if (found == RAW_POLL_FRAMES)
			progress_left_backlog(&raw->rx->source);
	}
	if (qp->sq.next != qp->sq.tail && qp->state == IBV_QPS_RTS)
		any |= raw_tx_run(raw);
	return any;
}

static void op_rest(struct rc_qp *qp)
{
	struct raw_qp *raw = qp->conn;

	if (raw->rx)
		progress_reclaim(&raw->rx->source);
}

static void watch_again(struct raw_rx *rx)
{
	if (rx && rx->paused)
		rx->paused = progress_rewatch(&rx->source, EPOLLIN) != 0;
}

static void op_recv_posted(struct rc_qp *qp)
{
	struct raw_qp *raw = qp->conn;

	raw_count_drops(raw); /* while it still tells that there was no receive */
	raw->starved = false;
	watch_again(raw->rx);
	watch_again(raw->finishing);
	/* A back end may hold frames that its descriptor does not tell of. */
	if (raw->rx)
		progress_again(&raw->rx->source);
	if (raw->finishing)
		progress_again(&raw->finishing->source);
}

/*
 * There is no peer to tell, and the service stays until raw_detach: whoever changed the state
 * closes the back end.
 */
static void op_close(struct rc_qp *qp)
{
	(void)qp;
}

static const struct rc_service raw_service = {
	.send = op_send,
	.drive = op_drive,
	.rest = op_rest,
	.recv_posted = op_recv_posted,
	.disconnect = op_close,
	.close = op_close,
};

/* ---- counters ---- */

void raw_count_drops(struct raw_qp *raw)
{
	uint64_t drops = raw->rx ? raw->rx->ops->read_drops(raw->rx) : 0;

	if (raw->starved)
		raw->counters.no_buffer += drops;
	else
		raw->counters.dropped += drops;
}

void raw_read_counters(struct rc_qp *qp, struct raw_counters *counters)
{
	struct raw_qp *raw = qp->conn;

	lock_take(&qp->lock);
	raw_count_drops(raw);
	*counters = raw->counters;
	lock_give(&qp->lock);
}

/* ---- back ends: the configuration's lock is held ---- */

static void close_rx(struct raw_rx *rx)
{
	if (!rx)
		return;
	progress_unwatch(&rx->source);
	progress_barrier();
	rx->ops->close(rx);
}

/* Receive by @rx from now on, or not at all. What has come before is delivered first. */
static void use_rx(struct raw_qp *raw, struct raw_rx *rx)
{
	struct raw_rx *before = raw->rx, *finishing = raw->finishing;
	bool finishes = before && rx && before->ops->stop;

	if (finishes)
		before->ops->stop(before);
	lock_take(&raw->qp->lock);
	raw_count_drops(raw);
	raw->rx = rx;
	raw->finishing = finishes ? before : NULL;
	raw->starved = false;
	lock_give(&raw->qp->lock);
	close_rx(finishing);
	if (!finishes)
		close_rx(before);
}

static int open_rx(struct raw_qp *raw, const struct raw_rules *rules, bool alone)
{
	struct raw_rx *rx;
	/* It may have changed since: another MTU needs other chunks. */
	int error = interface_look_up(&raw->iface, raw->iface.index, raw->iface.name);

	if (error)
		return error;
	/* Both who come at the same time see each other. */
	presence_show(&raw->presence, raw->iface.index, raw->qp->qp_num);
	alone = presence_is_alone(&raw->presence, raw->iface.index, alone);
	error = raw_choose_rx(raw, rules, alone, &rx);
	if (error)
		return error;
	rx->source.set = PROGRESS_DATA;
	rx->source.ready = rx_ready;
	rx->raw = raw;
	log_info("soft_%s: QP 0x%x receives by %s", raw->iface.name, raw->qp->qp_num,
		 rx->ops->name);
	use_rx(raw, rx);
	error = progress_watch(&rx->source, EPOLLIN);
	if (error)
		use_rx(raw, NULL);
	return error;
}

static int gather_rules(const struct raw_qp *raw, struct raw_rules *rules)
{
	struct list *pos;

	*rules = (struct raw_rules){.rules = calloc(raw->num_flows + 1, sizeof(*rules->rules))};
	if (!rules->rules)
		return -ENOMEM;
	list_for_each (pos, &raw->flows)
		rules->rules[rules->num++] = container_of(pos, struct raw_flow, link)->rule;
	return 0;
}

/* XDP gives a frame to one receiver only: where there are several, none may use it. */
static void leave_xdp(struct raw_qp *raw)
{
	struct raw_rules rules;
	int error;

	if (!raw->rx || raw->rx->ops != &raw_rx_xdp)
		return;
	error = gather_rules(raw, &rules);
	if (!error)
		error = open_rx(raw, &rules, false);
	free(rules.rules);
	if (error)
		log_warn("soft_%s: QP 0x%x: its rules take packets from others", raw->iface.name,
			 raw->qp->qp_num);
}

/* The CM's lock is held, and fork() takes it after this one: so do not wait here. */
static bool step_aside(struct presence *presence)
{
	if (pthread_mutex_trylock(&config))
		return false;
	leave_xdp(container_of(presence, struct raw_qp, presence));
	pthread_mutex_unlock(&config);
	return true;
}

/* Returns whether others receive from the interface. */
static bool share_interface(const struct raw_qp *raw)
{
	struct list *pos;
	bool any = false;

	list_for_each (pos, &all) {
		struct raw_qp *other = container_of(pos, struct raw_qp, link);

		if (other == raw || other->iface.index != raw->iface.index || !other->rx)
			continue;
		any = true;
		leave_xdp(other);
	}
	return any;
}

/* Make the kernel do what the rules say now. */
static int apply_rules(struct raw_qp *raw, const struct raw_rules *rules)
{
	if (raw->rx && (raw->rx->ops != &raw_rx_xdp || raw_suits_xdp(&raw->iface, rules)))
		return raw->rx->ops->set_rules(raw->rx, rules);
	return open_rx(raw, rules, !share_interface(raw));
}

static int apply(struct raw_qp *raw)
{
	struct raw_rules rules;
	int error;

	if (!raw->receives || !raw->num_flows) {
		use_rx(raw, NULL);
		return 0;
	}
	error = gather_rules(raw, &rules);
	if (!error)
		error = apply_rules(raw, &rules);
	free(rules.rules);
	return error;
}

void raw_lock_config(void)
{
	pthread_mutex_lock(&config);
}

void raw_unlock_config(void)
{
	pthread_mutex_unlock(&config);
}

/* ---- rules ---- */

int raw_receive_from_now(struct rc_qp *qp, bool receives)
{
	struct raw_qp *raw = qp->conn;
	bool before = raw->receives;
	int error;

	raw->receives = receives;
	error = apply(raw);
	if (error)
		raw->receives = before;
	return error;
}

int raw_add_flow(struct rc_qp *qp, const struct raw_rule *rule, struct raw_flow **out)
{
	struct raw_qp *raw = qp->conn;
	struct raw_flow *flow = calloc(1, sizeof(*flow));
	int error;

	if (!flow)
		return -ENOMEM;
	flow->raw = raw;
	flow->rule = *rule;
	pthread_mutex_lock(&config);
	list_add_tail(&raw->flows, &flow->link);
	raw->num_flows++;
	error = apply(raw);
	if (error) {
		list_del(&flow->link);
		raw->num_flows--;
		free(flow);
	} else {
		raw_join(raw, rule);
		*out = flow;
	}
	pthread_mutex_unlock(&config);
	return error;
}

int raw_remove_flow(struct raw_flow *flow)
{
	struct raw_qp *raw = flow->raw;
	int error;

	pthread_mutex_lock(&config);
	list_del(&flow->link);
	raw->num_flows--;
	error = apply(raw);
	if (error) {
		list_add_tail(&raw->flows, &flow->link);
		raw->num_flows++;
	} else {
		raw_leave(raw, &flow->rule);
		free(flow);
	}
	pthread_mutex_unlock(&config);
	return error;
}

bool raw_has_flows(const struct rc_qp *qp)
{
	const struct raw_qp *raw = qp->conn;
	bool any;

	pthread_mutex_lock(&config);
	any = raw->num_flows > 0;
	pthread_mutex_unlock(&config);
	return any;
}

/* ---- fork ---- */

/* The descriptors of back ends are closed with all others that are watched. */
static void let_go(void)
{
	struct list *pos;

	list_for_each (pos, &all) {
		struct raw_qp *raw = container_of(pos, struct raw_qp, link);

		if (raw->rx)
			raw->rx->ops->let_go(raw->rx);
		if (raw->finishing)
			raw->finishing->ops->let_go(raw->finishing);
		if (!raw->tx.is_blocked)
			close(raw->tx.source.fd);
	}
	list_init(&all);
}

FORK_PART(FORK_RAW, raw_lock_config, raw_unlock_config, let_go);

/* ---- making ---- */

int raw_attach(struct rc_qp *qp, unsigned max_receives, unsigned ifindex, const char *ifname)
{
	struct raw_qp *raw = calloc(1, sizeof(*raw));
	int error;

	if (!raw)
		return -ENOMEM;
	raw->qp = qp;
	raw->max_receives = max_receives;
	list_init(&raw->flows);
	presence_init(&raw->presence, step_aside);
	error = interface_look_up(&raw->iface, ifindex, ifname);
	if (!error)
		error = raw_tx_open(raw);
	if (error) {
		free(raw);
		return error;
	}
	pthread_mutex_lock(&config);
	list_add_tail(&all, &raw->link);
	pthread_mutex_unlock(&config);
	qp->conn = raw;
	qp->service = &raw_service;
	return 0;
}

void raw_detach(struct rc_qp *qp)
{
	struct raw_qp *raw = qp->conn;

	pthread_mutex_lock(&config);
	use_rx(raw, NULL);
	list_del(&raw->link);
	pthread_mutex_unlock(&config);
	log_info("soft_%s: QP 0x%x: %llu frames received, %llu dropped, %llu without a receive",
		 raw->iface.name, qp->qp_num, (unsigned long long)raw->counters.received,
		 (unsigned long long)raw->counters.dropped,
		 (unsigned long long)raw->counters.no_buffer);
	presence_fini(&raw->presence);
	raw_tx_close(raw);
	qp->service = NULL;
	qp->conn = NULL;
	free(raw);
}
