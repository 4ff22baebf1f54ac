"""Kind `tars`: WebDataset tars, local or remote, used where they lie, in the order of their names and members.

Members of one sample stand side by side and share their name up to the first dot after the last slash, as WebDataset
groups them. A sample is one row; its id hangs on the tar's file name and the sample's, so the tars may be moved.
"""

from __future__ import annotations

import glob
import hashlib
import os
import tarfile
from collections.abc import Iterator
from functools import cached_property
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa
from pydantic import Field

from pipeline import storage
from pipeline.errors import SourceError
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

LONGEST_SIDECAR = 1 << 20
"""Bytes; longer members beside a picture are not read."""

_READ = ("txt", "caption", "json", "cls")


class TarsSource(Source):
    class Settings(SourceSettings):
        kind: Literal["tars"] = Field("tars", description="WebDataset tars")
        path: str = Field(
            description="a tar, a folder of tars or a wildcard such as shards/*.tar; tars and folders may be any "
            "fsspec URL; relative paths count from where the command runs"
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
    def _tars(self) -> list[str]:
        """URLs of all tars, by name. Raises SourceError when there is none."""
        path, name = os.path.expanduser(self._own.path), self._own.name
        if path.endswith(".tar"):
            found = [path] if storage.exists(path) else sorted(glob.glob(path, recursive=True))
        elif storage.local(path) is None or os.path.isdir(path):
            found = [storage.join(path, entry) for entry in storage.names(path) if entry.endswith(".tar")]
        else:
            found = [each for each in sorted(glob.glob(path, recursive=True)) if each.endswith(".tar")]
        if not found:
            raise SourceError(f"source {name!r}: no tars at {path}",
                              hint="give a .tar, a folder that holds some, or a wildcard; compressed tars must be "
                              "unpacked first, for pictures in them cannot be found by their place")
        local = ((url, storage.local(url)) for url in found)
        return [url if path is None else storage.as_text(os.path.abspath(path)) for url, path in local]

    @cached_property
    def _states(self) -> dict[str, str]:
        return {url: storage.state(url) for url in self._tars}

    def fingerprint(self) -> str:
        """Changes with the name, size or age of any tar."""
        digest = hashlib.blake2b(digest_size=16)
        for url, state in self._states.items():
            digest.update(f"{os.path.basename(url)}\0{state}\0".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        for url in self._tars:
            with storage.open_read(url) as file:
                for sample in _samples(file, url, log):
                    log.count("samples")
                    yield self._found(url, sample, file, log)

    def _found(self, url: str, sample: _Sample, file: BinaryIO, log: Log) -> Found:
        picture = next((ending for ending in sample.members if self._is_picture(ending)), None)
        side = {ending: _read(file, sample.members[ending]) for ending in _READ if ending in sample.members}
        values = json_object(side["json"]) if "json" in side else {}
        if values is None:
            log.count("members that are no JSON object")
            values = {}
        captions = self._captions(side, values)
        address = f"{os.path.basename(url)}/{sample.name}"
        common: dict[str, Any] = {
            "address": address, "captions": tuple(captions), "origins": tuple(captions.values()),
            "label": self._label(side, values), "license_url": first_of(values, LICENSE_KEYS),
            "extra": {key: text_of(values.get(key)) for key in self._own.keep},
        }
        if picture is None:
            wanted = f".{self._own.picture}" if self._own.picture else "picture"
            detail = f"no {wanted} among {', '.join(sample.members)}"[:200]
            return Found(place=(url, sample.name, 0, 0), state=self._states[url], refused="no_picture",
                         refused_detail=detail, **common)
        member = sample.members[picture]
        return Found(place=(url, member.name, member.offset_data, member.size),
                     state=f"{self._states[url]}:{member.offset_data}", **common)

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


class _Sample:
    """Members of one sample by their ending (all after the name's first dot)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, tarfile.TarInfo] = {}


def _samples(file: BinaryIO, url: str, log: Log) -> Iterator[_Sample]:
    """Runs of members that share a name. A tar that breaks off gives what it holds, and is told in the log."""
    sample: _Sample | None = None
    try:
        with tarfile.open(fileobj=file, mode="r:", errorlevel=0) as tar:
            for member in tar:
                cast(Any, tar).members = []  # or a tar of a million members would be kept in memory
                if member.size < 0 or tar.offset <= member.offset:  # else tarfile reads the same header for ever
                    raise tarfile.ReadError(f"a size of {member.size} bytes at byte {member.offset}")
                if not member.isreg() or os.path.basename(member.name).startswith("."):
                    continue
                folder, _, base = member.name.rpartition("/")
                stem, _, ending = base.partition(".")
                name = f"{folder}/{stem}" if folder else stem
                # The same ending again is another sample of the same name, not a second picture of this one.
                if sample is None or sample.name != name or ending in sample.members:
                    if sample is not None:
                        yield sample
                    sample = _Sample(name)
                sample.members[ending] = member
            _check_end(file, tar.offset, url, log)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        log.fail(url, "broken_tar", str(error))
    if sample is not None:
        yield sample


def _check_end(file: BinaryIO, offset: int, url: str, log: Log) -> None:
    """tarfile takes a damaged header, and a file cut between two members, for the end of the tar."""
    file.seek(offset)
    block = file.read(tarfile.BLOCKSIZE)
    if any(block):
        log.fail(url, "broken_tar", f"no header at byte {offset}: what follows is not read")
    elif len(block) < tarfile.BLOCKSIZE:
        log.fail(url, "broken_tar", "it has no end mark and may have been cut")


def _read(file: BinaryIO, member: tarfile.TarInfo) -> bytes:
    """A small member's bytes; tarfile finds its own place again for the next header."""
    if member.size > LONGEST_SIDECAR:
        return b""
    file.seek(member.offset_data)
    return file.read(member.size)
