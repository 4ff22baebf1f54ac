"""No way inside: which network addresses may be connected to.

Three gates, because each alone leaks: address literals are judged before a request is made, names are judged by
what they resolve to, and each socket is judged by the address it is about to connect to (so that neither a
second DNS answer nor an odd spelling of an address leads inside). `allow_hosts` is the only exception.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache
from typing import Any

from aiohttp.abc import ResolveResult

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SPECIAL_4 = tuple(map(ipaddress.IPv4Network, (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4",
)))
"""IANA IPv4 Special-Purpose Address Registry, and multicast."""
_UNICAST_6 = ipaddress.IPv6Network("2000::/3")
"""The only IPv6 addresses that IANA gives out for the open internet."""
_SPECIAL_6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
"""IANA IPv6 Special-Purpose Address Registry, what of it lies in `_UNICAST_6` (Teredo among it)."""


class PrivateAddress(OSError):  # noqa: N818 — it is caught as what it names
    """Raised instead of connecting to an address in a private network."""


@lru_cache(1 << 16)
def _literal(host: str) -> str | None:
    """A host in the plain spelling of an IP address, None for names."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


@lru_cache(1 << 16)
def is_public(address: str) -> bool:
    """Whether an IP address literal is reachable on the open internet.

    False for private, loopback, link-local, multicast, shared (RFC 6598), reserved and unspecified addresses, cloud
    metadata among them, also where IPv6 wraps an IPv4 one (mapped, 6to4, NAT64). By IANA's registries themselves, not
    by the standard library, which knows fewer ranges the older it is.
    """
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _SPECIAL_4)
    if parsed.ipv4_mapped is not None:
        return is_public(str(parsed.ipv4_mapped))
    if parsed in _NAT64:  # how networks without IPv4 reach the IPv4 internet
        return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    if parsed.sixtofour is not None:
        return is_public(str(parsed.sixtofour))
    return parsed in _UNICAST_6 and not any(parsed in network for network in _SPECIAL_6)


class Guard:
    """Decides for hosts and addresses; `allow_hosts` holds `host` or `host:port`, lower case."""

    def __init__(self, allow_hosts: tuple[str, ...]) -> None:
        self._allowed = frozenset(allow_hosts)
        self._approved: set[tuple[str, int]] = set()

    def allows(self, host: str, port: int) -> bool:
        """Whether the recipe names the host, so that it may lie anywhere."""
        return host.lower() in self._allowed or f"{host.lower()}:{port}" in self._allowed

    def check_literal(self, host: str, port: int) -> None:
        """Raise PrivateAddress when `host` is an address literal in a private network; names pass."""
        literal = _literal(host)
        if literal is None:
            return
        if self.allows(host, port):
            self._approved.add((literal, port))
        elif not is_public(literal):
            raise PrivateAddress(f"{literal} is not a public address")

    def approve(self, host: str, port: int, found: list[ResolveResult]) -> list[ResolveResult]:
        """Those of a name's addresses that may be connected to. Raises PrivateAddress when none may."""
        if self.allows(host, port):
            self._approved.update((result["host"], port) for result in found)
            return found
        public = [result for result in found if is_public(result["host"])]
        if found and not public:
            raise PrivateAddress(f"{host} leads to {found[0]['host']}, which is not a public address")
        return public

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """aiohttp's socket factory: the last gate, on the very address that is connected to next."""
        family, kind, proto, _, address = info
        if not is_public(address[0]) and (address[0], address[1]) not in self._approved:
            raise PrivateAddress(f"{address[0]} is not a public address")
        return socket.socket(family=family, type=kind, proto=proto)
