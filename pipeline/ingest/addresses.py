"""Canonical addresses, and the row ids that hang on them.

An address is canonical when two spellings that must lead to the same resource are the same string
(RFC 3986, section 6.2.2 and 6.2.3): lower-case scheme and host, IDNA host, no default port, no dot segments,
no fragment, upper-case escapes, nothing escaped that need not be, dotted IPv4. User names and passwords are
dropped.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from hashlib import blake2b
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from yarl import URL

_HTTP = ("http", "https")
_HAS_SCHEME = re.compile(r"https?:", re.IGNORECASE)
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)\.?$", re.IGNORECASE)
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PLAIN = re.compile(
    rf"https?://(?!xn--)(?:{_LABEL}\.(?!xn--))+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?"
    r"/(?:[A-Za-z0-9_~!$&'()*,;=:@/-]|(?<!/)\.)*(?:\?[A-Za-z0-9._~!$'()*,;:@/=&-]+)?"
)
"""Addresses that are canonical as they are: plain names as host, no escape, no port, no segment that begins with a
dot. Most addresses of a long list are, and a pattern is twenty times as fast as taking them apart."""
_NO_HOST = re.compile(r"""[\x00-\x20\x7f%\\<>"'^|#?@]""")
"""Forbidden in host names (WHATWG URL, section 3.5), and quotes, which only broken markup puts there."""
_SEPARATOR = b"\x00"
_MAX_LENGTH = 8192


def canonical(url: str, base: str | None = None) -> str | None:
    """The canonical http(s) form of `url`, resolved against `base`; None when there is none."""
    return url if len(url) <= _MAX_LENGTH and _PLAIN.fullmatch(url) else _taken_apart(url, base)


def _taken_apart(url: str, base: str | None = None) -> str | None:
    text = "".join(url.split("\n")).replace("\t", "").replace("\r", "").strip()
    if not text or len(text) > _MAX_LENGTH:
        return None
    try:
        absolute = urljoin(base, text) if base and not _HAS_SCHEME.match(text) else text
        parsed = URL(absolute)
        if parsed.scheme not in _HTTP or not parsed.raw_host or _NO_HOST.search(parsed.raw_host):
            return None
        if "[" in absolute and "[" in urlsplit(absolute).netloc and ":" not in parsed.raw_host:  # IPvFuture, or none
            return None
        host = _dotted(parsed.raw_host)
        bare = (parsed if host == parsed.raw_host else parsed.with_host(host)).with_fragment(None).with_user(None)
        whole = str(bare.with_port(None) if bare.is_default_port() else bare)
        parts = urlsplit(whole)
        return whole if parts.path else urlunsplit(parts._replace(path="/"))
    except (ValueError, UnicodeError):
        return None


def _dotted(host: str) -> str:
    """A host that ends in a number is an IPv4 address (WHATWG URL, section 3.5): decimal, octal, hex or short.

    Raises ValueError when it is none after all.
    """
    if not _ENDS_IN_NUMBER.search(host):
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    except OSError as error:
        raise ValueError(f"{host} is no IPv4 address") from error


def origin(url: str) -> str:
    """`scheme://host[:port]` of a canonical address: what robots.txt and connection limits are kept by."""
    return url[:url.index("/", len("https://"))]


def host(url: str) -> str:
    """The host of a canonical address, without its port."""
    start = url.index("//") + 2
    name = url[start:url.index("/", start)]
    return name[:name.index("]") + 1] if name.startswith("[") else name.partition(":")[0]


def path_url(path: str) -> str:
    """The `file://` URL of a local path, absolute and escaped, as kept in the manifest."""
    return "file://" + quote(os.fsencode(os.path.abspath(path)))


def member_url(container: str, member: str) -> str:
    """The address of bytes inside a file: the file's own, with the member as fragment."""
    whole = container if "://" in container else path_url(container)
    return f"{whole}#{quote(member.encode('utf-8', 'surrogateescape'))}"


def is_local(url: str) -> bool:
    """Whether an address was made by `path_url`."""
    return url.startswith("file://")


def path_of(url: str) -> str:
    """The local path of a `file://` URL made by `path_url`."""
    return unquote(url.removeprefix("file://"), errors="surrogateescape")


def row_id(source: str, kind: str, address: str, occurrence: int) -> str:
    """32 hex characters: BLAKE2b (16-byte digest) over source name, kind, canonical address and occurrence.

    For a folder the address is the file's path inside the folder, so ids survive when the folder is moved.
    """
    return row_digest(source, kind)(address, occurrence).hex()


def row_digest(source: str, kind: str) -> Callable[[str, int], bytes]:
    """(address, occurrence) → the 16 bytes of which `row_id` is the text, for one source."""
    begun = blake2b(digest_size=16)
    for part in (source, kind):
        begun.update(part.encode("utf-8", "surrogatepass") + _SEPARATOR)

    def digest(address: str, occurrence: int) -> bytes:
        whole = begun.copy()
        whole.update(b"%b\x00%d\x00" % (address.encode("utf-8", "surrogatepass"), occurrence))
        return whole.digest()

    return digest
