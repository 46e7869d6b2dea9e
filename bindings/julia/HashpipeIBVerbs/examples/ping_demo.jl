# SPDX-License-Identifier: MIT
# ICMP echo requests, two per call, and their replies, over raw packets.
#
# Set these to match your network, or give them as arguments, in this order:
#   julia ping_demo.jl INTERFACE REMOTE_MAC REMOTE_IP LOCAL_MAC LOCAL_IP

using HashpipeIBVerbs
using Sockets

const defaults = ["eth4", "00:00:00:00:00:02", "10.0.0.2", "00:00:00:00:00:01", "10.0.0.1"]
const settings = [ARGS; defaults[length(ARGS)+1:end]]
const interface = settings[1]
const rem_mac, loc_mac = mac(settings[2]), mac(settings[4])
const rem_ip, loc_ip = parse(IPv4, settings[3]), parse(IPv4, settings[5])

const payload = codeunits("Hello from HashpipeIBVerbs.jl! :)")
const packet_size = 14 + 20 + 8 + length(payload)
const id = 0x4a4c

two_bytes(n) = [UInt8(n >> 8), UInt8(n & 0xff)]
ip_bytes(ip) = [UInt8((ip.host >> shift) & 0xff) for shift in (24, 16, 8, 0)]
number(bytes) = Int(bytes[1]) << 8 | bytes[2]

# The Internet checksum, RFC 1071.
function checksum(bytes)
    total = sum(number(bytes[i:i+1]) for i in 1:2:length(bytes)-1)
    isodd(length(bytes)) && (total += Int(bytes[end]) << 8)
    while total > 0xffff
        total = (total & 0xffff) + total >> 16
    end
    return ~total & 0xffff
end

# What all requests have in common: everything but the sequence number and its checksum.
function fill_headers(buf)
    buf[1:6] = rem_mac
    buf[7:12] = loc_mac
    buf[13:14] = two_bytes(0x0800)
    buf[15:34] = [0x45; 0x00; two_bytes(packet_size - 14); 0x00; 0x00; 0x40; 0x00; 64; 1; 0x00; 0x00;
                  ip_bytes(loc_ip); ip_bytes(rem_ip)]
    buf[25:26] = two_bytes(checksum(buf[15:34]))
    buf[35:42] = [0x08; 0x00; 0x00; 0x00; two_bytes(id); 0x00; 0x00]
    buf[43:packet_size] = payload
end

function fill_sequence(buf, seq)
    buf[37:38] = [0x00, 0x00]
    buf[41:42] = two_bytes(seq)
    buf[37:38] = two_bytes(checksum(buf[35:packet_size]))
end

# An echo reply to one of our requests?
is_reply(buf, n) = n >= 42 && buf[24] == 1 && buf[35] == 0 && number(buf[39:40]) == id

function show_replies(pkts, recv_bufs)
    count = 0
    for pkt in pkts
        buf, n = recv_bufs[pkt], pktlen(pkt)
        is_reply(buf, n) || continue
        println("got ", n, " bytes, reply to sequence number ", number(buf[41:42]))
        count += 1
    end
    return count
end

function ping(ctx, last_seq)
    send_bufs, recv_bufs = wrap_send_bufs(ctx), wrap_recv_bufs(ctx)
    foreach_send_pkt(pkt -> fill_headers(send_bufs[pkt]), ctx)
    HashpipeIBVerbs.flow(ctx, 1, dst_mac=loc_mac, src_mac=rem_mac, ether_type=0x0800, src_ip=rem_ip,
                         dst_ip=loc_ip)
    HashpipeIBVerbs.recv_pkts(ctx, 0) # from now on
    seq = replies = 0
    while seq < last_seq
        pkts = HashpipeIBVerbs.get_pkts(ctx, 2)
        seqs = Int[]
        for pkt in pkts
            seq += 1
            fill_sequence(send_bufs[pkt], seq)
            pktlen!(pkt, packet_size)
            push!(seqs, seq)
        end
        HashpipeIBVerbs.send_pkts(pkts)
        println("sent sequence numbers ", join(seqs, " "))
        pkts = HashpipeIBVerbs.recv_pkts(ctx, 10)
        replies += show_replies(pkts, recv_bufs)
        HashpipeIBVerbs.release_pkts(pkts)
    end
    # Some may still be on their way.
    deadline = time() + 2
    while replies < last_seq && time() < deadline
        pkts = HashpipeIBVerbs.recv_pkts(ctx, 100)
        replies += show_replies(pkts, recv_bufs)
        HashpipeIBVerbs.release_pkts(pkts)
    end
    println(last_seq, " requests, ", replies, " replies")
    return replies == last_seq
end

ctx = HashpipeIBVerbs.init(interface, 2, 20, 100)
all_came = ping(ctx, 10)
HashpipeIBVerbs.shutdown(ctx)
exit(all_came ? 0 : 1)
