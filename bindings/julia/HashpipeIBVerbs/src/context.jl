# SPDX-License-Identifier: MIT
# The life of a context, sending and receiving.

# Those that are open, to find the one that a packet belongs to.
const OPEN = Context[]
const OPEN_LOCK = ReentrantLock()

"""
    HashpipeIBVerbs.init(interface, send_pkt_num, recv_pkt_num, pkt_size_max, max_flows=16)

Open a [`Context`](@ref HashpipeIBVerbs.Context) on a network interface, with so many packets to
send and to receive, of at most `pkt_size_max` bytes, and room for `max_flows` flow rules. With 0
packets there are as many as the device can have; `ctx.send_pkt_num` and `ctx.recv_pkt_num` say how
many that is. Needs the right to send raw packets (CAP_NET_RAW).

End it by [`HashpipeIBVerbs.shutdown`](@ref).
"""
function init(interface::AbstractString, send_pkt_num::Integer, recv_pkt_num::Integer,
              pkt_size_max::Integer, max_flows::Integer=16)
    ctx = Context(interface, send_pkt_num, recv_pkt_num, pkt_size_max, max_flows)
    ccall(FUNCTIONS[:init], Cint, (Ref{Context},), ctx) == 0 || fail("init of $interface")
    lock(() -> push!(OPEN, ctx), OPEN_LOCK)
    return ctx
end

"""
    HashpipeIBVerbs.shutdown(ctx)

Wait for packets that are being sent, and give back everything that the context has. Packets and
wrapped buffers are invalid afterwards. A second call does nothing.
"""
function shutdown(ctx::Context)
    lock(() -> filter!(other -> other !== ctx, OPEN), OPEN_LOCK)
    ccall(FUNCTIONS[:shutdown], Cint, (Ref{Context},), ctx) == 0 || fail("shutdown")
    return nothing
end

is_open(ctx::Context) = ctx.qp != C_NULL
check_open(ctx::Context) = is_open(ctx) || error("the context is shut down")

holds(ctx::Context, p::Ptr{SendPkt}) = ctx.send_pkt_buf <= p < last_of(ctx.send_pkt_buf, ctx.send_pkt_num)
holds(ctx::Context, p::Ptr{RecvPkt}) = ctx.recv_pkt_buf <= p < last_of(ctx.recv_pkt_buf, ctx.recv_pkt_num)
last_of(array::Ptr{T}, count) where {T} = array + count * sizeof(T)

# The context of a packet.
function context_of(p::Ptr{<:Pkt})
    lock(OPEN_LOCK) do
        index = findfirst(ctx -> holds(ctx, p), OPEN)
        index === nothing && error("the packet belongs to no context")
        return OPEN[index]
    end
end

# ---- buffers ----

"""
    foreach_send_pkt(f, ctx)

Call `f` with each of the context's packets to send, also those that are not acquired: to store in
them what does not change, before the first is sent.
"""
foreach_send_pkt(f, ctx::Context) = foreach(f, each_pkt(ctx, ctx.send_pkt_buf, ctx.send_pkt_num))

"""
    foreach_recv_pkt(f, ctx)

Call `f` with each of the context's packets to receive.
"""
foreach_recv_pkt(f, ctx::Context) = foreach(f, each_pkt(ctx, ctx.recv_pkt_buf, ctx.recv_pkt_num))

function each_pkt(ctx::Context, array::Ptr{T}, count) where {T<:Pkt}
    check_open(ctx)
    return (array + (i - 1) * sizeof(T) for i in 1:count)
end

# A packet's memory; its length is that of the buffer, whatever the packet's is.
wrap_buf(ctx, p::Ptr{<:Pkt}) = unsafe_wrap(Vector{UInt8}, unsafe_load(sg_list(p)).addr, ctx.pkt_size_max)

"""
    wrap_send_bufs(ctx)

The buffers of the packets to send, each a `Vector{UInt8}`. `bufs[pkt]` is that of packet `pkt`.
"""
wrap_send_bufs(ctx::Context) = [wrap_buf(ctx, p) for p in each_pkt(ctx, ctx.send_pkt_buf, ctx.send_pkt_num)]

"""
    wrap_recv_bufs(ctx)

The buffers of the packets to receive, each a `Vector{UInt8}`. `bufs[pkt]` is that of packet `pkt`.
"""
wrap_recv_bufs(ctx::Context) = [wrap_buf(ctx, p) for p in each_pkt(ctx, ctx.recv_pkt_buf, ctx.recv_pkt_num)]

# ---- sending ----

"""
    HashpipeIBVerbs.get_pkts(ctx, num_pkts=ctx.send_pkt_num)

Acquire up to `num_pkts` packets to send: a list, empty if all are being sent.
"""
function get_pkts(ctx::Context, num_pkts::Integer=ctx.send_pkt_num)
    check_open(ctx)
    Libc.errno(0)
    pkts = ccall(FUNCTIONS[:get_pkts], Ptr{SendPkt}, (Ref{Context}, UInt32), ctx, num_pkts)
    pkts == C_NULL && Libc.errno() != 0 && fail("get_pkts")
    return pkts
end

"""
    HashpipeIBVerbs.send_pkts(ctx, pkts)
    HashpipeIBVerbs.send_pkts(pkts)

Send packets that [`HashpipeIBVerbs.get_pkts`](@ref) has given, each as long as [`pktlen!`](@ref)
has set. They are the library's afterwards. Does not wait until they are sent.
"""
function send_pkts(ctx::Context, pkts::Ptr{SendPkt})
    isempty(pkts) && return nothing
    check_open(ctx)
    rc = ccall(FUNCTIONS[:send_pkts], Cint, (Ref{Context}, Ptr{SendPkt}, UInt32), ctx, pkts, 0)
    rc == 0 || fail("send_pkts")
    return nothing
end

send_pkts(pkts::Ptr{SendPkt}) = isempty(pkts) ? nothing : send_pkts(context_of(pkts), pkts)

# ---- receiving ----

"""
    HashpipeIBVerbs.recv_pkts(ctx, timeout_ms=-1)

Packets that have arrived: a list. Waits for the first of them, for at most `timeout_ms`
milliseconds, for ever if that is negative. The list is empty when time is over, and after a signal.
Nothing is received without a rule: [`HashpipeIBVerbs.flow`](@ref).
"""
function recv_pkts(ctx::Context, timeout_ms::Integer=-1)
    check_open(ctx)
    return ccall(FUNCTIONS[:recv_pkts], Ptr{RecvPkt}, (Ref{Context}, Cint), ctx, timeout_ms)
end

"""
    HashpipeIBVerbs.release_pkts(ctx, pkts)
    HashpipeIBVerbs.release_pkts(pkts)

Give received packets back, to be received into anew. If all are with the user, what arrives is
lost.
"""
function release_pkts(ctx::Context, pkts::Ptr{RecvPkt})
    isempty(pkts) && return nothing
    check_open(ctx)
    rc = ccall(FUNCTIONS[:release_pkts], Cint, (Ref{Context}, Ptr{RecvPkt}), ctx, pkts)
    rc == 0 || fail("release_pkts")
    return nothing
end

release_pkts(pkts::Ptr{RecvPkt}) = isempty(pkts) ? nothing : release_pkts(context_of(pkts), pkts)
