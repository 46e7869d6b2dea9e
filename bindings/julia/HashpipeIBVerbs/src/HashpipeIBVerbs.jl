# SPDX-License-Identifier: MIT
"""
Raw Ethernet packets with flow rules: the interface to libhashpipe_ibverbs.

    ctx = HashpipeIBVerbs.init("eth4", 2, 2, 9*1024)
    recv_bufs = wrap_recv_bufs(ctx)
    HashpipeIBVerbs.flow(ctx, 1, dst_mac=mac"01:80:c2:00:00:00")
    pkts = HashpipeIBVerbs.recv_pkts(ctx, 1000)
    for pkt in pkts
        println(recv_bufs[pkt][1:pktlen(pkt)])
    end
    HashpipeIBVerbs.release_pkts(ctx, pkts)
    HashpipeIBVerbs.shutdown(ctx)

One task may receive while another one sends. Everything that a context has given out, packets and
wrapped buffers, is invalid after [`shutdown`](@ref HashpipeIBVerbs.shutdown).
"""
module HashpipeIBVerbs

using Libdl
using Sockets: IPv4

export mac, @mac_str
export wr_id, next, sg_list, num_sge, timestamp, pktlen, pktlen!, lkey
export foreach_send_pkt, foreach_recv_pkt, wrap_send_bufs, wrap_recv_bufs

include("library.jl")
include("mac.jl")
include("structs.jl")
include("packets.jl")
include("context.jl")
include("flow.jl")

__init__() = load_library()

end
