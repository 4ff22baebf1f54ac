"""The samples of one WebDataset tar, however it is damaged: nothing a header claims costs memory or time."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from pipeline.ingest.sources.base import Log

LONGEST_SIDECAR = 1 << 20
"""Bytes; longer members beside a picture are not read."""
_LONGEST_HEADER = 1 << 20
"""Bytes of an extended header (pax, GNU long names): more than any path or comment needs."""


class Sample:
    """Members of one sample by their ending (all after the name's first dot)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, tarfile.TarInfo] = {}
        self.faults: dict[str, str] = {}
        """Ending → why the member's bytes do not lie in one piece behind its header."""


def samples(file: BinaryIO, url: str, log: Log) -> Iterator[Sample]:
    """Runs of members that share a name. A tar that breaks off gives what it holds, and is told in the log.

    Raises StorageError and OSError when the file cannot be read.
    """
    sample: Sample | None = None
    try:
        end = file.seek(0, io.SEEK_END)
        file.seek(0)
        with tarfile.open(fileobj=cast(Any, _Headers(file)), mode="r:", errorlevel=0) as tar:
            for member in tar:
                cast(Any, tar).members = []  # or a tar of a million members would be kept in memory
                if member.size < 0 or tar.offset <= member.offset:  # else tarfile reads the same header for ever
                    raise tarfile.ReadError(f"a size of {member.size} bytes at byte {member.offset}")
                if member.isreg() and not os.path.basename(member.name).startswith("."):
                    name, ending = _split(member.name)
                    # The same ending again is another sample of the same name, not a second picture of this one.
                    if sample is None or sample.name != name or ending in sample.members:
                        if sample is not None:
                            yield sample
                        sample = Sample(name)
                    sample.members[ending] = member
                    if (fault := _fault(member, end)) is not None:
                        sample.faults[ending] = fault
                elif member.islnk() or member.issym():
                    log.count("members that are links, which hold no bytes")
                if tar.offset > end:  # asking tarfile for more would seek to where no file goes
                    raise tarfile.ReadError(f"unexpected end of data at byte {end}")
            _check_end(file, tar.offset, url, log)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        log.fail(url, "broken_tar", str(error))
    if sample is not None:
        yield sample


def small(file: BinaryIO, member: tarfile.TarInfo) -> bytes:
    """A small member's bytes; tarfile finds its own place again for the next header."""
    if member.size > LONGEST_SIDECAR or member.issparse():
        return b""
    file.seek(member.offset_data)
    return file.read(member.size)


def _split(member: str) -> tuple[str, str]:
    """(sample's name, ending): at the first dot after the last slash."""
    folder, _, base = member.rpartition("/")
    stem, _, ending = base.partition(".")
    return f"{folder}/{stem}" if folder else stem, ending


def _fault(member: tarfile.TarInfo, end: int) -> str | None:
    if member.issparse():
        return "a sparse member: its bytes do not lie in one piece"
    if member.offset_data + member.size > end:
        return f"the tar ends before byte {member.offset_data + member.size}, which its header promises"
    return None


def _check_end(file: BinaryIO, offset: int, url: str, log: Log) -> None:
    """tarfile takes a damaged header, and a file cut between two members, for the end of the tar."""
    file.seek(offset)
    block = file.read(tarfile.BLOCKSIZE)
    if any(block):
        log.fail(url, "broken_tar", f"no header at byte {offset}: what follows is not read")
    elif len(block) < tarfile.BLOCKSIZE:
        log.fail(url, "broken_tar", "it has no end mark and may have been cut")


class _Headers:
    """The file as tarfile sees it: it reads headers only, and those are short whatever they say of themselves."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes at byte {self._file.tell()}")
        return self._file.read(size)
