# SPDX-License-Identifier: MIT
# The structs of hashpipe_ibverbs.h, byte by byte. The tests compare them with C's.

struct SGElement
    addr::Ptr{UInt8}
    length::UInt32
    lkey::UInt32
end

struct SendWR
    wr_id::UInt64
    next::Ptr{Cvoid}
    sg_list::Ptr{SGElement}
    num_sge::Cint
    reserved::NTuple{25,UInt32}
end

struct RecvWR
    wr_id::UInt64
    next::Ptr{Cvoid}
    sg_list::Ptr{SGElement}
    num_sge::Cint
end

struct SendPkt
    wr::SendWR
    timestamp::UInt64
end

struct RecvPkt
    wr::RecvWR
    length::UInt32
    timestamp::UInt64
end

# struct ibv_device_attr: only max_qp_wr is of interest.
struct DeviceAttr
    before::NTuple{14,UInt64}
    max_qp_wr::Cint
    behind::NTuple{29,UInt32}
end

"""
    Context

What [`HashpipeIBVerbs.init`](@ref) returns and the other functions take: struct
hashpipe_ibv_context. Fields that may be read: `mac`, `send_pkt_num`, `recv_pkt_num`,
`pkt_size_max`, `max_flows`.
"""
mutable struct Context
    ctx::Ptr{Cvoid}
    pd::Ptr{Cvoid}
    send_cc::Ptr{Cvoid}
    recv_cc::Ptr{Cvoid}
    send_cq::Ptr{Cvoid}
    recv_cq::Ptr{Cvoid}
    qp::Ptr{Cvoid}
    dev_attr::DeviceAttr
    nqp::UInt32
    port_num::UInt8
    mac::NTuple{6,UInt8}
    interface_id::UInt64
    send_pkt_buf::Ptr{SendPkt}
    recv_pkt_buf::Ptr{RecvPkt}
    send_pkt_head::Ptr{SendPkt}
    send_sge_buf::Ptr{SGElement}
    recv_sge_buf::Ptr{SGElement}
    send_mr_buf::Ptr{UInt8}
    recv_mr_buf::Ptr{UInt8}
    send_mr_size::Csize_t
    recv_mr_size::Csize_t
    send_mr::Ptr{Cvoid}
    recv_mr::Ptr{Cvoid}
    send_pkt_num::UInt32
    recv_pkt_num::UInt32
    pkt_size_max::UInt32
    user_managed_flag::Cint
    max_flows::UInt32
    ibv_flows::Ptr{Cvoid}
    flow_dst_ips::Ptr{UInt32}
    mcast_subscriber::Cint
    interface_name::NTuple{16,UInt8}

    function Context(interface, send_pkt_num, recv_pkt_num, pkt_size_max, max_flows)
        name = codeunits(interface)
        length(name) < 16 || throw(ArgumentError("no interface has so long a name: $interface"))
        no_attr = DeviceAttr(ntuple(_ -> UInt64(0), 14), 0, ntuple(_ -> UInt32(0), 29))
        return new(
            C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, no_attr, 0, 0,
            ntuple(_ -> 0x00, 6), 0, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, 0, 0,
            C_NULL, C_NULL, send_pkt_num, recv_pkt_num, pkt_size_max, 0, max_flows, C_NULL, C_NULL,
            0, ntuple(i -> i <= length(name) ? name[i] : 0x00, 16))
    end
end
