"""Kind `parquet`: Parquet files that hold the pictures' bytes, as Hugging Face datasets do.

Pages of Parquet are compressed, so a picture in one has no place of its own: its bytes are copied once into the run's
raw tars, like those from the web, page by page. A row's id hangs on the file's name and the row's number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from pipeline import storage
from pipeline.errors import SourceError, near_miss
from pipeline.ingest.sources._cells import opened
from pipeline.ingest.sources._containers import Container, containers, fingerprint, say_ageless
from pipeline.ingest.sources._sidecars import CAPTION_KEYS, text_of, texts_of
from pipeline.ingest.sources.base import Found, Log, Source, SourceSettings, Web

_BATCH = 1024
_BYTES = "bytes"


class ParquetSource(Source):
    version: ClassVar[int] = 1

    class Settings(SourceSettings):
        kind: Literal["parquet"] = Field("parquet", description="Parquet files with the pictures' bytes")
        path: str = Field(
            description="a .parquet file, a folder with its sub-folders or a wildcard such as data/train-*.parquet; "
            "any fsspec URL, e.g. hf://datasets/OWNER/NAME with huggingface_hub; relative paths count from where the "
            "command runs"
        )
        image: str = Field(
            "", description="column with the bytes, plain or in a struct {bytes, path}; empty: the only one there is"
        )
        captions: tuple[str, ...] = Field(
            (), description="columns with captions, best first, each one text or a list of them; empty: those called "
            f"{', '.join(CAPTION_KEYS)}"
        )
        label: str = Field("", description="column with the class; numbers of a ClassLabel become its names")
        license: str = Field("", description="column with the licence or its address")
        page: str = Field("", description="column with the address of the page that showed the picture")

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._own = cast(ParquetSource.Settings, settings)

    @cached_property
    def _files(self) -> list[Container]:
        return containers(self._own.path, (".parquet",), self._own.name, what="Parquet files",
                          hint="give a .parquet file, a folder that holds some, or a wildcard")

    @cached_property
    def _layouts(self) -> list[_Layout]:
        """One per file; all are opened here, so that faults are found before any work."""
        return [_Layout(each.url, self._own) for each in self._files]

    def columns(self) -> dict[str, pa.DataType]:
        """All columns without a job: numbers as they are, else text; other binary ones are left out."""
        found: dict[str, pa.DataType] = {}
        for layout in self._layouts:
            for name, kind in layout.kept.items():
                found[name] = kind if found.get(name, kind) == kind else pa.string()
        return found

    def fingerprint(self) -> str:
        """Changes with the place, size or age of any file."""
        return fingerprint(self._files)

    def rows(self, web: Web, log: Log) -> Iterator[Found]:
        say_ageless(self._files, log)
        for file, layout in zip(self._files, self._layouts, strict=True):
            for number, row in enumerate(layout.rows()):
                captions: dict[str, str] = {}
                for name in layout.captions:
                    for text in texts_of(row.get(name)):
                        captions.setdefault(text, name)
                yield Found(
                    place=(file.url, str(number), number, 0), packing=f"parquet {layout.cell}",
                    address=f"{file.name}/{number}", state=file.state, captions=tuple(captions),
                    origins=tuple(captions.values()), label=layout.label(row.get(self._own.label)),
                    license_url=text_of(row.get(self._own.license)), page_url=text_of(row.get(self._own.page)),
                    extra={name: _kept(row.get(name)) for name in layout.kept},
                )


class _Layout:
    """What the columns of one file mean. Raises SourceError when the file cannot be read or lacks a column."""

    def __init__(self, url: str, own: ParquetSource.Settings) -> None:
        self._url, self._own = url, own
        try:
            with storage.open_read(url) as file:
                self._schema = pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error
        self._features = _features(self._schema)
        texts = {field.name for field in self._schema if _is_text(field.type)}
        self.captions = own.captions or tuple(name for name in CAPTION_KEYS if name in texts)
        for name in filter(None, (own.image, *self.captions, own.label, own.license, own.page)):
            self._check(name)
        image = own.image or self._image()
        self.cell = f"{image}.{_BYTES}" if pa.types.is_struct(self._schema.field(image).type) else image
        used = {image, *self.captions, own.label, own.license, own.page}
        self.kept = {field.name: _type(field.type) for field in self._schema
                     if field.name not in used and not _has_bytes(field.type)}

    def _image(self) -> str:
        """The one column that holds pictures: as Hugging Face's metadata says, else by its type."""
        said = [name for name, feature in self._features.items()
                if feature.get("_type") == "Image" and name in self._schema.names]
        found = said or [field.name for field in self._schema if _is_bytes(field.type)]
        if len(found) != 1:
            raise SourceError(
                f"source {self._own.name!r}: {self._url} has {len(found) or 'no'} columns with pictures' bytes",
                hint=f"name one as `image`: {', '.join(found)}" if found else "lists of addresses are a source of kind "
                f"urls; its columns: {', '.join(self._schema.names)[:300]}")
        return found[0]

    def _check(self, name: str) -> None:
        if name not in self._schema.names:
            raise SourceError(f"source {self._own.name!r}: {self._url} has no column {name!r}", hint=near_miss(
                name, self._schema.names, else_say=f"its columns: {', '.join(self._schema.names)[:300]}"))
        if name == self._own.image and not _is_bytes(self._schema.field(name).type):
            kind = str(self._schema.field(name).type)[:80]
            raise SourceError(f"source {self._own.name!r}: column {name!r} of {self._url} holds no bytes but {kind}",
                              hint="it must be binary, or a struct with a binary field `bytes`")

    def label(self, value: Any) -> str | None:
        names = self._features.get(self._own.label, {}).get("names")
        if isinstance(names, list) and isinstance(value, int) and value < len(names):
            return text_of(names[value]) if value >= 0 else None  # -1 is Hugging Face's "no class"
        return text_of(value)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row's columns besides the bytes."""
        own = self._own
        wanted = sorted({*self.captions, *self.kept, *filter(None, (own.label, own.license, own.page))})
        try:
            with storage.open_read(self._url) as file:
                parquet = opened(file)
                if not wanted:
                    yield from ({} for _ in range(parquet.metadata.num_rows))
                    return
                for batch in parquet.iter_batches(_BATCH, columns=wanted, use_threads=False):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> SourceError:
        return SourceError(f"source {self._own.name!r}: {self._url} cannot be read as Parquet: {error}",
                           hint="the file is damaged or not what its ending says; take it out, or get it again")


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """Column → what `datasets` keeps of it under the metadata key `huggingface`; empty without that."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}


def _is_plain_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_plain_bytes(kind.value_type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
                or pa.types.is_binary_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == _BYTES and _is_plain_bytes(field.type) for field in kind)
    return _is_plain_bytes(kind)


def _has_bytes(kind: pa.DataType) -> bool:
    """Whether there are bytes anywhere inside: such a column may be as large as the pictures."""
    return _is_plain_bytes(kind) or any(_has_bytes(kind.field(number).type) for number in range(kind.num_fields))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return kind
    return pa.float64() if pa.types.is_floating(kind) else pa.string()


def _kept(value: Any) -> Any:
    """Nested values as JSON."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value
