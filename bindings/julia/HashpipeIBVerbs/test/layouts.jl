# SPDX-License-Identifier: MIT
# The program prints lines: STRUCT SIZE, or STRUCT.FIELD OFFSET.

const STRUCTS = Dict("Context" => HashpipeIBVerbs.Context, "SendPkt" => HashpipeIBVerbs.SendPkt,
                     "RecvPkt" => HashpipeIBVerbs.RecvPkt, "SendWR" => HashpipeIBVerbs.SendWR,
                     "RecvWR" => HashpipeIBVerbs.RecvWR, "SGElement" => HashpipeIBVerbs.SGElement,
                     "DeviceAttr" => HashpipeIBVerbs.DeviceAttr)

function field_number(type, name)
    index = findfirst(==(Symbol(name)), fieldnames(type))
    index === nothing && error("$type has no $name")
    return index
end

@testset "layouts are those of the C header" begin
    seen = 0
    for line in eachline(Cmd([ENV["HASHPIPE_IBVERBS_LAYOUT"]]))
        what, number = split(line)
        parts = split(what, '.')
        type = STRUCTS[parts[1]]
        ours = length(parts) == 1 ? sizeof(type) : fieldoffset(type, field_number(type, parts[2]))
        @test (what, ours) == (what, parse(Int, number))
        seen += 1
    end
    @test seen > 40
end
