/* SPDX-License-Identifier: MIT */
/* Prints the layouts of hashpipe_ibverbs.h, by the names that the Julia package has for them. */
#include <hashpipe_ibverbs.h>
#include <stdio.h>

#define SIZE(name, type)           printf(name " %zu\n", sizeof(struct type))
#define FIELD(name, type, c, ours) printf(name "." ours " %zu\n", offsetof(struct type, c))
#define SAME(field)                FIELD("Context", hashpipe_ibv_context, field, #field)

static void print_packets(void)
{
	SIZE("SendPkt", hashpipe_ibv_send_pkt);
	FIELD("SendPkt", hashpipe_ibv_send_pkt, timestamp, "timestamp");
	SIZE("RecvPkt", hashpipe_ibv_recv_pkt);
	FIELD("RecvPkt", hashpipe_ibv_recv_pkt, length, "length");
	FIELD("RecvPkt", hashpipe_ibv_recv_pkt, timestamp, "timestamp");
	SIZE("SendWR", ibv_send_wr);
	FIELD("SendWR", ibv_send_wr, next, "next");
	FIELD("SendWR", ibv_send_wr, sg_list, "sg_list");
	FIELD("SendWR", ibv_send_wr, num_sge, "num_sge");
	SIZE("RecvWR", ibv_recv_wr);
	FIELD("RecvWR", ibv_recv_wr, next, "next");
	FIELD("RecvWR", ibv_recv_wr, sg_list, "sg_list");
	FIELD("RecvWR", ibv_recv_wr, num_sge, "num_sge");
	SIZE("SGElement", ibv_sge);
	FIELD("SGElement", ibv_sge, length, "length");
	FIELD("SGElement", ibv_sge, lkey, "lkey");
	SIZE("DeviceAttr", ibv_device_attr);
	FIELD("DeviceAttr", ibv_device_attr, max_qp_wr, "max_qp_wr");
}

static void print_context(void)
{
	SIZE("Context", hashpipe_ibv_context);
	SAME(ctx);
	SAME(pd);
	SAME(send_cc);
	SAME(recv_cc);
	SAME(send_cq);
	SAME(recv_cq);
	SAME(qp);
	SAME(dev_attr);
	SAME(nqp);
	SAME(port_num);
	SAME(mac);
	SAME(interface_id);
	SAME(send_pkt_buf);
	SAME(recv_pkt_buf);
	SAME(send_pkt_head);
	SAME(send_sge_buf);
	SAME(recv_sge_buf);
	SAME(send_mr_buf);
	SAME(recv_mr_buf);
	SAME(send_mr_size);
	SAME(recv_mr_size);
	SAME(send_mr);
	SAME(recv_mr);
	SAME(send_pkt_num);
	SAME(recv_pkt_num);
	SAME(pkt_size_max);
	SAME(user_managed_flag);
	SAME(max_flows);
	SAME(ibv_flows);
	SAME(flow_dst_ips);
	SAME(mcast_subscriber);
	SAME(interface_name);
}

int main(void)
{
	print_packets();
	print_context();
	return 0;
}
