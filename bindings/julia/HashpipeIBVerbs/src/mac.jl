# SPDX-License-Identifier: MIT
# Ethernet addresses.

"""
    MAC

An Ethernet address: a vector of six bytes, in the order of the wire. So it can be stored in a packet
as it is: `buf[1:6] = mac"01:80:c2:00:00:00"`. See [`mac`](@ref).
"""
struct MAC <: AbstractVector{UInt8}
    bytes::NTuple{6,UInt8}
end

Base.size(::MAC) = (6,)
Base.IndexStyle(::Type{MAC}) = IndexLinear()
Base.@propagate_inbounds Base.getindex(m::MAC, i::Int) = m.bytes[i]

Base.string(m::MAC) = join(string.(m.bytes, base=16, pad=2), ':')
Base.print(io::IO, m::MAC) = print(io, string(m))
Base.show(io::IO, m::MAC) = print(io, "mac\"", string(m), '"')
Base.show(io::IO, ::MIME"text/plain", m::MAC) = show(io, m)

"""
    mac("01:80:c2:00:00:00")
    mac(0x0180c2000000)
    mac(bytes)

The Ethernet address ([`MAC`](@ref HashpipeIBVerbs.MAC)) that a text, an integer or six bytes say.
"""
function mac(text::AbstractString)
    parts = split(text, r"[:-]")
    bytes = [tryparse(UInt8, part, base=16) for part in parts]
    if length(bytes) != 6 || any(isnothing, bytes) || any(part -> length(part) > 2, parts)
        throw(ArgumentError("not an Ethernet address: \"$text\""))
    end
    return MAC(Tuple(UInt8.(bytes)))
end

function mac(number::Integer)
    0 <= number < Int128(1) << 48 || throw(ArgumentError("not an Ethernet address: $number"))
    return MAC(ntuple(i -> UInt8((number >> (8 * (6 - i))) & 0xff), 6))
end

function mac(bytes::AbstractVector{<:Integer})
    length(bytes) == 6 || throw(ArgumentError("an Ethernet address has six bytes"))
    return MAC(Tuple(UInt8.(bytes)))
end

mac(bytes::NTuple{6,Integer}) = MAC(UInt8.(bytes))
mac(m::MAC) = m

"""
    mac"01:80:c2:00:00:00"

An Ethernet address; see [`mac`](@ref).
"""
macro mac_str(text)
    return mac(text)
end
