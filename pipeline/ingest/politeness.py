"""Manners: what robots.txt and opt-outs ask for, and who we say we are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import unquote, urlsplit

from protego import Protego

from pipeline.ingest import globs

BOT = "Gristmill"
"""The product token that robots.txt and X-Robots-Tag may name."""

WELL_KNOWN_TDM = "/.well-known/tdmrep.json"
TDM_BYTES, MOST_TDM_RULES = 1 << 20, 10_000
"""Longer tdmrep.json files are not read to their end, and then say nothing."""

ROBOTS_BYTES = 500 * 1024
"""RFC 9309, section 2.5: at least this much of robots.txt is read; the rest is ignored."""

ROBOTS_REDIRECTS = 5
"""RFC 9309, section 2.3.1.2: so many are followed for robots.txt, whatever is asked for pictures."""

_VERSIONED = re.compile(r"^([ \t]*user-agent[ \t]*:[ \t]*[\w-]+)/[^\r\n]*", re.IGNORECASE | re.MULTILINE)
_RULE_WITH_QUERY = re.compile(r"^([ \t]*(?:dis)?allow[ \t]*:[^?#\r\n]*\?)([^#\r\n]*)", re.IGNORECASE | re.MULTILINE)
_SCOPED = re.compile(r"^\s*(\*|[A-Za-z][\w.-]*)\s*:(.*)$", re.DOTALL)
_VALUED = frozenset({"max-snippet", "max-image-preview", "max-video-preview", "unavailable_after"})


def user_agent(contact: str) -> str:
    """`Gristmill/0.1.0 (+contact)`: who asks, and how to reach them."""
    try:
        number = version("gristmill")
    except PackageNotFoundError:
        number = "0"
    printable = "".join(c for c in contact if " " <= c <= "~" and c not in "()").strip()
    return f"{BOT}/{number} (+{printable})" if printable else f"{BOT}/{number}"


def opt_out(values: Iterable[str], directives: Sequence[str]) -> str | None:
    """The first of `directives` that X-Robots-Tag or meta robots values give to us, or None.

    Directives may be scoped to one robot (`otherbot: noai`); the scope holds until another robot is named or the header
    line ends.
    """
    for value in values:
        given, ours = set[str](), True
        for word in value.split(","):
            scoped = _SCOPED.match(word)
            if scoped and scoped.group(1).lower() not in _VALUED:
                ours, word = scoped.group(1).lower() in (BOT.lower(), "*"), scoped.group(2)
            if ours:
                given.add(word.strip().lower())
        given |= {"noindex", "nofollow"} if "none" in given else set()
        for directive in directives:
            if directive in given:
                return directive
    return None


def tdm_reserved(values: Iterable[str]) -> bool:
    """Whether TDM-Reservation (TDMRep, W3C community group report) is set to 1."""
    return any(value.strip() == "1" for value in values)


@dataclass(frozen=True)
class Reservations:
    """One origin's `/.well-known/tdmrep.json`: path patterns in their order, each with whether it reserves rights."""

    rules: tuple[tuple[str, bool], ...] = ()

    def reserved(self, url: str) -> bool:
        """Whether mining the resource at a canonical address is reserved: the first pattern that matches counts."""
        parts = urlsplit(url)
        path = unquote(f"{parts.path}?{parts.query}" if parts.query else parts.path)
        return next((reserves for location, reserves in self.rules if _matches(location, path)), False)


def reservations_from(body: bytes) -> Reservations:
    """What a tdmrep.json says; entries that are not as TDMRep wants them say nothing, and neither does no JSON."""
    try:
        entries = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return Reservations()
    rules = []
    for entry in entries if isinstance(entries, list) else [entries]:
        location = entry.get("location") if isinstance(entry, dict) else None
        if isinstance(location, str) and location.startswith("/"):
            rules.append((location, str(entry.get("tdm-reservation")).strip() == "1"))
    return Reservations(tuple(rules[:MOST_TDM_RULES]))


def _matches(location: str, path: str) -> bool:
    """A path pattern of robots.txt's kind: a beginning, `*` for anything, `$` for the end."""
    pieces = [unquote(piece) for piece in location.removesuffix("$").split("*")]
    return globs.matches(pieces, path, whole=location.endswith("$"))


@dataclass(frozen=True)
class Robots:
    """One origin's robots.txt. `failure` is a fetch outcome when it could not be asked for."""

    rules: Protego | None = None
    failure: str | None = None
    detail: str = ""

    def refusal(self, url: str) -> tuple[str, str] | None:
        """(outcome, detail) when `url` must not be fetched, None when it may."""
        if self.failure is not None:
            return self.failure, self.detail
        if self.rules is not None and not self.rules.can_fetch(_with_query_escaped(url), BOT):
            return "robots", "forbidden by robots.txt"
        return None

    @property
    def crawl_delay(self) -> float:
        """Seconds between requests that the site asks for."""
        return float((self.rules.crawl_delay(BOT) if self.rules is not None else None) or 0.0)


def _with_query_escaped(url: str) -> str:
    """RFC 9309, section 2.2.2: reserved characters in a query match their escapes."""
    path, mark, query = url.partition("?")
    return f"{path}{mark}{query.replace(':', '%3A').replace('/', '%2F')}" if mark else url


def _as_protego_reads(body: bytes) -> str:
    """A robots.txt with what Protego does not do by itself: versions after product tokens, and escapes in queries."""
    text = _VERSIONED.sub(r"\1", body.decode("utf-8", "replace").removeprefix("\ufeff"))
    return _RULE_WITH_QUERY.sub(lambda rule: _with_query_escaped(rule[1] + rule[2]), text)


def robots_from(outcome: str, status: int | None, body: bytes, detail: str) -> Robots:
    """RFC 9309, section 2.3.1: 4xx means no rules; 5xx and no answer mean keep away.

    429 is read like 5xx: a server that is short of breath has not said yes. A host that cannot be reached
    keeps its own outcome (dns, connect, …), for that is what ails its pictures.
    """
    if outcome == "ok":
        return Robots(Protego.parse(_as_protego_reads(body[:ROBOTS_BYTES])))
    if status is not None and 400 <= status < 500 and status != 429:
        return Robots()
    if outcome in ("too_many_redirects", "redirect_loop"):  # section 2.3.1.2: may be taken as unavailable
        return Robots()
    if status is not None:
        return Robots(failure="robots", detail=f"robots.txt answered {status}, which asks to keep away (RFC 9309)")
    return Robots(failure=outcome, detail=f"robots.txt: {detail}")
