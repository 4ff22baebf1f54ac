"""Rules that keep pictures out: by SHA-256, by perceptual hash, by host, by address, by row; compiled and matched.

The recipe's blocklist and the run's tombstones are both made of these. A rule set says for an address or a picture
whether a rule holds, and in words which one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from pipeline.ingest import globs
from pipeline.ingest.addresses import canonical

Kind = Literal["sha256", "phash", "host", "url", "id", "address_sha256"]
Refusal = tuple[str, str]
"""(fetch outcome, its detail in words)."""

MOST_BITS = 16
"""Largest distance of a perceptual rule: beyond, unrelated pictures begin to match."""

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_AT_HOST = re.compile(r"^(?:\*|https?)://([^*/]+)/")


@dataclass(frozen=True)
class Rule:
    """`value` is hex for hashes and ids, otherwise text; `distance` (bits of 64) belongs to `phash`."""

    kind: Kind
    value: str
    distance: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.value}" + (f"~{self.distance}" if self.distance else "")


def sha256_rule(text: str) -> Rule:
    """Raises ValueError with the right form."""
    if not _SHA256.fullmatch(text):
        raise ValueError("a SHA-256 is 64 hex digits, as `sha256sum` prints it")
    return Rule("sha256", text.lower())


def phash_rule(text: str, distance: int) -> Rule:
    """`ffd8a0c1b2e3f405` or, with a distance of its own, `ffd8a0c1b2e3f405~4`. Raises ValueError."""
    digits, tilde, bits = text.partition("~")
    known = re.fullmatch(r"[0-9a-fA-F]{16}", digits) and (not tilde or re.fullmatch(r"\d{1,2}", bits))
    distance = int(bits) if known and tilde else distance
    if not known or not 0 <= distance <= MOST_BITS:
        raise ValueError("a perceptual hash is 16 hex digits, with ~ and 0 to 16 for the bits that may differ: "
                         "ffd8a0c1b2e3f405~4")
    return Rule("phash", digits.lower(), distance)


def host_rule(text: str) -> Rule:
    """A host stands for its sub-domains too. Raises ValueError."""
    name = text.strip().removeprefix("*.").strip(".")
    address = canonical(f"http://{name}/") if re.fullmatch(r"[^\s/*@?#]+", name) else None
    host = urlsplit(address).hostname if address else None
    if not host or (":" in name and not name.startswith("[")):
        raise ValueError("a host is a name such as example.org, which stands for its sub-domains too, without "
                         "https://, port or path")
    return Rule("host", host)


def url_rule(text: str) -> Rule:
    """An address, or a pattern in which * stands for anything; it must match the whole address. Raises ValueError."""
    pattern = text.strip()
    if "*" not in pattern:
        address = canonical(pattern) if "://" in pattern and not pattern.startswith("file://") else None
        address = pattern if pattern.startswith("file://") else address
        if address is None:
            raise ValueError("an address begins with http:// or https://; a pattern has a *, such as "
                             "*://example.org/private/*")
        return Rule("url", address)
    if "://" not in pattern and not pattern.startswith("*"):
        pattern = f"*://{pattern}"
    if not pattern.replace("*", "").strip(":/"):
        raise ValueError("a pattern of stars alone would keep everything out; say more, such as "
                         "*://example.org/private/*")
    return Rule("url", pattern)


def _tag(why: str | None, whys: dict[str, int]) -> int:
    return -1 if why is None else whys.setdefault(why, len(whys))


@dataclass
class RuleSet:
    """Rules that give one outcome. `add` them all, then `close`, then ask. Picklable."""

    outcome: str
    hidden_ids: set[str] = field(default_factory=set)
    """Rows whose addresses are not to be written anywhere."""
    _hosts: dict[str, str] = field(default_factory=dict)
    _exact: dict[str, str] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    _hidden: dict[bytes, str] = field(default_factory=dict)
    _at_host: dict[str, list[tuple[tuple[str, ...], str]]] = field(default_factory=dict)
    _anywhere: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    _sha256: list[tuple[bytes, int]] = field(default_factory=list)
    _phash: list[tuple[int, int, int]] = field(default_factory=list)
    _whys: dict[str, int] = field(default_factory=dict)
    _texts: set[str] = field(default_factory=set)
    _state: int = 0

    def add(self, rule: Rule, why: str | None = None) -> None:
        """`why` takes the rule's place in the detail of rows that it keeps out."""
        words = why or (rule.value if rule.kind == "sha256" else str(rule))
        whole = f"{rule.kind}\0{rule.value}\0{rule.distance}\0{words}"
        state = hashlib.blake2b(whole.encode(), digest_size=16).digest()
        self._state += int.from_bytes(state, "big")  # a sum: the order of a list decides nothing
        if rule.kind == "sha256":
            self._sha256.append((bytes.fromhex(rule.value), _tag(why, self._whys)))
        elif rule.kind == "phash":
            self._phash.append((int(rule.value, 16), rule.distance, _tag(why, self._whys)))
            self._texts.add(words)
        else:
            self._texts.add(words)
            self._add_place(rule, words)

    def _add_place(self, rule: Rule, words: str) -> None:
        if rule.kind == "host":
            self._hosts.setdefault(rule.value, words)
        elif rule.kind == "id":
            self._ids.setdefault(rule.value, words)
        elif rule.kind == "address_sha256":
            self._hidden.setdefault(bytes.fromhex(rule.value), words)
        elif "*" not in rule.value:
            self._exact.setdefault(rule.value, words)
        else:
            pieces = tuple(unquote(piece) for piece in rule.value.split("*"))
            at = _AT_HOST.match(rule.value)
            (self._at_host.setdefault(at[1].lower(), []) if at else self._anywhere).append((pieces, words))

    def close(self) -> RuleSet:
        """Sort what is looked up by halving."""
        pairs = sorted(set(self._sha256))
        self.hashes: NDArray[np.bytes_] = np.array([value for value, _ in pairs], "S32")
        self._tags = np.array([tag for _, tag in pairs], np.int32)
        self.phashes = np.array([value for value, _, _ in self._phash], np.uint64)
        self._distances = np.array([distance for _, distance, _ in self._phash], np.uint8)
        self._phash_tags = [tag for _, _, tag in self._phash]
        self._words = list(self._whys)
        self._sha256 = []
        return self

    @property
    def empty(self) -> bool:
        return self._state == 0

    @property
    def digest(self) -> str:
        return f"{self._state % 2**128:032x}"

    @property
    def size(self) -> int:
        """How many rules."""
        places = len(self._hosts) + len(self._exact) + len(self._ids) + len(self._hidden) + len(self._anywhere)
        return places + sum(map(len, self._at_host.values())) + len(self.hashes) + len(self.phashes)

    def row(self, row_id: str) -> Refusal | None:
        return self._refusal(self._ids.get(row_id))

    def address(self, url: str) -> Refusal | None:
        """What keeps a canonical address out: the address itself, its host or one above it, a pattern."""
        words = self._exact.get(url)
        if words is None and self._hidden:
            words = self._hidden.get(hashlib.sha256(url.encode("utf-8", "surrogatepass")).digest())
        if words is None and (self._hosts or self._at_host):
            words = self._of_host(url)
        if words is None and self._anywhere:
            words = _first_match(self._anywhere, unquote(url))
        return self._refusal(words)

    def _of_host(self, url: str) -> str | None:
        parts = urlsplit(url)
        name = parts.hostname or ""
        here = self._at_host.get(parts.netloc.lower())
        if here and (words := _first_match(here, unquote(url))):
            return words
        while name and self._hosts:
            if (words := self._hosts.get(name)) is not None:
                return words
            name = name.partition(".")[2]
        return None

    def content(self, sha256: bytes) -> Refusal | None:
        at = int(np.searchsorted(self.hashes, np.bytes_(sha256)))
        if at == len(self.hashes) or self.hashes[at] != sha256.rstrip(b"\0"):  # as numpy gives fixed-width bytes back
            return None
        tag = int(self._tags[at])
        return self.outcome, f"sha256 {sha256.hex()}" if tag < 0 else self._words[tag]

    def looks(self, phash: int) -> Refusal | None:
        """What keeps a picture out by its 64-bit perceptual hash."""
        near = np.bitwise_count(self.phashes ^ np.uint64(phash)) <= self._distances
        if not near.any():
            return None
        at = int(np.argmax(near))
        rule = Rule("phash", f"{int(self.phashes[at]):016x}", int(self._distances[at]))
        tag = self._phash_tags[at]
        return self.outcome, str(rule) if tag < 0 else self._words[tag]

    def stands(self, detail: str | None) -> bool:
        """Whether a rule that once kept a row out, and is named in the row's detail, is still there."""
        kind, _, value = (detail or "").partition(" ")
        if kind == "sha256" and re.fullmatch(r"[0-9a-f]{64}", value):
            return self.content(bytes.fromhex(value)) is not None
        return detail in self._texts or detail in self._whys

    def _refusal(self, words: str | None) -> Refusal | None:
        return None if words is None else (self.outcome, words)


def _first_match(patterns: list[tuple[tuple[str, ...], str]], text: str) -> str | None:
    return next((words for pieces, words in patterns if globs.matches(pieces, text, whole=True)), None)
