/* SPDX-License-Identifier: MIT */
/*
 * Every function that libsoftrdma serves, with the version it has in rdma-core. softrdma.map
 * repeats these lists for the linker; tests/programs/exports checks both against the system's
 * libraries.
 */
#ifndef SOFTRDMA_INTERPOSE_NAMES_H
#define SOFTRDMA_INTERPOSE_NAMES_H

/* libibverbs: each call goes where its object belongs. */
#define SOFTRDMA_VERBS_NAMES(X)                                                                    \
	X(ibv_create_comp_channel, "IBVERBS_1.0")                                                  \
	X(ibv_destroy_comp_channel, "IBVERBS_1.0")                                                 \
	X(ibv_ack_async_event, "IBVERBS_1.1")                                                      \
	X(ibv_ack_cq_events, "IBVERBS_1.1")                                                        \
	X(ibv_alloc_pd, "IBVERBS_1.1")                                                             \
	X(ibv_attach_mcast, "IBVERBS_1.1")                                                         \
	X(ibv_close_device, "IBVERBS_1.1")                                                         \
	X(ibv_create_ah, "IBVERBS_1.1")                                                            \
	X(ibv_create_ah_from_wc, "IBVERBS_1.1")                                                    \
	X(ibv_create_cq, "IBVERBS_1.1")                                                            \
	X(ibv_create_qp, "IBVERBS_1.1")                                                            \
	X(ibv_create_srq, "IBVERBS_1.1")                                                           \
	X(ibv_dealloc_pd, "IBVERBS_1.1")                                                           \
	X(ibv_dereg_mr, "IBVERBS_1.1")                                                             \
	X(ibv_destroy_ah, "IBVERBS_1.1")                                                           \
	X(ibv_destroy_cq, "IBVERBS_1.1")                                                           \
	X(ibv_destroy_qp, "IBVERBS_1.1")                                                           \
	X(ibv_destroy_srq, "IBVERBS_1.1")                                                          \
	X(ibv_detach_mcast, "IBVERBS_1.1")                                                         \
	X(ibv_fork_init, "IBVERBS_1.1")                                                            \
	X(ibv_get_async_event, "IBVERBS_1.1")                                                      \
	X(ibv_get_cq_event, "IBVERBS_1.1")                                                         \
	X(ibv_get_device_guid, "IBVERBS_1.1")                                                      \
	X(ibv_get_device_name, "IBVERBS_1.1")                                                      \
	X(ibv_init_ah_from_wc, "IBVERBS_1.1")                                                      \
	X(ibv_modify_qp, "IBVERBS_1.1")                                                            \
	X(ibv_modify_srq, "IBVERBS_1.1")                                                           \
	X(ibv_open_device, "IBVERBS_1.1")                                                          \
	X(ibv_query_device, "IBVERBS_1.1")                                                         \
	X(ibv_query_gid, "IBVERBS_1.1")                                                            \
	X(ibv_query_pkey, "IBVERBS_1.1")                                                           \
	X(ibv_query_port, "IBVERBS_1.1")                                                           \
	X(ibv_query_qp, "IBVERBS_1.1")                                                             \
	X(ibv_query_srq, "IBVERBS_1.1")                                                            \
	X(ibv_reg_mr, "IBVERBS_1.1")                                                               \
	X(ibv_rereg_mr, "IBVERBS_1.1")                                                             \
	X(ibv_resize_cq, "IBVERBS_1.1")                                                            \
	X(ibv_resolve_eth_l2_from_gid, "IBVERBS_1.1")                                              \
	X(ibv_get_pkey_index, "IBVERBS_1.5")                                                       \
	X(ibv_qp_to_qp_ex, "IBVERBS_1.6")                                                          \
	X(ibv_reg_mr_iova, "IBVERBS_1.7")                                                          \
	X(ibv_reg_mr_iova2, "IBVERBS_1.8")                                                         \
	X(ibv_get_device_index, "IBVERBS_1.9")                                                     \
	X(ibv_import_device, "IBVERBS_1.10")                                                       \
	X(ibv_import_mr, "IBVERBS_1.10")                                                           \
	X(ibv_import_pd, "IBVERBS_1.10")                                                           \
	X(ibv_query_ece, "IBVERBS_1.10")                                                           \
	X(ibv_set_ece, "IBVERBS_1.10")                                                             \
	X(ibv_unimport_mr, "IBVERBS_1.10")                                                         \
	X(ibv_unimport_pd, "IBVERBS_1.10")                                                         \
	X(_ibv_query_gid_ex, "IBVERBS_1.11")                                                       \
	X(_ibv_query_gid_table, "IBVERBS_1.11")                                                    \
	X(ibv_reg_dmabuf_mr, "IBVERBS_1.12")                                                       \
	X(ibv_import_dm, "IBVERBS_1.13")                                                           \
	X(ibv_is_fork_initialized, "IBVERBS_1.13")                                                 \
	X(ibv_unimport_dm, "IBVERBS_1.13")                                                         \
	X(ibv_query_qp_data_in_order, "IBVERBS_1.14")                                              \
	X(ibv_query_gid_type, "IBVERBS_PRIVATE_34")

/* libibverbs: the list of devices. */
#define SOFTRDMA_DEVICE_LIST_NAMES(X)                                                              \
	X(ibv_free_device_list, "IBVERBS_1.1")                                                     \
	X(ibv_get_device_list, "IBVERBS_1.1")

/* libibverbs: texts. */
#define SOFTRDMA_VERBS_TEXT_NAMES(X)                                                               \
	X(ibv_event_type_str, "IBVERBS_1.1")                                                       \
	X(ibv_node_type_str, "IBVERBS_1.1")                                                        \
	X(ibv_port_state_str, "IBVERBS_1.1")                                                       \
	X(ibv_wc_status_str, "IBVERBS_1.1")

