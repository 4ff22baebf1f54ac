"""The scope of a crawl: which addresses are of the same site."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["host", "subdomains", "prefix"]


class Scope:
    """Addresses of one or more sites; `www.example.org` is `example.org`, over http as over https."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._roots: dict[tuple[str, str], None] = {}

    def add(self, url: str) -> None:
        """Let the site of `url` in; for kind `prefix` the folder that it lies in."""
        self._roots[_place(url)] = None

    def __contains__(self, url: str) -> bool:
        host, folder = _place(url)
        if self._kind == "host":
            return any(host == root for root, _ in self._roots)
        if self._kind == "subdomains":
            return any(host == root or host.endswith(f".{root}") for root, _ in self._roots)
        return any(host == root and folder.startswith(within) for root, within in self._roots)


def _place(url: str) -> tuple[str, str]:
    """(host with any port of its own and without www., folder) of an address; of no address, the empty one."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # e.g. http://[x/
        return "", ""
    bare = host.removeprefix("www.")
    host = bare if "." in bare else host
    folder = parts.path[:parts.path.rfind("/") + 1] or "/"
    return host if port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f"{host}:{port}", folder
