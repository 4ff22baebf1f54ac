"""Raw tars without gone pictures: each one's place stays, filled with zeros under another name.

So every other picture keeps its container and offset, no other row's manifest has to change, and there is no moment at
which a row points at a file that is not there. The new tar takes the old one's place in one step, locally and on object
storage; a reader in between sees one or the other. The space comes back when no row needs the tar any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, BinaryIO

from pipeline import storage
from pipeline.ingest.freshness import RAW
from pipeline.tars import BLOCK, header

if TYPE_CHECKING:
    from pipeline.run import Run

NAME = "removed"
"""Name of a member that was taken out."""

_PIECE = 1 << 20


def blank(run: Run, places: Collection[tuple[str, int, int]], known: Collection[str]) -> None:
    """Blank (container, offset, length) in the run's raw tars. Tars that `known` does not name are removed: a
    killed run left them behind before anything could say what is in them."""
    folder = storage.join(run.data, RAW)
    names = {container.rsplit("/", 1)[-1] for container in known}
    for name in storage.names(folder):
        if name not in names:
            storage.remove(storage.join(folder, name))
    by_tar: dict[str, list[tuple[int, int]]] = {}
    for container, offset, length in places:
        if container.startswith(f"{RAW}/"):
            by_tar.setdefault(container, []).append((offset, length))
    for container, members in sorted(by_tar.items()):
        url = storage.join(run.data, container)
        if storage.exists(url):
            blank_members(url, sorted(members))


def blank_members(url: str, members: list[tuple[int, int]]) -> None:
    """Write the tar anew with these (offset, length) blanked, unless they are."""
    with storage.open_read(url) as old:
        if all(_is_blank(old, *member) for member in members):
            return
        old.seek(0)
        with storage.atomic_writer(url) as new:
            for offset, length in members:
                _copy(old, new, offset - BLOCK - old.tell())
                new.write(header(NAME, length))
                padded = length + -length % BLOCK
                for start in range(0, padded, _PIECE):
                    new.write(bytes(min(_PIECE, padded - start)))
                old.seek(offset + padded)
            _copy(old, new, None)


def _is_blank(old: BinaryIO, offset: int, length: int) -> bool:
    old.seek(offset - BLOCK)
    return old.read(BLOCK) == header(NAME, length)


def _copy(old: BinaryIO, new: BinaryIO, size: int | None) -> None:
    """`size` bytes from where the old file stands, or all that is left."""
    while size is None or size > 0:
        piece = old.read(_PIECE if size is None else min(_PIECE, size))
        if not piece:
            return
        new.write(piece)
        size = None if size is None else size - len(piece)
