"""Kind `tars`: WebDataset tars, local or remote, used where they lie, in the order of their names and members.

Members of one sample stand side by side and share their name up to the first dot after the last slash, as WebDataset
groups them. A sample is one row; its id hangs on the sample's name and the tar's path inside the folder asked for, or
behind a wildcard's fixed part, so the tars may be moved together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, BinaryIO, ClassVar, Literal, cast

import pyarrow as pa
from pydantic import Field

from pipeline import storage
from pipeline.errors import SourceError, StorageError
from pipeline.ingest.sources._containers import Container, containers, fingerprint, say_ageless
from pipeline.ingest.sources._samples import Sample, samples, small
from pipeline.ingest.sources._sidecars import (
    LABEL_KEYS,
    LICENSE_KEYS,
    PICTURES,
    caption_lines,
    captions_in,
    first_of,
    json_object,
    text_of,
)
from pipeline.ingest.sources.base import Found, Log, Source, SourceSettings, Web

_READ = ("txt", "caption", "json", "cls")


class TarsSource(Source):
    version: ClassVar[int] = 2

    class Settings(SourceSettings):
        kind: Literal["tars"] = Field("tars", description="WebDataset tars")
        path: str = Field(
            description="a tar, a folder with its sub-folders or a wildcard such as shards/*.tar; any fsspec URL, also "
            "https:// for a single tar; relative paths count from where the command runs"
        )
        picture: str = Field(
            "", description="ending of the member that holds the picture, without the first dot; empty: the first "
            "member with a picture's ending"
        )
        caption_from: tuple[Literal["txt", "caption", "json"], ...] = Field(
            ("txt", "caption", "json"), description="members that captions come from, best first: .txt and .caption "
            "hold one per line"
        )
        label_from: Literal["none", "cls", "json"] = Field(
            "none", description="where the class comes from: the member .cls, or the JSON's key label or class"
        )
        keep: tuple[str, ...] = Field((), description="further keys of the JSON member to keep as source_* columns")

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._own = cast(TarsSource.Settings, settings)

    def columns(self) -> dict[str, pa.DataType]:
        return dict.fromkeys(self._own.keep, pa.string())

    @cached_property
    def _tars(self) -> list[Container]:
        return containers(self._own.path, (".tar",), self._own.name, what="tars",
                          hint="give a .tar, a folder that holds some, or a wildcard; compressed tars must be unpacked "
                          "first, for pictures in them cannot be found by their place")

    def fingerprint(self) -> str:
        """Changes with the place, size or age of any tar."""
        return fingerprint(self._tars)

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        say_ageless(self._tars, log)
        for tar in self._tars:
            try:
                with storage.open_read(tar.url) as file:
                    if not file.seekable():
                        raise StorageError(f"{tar.url} is given whole, never in parts", hint="")
                    for sample in samples(file, tar.url, log):
                        log.count("samples")
                        yield self._found(tar, sample, file, log)
            except (StorageError, OSError) as error:
                raise SourceError(
                    f"source {self._own.name!r}: cannot read {tar.url} to its end: {error}",
                    hint="run the same command again when its disk or server answers; one that cannot give parts of a "
                    "file will not do: copy the tars to a disk or an object store") from error

    def _found(self, tar: Container, sample: Sample, file: BinaryIO, log: Log) -> Found:
        picture = next((ending for ending in sample.members if self._is_picture(ending)), None)
        side = {ending: small(file, sample.members[ending]) for ending in _READ if ending in sample.members}
        values = json_object(side["json"]) if "json" in side else {}
        if values is None:
            log.count("members that are no JSON object")
            values = {}
        captions = self._captions(side, values)
        common: dict[str, Any] = {
            "address": f"{tar.name}/{sample.name}", "state": tar.state,
            "captions": tuple(captions), "origins": tuple(captions.values()),
            "label": self._label(side, values), "license_url": first_of(values, LICENSE_KEYS),
            "extra": {key: text_of(values.get(key)) for key in self._own.keep},
        }
        if picture is None:
            wanted = f".{self._own.picture}" if self._own.picture else "picture"
            detail = f"no {wanted} among {', '.join(sample.members)}"[:200]
            return Found(place=(tar.url, sample.name, 0, 0), refused="no_picture", refused_detail=detail, **common)
        member = sample.members[picture]
        if (fault := sample.faults.get(picture)) is not None:
            return Found(place=(tar.url, member.name, 0, 0), refused="unreadable_file", refused_detail=fault, **common)
        common["state"] = f"{tar.state}:{member.offset_data}"
        return Found(place=(tar.url, member.name, member.offset_data, member.size), **common)

    def _is_picture(self, ending: str) -> bool:
        return ending == self._own.picture if self._own.picture else f".{ending.lower()}" in PICTURES

    def _captions(self, side: dict[str, bytes], values: dict[str, Any]) -> dict[str, str]:
        """Text → origin, best first, each text once."""
        found: dict[str, str] = {}
        for origin in self._own.caption_from:
            texts = captions_in(values) if origin == "json" else caption_lines(side.get(origin, b""))
            for text in texts:
                if text:
                    found.setdefault(text, origin)
        return found

    def _label(self, side: dict[str, bytes], values: dict[str, Any]) -> str | None:
        if self._own.label_from == "cls":
            return text_of(side.get("cls", b"").decode("utf-8", "replace"))
        return first_of(values, LABEL_KEYS) if self._own.label_from == "json" else None
