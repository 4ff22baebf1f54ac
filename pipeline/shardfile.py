"""One shard: its members, and how its tar is written. Runs in worker processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

from pipeline import storage
from pipeline.errors import StorageError
from pipeline.receipt import JsonObject, digest
from pipeline.tars import TarWriter

EXTENSIONS = {
    "JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif",
    "AVIF": "avif", "HEIF": "heic", "JPEG2000": "jp2", "JXL": "jxl", "SVG": "svg",
}
"""Format → member extension, as WebDataset readers expect them."""


@dataclass(frozen=True)
class Member:
    """A picture in a shard: where its bytes are, and the words that travel with it."""

    id: str
    sha256: str
    container: str
    offset: int
    length: int
    extension: str
    text: str
    facts: str
    before: tuple[str, int] | None = None
    """Tar and offset at which an earlier run put the same picture, in case its source is away."""


@dataclass(frozen=True)
class ShardJob:
    number: int
    members: tuple[Member, ...]

    @cached_property
    def pictures(self) -> str:
        """Changes when a picture comes, goes or changes: only then must the tar be written anew."""
        return digest([(m.id, m.sha256, m.extension) for m in self.members])

    @cached_property
    def texts(self) -> str:
        """Changes when a caption, class or weight does."""
        return digest([(m.text, m.facts) for m in self.members])

    @property
    def entry_name(self) -> str:
        return f"{self.number:05d}-{self.pictures}.json"


def write_shard(folder: str, job: ShardJob) -> JsonObject:
    """Write the tar, named by its content, then its entry: file, sha256, bytes, members with offsets, lost ids.

    A picture whose bytes are away or have changed is left out, and the entry says so: the next run tries again.
    """
    members: list[JsonObject] = []
    lost: list[str] = []
    with storage.content_named(folder, f"shard-{job.number:05d}", ".tar") as file:
        tar = TarWriter(file)
        for member in job.members:
            name = f"{member.id}.{member.extension}"
            data = _bytes_of(member)
            if data is None:
                lost.append(member.id)
                continue
            offset = tar.add(name, data)
            tar.add(f"{member.id}.json", member.facts.encode())
            tar.add(f"{member.id}.txt", member.text.encode())
            members.append({"id": member.id, "name": name, "offset": offset, "length": member.length})
        tar.close()
    entry: JsonObject = {"file": file.name, "sha256": file.sha256, "bytes": file.position, "samples": len(members),
                         "texts": job.texts, "members": members, "lost": lost}
    storage.write_bytes(storage.join(folder, ".entries", job.entry_name), json.dumps(entry).encode())
    return entry


def _bytes_of(member: Member) -> bytes | None:
    """From its source, else from the tar it was in before; None when neither has these very bytes."""
    for container, offset in ((member.container, member.offset), *([member.before] if member.before else [])):
        try:
            return storage.read_range(container, offset, member.length, sha256=bytes.fromhex(member.sha256))
        except StorageError:
            continue
    return None
