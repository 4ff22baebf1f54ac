"""Kind `folder`: pictures in a local folder, used where they lie, in the order of their paths.

A row's id hangs on the file's path inside the folder, so the folder may be moved and keep its ids.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import pyarrow as pa
from pydantic import Field, model_validator

from pipeline.errors import SourceError
from pipeline.ingest.sources._metadata import Metadata
from pipeline.ingest.sources._sidecars import (
    CAPTION_KEYS,
    LABEL_KEYS,
    LICENSE_KEYS,
    PICTURES,
    caption_lines,
    captions_in,
    first_of,
    json_object,
    text_of,
    texts_of,
)
from pipeline.ingest.sources.base import Found, Log, Source, SourceSettings, Web

_SIDECARS = (".txt", ".caption", ".json")


_OF_ALL = ("metadata.jsonl", "metadata.csv")
"""Names by which Hugging Face's imagefolder finds files that describe the pictures in and below their folder."""
_REPEATS = re.compile(r"^\d+_(?=.)")


class FolderSource(Source):
    """Takes all of a folder's pictures, whatever their names, that `include` lets through."""

    version: ClassVar[int] = 2

    class Settings(SourceSettings):
        kind: Literal["folder"] = Field("folder", description="pictures in a local folder, with their sub-folders")
        path: str = Field(description="the folder; relative paths count from where the command runs")
        include: tuple[str, ...] = Field(
            ("*",), description="paths inside the folder to take, with * as wildcard (also across /), "
            "e.g. color/svg/*.svg"
        )
        caption_from: tuple[Literal["metadata", "txt", "caption", "json", "name"], ...] = Field(
            ("metadata", "txt", "caption", "json", "name"), description="where captions come from, best first: "
            "metadata file, <stem>.txt, <stem>.caption (a caption per line) or <stem>.json beside the picture; name: "
            "the file name in words, only where nothing before it gave one"
        )
        label_from: Literal["none", "parent", "kohya", "json", "metadata"] = Field(
            "none", description="where the class comes from: parent: the folder the picture lies in; kohya: the same "
            "without kohya's repeats, cat for 10_cat; the repeats themselves are not used, `weigh` is for that"
        )
        metadata: str = Field(
            "", description="JSON, JSONL or CSV file about the pictures, one object each, relative to the folder; "
            "empty: metadata.jsonl or metadata.csv in any folder, with paths from there (Hugging Face's imagefolder)"
        )
        metadata_key: str = Field(
            "file_name", description="its key that names the picture: path inside the folder, file name or stem"
        )
        metadata_captions: tuple[str, ...] = Field(("text",), description="its keys that hold captions, best first")
        metadata_label: str = Field("", description="its key that holds the class")
        metadata_license: str = Field("", description="its key that holds the licence's address")
        metadata_keep: tuple[str, ...] = Field((), description="its further keys to keep as source_* columns")

        @model_validator(mode="after")
        def _metadata_is_named(self) -> FolderSource.Settings:
            if self.label_from == "metadata" and not self.metadata_label:
                raise ValueError("label_from is metadata, but metadata_label names no key of it")
            return self

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._own = cast(FolderSource.Settings, settings)

    @cached_property
    def _metadata(self) -> dict[str, Metadata]:
        """Folder (with / at its end, empty for the root) → what describes its pictures. Raises SourceError."""
        if self._own.metadata:
            return {"": Metadata.read(os.path.join(self._root, self._own.metadata), self._own.metadata_key)}
        found: dict[str, Metadata] = {}
        for path in self._files:
            folder, name = path[:path.rfind("/") + 1], path.rpartition("/")[2]
            if name in _OF_ALL and folder not in found:
                read = Metadata.read(os.path.join(self._root, path), self._own.metadata_key, found_by_name=True)
                if self._own.metadata_key in read.keys:
                    found[folder] = read
        return found

    def _entries(self, path: str) -> list[dict[str, Any]]:
        """What the nearest metadata file says of a picture."""
        folder = path[:path.rfind("/") + 1]
        while True:
            here = self._metadata.get(folder)
            if here is not None and (entries := here.entries(path[len(folder):])):
                return entries
            if not folder:
                return []
            folder = folder[:folder.rfind("/", 0, -1) + 1]

    @property
    def _caption_keys(self) -> tuple[str, ...]:
        """The metadata's keys with captions; of files found by their name also the usual ones."""
        usual = () if self._own.metadata else CAPTION_KEYS
        return tuple(dict.fromkeys((*self._own.metadata_captions, *usual)))

    @cached_property
    def _root(self) -> str:
        path = os.path.abspath(os.path.expanduser(self._own.path))
        if not os.path.isdir(path):
            raise SourceError(
                f"source {self._own.name!r}: {self._own.path} is not a folder",
                hint="give the folder that holds the pictures; relative paths count from where you run the command",
            )
        return path

    def columns(self) -> dict[str, pa.DataType]:
        own, found = self._own, self._metadata  # opened here, so that faults are found before any work
        named = (*own.metadata_keep, *filter(None, (own.metadata_label, own.metadata_license)))
        if named and not found:
            raise SourceError(f"source {own.name!r}: keys of a metadata file are named, but {own.path} holds none",
                              hint=f"name it as `metadata`, or call it {' or '.join(_OF_ALL)}")
        for metadata in found.values():
            captions = own.metadata_captions if own.metadata and "metadata" in own.caption_from else ()
            metadata.check((*captions, *named))
        return dict.fromkeys(self._own.metadata_keep, pa.string())

    @cached_property
    def _files(self) -> dict[str, str]:
        """Path inside the folder (with /) → size and mtime, in the paths' byte order. Hidden ones are left out."""
        found: dict[str, str] = {}

        def refuse(error: OSError) -> None:
            raise SourceError(f"source {self._own.name!r}: cannot read {error.filename}: {error.strerror}",
                              hint="check its permissions, or narrow the source's path")

        for folder, below, names in os.walk(self._root, onerror=refuse):
            below[:] = [name for name in below if not name.startswith(".")]
            inside = "" if folder == self._root else os.path.relpath(folder, self._root).replace(os.sep, "/") + "/"
            for name in names:
                wanted = name in _OF_ALL or name.lower().endswith((*PICTURES, *_SIDECARS))
                if wanted and not name.startswith("."):
                    found[inside + name] = _state(os.path.join(folder, name))
        return dict(sorted(found.items(), key=lambda entry: os.fsencode(entry[0])))

    def fingerprint(self) -> str:
        """Changes with the path, size or mtime of any picture, sidecar or metadata file, and when the folder moves."""
        digest = hashlib.blake2b(os.fsencode(self._root) + b"\0", digest_size=16)
        for path, state in self._files.items():
            digest.update(os.fsencode(path) + b"\0" + state.encode() + b"\0")
        if self._own.metadata:
            digest.update(_state(os.path.join(self._root, self._own.metadata)).encode())
        return digest.hexdigest()

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        pictures = [
            path for path in self._files
            if path.lower().endswith(PICTURES) and any(fnmatchcase(path, each) for each in self._own.include)
        ]
        if not pictures:
            raise SourceError(
                f"source {self._own.name!r}: no pictures in {self._own.path}",
                hint=f"endings looked for: {' '.join(PICTURES)}; `include` is {', '.join(self._own.include)}",
            )
        for path in pictures:
            yield self._found(path, log)

    def _found(self, path: str, log: Log) -> Found:
        stem = path[:path.rfind(".")]
        entries = self._entries(path)
        side = self._json(f"{stem}.json", log) if f"{stem}.json" in self._files else {}
        captions = list(self._captions(path, stem, entries, side))
        first = entries[0] if entries else {}
        return Found(
            path=os.path.join(self._root, path), address=path, state=self._files[path],
            captions=tuple(text for text, _ in captions), origins=tuple(origin for _, origin in captions),
            label=self._label(path, first, side),
            license_url=text_of(first.get(self._own.metadata_license)) or first_of(side, LICENSE_KEYS),
            extra={key: text_of(first.get(key)) for key in self._own.metadata_keep},
        )

    def _captions(self, path: str, stem: str, entries: list[dict[str, Any]], side: dict[str, Any],
                  ) -> Iterator[tuple[str, str]]:
        """(text, origin), best first, each text once."""
        seen: set[str] = set()
        for origin in self._own.caption_from:
            for text in self._texts(origin, path, stem, entries, side):
                if text and text not in seen and (origin != "name" or not seen):
                    seen.add(text)
                    yield text, origin

    def _texts(self, origin: str, path: str, stem: str, entries: list[dict[str, Any]], side: dict[str, Any],
               ) -> list[str]:
        if origin == "metadata":
            return [text for entry in entries for key in self._caption_keys for text in texts_of(entry.get(key))]
        if origin in ("txt", "caption") and f"{stem}.{origin}" in self._files:
            return caption_lines(self._read(f"{stem}.{origin}"))
        if origin == "json":
            return captions_in(side)
        return [name_in_words(path)] if origin == "name" else []

    def _label(self, path: str, entry: dict[str, Any], side: dict[str, Any]) -> str | None:
        if self._own.label_from == "parent":
            return self._parent(path)
        if self._own.label_from == "kohya":
            return _REPEATS.sub("", self._parent(path))
        if self._own.label_from == "metadata":
            return text_of(entry.get(self._own.metadata_label))
        return first_of(side, LABEL_KEYS) if self._own.label_from == "json" else None

    def _parent(self, path: str) -> str:
        return os.path.basename(os.path.dirname(path)) or os.path.basename(self._root)

    def _json(self, path: str, log: Log) -> dict[str, Any]:
        value = json_object(self._read(path))
        if value is None:
            log.count("sidecars that are no JSON object")
        return value or {}

    def _read(self, path: str) -> bytes:
        try:
            with open(os.path.join(self._root, path), "rb") as file:
                return file.read()
        except OSError as error:
            raise SourceError(f"source {self._own.name!r}: cannot read {path}: {error.strerror}",
                              hint="check its permissions, or narrow the source's path") from error


def name_in_words(path: str) -> str:
    """A file's name as a caption: without its ending, dashes and underscores as spaces."""
    name = os.path.basename(path)
    return " ".join(name[:name.rfind(".")].replace("_", " ").replace("-", " ").split())


def _state(path: str) -> str:
    """Size and mtime of a file; a dangling link has none."""
    try:
        stat = os.stat(path)
    except OSError:
        return "gone"
    return f"{stat.st_size}-{stat.st_mtime_ns}"
