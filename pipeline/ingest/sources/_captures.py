"""What an archive holds, on disk while it is listed: pages in order, and captures by address, however many."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

_HOPS = 5


@dataclass(frozen=True)
class Capture:
    """One answer in the archive. `what`: ok, redirect, revisit, or the outcome that it comes to, with `detail`."""

    url: str
    file: int
    position: int
    length: int
    what: str
    detail: str = ""
    target: str | None = None
    digest: str | None = None
    image: bool = False


class Captures:
    """A temporary SQLite database, which moves to disk as it grows."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("")
        self._db.executescript(
            "create table capture (n integer primary key, url blob, ok integer, image integer, digest text, said text);"
            "create index by_url on capture (url); create index by_digest on capture (digest);"
            "create table page (n integer primary key, said text);"
            "create table shown (url blob primary key) without rowid;")

    def close(self) -> None:
        self._db.close()

    def add(self, capture: Capture) -> None:
        self._db.execute("insert into capture (url, ok, image, digest, said) values (?, ?, ?, ?, ?)", (
            _key(capture.url), capture.what == "ok", capture.image, capture.digest, json.dumps(asdict(capture))))

    def add_page(self, page: dict[str, Any]) -> None:
        self._db.execute("insert into page (said) values (?)", (json.dumps(page),))

    def pages(self) -> Iterator[dict[str, Any]]:
        for [said] in self._db.execute("select said from page order by n"):
            yield json.loads(said)

    def of(self, url: str) -> Capture | None:
        """What became of an address: the first good capture, else the first; redirects and revisits are followed."""
        visited: set[str] = set()
        while len(visited) <= _HOPS:
            self._db.execute("insert or ignore into shown values (?)", (_key(url),))
            visited.add(url)
            capture = self._first("url = ?", _key(url))
            if capture is None or capture.what not in ("redirect", "revisit"):
                return capture
            if capture.what == "revisit" and (original := self._original(capture)) is not None:
                self._db.execute("insert or ignore into shown values (?)", (_key(original.url),))
                return original
            if capture.target is None or capture.target in visited:
                return None
            url = capture.target
        return None

    def _original(self, revisit: Capture) -> Capture | None:
        found = self._first("ok and digest = ?", revisit.digest) if revisit.digest else None
        return found or (self._first("ok and url = ?", _key(revisit.target)) if revisit.target else None)

    def _first(self, where: str, value: bytes | str | None) -> Capture | None:
        ask = f"select said from capture where {where} order by ok desc, n limit 1"
        row = self._db.execute(ask, (value,)).fetchone()
        return None if row is None else Capture(**json.loads(row[0]))

    def not_shown(self) -> Iterator[str]:
        """Addresses of pictures that `of` was not asked for, in the order of their captures."""
        rows = self._db.execute(
            "select said from capture c where image and not exists (select 1 from shown s where s.url = c.url) and "
            "n = (select min(n) from capture d where d.url = c.url and d.image) order by n")
        for [said] in rows.fetchall():
            yield json.loads(said)["url"]


def _key(url: str) -> bytes:
    return hashlib.blake2b(url.encode(), digest_size=16).digest()
