"""One shard: its members, and how its tar is written. Runs in worker processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pipeline import crop, storage
from pipeline.crop import Box, Cutting
from pipeline.errors import StorageError
from pipeline.image import Unreadable
from pipeline.receipt import JsonObject, digest
from pipeline.tars import TarWriter

EXTENSIONS = {
    "JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif",
    "AVIF": "avif", "HEIF": "heic", "JPEG2000": "jp2", "JXL": "jxl", "SVG": "svg",
}
"""Format → member extension, as WebDataset readers expect them."""


@dataclass(frozen=True)
class Member:
    """A picture in a shard: where its bytes are, what of it goes there, and the words that travel with it."""

    id: str
    sha256: str
    container: str
    offset: int
    length: int
    extension: str
    text: str
    facts: str
    box: Box | None = None
    """The part of the picture that goes there; None: its bytes as they are."""
    before: tuple[str, JsonObject] | None = None
    """A tar that an earlier run put the same picture in, and its entry there: in case its source is away."""

    @property
    def picture(self) -> JsonObject:
        """What decides the bytes in the tar, and stands in its entry where that is a part of a picture."""
        part = {} if self.box is None else {"box": list(self.box), "cut": crop.VERSION}
        return {"sha256": self.sha256, "extension": self.extension, **part}


@dataclass(frozen=True)
class ShardJob:
    number: int
    members: tuple[Member, ...]

    @cached_property
    def pictures(self) -> str:
        """Changes when a picture comes, goes or changes: only then must the tar be written anew."""
        return content((m.id, m.picture) for m in self.members)

    @cached_property
    def texts(self) -> str:
        """Changes when a caption, class or weight does."""
        return digest([(m.text, m.facts) for m in self.members])

    @property
    def entry_name(self) -> str:
        return f"{self.number:05d}-{self.pictures}.json"


def content(pictures: Iterable[tuple[str, JsonObject]]) -> str:
    """Names what lies in a tar, given (id, `Member.picture`) of each: parts of an entry's name."""
    return digest([(row_id, *picture.values()) for row_id, picture in pictures])


def write_shard(folder: str, job: ShardJob) -> JsonObject:
    """Write the tar, named by its content, then its entry: file, sha256, bytes, members with offsets, lost ids.

    A picture whose bytes are away or have changed is left out, and the entry says so: the next run tries again.
    """
    members: list[JsonObject] = []
    lost: list[str] = []
    with storage.content_named(folder, f"shard-{job.number:05d}", ".tar") as file:
        tar = TarWriter(file)
        for member in job.members:
            made = _bytes_of(member)
            if made is None:
                lost.append(member.id)
                continue
            name, facts = f"{member.id}.{made.extension}", member.facts
            entered: JsonObject = {"id": member.id, "name": name, "offset": tar.add(name, made.data),
                                   "length": len(made.data)}
            if member.box is not None:
                sha256 = hashlib.sha256(made.data).hexdigest()
                facts = _with_sha256(facts, sha256)
                entered |= {"sha256": sha256, "picture": member.picture}
            tar.add(f"{member.id}.json", facts.encode())
            tar.add(f"{member.id}.txt", member.text.encode())
            members.append(entered)
        tar.close()
    entry: JsonObject = {"file": file.name, "sha256": file.sha256, "bytes": file.position, "samples": len(members),
                         "texts": job.texts, "members": members, "lost": lost}
    storage.write_bytes(storage.join(folder, ".entries", job.entry_name), json.dumps(entry).encode())
    return entry


def planned(facts: str) -> str:
    """A tar's `.json` as `Member.facts` had it, before a part of a picture was cut out and had a SHA-256 of its own."""
    source: str | None = json.loads(facts).get("source_sha256")
    return facts if source is None else _with_sha256(facts, source)


def _with_sha256(facts: str, sha256: str) -> str:
    return json.dumps({**json.loads(facts), "sha256": sha256}, ensure_ascii=False)


def _bytes_of(member: Member) -> Cutting | None:
    """From its source, else from the tar it was in before; None when neither has these very bytes.

    What was cut out before is taken over as it is.
    """
    tar, entered = member.before or ("", {})
    if member.box is not None and entered.get("picture") == member.picture:
        try:
            sha256 = bytes.fromhex(entered["sha256"])
            data = storage.read_range(tar, entered["offset"], entered["length"], sha256=sha256)
            return Cutting(data, entered["name"].rsplit(".", 1)[1])
        except StorageError:
            pass
    for container, offset in ((member.container, member.offset), *([(tar, entered["offset"])] if entered else [])):
        try:
            data = storage.read_range(container, offset, member.length, sha256=bytes.fromhex(member.sha256))
            return Cutting(data, member.extension) if member.box is None else crop.cut(data, member.box)
        except (StorageError, Unreadable):
            continue
    return None
