"""Which addresses count as public: the registries' special-purpose ranges, and IPv6 forms that wrap IPv4."""

from __future__ import annotations

import socket

import pytest
from aiohttp.abc import ResolveResult

from pipeline.ingest.guard import Guard, PrivateAddress, is_public

# IANA special-purpose address registries (RFC 6890 and successors): one address of each range
NOT_PUBLIC = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "100::1", "2001:db8::1", "fc00::1",
    "fd00::1", "fe80::1", "fe80::1%eth0", "ff02::1", "2002:7f00:1::1", "2002:a00:1::", "::7f00:1", "fec0::1",
    "64:ff9b:1::1", "192.0.0.192", "192.88.99.1", "3fff::1", "5f00::1", "2001:0:808:808::", "4000::1",
    "2001:2::1", "not an address", "",
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8",
          "64:ff9b::808:808"]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)


def found(*addresses: str) -> list[ResolveResult]:
    return [ResolveResult(hostname="h", host=a, port=80, family=socket.AF_INET, proto=0, flags=0) for a in addresses]


def info(address: str, port: int = 80) -> tuple[object, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))


def test_names_lead_to_their_public_addresses_only() -> None:
    guard = Guard(())
    assert [r["host"] for r in guard.approve("h", 80, found("10.0.0.1", "1.1.1.1"))] == ["1.1.1.1"]
    with pytest.raises(PrivateAddress, match=r"10\.0\.0\.1"):
        guard.approve("h", 80, found("10.0.0.1"))


def test_the_last_gate_is_on_the_socket() -> None:
    guard = Guard(("inside.example",))
    with pytest.raises(PrivateAddress):
        guard.socket(info("10.0.0.1"))
    guard.approve("inside.example", 80, found("10.0.0.1"))  # what the recipe names may be connected to, there only
    guard.socket(info("10.0.0.1")).close()
    for other in (info("10.0.0.1", 81), info("10.0.0.2")):
        with pytest.raises(PrivateAddress):
            guard.socket(other)
    with pytest.raises(PrivateAddress):  # another name for the allowed host's address is still refused
        guard.approve("evil.example", 80, found("10.0.0.1"))
    guard.socket(info("1.1.1.1")).close()


def test_allowed_hosts_may_name_a_port() -> None:
    guard = Guard(("127.0.0.1:8000",))
    guard.check_literal("127.0.0.1", 8000)
    with pytest.raises(PrivateAddress):
        guard.check_literal("127.0.0.1", 8001)
    guard.check_literal("a-name.example", 80)
