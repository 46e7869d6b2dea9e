/* SPDX-License-Identifier: MIT */
/* Contexts: everything that one has, made and given back in order. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* ---- states of the queue pairs ---- */

static const enum ibv_qp_state state_of[] = {
	[LEVEL_INIT] = IBV_QPS_INIT,
	[LEVEL_RECEIVES] = IBV_QPS_RTR,
	[LEVEL_SENDS] = IBV_QPS_RTS,
};

static int move_all(struct packets *packets, enum level level)
{
	for (uint32_t i = 0; i < packets->nqp; i++) {
		struct ibv_qp_attr attr = {.qp_state = state_of[level]};
		int error = ibv_modify_qp(packets->qp[i], &attr, IBV_QP_STATE);

		if (error) {
			log_error("queue pair %u cannot be brought to work: %s", i,
				  strerror(error));
			return -error;
		}
	}
	return 0;
}

int packets_raise(struct packets *packets, enum level level)
{
	int at, result = 0;

	pthread_mutex_lock(&packets->lock);
	at = atomic_load(&packets->level);
	while (at < (int)level && !result) {
		result = move_all(packets, (enum level)(at + 1));
		atomic_store(&packets->level, result ? LEVEL_BROKEN : ++at);
	}
	if (at == LEVEL_BROKEN)
		result = -EPROTO;
	pthread_mutex_unlock(&packets->lock);
	return result;
}

void packets_check(struct packets *packets, struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		return;
	if (attr.qp_state != IBV_QPS_ERR && attr.qp_state != IBV_QPS_SQE)
		return;
	if (atomic_exchange(&packets->level, LEVEL_BROKEN) != LEVEL_BROKEN)
		log_error("a queue pair has failed: nothing more is sent or received; shut the "
			  "context down and initialise it again");
}

/* ---- init: what the user has set ---- */

/* Everything that is the library's, so that whatever was there before is not taken for ours. */
static void clear(struct hashpipe_ibv_context *context)
{
	context->ctx = NULL;
	context->pd = NULL;
	context->send_cc = NULL;
	context->recv_cc = NULL;
	context->send_cq = NULL;
	context->recv_cq = NULL;
	context->qp = NULL;
	context->send_pkt_head = NULL;
	context->send_mr = NULL;
	context->recv_mr = NULL;
	context->ibv_flows = NULL;
	context->flow_dst_ips = NULL;
	context->mcast_subscriber = -1;
}

static void clear_buffers(struct hashpipe_ibv_context *context)
{
	context->send_pkt_buf = NULL;
	context->recv_pkt_buf = NULL;
	context->send_sge_buf = NULL;
	context->recv_sge_buf = NULL;
	context->send_mr_buf = NULL;
	context->recv_mr_buf = NULL;
	context->send_mr_size = context->recv_mr_size = 0;
}

static int check_options(const struct hashpipe_ibv_context *context,
			 const struct hashpipe_ibv_options *options)
{
	if (!options)
		return 0;
	if (options->size != sizeof(*options) || options->reserved ||
	    options->flags & ~(uint32_t)HASHPIPE_IBV_HUGE_PAGES)
		return -EINVAL;
	if (!options->num_regions)
		return 0;
	return options->regions && context->user_managed_flag ? 0 : -EINVAL;
}

static int check_buffers(const struct hashpipe_ibv_context *context)
{
	if (!context->user_managed_flag)
		return context->pkt_size_max ? 0 : -EINVAL;
	if (!context->send_pkt_buf || !context->recv_pkt_buf || !context->send_sge_buf ||
	    !context->recv_sge_buf || !context->send_mr_buf || !context->recv_mr_buf)
		return -EINVAL;
	if (!context->send_mr_size || !context->recv_mr_size || !context->send_pkt_num ||
	    !context->recv_pkt_num)
		return -EINVAL;
	return 0;
}

/* How many packets of one kind a queue pair has. */
static int settle_number(const struct hashpipe_ibv_context *context, const char *kind,
			 uint32_t *number)
{
	const uint32_t max = (uint32_t)context->dev_attr.max_qp_wr;
	uint32_t total;

	if (*number > max && context->user_managed_flag) {
		log_error("%u packets to %s: the device has no more than %u per queue pair",
			  *number, kind, max);
		return -EINVAL;
	}
	if (*number > max)
		log_warn("%u packets to %s: the device has no more than %u per queue pair, which "
			 "are used",
			 *number, kind, max);
	if (!*number || *number > max)
		*number = max;
	return __builtin_mul_overflow(*number, context->nqp, &total) ? -EOVERFLOW : 0;
}

/* ---- init: verbs objects ---- */

static bool has_time_stamps(struct ibv_context *verbs, uint64_t *khz)
{
	struct ibv_device_attr_ex attr;

	memset(&attr, 0, sizeof(attr));
	*khz = 1000000;
	if (ibv_query_device_ex(verbs, NULL, &attr) || !attr.completion_timestamp_mask ||
	    !attr.hca_core_clock)
		return false;
	*khz = attr.hca_core_clock;
	return true;
}

