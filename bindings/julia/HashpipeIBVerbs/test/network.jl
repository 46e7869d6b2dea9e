# SPDX-License-Identifier: MIT
# Packets from FAR to NEAR, both of this host.

const H = HashpipeIBVerbs

# A frame of @n bytes; UDP to @port if it is given. The last byte is @mark.
function frame(from, to, n, mark; port=nothing, dst_ip=[0x0a, 0x09, 0x00, 0x01])
    bytes = fill(0x5a, n)
    bytes[1:6], bytes[7:12] = to, from
    bytes[13:14] = port === nothing ? [0x88, 0xb5] : [0x08, 0x00]
    if port !== nothing
        total = n - 14
        bytes[15:34] = [0x45; 0x00; UInt8(total >> 8); UInt8(total & 0xff); zeros(UInt8, 4); 64; 17; 0x00; 0x00;
                        [0x0a, 0x09, 0x00, 0x02]; dst_ip]
        bytes[35:42] = [0x04; 0x57; UInt8(port >> 8); UInt8(port & 0xff); UInt8((total - 20) >> 8);
                        UInt8((total - 20) & 0xff); 0x00; 0x00]
    end
    bytes[n] = mark
    return bytes
end

function send_frames(ctx, bufs, frames)
    left = collect(frames)
    while !isempty(left)
        pkts = H.get_pkts(ctx, length(left))
        for pkt in pkts
            bytes = popfirst!(left)
            bufs[pkt][1:length(bytes)] = bytes
            pktlen!(pkt, length(bytes))
        end
        H.send_pkts(ctx, pkts)
    end
end

# What arrives: @n frames, or fewer within five seconds.
function receive_frames(ctx, bufs, n)
    frames = Vector{UInt8}[]
    deadline = time() + 5
    while length(frames) < n && time() < deadline
        pkts = H.recv_pkts(ctx, 100)
        for pkt in pkts
            push!(frames, bufs[pkt][1:pktlen(pkt)])
        end
        H.release_pkts(ctx, pkts)
    end
    return frames
end

function with_ends(f)
    near, far = H.init(NEAR, 4, 16, 2048), H.init(FAR, 4, 4, 2048)
    try
        f(near, far, wrap_recv_bufs(near), wrap_send_bufs(far))
    finally
        H.shutdown(near)
        H.shutdown(far)
    end
end

@testset "contexts" begin
    ctx = H.init(NEAR, 3, 5, 1000)
    @test (ctx.send_pkt_num, ctx.recv_pkt_num, ctx.max_flows) == (3, 5, 16)
    @test occursin("link/ether $(mac(ctx.mac)) ", read(`ip -o link show $NEAR`, String))
    @test length(wrap_send_bufs(ctx)) == 3
    @test all(buf -> buf isa Vector{UInt8} && length(buf) == 1000, wrap_recv_bufs(ctx))
    @test length(wrap_recv_bufs(ctx)) == 5
    ids = Int[]
    foreach_send_pkt(pkt -> push!(ids, wr_id(pkt)), ctx)
    @test ids == 0:2
    empty!(ids)
    foreach_recv_pkt(pkt -> push!(ids, wr_id(pkt)), ctx)
    @test ids == 0:4
    H.shutdown(ctx)
    H.shutdown(ctx) # again: nothing
    @test_throws ErrorException wrap_recv_bufs(ctx)
    @test_throws ErrorException H.recv_pkts(ctx, 0)
    most = H.init(NEAR, 0, 0, 64)
    @test most.recv_pkt_num == most.dev_attr.max_qp_wr == most.send_pkt_num
    H.shutdown(most)
    error_text = try
        H.init("nothing0", 1, 1, 100)
        ""
    catch e
        sprint(showerror, e)
    end
    @test occursin("nothing0", error_text) && occursin("No such device", error_text)
    @test_throws ArgumentError H.init("a-name-of-many-letters", 1, 1, 100)
end

@testset "packets to send" begin
    ctx = H.init(NEAR, 3, 1, 1000)
    @test isempty(H.get_pkts(ctx, 0))
    two, one = H.get_pkts(ctx, 2), H.get_pkts(ctx)
    @test (length(collect(two)), length(collect(one))) == (2, 1)
    none = H.get_pkts(ctx, 1)
    @test isempty(none) && collect(none) == []
    @test eltype(collect(two)) == Ptr{H.SendPkt}
    pkt = first(two)
    @test pktlen(pkt) == 1000
    @test pktlen!(pkt, 64) == 64
    @test pktlen(pkt) == 64
    @test num_sge(pkt) == 1
    @test unsafe_load(sg_list(pkt)).addr == pointer(wrap_send_bufs(ctx)[pkt])
    @test unsafe_load(sg_list(pkt)).lkey == lkey(pkt)
    @test next(one) == C_NULL
    H.send_pkts(ctx, none) # nothing
    H.shutdown(ctx)
