"""A file that describes many pictures: JSON (list of objects, or name → object), JSONL, CSV or TSV."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.errors import SourceError, near_miss

Entry = dict[str, Any]


@dataclass(frozen=True)
class Metadata:
    """Entries by the value of one key, which names a picture."""

    path: str
    keys: frozenset[str]
    by_name: dict[str, list[Entry]]

    @classmethod
    def read(cls, path: str, key: str, *, found_by_name: bool = False) -> Metadata:
        """Raises SourceError when the file is missing, broken or, unless it was found by its name, lacks `key`."""
        try:
            with open(path, encoding="utf-8-sig") as file:
                entries = list(_entries(path, file.read(), key))
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror}",
                              hint="`metadata` is relative to the source's path") from error
        except (ValueError, csv.Error) as error:
            raise SourceError(f"{path} cannot be read as {_ending(path)}: {error}",
                              hint="JSON: a list of objects; JSONL: one object a line; CSV: a header first") from error
        keys = frozenset(name for entry in entries for name in entry)
        by_name: dict[str, list[Entry]] = {}
        for entry in entries:
            if entry.get(key) not in (None, ""):
                by_name.setdefault(str(entry[key]), []).append(entry)
        metadata = cls(path, keys, by_name)
        if not found_by_name:
            metadata.check([key])
        return metadata

    def check(self, keys: Iterable[str]) -> None:
        """Raise SourceError for a key that no entry has."""
        for key in keys:
            if key not in self.keys:
                raise SourceError(f"no entry of {self.path} has the key {key!r}", hint=near_miss(
                    key, self.keys, else_say=f"keys: {', '.join(sorted(self.keys)[:20])}"))

    def entries(self, path: str) -> list[Entry]:
        """Entries of the picture at `path` (inside the folder): by path, else file name, else stem."""
        name = path.rsplit("/", 1)[-1]
        for candidate in (path, name, name[:name.rfind(".")]):
            if candidate in self.by_name:
                return self.by_name[candidate]
        return []


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower().removeprefix(".")


def _entries(path: str, text: str, key: str) -> Iterator[Entry]:
    ending = _ending(path)
    if ending in ("jsonl", "ndjson"):
        yield from (_object(json.loads(line)) for line in text.splitlines() if line.strip())
    elif ending in ("csv", "tsv"):
        yield from csv.DictReader(io.StringIO(text), delimiter="\t" if ending == "tsv" else ",")
    else:
        loaded = json.loads(text)
        if isinstance(loaded, dict):
            yield from ({key: name, **_object(entry)} for name, entry in loaded.items())
        elif isinstance(loaded, list):
            yield from (_object(entry) for entry in loaded)
        else:
            raise ValueError("neither a list nor an object")


def _object(value: Any) -> Entry:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {str(value)[:40]!r}")
    return value