static int open_queues(struct hashpipe_ibv_context *context, struct packets *packets)
{
	bool stamped = has_time_stamps(context->ctx, &packets->clock_khz);
	uint32_t sends = packets_total(context->send_pkt_num, packets);
	int result;

	for (uint32_t i = 0; i < packets->nqp; i++) {
		void *index = (void *)(uintptr_t)i;

		result = queue_open(&packets->send[i], context->ctx, sends, index, NULL, stamped);
		if (result)
			return result;
		context->send_cq[i] = packets->send[i].cq;
		result = queue_open(&packets->recv[i], context->ctx, context->recv_pkt_num, index,
				    context->recv_cc, stamped);
		if (result)
			return result;
		context->recv_cq[i] = packets->recv[i].cq;
		result = -ibv_req_notify_cq(packets->recv[i].cq, 0);
		if (result)
			return result;
	}
	return 0;
}

static int open_qp(struct hashpipe_ibv_context *context, struct packets *packets, uint32_t index)
{
	const uint32_t max = (uint32_t)context->dev_attr.max_qp_wr;
	uint32_t sends = packets_total(context->send_pkt_num, packets);
	struct ibv_qp_init_attr init = {
		.send_cq = context->send_cq[index],
		.recv_cq = context->recv_cq[index],
		.cap =
			{
				/* One queue pair may be given every packet. */
				.max_send_wr = sends < max ? sends : max,
				.max_recv_wr = context->recv_pkt_num,
				.max_send_sge = memory_max_send_sge(context, packets),
				.max_recv_sge = memory_max_recv_sge(context, packets),
			},
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = context->port_num};

	packets->qp[index] = ibv_create_qp(context->pd, &init);
	if (!packets->qp[index])
		return device_lacks_packets(errno) ? -EOPNOTSUPP : errno ? -errno : -ENOMEM;
	return -ibv_modify_qp(packets->qp[index], &attr, IBV_QP_STATE | IBV_QP_PORT);
}

