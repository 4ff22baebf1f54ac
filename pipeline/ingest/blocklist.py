"""`[ingest.blocklist]`: what must not be fetched, stored or shown, from the recipe and from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import Field, field_validator

from pipeline import storage
from pipeline.errors import RecipeError
from pipeline.ingest.rules import MOST_BITS, Rule, host_rule, phash_rule, sha256_rule, url_rule
from pipeline.ingest.sources._lists import ListFile
from pipeline.ingest.sources.base import Log
from pipeline.settings import Settings

_TABLES = ("parquet", "csv", "tsv", "jsonl", "ndjson")
SHA256_HEX = 64
COLUMNS = ("sha256", "phash", "distance", "host", "url")
"""Columns of a list in a table format; others are not looked at."""


class BlocklistSettings(Settings):
    """What is kept out, whatever source names it."""

    sha256: tuple[str, ...] = Field((), description="SHA-256 of files to keep out, 64 hex digits each")
    phash: tuple[str, ...] = Field(
        (), description="64-bit perceptual hashes (imagehash.phash, upright picture; `curate show ID` prints them) of "
        "pictures to keep out, 16 hex digits each, with ~N for a distance of its own. Every picture is then decoded "
        "while it is fetched"
    )
    distance: int = Field(
        4, ge=0, le=MOST_BITS, description="perceptual hashes match when at most this many bits of 64 differ; flat "
        "pictures have much the same hash, so keep it small"
    )
    hosts: tuple[str, ...] = Field(
        (), description="hosts that nothing is asked of, with their sub-domains; pictures found on their pages are "
        "kept out too"
    )
    urls: tuple[str, ...] = Field(
        (), description="addresses, or patterns for whole addresses in which * stands for anything, e.g. "
        "*://example.org/private/*"
    )
    files: tuple[str, ...] = Field(
        (), description="lists of the same, paths or fsspec URLs: text with an entry a line (told apart by form, or by "
        "sha256:, phash:, host:, url: before it), or CSV, TSV, JSONL, Parquet with columns of these names"
    )

    @field_validator("sha256")
    @classmethod
    def _hashes(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(entries, sha256_rule)

    @field_validator("phash")
    @classmethod
    def _looks(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(entries, lambda text: phash_rule(text, 0))

    @field_validator("hosts")
    @classmethod
    def _names(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(entries, host_rule)

    @field_validator("urls")
    @classmethod
    def _addresses(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(entries, url_rule)


def _checked(entries: tuple[str, ...], parse: Callable[[str], Rule]) -> tuple[str, ...]:
    for entry in entries:
        try:
            parse(entry)
        except ValueError as error:
            raise ValueError(f"{entry[:80]!r}: {error}") from None
    return entries


def rules(settings: BlocklistSettings) -> Iterator[Rule]:
    """Every rule, from the recipe and then from the files. Raises RecipeError for the first malformed entry."""
    yield from map(sha256_rule, settings.sha256)
    yield from (phash_rule(text, settings.distance) for text in settings.phash)
    yield from map(host_rule, settings.hosts)
    yield from map(url_rule, settings.urls)
    for url in settings.files:
        for line, entry in _entries(url):
            try:
                yield from entry(settings.distance)
            except ValueError as error:
                raise RecipeError(f"{url}, line {line}: {error}", hint="mend or remove the line; see "
                                  "ingest.blocklist.files in `curate init`") from None


Entry = Callable[[int], Iterator[Rule]]


def _entries(url: str) -> Iterator[tuple[int, Entry]]:
    """(line or row number, its rules given the usual distance)."""
    listed = ListFile.of(url)
    if listed is not None and (listed.format in _TABLES or listed.packed):
        yield from _rows(listed)
        return
    text = storage.read_bytes(url).decode("utf-8-sig", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, lambda distance, line=line: iter([line_rule(line.strip(), distance)])  # type: ignore[misc]


def _rows(listed: ListFile) -> Iterator[tuple[int, Entry]]:
    if listed.format == "txt":
        for number, record in enumerate(listed.records("entry", Log()), 1):
            text = str(record["entry"])
            yield number, lambda distance, text=text: iter([line_rule(text, distance)])  # type: ignore[misc]
        return
    if not {"sha256", "phash", "host", "url"} & set(listed.columns("url")):
        raise RecipeError(f"{listed.url} has none of the columns sha256, phash, host, url",
                          hint="name the columns so, or write a text file with an entry a line")
    first = 2 if listed.format in ("csv", "tsv") else 1
    for number, record in enumerate(listed.records("url", Log()), first):
        yield number, lambda distance, record=record: _row_rules(record, distance)  # type: ignore[misc]


def _row_rules(record: dict[str, Any], distance: int) -> Iterator[Rule]:
    given = {name: record.get(name) for name in COLUMNS}
    values = {name: value.hex() if isinstance(value, bytes) else str(value).strip()
              for name, value in given.items() if value is not None and value != ""}
    if "distance" in values:
        if not values["distance"].isdigit():
            raise ValueError(f"{values['distance'][:80]!r} in the column distance is no number of bits, 0 to 16")
        distance = int(values["distance"])
    if isinstance(given["phash"], int):  # as the manifest of `measure` has it
        values["phash"] = f"{given['phash']:016x}"
    parse = {"sha256": sha256_rule, "phash": lambda text: phash_rule(text, distance), "host": host_rule,
             "url": url_rule}
    found = False
    for name, rule in parse.items():
        if name in values:
            found = True
            yield _parsed(values[name], rule)
    if not found:
        raise ValueError("the row has none of sha256, phash, host, url")


def _parsed(text: str, parse: Callable[[str], Rule]) -> Rule:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{text[:80]!r}: {error}") from None


def line_rule(text: str, distance: int) -> Rule:
    """A line of a text file. Raises ValueError, naming the right form."""
    if len(text) == SHA256_HEX and text.isalnum():  # most lines of most long lists
        return _parsed(text, sha256_rule)
    named = {"sha256:": sha256_rule, "phash:": lambda rest: phash_rule(rest, distance), "host:": host_rule,
             "url:": url_rule}
    for prefix, parse in named.items():
        if text.lower().startswith(prefix):
            return _parsed(text[len(prefix):].strip(), parse)
    bare = text.partition("~")[0]
    if all(c in "0123456789abcdefABCDEF" for c in bare) and bare:
        return _parsed(text, sha256_rule if len(bare) > 24 else named["phash:"])
    return _parsed(text, url_rule if "/" in text or "*" in text.removeprefix("*.") else host_rule)
