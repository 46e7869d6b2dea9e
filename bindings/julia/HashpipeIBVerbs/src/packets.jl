# SPDX-License-Identifier: MIT
# Packets: a pointer to one is a list of packets, an index into wrapped buffers, and a packet.

const Pkt = Union{SendPkt,RecvPkt}

# A member of what @p points to.
load(p::Ptr{T}, ::Type{M}, offset) where {T,M} = unsafe_load(Ptr{M}(p + offset))

const NEXT_OFFSET = fieldoffset(RecvWR, 2)
const SG_LIST_OFFSET = fieldoffset(RecvWR, 3)
const NUM_SGE_OFFSET = fieldoffset(RecvWR, 4)
const SGE_LENGTH_OFFSET = fieldoffset(SGElement, 2)
const SGE_LKEY_OFFSET = fieldoffset(SGElement, 3)

"""
    wr_id(pkt)

The number of the packet among those of its kind, from 0. It never changes. `bufs[pkt]` is
`bufs[wr_id(pkt) + 1]`.
"""
wr_id(p::Ptr{<:Pkt}) = load(p, UInt64, 0)

"""
    next(pkt)

The packet behind `pkt` in its list; `C_NULL` behind the last.
"""
next(p::Ptr{T}) where {T<:Pkt} = load(p, Ptr{T}, NEXT_OFFSET)

"""
    sg_list(pkt)

A pointer to the first of the packet's [`num_sge`](@ref) scatter/gather elements, each an address, a
length and a key.
"""
sg_list(p::Ptr{<:Pkt}) = load(p, Ptr{SGElement}, SG_LIST_OFFSET)

"""
    num_sge(pkt)

The number of the packet's scatter/gather elements.
"""
num_sge(p::Ptr{<:Pkt}) = load(p, Cint, NUM_SGE_OFFSET)

"""
    lkey(pkt)

The key of the packet's memory.
"""
lkey(p::Ptr{<:Pkt}) = load(sg_list(p), UInt32, SGE_LKEY_OFFSET)

"""
    timestamp(pkt)

When the packet has arrived, or when its sending was completed: a count of the device's clock, which is in
nanoseconds where the device is a software one.
"""
timestamp(p::Ptr{SendPkt}) = load(p, UInt64, fieldoffset(SendPkt, 2))
timestamp(p::Ptr{RecvPkt}) = load(p, UInt64, fieldoffset(RecvPkt, 3))

"""
    pktlen(pkt)

The bytes of a received packet, from its Ethernet header on; 0 if its receive has failed. The bytes
of a packet to send are what [`pktlen!`](@ref) has set.
"""
pktlen(p::Ptr{RecvPkt}) = load(p, UInt32, fieldoffset(RecvPkt, 2))
pktlen(p::Ptr{SendPkt}) = load(sg_list(p), UInt32, SGE_LENGTH_OFFSET)

"""
    pktlen!(pkt, n)

Set the bytes of a packet to send, from its Ethernet header on. Returns `n`.
"""
function pktlen!(p::Ptr{SendPkt}, n::Integer)
    unsafe_store!(Ptr{UInt32}(sg_list(p) + SGE_LENGTH_OFFSET), n)
    return n
end

# What follows a packet is read before the packet is handed out, so that it may be released or sent
# in the loop's body.
Base.iterate(p::Ptr{T}, at::Ptr{T}=p) where {T<:Pkt} = at == C_NULL ? nothing : (at, next(at))
Base.IteratorSize(::Type{<:Ptr{<:Pkt}}) = Base.SizeUnknown()
Base.eltype(::Type{Ptr{T}}) where {T<:Pkt} = Ptr{T}
Base.isempty(p::Ptr{<:Pkt}) = p == C_NULL
Base.to_index(p::Ptr{<:Pkt}) = Int(wr_id(p)) + 1
