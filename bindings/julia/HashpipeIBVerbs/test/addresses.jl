# SPDX-License-Identifier: MIT

@testset "Ethernet addresses" begin
    address = mac"01:80:c2:00:0a:ff"
    bytes = UInt8[0x01, 0x80, 0xc2, 0x00, 0x0a, 0xff]
    @test address == bytes
    @test length(address) == 6
    @test mac(0x0180c2000aff) == address
    @test mac(bytes) == address
    @test mac("01-80-C2-00-0A-FF") == address
    @test mac(address) === address
    @test string(address) == "01:80:c2:00:0a:ff"
    @test repr(address) == "mac\"01:80:c2:00:0a:ff\""
    buf = zeros(UInt8, 10)
    buf[3:8] = address
    @test buf == [0x00; 0x00; bytes; 0x00; 0x00]
    for wrong in ("", "01:80:c2:00:0a", "01:80:c2:00:0a:ff:00", "01:80:c2:00:0a:xx", "01:80:c2:00:0a:fff")
        @test_throws ArgumentError mac(wrong)
    end
    @test_throws ArgumentError mac(UInt64(1) << 48)
    @test_throws ArgumentError mac(UInt8[1, 2, 3])
end