static int open_channel(struct hashpipe_ibv_context *context)
{
	int flags;

	context->recv_cc = ibv_create_comp_channel(context->ctx);
	if (!context->recv_cc)
		return errno ? -errno : -ENOMEM;
	flags = fcntl(context->recv_cc->fd, F_GETFL);
	if (flags < 0 || fcntl(context->recv_cc->fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	return 0;
}

/* Everything that the device gives. */
static int open_verbs(struct hashpipe_ibv_context *context, struct packets *packets,
		      const struct hashpipe_ibv_options *options)
{
	int result;

	context->pd = ibv_alloc_pd(context->ctx);
	if (!context->pd)
		return errno ? -errno : -ENOMEM;
	result = open_channel(context);
	if (result)
		return result;
	result = open_queues(context, packets);
	if (result)
		return result;
	for (uint32_t i = 0; i < packets->nqp; i++) {
		result = open_qp(context, packets, i);
		if (result)
			return result;
	}
	result = memory_register(context, packets, options);
	if (result)
		return result;
	packets->port_drops = stats_port_drops(context);
	result = memory_link(context, packets);
	return result ? result : receive_post_all(context, packets);
}

/* ---- init: memory ---- */

static struct packets *packets_new(struct hashpipe_ibv_context *context,
				   const struct hashpipe_ibv_options *options)
{
	const uint32_t nqp = context->nqp;
	struct packets *packets = calloc(1, sizeof(*packets) + nqp * sizeof(struct ibv_qp *));

	if (!packets)
		return NULL;
	pthread_mutex_init(&packets->lock, NULL);
	atomic_init(&packets->busy_us, DEFAULT_BUSY_US);
	packets->nqp = nqp;
	packets->user_managed = context->user_managed_flag;
	packets->huge_pages = options && options->flags & HASHPIPE_IBV_HUGE_PAGES;
	context->qp = packets->qp;
	return packets;
}

static int make_tables(struct hashpipe_ibv_context *context, struct packets *packets)
{
	const size_t flows = (size_t)context->nqp * context->max_flows;

	packets->send = calloc(context->nqp, sizeof(*packets->send));
	packets->recv = calloc(context->nqp, sizeof(*packets->recv));
	packets->slots = calloc(context->max_flows, sizeof(*packets->slots));
	context->send_cq = calloc(context->nqp, sizeof(struct ibv_cq *));
	context->recv_cq = calloc(context->nqp, sizeof(struct ibv_cq *));
	context->ibv_flows = calloc(flows, sizeof(struct ibv_flow *));
	context->flow_dst_ips = calloc(context->max_flows, sizeof(uint32_t));
	if (!packets->send || !packets->recv || !packets->slots || !context->send_cq ||
	    !context->recv_cq || !context->ibv_flows || !context->flow_dst_ips)
		return -ENOMEM;
	return group_open(&packets->groups, if_nametoindex(context->interface_name),
			  &context->mcast_subscriber);
}

/* ---- giving back ---- */

static int close_verbs(struct hashpipe_ibv_context *context, struct packets *packets)
{
	int failures = 0;

	for (uint32_t i = 0; i < packets->nqp; i++)
		failures += packets->qp[i] && ibv_destroy_qp(packets->qp[i]);
	for (uint32_t i = 0; packets->send && packets->recv && i < packets->nqp; i++)
		failures += (queue_close(&packets->send[i]) != 0) +
			    (queue_close(&packets->recv[i]) != 0);
	failures += context->recv_cc && ibv_destroy_comp_channel(context->recv_cc);
	failures += memory_deregister(context, packets);
	failures += context->pd && ibv_dealloc_pd(context->pd);
	failures += context->ctx && ibv_close_device(context->ctx);
	return failures;
}

/* Everything that was made so far. */
static int give_back(struct hashpipe_ibv_context *context, struct packets *packets)
{
	int failures = 0;

	if (packets->slots && context->ibv_flows)
		failures += flow_remove_all(context, packets);
	failures += close_verbs(context, packets);
	failures += memory_free(context, packets);
	group_close(&packets->groups);
	free(packets->send);
	free(packets->recv);
	free(packets->slots);
	free(context->send_cq);
	free(context->recv_cq);
	free(context->ibv_flows);
	free(context->flow_dst_ips);
	pthread_mutex_destroy(&packets->lock);
	free(packets);
	clear(context);
	return failures;
}

int hashpipe_ibv_shutdown(struct hashpipe_ibv_context *hibv_ctx)
{
	struct packets *packets;
	int saved = errno, failures = 0;

	if (!hibv_ctx) {
		errno = EINVAL;
		return -1;
	}
	packets = packets_of(hibv_ctx);
	if (packets) {
		send_drain(hibv_ctx, packets);
		failures = give_back(hibv_ctx, packets);
	}
	errno = failures ? EIO : saved;
	return failures;
}

/* ---- init ---- */

/* A context on the device that is in @context. */
static int init_on_device(struct hashpipe_ibv_context *context,
			  const struct hashpipe_ibv_options *options)
{
	const uint32_t send_num = context->send_pkt_num, recv_num = context->recv_pkt_num;
	struct packets *packets = packets_new(context, options);
	int result;

	if (!packets) {
		ibv_close_device(context->ctx);
		context->ctx = NULL;
		return -ENOMEM;
	}
	result = settle_number(context, "send", &context->send_pkt_num);
	if (!result)
		result = settle_number(context, "receive", &context->recv_pkt_num);
	if (!result)
		result = make_tables(context, packets);
	if (!result)
		result = memory_prepare(context, packets);
	if (!result)
		result = open_verbs(context, packets, options);
	if (!result)
		return 0;
	give_back(context, packets);
	context->send_pkt_num = send_num;
	context->recv_pkt_num = recv_num;
	return result;
}

/* On the first device of the interface that has raw packets. */
static int init_on_interface(struct hashpipe_ibv_context *context,
			     const struct hashpipe_ibv_options *options)
{
	const unsigned ifindex = if_nametoindex(context->interface_name);
	int failures, result, found_none = -ENODEV;

	for (unsigned skip = 0;; skip++) {
		struct found_device found;

		result = device_open(context->interface_id, ifindex, skip, &found, &failures);
		if (result)
			break;
		context->ctx = found.verbs;
		context->dev_attr = found.attr;
		context->port_num = found.port;
		log_debug("%s: trying %s", context->interface_name,
			  ibv_get_device_name(found.verbs->device));
		result = init_on_device(context, options);
		if (result != -EOPNOTSUPP)
			return result;
		found_none = result;
	}
	log_error("%s: no device with raw packets serves it", context->interface_name);
	return found_none;
}

static int init_checked(struct hashpipe_ibv_context *context,
			const struct hashpipe_ibv_options *options)
{
	int result = check_buffers(context);

	if (!result)
		result = check_options(context, options);
	if (result) {
		log_error("init: what is set in the context or in the options does not do");
		return result;
	}
	if (!memchr(context->interface_name, 0, sizeof(context->interface_name)))
		return -ENODEV;
	if (hashpipe_ibv_get_interface_info(context->interface_name, context->mac,
					    &context->interface_id)) {
		result = errno ? -errno : -ENODEV;
		log_error("interface '%s': %s", context->interface_name, strerror(-result));
		return result;
	}
	if (!context->nqp)
		context->nqp = 1;
	if (!context->max_flows)
		context->max_flows = 1;
	return init_on_interface(context, options);
}

int hashpipe_ibv_init_with(struct hashpipe_ibv_context *hibv_ctx,
			   const struct hashpipe_ibv_options *options)
{
	int saved = errno, result;

	if (!hibv_ctx) {
		errno = EINVAL;
		return -1;
	}
	clear(hibv_ctx);
	if (!hibv_ctx->user_managed_flag)
		clear_buffers(hibv_ctx);
	result = init_checked(hibv_ctx, options);
	errno = result ? -result : saved;
	return result ? 1 : 0;
}

int hashpipe_ibv_init(struct hashpipe_ibv_context *hibv_ctx)
{
	return hashpipe_ibv_init_with(hibv_ctx, NULL);
}
