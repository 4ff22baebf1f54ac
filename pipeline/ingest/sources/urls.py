"""Kind `urls`: lists of addresses in Parquet, CSV, TSV, JSONL or plain text, each also as .gz or .zst.

Read as a stream, in the order of files and lines. Columns without a job of their own become `source_*`.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import pyarrow as pa
from pydantic import Field

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.sources._layouts import LAYOUTS, Name, first_of
from pipeline.ingest.sources._lists import FORMATS, ListFile
from pipeline.ingest.sources.base import Found, Log, Source, SourceSettings, Web

_WILD = re.compile(r"[*?\[]")


class UrlsSource(Source):
    on_web: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    class Settings(SourceSettings):
        kind: Literal["urls"] = Field("urls", description="lists of picture addresses")
        path: str = Field(
            description="a list, a folder with its sub-folders or object-store prefix that holds some, or a wildcard "
            "such as lists/*.parquet; any fsspec URL; relative paths count from where the command runs"
        )
        layout: Name = Field(
            "", description="a well-known set whose lists need no `url` and `captions` named here: laion, cc3m, cc12m, "
            "coyo or datacomp"
        )
        url: str = Field("url", description="column with the address; plain text has just this one")
        captions: tuple[str, ...] = Field((), description="columns with captions, best first")
        label: str = Field("", description="column with the class")
        license: str = Field("", description="column with the licence's address")
        page: str = Field("", description="column with the address of the page that shows the picture")

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._own = cast(UrlsSource.Settings, settings)
        self._hashes: dict[str, tuple[str, str]] = {}

    @cached_property
    def _files(self) -> list[ListFile]:
        """Every list, by name. Raises SourceError when there is none."""
        path, name = self._own.path, self._own.name
        single = path.startswith(("http://", "https://")) or (
            ListFile.of(path) is not None and not _is_folder(path) and storage.exists(path))
        if single:
            candidates = [path]
        elif _WILD.search(path) and not _is_folder(path):
            candidates = storage.glob(path)
        elif storage.local(path) is None or _is_folder(path):
            below = (storage.join(path, entry) for entry in storage.find(path))
            candidates = [entry for entry in below if ListFile.of(entry) is not None]
        else:
            candidates = [path] if storage.exists(path) else []
        layout = LAYOUTS.get(self._own.layout)
        files = [(candidate, ListFile.of(candidate, layout.columns if layout else ())) for candidate in candidates]
        for candidate, file in files:
            if file is None:
                raise SourceError(f"source {name!r}: {candidate} is no list by its ending",
                                  hint=f"endings: {', '.join(FORMATS)}, each also with .gz or .zst")
        if not files:
            raise SourceError(f"source {name!r}: no list at {path}",
                              hint="give a file, a folder or a wildcard; relative paths count from where you run")
        return [file for _, file in files if file is not None]

    def fingerprint(self) -> str:
        """Content of every list, by SHA-256."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self._files:
            digest.update(self._sha256(file.url).encode() + b"\0" + os.path.basename(file.url).encode() + b"\0")
        return digest.hexdigest()

    def _sha256(self, url: str) -> str:
        """Of a list's content; read again only when it may have changed since this source last looked."""
        state = storage.state(url)
        if self._hashes.get(url, ("", ""))[0] != state or storage.ageless(state, url):
            self._hashes[url] = state, storage.sha256(url)
        return self._hashes[url][1]

    def length(self) -> int | None:
        counts = [file.length() for file in self._files]
        return None if None in counts else sum(filter(None, counts))

    def columns(self) -> dict[str, pa.DataType]:
        """All columns without a job: typed as in Parquet, text elsewhere. JSONL's are those of its first lines."""
        found: dict[str, pa.DataType] = {}
        for file in self._files:
            there, jobs = file.columns(self._own.url), self._jobs(file)
            self._check(file.url, list(there), jobs.used)
            for column, kind in there.items():
                if column not in jobs.used:
                    found[column] = kind if found.get(column, kind) == kind else pa.string()
        return found

    def _jobs(self, file: ListFile) -> _Jobs:
        """What each column of this file is for: as said, else as its layout has it."""
        own, layout = self._own, LAYOUTS.get(self._own.layout)
        if layout is None:
            return _Jobs(own.url, own.captions, (own.label, own.license, own.page))
        there = file.columns(own.url)
        url = own.url if "url" in own.model_fields_set else first_of(layout.url, there)
        captions = own.captions or (first_of(layout.captions, there),)
        return _Jobs(url, captions, (own.label, own.license, own.page))

    def _check(self, url: str, there: list[str], used: tuple[str, ...]) -> None:
        for column in used:
            if column not in there:
                near = difflib.get_close_matches(column.lower(), [name.lower() for name in there], 1)
                spelled = next((name for name in there if near and name.lower() == near[0]), None)
                raise SourceError(
                    f"source {self._own.name!r}: {url} has no column {column!r}",
                    hint=f"did you mean {spelled!r}?" if spelled else f"its columns: {', '.join(there)}",
                )

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        own, kept = self._own, self.columns()
        for file in self._files:
            jobs = self._jobs(file)
            for row in file.records(jobs.url, log):
                captions = [(text, key) for key in jobs.captions for text in _texts(row.get(key))]
                yield Found(
                    url=_text(row.get(jobs.url)) or "", captions=tuple(text for text, _ in captions),
                    origins=tuple(key for _, key in captions), label=_text(row.get(own.label)),
                    license_url=_text(row.get(own.license)), page_url=_text(row.get(own.page)),
                    extra={key: row.get(key) for key in kept},
                )


@dataclass(frozen=True)
class _Jobs:
    """Columns of one file by what they are for; `others` may be empty names."""

    url: str
    captions: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def used(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.url, *self.captions, *self.others)))


def _is_folder(path: str) -> bool:
    local = storage.local(path)
    return local is not None and os.path.isdir(local)


def _text(value: Any) -> str | None:
    return None if value is None else str(value).strip() or None


def _texts(value: Any) -> list[str]:
    """One caption, or a column that holds a list of them."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := _text(each)) is not None]
