# SPDX-License-Identifier: MIT
# The calls of the package's introduction, in its order and in its words; the interface's name apart.
push!(LOAD_PATH, joinpath(@__DIR__, "stubs"))
using PrettyPrint

@testset "the quick start" begin
    # Somebody sends Spanning Tree packets.
    switch = H.init(FAR, 4, 1, 2048)
    switch_bufs = wrap_send_bufs(switch)
    hello = frame(mac(switch.mac), mac"01:80:c2:00:00:00", 60, 0x77)

    ctx = HashpipeIBVerbs.init(String(NEAR), 2, 2, 9*1024)
    recv_bufs = HashpipeIBVerbs.wrap_recv_bufs(ctx)
    HashpipeIBVerbs.flow(ctx, 1, dst_mac=mac"01:80:c2:00:00:00")
    HashpipeIBVerbs.recv_pkts(ctx, 0)
    printed = 0
    for i in 1:10
        send_frames(switch, switch_bufs, [hello])
        pkts = HashpipeIBVerbs.recv_pkts(ctx)
        for pkt in pkts
            redirect_stdout(open("/dev/null", "w")) do
                pprintln(recv_bufs[pkt][1:pktlen(pkt)])
            end
            @test recv_bufs[pkt][1:pktlen(pkt)] == hello
            printed += 1
        end
        HashpipeIBVerbs.release_pkts(ctx, pkts)
    end
    @test printed == 10
    HashpipeIBVerbs.shutdown(ctx)
    recv_bufs = nothing
    H.shutdown(switch)
end

@testset "sending and receiving, as the text has it" begin
    ctx, other = HashpipeIBVerbs.init(String(NEAR), 8, 8, 9*1024), HashpipeIBVerbs.init(String(FAR), 1, 8, 9*1024)
    send_bufs, recv_bufs = wrap_send_bufs(ctx), wrap_recv_bufs(other)
    dst_mac, n, num_pkts, timeout_ms = mac(other.mac), 128, 5, 1000
    HashpipeIBVerbs.flow(other, 1, src_mac=mac(ctx.mac), ether_type=0x88b5)
    HashpipeIBVerbs.recv_pkts(other, 0)

    pkts = HashpipeIBVerbs.get_pkts(ctx, num_pkts)
    for pkt in pkts
        send_bufs[pkt][1:n] = frame(mac(ctx.mac), zeros(UInt8, 6), n, 0x01)
        send_bufs[pkt][1:6] = dst_mac
        pktlen!(pkt, n)
    end
    HashpipeIBVerbs.send_pkts(pkts)

    lines = String[]
    while length(lines) < 5
        pkts = HashpipeIBVerbs.recv_pkts(other, timeout_ms)
        isempty(pkts) && break
        for pkt in pkts
            src_mac = join(string.(recv_bufs[pkt][7:12], base=16, pad=2), ':')
            n = pktlen(pkt)
            push!(lines, string("got ", n, " byte packet from ", src_mac))
        end
        HashpipeIBVerbs.release_pkts(pkts)
    end
    @test lines == fill("got 128 byte packet from $(string(mac(ctx.mac)))", 5)
    HashpipeIBVerbs.shutdown(ctx)
    HashpipeIBVerbs.shutdown(other)
end

@testset "help is thorough" begin
    text = string(@doc HashpipeIBVerbs.flow)
    for word in ("dst_mac", "src_mac", "ether_type", "vlan_tag", "src_ip", "dst_ip", "src_port", "dst_port",
                 "flow_type", "multicast", "removed")
        @test occursin(word, text)
    end
end
