# SPDX-License-Identifier: MIT
# Everything that needs no network; and with one, packets from one of its ends to the other:
#   HASHPIPE_IBVERBS_LAYOUT   a program that prints the layouts of the C header
#   HASHPIPE_TEST_INTERFACES  "NEAR FAR", the two ends of a veth pair, both here
using HashpipeIBVerbs
using Sockets
using Test

include("addresses.jl")
haskey(ENV, "HASHPIPE_IBVERBS_LAYOUT") && include("layouts.jl")
if haskey(ENV, "HASHPIPE_TEST_INTERFACES")
    const NEAR, FAR = split(ENV["HASHPIPE_TEST_INTERFACES"])
    include("network.jl")
    include("document.jl")
else
    @info "no interfaces are given: nothing is sent"
end