end

@testset "packets arrive by rules" begin
    with_ends() do near, far, recv_bufs, send_bufs
        to, from = mac(near.mac), mac(far.mac)
        plain = [frame(from, to, 60 + i, i) for i in 1:20]
        H.recv_pkts(near, 0)
        @test isempty(H.recv_pkts(near, 20)) # no rule, nothing
        H.flow(near, 1, src_mac=from, ether_type=0x88b5)
        H.recv_pkts(near, 0)
        send_frames(far, send_bufs, plain)
        @test receive_frames(near, recv_bufs, 20) == plain
        # Another rule in its place, by port.
        H.flow(near, 1, dst_port=2222)
        mixed = [frame(from, to, 100, i; port=iseven(i) ? 2222 : 2223) for i in 1:10]
        send_frames(far, send_bufs, [plain; mixed])
        @test receive_frames(near, recv_bufs, 5) == mixed[2:2:10]
        @test isempty(H.recv_pkts(near, 20))
        # By addresses, each as a text, a number and an IPv4.
        for ip in ("10.9.0.2", 0x0a090002, ip"10.9.0.2")
            H.flow(near, 1, src_ip=ip, dst_ip="10.9.0.1")
            send_frames(far, send_bufs, [plain[1:2]; mixed[1:2]])
            @test receive_frames(near, recv_bufs, 2) == mixed[1:2]
        end
        # TCP is not UDP.
        H.flow(near, 1, flow_type=H.FLOW_SPEC_TCP, dst_port=2222)
        send_frames(far, send_bufs, mixed)
        @test isempty(H.recv_pkts(near, 20))
        # Two ports of one group.
        group = [0xef, 0x01, 0x02, 0x03]
        H.flow(near, 1, dst_ip="239.1.2.3", dst_port=5000)
        H.flow(near, 2, dst_ip="239.1.2.3", dst_port=5001)
        grouped = [frame(from, mac"01:00:5e:01:02:03", 80, i; port=4998 + i, dst_ip=group) for i in 1:4]
        send_frames(far, send_bufs, grouped)
        @test receive_frames(near, recv_bufs, 2) == grouped[2:3]
        H.flow(near, 2)
        send_frames(far, send_bufs, grouped)
        @test receive_frames(near, recv_bufs, 1) == grouped[2:2]
        # Removed.
        H.flow(near, 1)
        send_frames(far, send_bufs, [plain; mixed; grouped])
        @test isempty(H.recv_pkts(near, 20))
        @test_throws ArgumentError H.flow(near, 0, dst_port=1)
        @test_throws ArgumentError H.flow(near, 17, dst_port=1)
        @test_throws ArgumentError H.flow(near, 1, dst_mac="nonsense")
    end
end

@testset "packets are released one by one, and time is told" begin
    with_ends() do near, far, recv_bufs, send_bufs
        from, to = mac(far.mac), mac(near.mac)
        H.flow(near, 1, src_mac=from, ether_type=0x88b5)
        H.recv_pkts(near, 0)
        kept = Ptr{H.RecvPkt}[]
        send_frames(far, send_bufs, [frame(from, to, 64, i) for i in 1:16])
        deadline = time() + 5
        while length(kept) < 16 && time() < deadline
            append!(kept, collect(H.recv_pkts(near, 100)))
        end
        @test [recv_bufs[pkt][64] for pkt in kept] == 1:16
        @test issorted(timestamp.(kept))
        # Linked no more, in the other order, without their context.
        for pkt in reverse(kept)
            unsafe_store!(Ptr{Ptr{Cvoid}}(pkt + 8), C_NULL)
            H.release_pkts(pkt)
        end
        @test_throws ErrorException H.release_pkts(near, kept[1]) # twice
        H.release_pkts(Ptr{H.RecvPkt}(C_NULL)) # nothing
        @test_throws ErrorException H.release_pkts(Ptr{H.RecvPkt}(8)) # nobody's
        more = [frame(from, to, 64, i) for i in 20:40]
        send_frames(far, send_bufs, more)
        @test receive_frames(near, recv_bufs, 21) == more
    end
end
