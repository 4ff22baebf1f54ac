"""Files that hold many pictures: found by one file, a folder with its sub-folders, or a wildcard, local or remote."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline import storage
from pipeline.errors import SourceError
from pipeline.ingest.sources.base import Log

_WILD = re.compile(r"[*?\[]")
_OF_A_RUN = re.compile(r"(.+/)(?:raw/raw-[0-9a-f]{32}\.tar|shards/index\.json|ingest/receipt\.json)")
"""What gives away the folders that a run itself writes, which may well lie below the pictures it reads."""


@dataclass(frozen=True)
class Container:
    """One such file. `name` is its path below the folder asked for, or below a wildcard's fixed part: ids hang on it.

    `state` changes when the file may have changed: size and mtime, or what its server knows it by.
    """

    url: str
    name: str
    state: str


def containers(given: str, endings: Sequence[str], source: str, *, what: str, hint: str) -> list[Container]:
    """All files with one of these endings, by name. Raises SourceError when there is none, StorageError."""
    path = os.path.expanduser(given)
    if path.lower().endswith(tuple(endings)) and storage.exists(path) and not _is_folder(path):
        root, found = path.rpartition("/")[0], [path]
    elif _WILD.search(path) and not _is_folder(path):
        fixed = path[:_WILD.search(path).start()]  # type: ignore[union-attr]
        root, found = fixed.rpartition("/")[0], storage.glob(path)
    else:
        root = path.rstrip("/") or "/"
        found = [storage.join(path, name) for name in _others(storage.find(path))] if path else []
    found = [each for each in found if each.lower().endswith(tuple(endings)) and not _is_folder(each)]
    if not found:
        raise SourceError(f"source {source!r}: no {what} at {given}", hint=hint)
    named = ((_absolute(each), _name(each, root)) for each in found)
    return [Container(url, name, storage.state(url)) for url, name in sorted(named, key=lambda each: each[1])]


def fingerprint(found: Sequence[Container]) -> str:
    """Changes with the place, size or age of any of the files."""
    digest = hashlib.blake2b(digest_size=16)
    for each in found:
        digest.update(f"{each.url}\0{each.name}\0{each.state}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def say_ageless(found: Sequence[Container], log: Log) -> None:
    """Tell in the log of files whose changes would go unnoticed."""
    log.count("files whose server gives neither ETag nor Last-Modified: changes show by their length alone",
              sum(storage.ageless(each.state, each.url) for each in found))


def _others(names: list[str]) -> list[str]:
    """All but what lies in runs' own folders below; the folder that is asked for may be one."""
    runs = tuple({match[1] for name in names if (match := _OF_A_RUN.fullmatch(name)) is not None})
    return [name for name in names if not name.startswith(runs)]


def _is_folder(path: str) -> bool:
    local = storage.local(path)
    return local is not None and os.path.isdir(local)


def _absolute(url: str) -> str:
    path = storage.local(url)
    return url if path is None else storage.as_text(os.path.abspath(path))


def _name(url: str, root: str) -> str:
    """Its path below `root`; the last part as the absolute URL spells it."""
    path, top = storage.local(url), storage.local(root)
    if path is None or top is None:
        return url.removeprefix(root.rstrip("/") + "/")
    folder = os.path.dirname(os.path.relpath(path, top or ".")).replace(os.sep, "/")
    base = _absolute(url).rpartition("/")[2]
    return f"{folder}/{base}" if folder else base
