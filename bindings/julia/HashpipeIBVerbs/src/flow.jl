# SPDX-License-Identifier: MIT
# Flow rules.

const FLOW_SPEC_ETH = 0x20
const FLOW_SPEC_IPV4 = 0x30
const FLOW_SPEC_TCP = 0x40
const FLOW_SPEC_UDP = 0x41

ip_number(ip::IPv4) = ip.host
ip_number(ip::Integer) = UInt32(ip)
ip_number(ip::AbstractString) = parse(IPv4, ip).host

# Its bytes, or none.
mac_bytes(::Nothing) = UInt8[]
mac_bytes(address) = collect(mac(address))
pointer_or_null(bytes) = isempty(bytes) ? Ptr{UInt8}(C_NULL) : pointer(bytes)

# What a rule is about if the caller does not say: as much as its criteria need.
function default_type(src_ip, dst_ip, src_port, dst_port)
    src_port == 0 && dst_port == 0 || return FLOW_SPEC_UDP
    return src_ip == 0 && dst_ip == 0 ? FLOW_SPEC_ETH : FLOW_SPEC_IPV4
end

"""
    HashpipeIBVerbs.flow(ctx, flow_idx; criteria...)

Set rule number `flow_idx`, from 1 to `ctx.max_flows`: packets that match **all** of its criteria are
received. A packet is received if it matches any of the context's rules. What was a rule of that
number before is replaced; if the new rule cannot be set, an error is thrown and the old one stays.

Packets that match are **taken away from the kernel**: with a rule for all IP packets from some host,
the kernel does not see that host any more. Without any rule nothing is received.

# Criteria
Each is a keyword. One that is left out, or 0, or `nothing`, matches anything.

| keyword      | matches                       | type                                            |
|:-------------|:------------------------------|:------------------------------------------------|
| `dst_mac`    | Ethernet destination address  | `mac"..."`, `"aa:bb:..."`, an integer, six bytes |
| `src_mac`    | Ethernet source address       | likewise                                        |
| `ether_type` | the type, say `0x0806` for ARP | an integer                                     |
| `vlan_tag`   | the whole tag of IEEE 802.1Q: 3 bits priority, 1 bit DEI, 12 bits VLAN id | an integer |
| `src_ip`     | IPv4 source address           | `ip"..."`, `"10.0.0.1"`, an integer like `0x0a000001` |
| `dst_ip`     | IPv4 destination address      | likewise                                        |
| `src_port`   | TCP or UDP source port        | an integer                                      |
| `dst_port`   | TCP or UDP destination port   | an integer                                      |

`flow_type` says what the rule is about: `HashpipeIBVerbs.FLOW_SPEC_UDP`, `FLOW_SPEC_TCP`, `FLOW_SPEC_IPV4`
or `FLOW_SPEC_ETH`; criteria that are beyond it, such as ports of `FLOW_SPEC_IPV4`, do not count. Left out, it is
UDP if a port is given, or else IPv4 if an IP address is, or else Ethernet.

Without a `dst_mac`, it is the interface's own address. With a `dst_ip` that is a **multicast** group
(224.0.0.0 to 239.255.255.255), it is the group's, whatever is given; the group is joined, as long as a rule
needs it, so that switches forward its packets. Several rules may be about the same group.

On the software device a rule without `vlan_tag` matches packets with a tag as well; on some cards it does not.

**Without any criterion the rule is removed**: `HashpipeIBVerbs.flow(ctx, 1)`.

# Examples
```julia
# Spanning Tree Protocol
HashpipeIBVerbs.flow(ctx, 1, dst_mac=mac"01:80:c2:00:00:00")
# UDP packets for port 60000 of this host
HashpipeIBVerbs.flow(ctx, 2, dst_port=60000)
# two ports of one multicast group
HashpipeIBVerbs.flow(ctx, 3, dst_ip="239.1.2.3", dst_port=10000)
HashpipeIBVerbs.flow(ctx, 4, dst_ip="239.1.2.3", dst_port=10001)
# everything by IP from one host
HashpipeIBVerbs.flow(ctx, 5, src_ip="10.0.0.2")
```
"""
function flow(ctx::Context, flow_idx::Integer; flow_type=nothing, dst_mac=nothing,
              src_mac=nothing, ether_type=0, vlan_tag=0, src_ip=0, dst_ip=0, src_port=0, dst_port=0)
    check_open(ctx)
    1 <= flow_idx <= ctx.max_flows || throw(ArgumentError("flow_idx is not from 1 to $(ctx.max_flows)"))
    src, dst = ip_number(src_ip), ip_number(dst_ip)
    type = something(flow_type, default_type(src, dst, src_port, dst_port))
    to, from = mac_bytes(dst_mac), mac_bytes(src_mac)
    rc = GC.@preserve to from ccall(
        FUNCTIONS[:flow], Cint,
        (Ref{Context}, UInt32, Cint, Ptr{UInt8}, Ptr{UInt8}, UInt16, UInt16, UInt32, UInt32, UInt16, UInt16),
        ctx, flow_idx - 1, type, pointer_or_null(to), pointer_or_null(from), ether_type, vlan_tag,
        src, dst, src_port, dst_port)
    rc == 0 || fail("flow $flow_idx")
    return nothing
end