/* librdmacm: all calls of a process go the same way. */
#define SOFTRDMA_CM_NAMES(X)                                                                       \
	X(rdma_accept, "RDMACM_1.0")                                                               \
	X(rdma_ack_cm_event, "RDMACM_1.0")                                                         \
	X(rdma_bind_addr, "RDMACM_1.0")                                                            \
	X(rdma_connect, "RDMACM_1.0")                                                              \
	X(rdma_create_ep, "RDMACM_1.0")                                                            \
	X(rdma_create_event_channel, "RDMACM_1.0")                                                 \
	X(rdma_create_id, "RDMACM_1.0")                                                            \
	X(rdma_create_qp, "RDMACM_1.0")                                                            \
	X(rdma_create_qp_ex, "RDMACM_1.0")                                                         \
	X(rdma_create_srq, "RDMACM_1.0")                                                           \
	X(rdma_create_srq_ex, "RDMACM_1.0")                                                        \
	X(rdma_destroy_ep, "RDMACM_1.0")                                                           \
	X(rdma_destroy_event_channel, "RDMACM_1.0")                                                \
	X(rdma_destroy_id, "RDMACM_1.0")                                                           \
	X(rdma_destroy_qp, "RDMACM_1.0")                                                           \
	X(rdma_destroy_srq, "RDMACM_1.0")                                                          \
	X(rdma_disconnect, "RDMACM_1.0")                                                           \
	X(rdma_free_devices, "RDMACM_1.0")                                                         \
	X(rdma_freeaddrinfo, "RDMACM_1.0")                                                         \
	X(rdma_get_cm_event, "RDMACM_1.0")                                                         \
	X(rdma_get_devices, "RDMACM_1.0")                                                          \
	X(rdma_get_dst_port, "RDMACM_1.0")                                                         \
	X(rdma_get_request, "RDMACM_1.0")                                                          \
	X(rdma_get_src_port, "RDMACM_1.0")                                                         \
	X(rdma_getaddrinfo, "RDMACM_1.0")                                                          \
	X(rdma_join_multicast, "RDMACM_1.0")                                                       \
	X(rdma_leave_multicast, "RDMACM_1.0")                                                      \
	X(rdma_listen, "RDMACM_1.0")                                                               \
	X(rdma_migrate_id, "RDMACM_1.0")                                                           \
	X(rdma_notify, "RDMACM_1.0")                                                               \
	X(rdma_reject, "RDMACM_1.0")                                                               \
	X(rdma_resolve_addr, "RDMACM_1.0")                                                         \
	X(rdma_resolve_route, "RDMACM_1.0")                                                        \
	X(rdma_set_option, "RDMACM_1.0")                                                           \
	X(rdma_join_multicast_ex, "RDMACM_1.1")                                                    \
	X(rdma_establish, "RDMACM_1.2")                                                            \
	X(rdma_init_qp_attr, "RDMACM_1.2")                                                         \
	X(rdma_get_remote_ece, "RDMACM_1.3")                                                       \
	X(rdma_reject_ece, "RDMACM_1.3")                                                           \
	X(rdma_set_local_ece, "RDMACM_1.3")

/* librdmacm: texts. */
#define SOFTRDMA_CM_TEXT_NAMES(X) X(rdma_event_str, "RDMACM_1.0")

/* librdmacm: sockets over RDMA. */
#define SOFTRDMA_RSOCKET_NAMES(X)                                                                  \
	X(raccept, "RDMACM_1.0")                                                                   \
	X(rbind, "RDMACM_1.0")                                                                     \
	X(rclose, "RDMACM_1.0")                                                                    \
	X(rconnect, "RDMACM_1.0")                                                                  \
	X(rfcntl, "RDMACM_1.0")                                                                    \
	X(rgetpeername, "RDMACM_1.0")                                                              \
	X(rgetsockname, "RDMACM_1.0")                                                              \
	X(rgetsockopt, "RDMACM_1.0")                                                               \
	X(riomap, "RDMACM_1.0")                                                                    \
	X(riounmap, "RDMACM_1.0")                                                                  \
	X(riowrite, "RDMACM_1.0")                                                                  \
	X(rlisten, "RDMACM_1.0")                                                                   \
	X(rpoll, "RDMACM_1.0")                                                                     \
	X(rread, "RDMACM_1.0")                                                                     \
	X(rreadv, "RDMACM_1.0")                                                                    \
	X(rrecv, "RDMACM_1.0")                                                                     \
	X(rrecvfrom, "RDMACM_1.0")                                                                 \
	X(rrecvmsg, "RDMACM_1.0")                                                                  \
	X(rselect, "RDMACM_1.0")                                                                   \
	X(rsend, "RDMACM_1.0")                                                                     \
	X(rsendmsg, "RDMACM_1.0")                                                                  \
	X(rsendto, "RDMACM_1.0")                                                                   \
	X(rsetsockopt, "RDMACM_1.0")                                                               \
	X(rshutdown, "RDMACM_1.0")                                                                 \
	X(rsocket, "RDMACM_1.0")                                                                   \
	X(rwrite, "RDMACM_1.0")                                                                    \
	X(rwritev, "RDMACM_1.0")

#define SOFTRDMA_IBVERBS_NAMES(X)                                                                  \
	SOFTRDMA_VERBS_NAMES(X) SOFTRDMA_DEVICE_LIST_NAMES(X) SOFTRDMA_VERBS_TEXT_NAMES(X)
#define SOFTRDMA_RDMACM_NAMES(X)                                                                   \
	SOFTRDMA_CM_NAMES(X) SOFTRDMA_CM_TEXT_NAMES(X) SOFTRDMA_RSOCKET_NAMES(X)

#endif
