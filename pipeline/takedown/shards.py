"""Shards without gone pictures: their tars written anew as `shard` would, then samples and index, old tars last.

A reader finds one whole generation or the other. Captions that came from gone rows leave the tars' texts too.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.manifest import parquet_bytes
from pipeline.receipt import JsonObject, digest
from pipeline.shard import ENTRIES, FOLDER, INDEX, SAMPLES_FILE
from pipeline.shardfile import content, planned
from pipeline.takedown.gone import Gone
from pipeline.takedown.rows import ShardPlace
from pipeline.tars import TarWriter

if TYPE_CHECKING:
    from pipeline.run import Run


@dataclass(frozen=True)
class Sample:
    """What a tar holds of one picture."""

    id: str
    name: str
    data: bytes
    facts: str
    text: str


def survey(run: Run, gone: Gone) -> tuple[bool, set[str]]:
    """Whether anything of what is gone is among the samples, and all captions that stay. Adds to `gone.sha256` the
    bytes of parts of gone pictures (shard.crop_borders)."""
    url = storage.join(run.data, FOLDER, SAMPLES_FILE)
    if not storage.exists(url):
        return False, set()
    table = pq.read_table(pa.BufferReader(storage.read_bytes(url)),
                          columns=["id", "sha256", "caption", "captions"])
    rows = table.to_pylist()
    gone.sha256 |= {row["sha256"] for row in rows if row["id"] in gone.rows} - {
        row["sha256"] for row in rows if row["id"] not in gone.rows}
    staying = [_fewer(row["caption"], row["captions"], gone.words.get(row["id"], set()))
               for row in rows if row["id"] not in gone.rows]
    drawn = any(row["id"] in gone.rows or row["id"] in gone.words for row in rows)
    return drawn, {text for caption, captions in staying for text in (caption, *captions) if text}


def take_out(run: Run, gone: Gone) -> dict[str, ShardPlace]:
    """Rewrite the tars that hold gone pictures or words. Returns where each picture lies now."""
    folder = storage.join(run.data, FOLDER)
    entries = dict(_entries(folder))
    anew = {name: _rewritten(folder, name, entry, gone) for name, entry in entries.items() if _touched(entry, gone)}
    standing = {name: entry for name, entry in entries.items() if name not in anew}
    standing |= {made[0]: made[1] for made in anew.values() if made is not None}
    places = {member["id"]: (entry["file"], member["offset"])
              for entry in standing.values() for member in entry["members"]}
    _publish(run, folder, {entries[name]["file"]: made and made[1] for name, made in anew.items()}, places, gone)
    named = {entry["file"] for entry in standing.values()}
    for name in storage.names(folder):
        if (name.startswith("shard-") and name not in named) or name in storage.leftovers(folder):
            storage.remove(storage.join(folder, name))
    for name in anew.keys() - standing.keys():
        storage.remove(storage.join(folder, ENTRIES, name))
    return places


def _entries(folder: str) -> Iterator[tuple[str, JsonObject]]:
    """(name, entry) of every tar that stands; entries without one, or damaged, are removed."""
    for name in storage.names(storage.join(folder, ENTRIES)):
        url = storage.join(folder, ENTRIES, name)
        try:
            entry: JsonObject = json.loads(storage.read_bytes(url))
            standing = storage.exists(storage.join(folder, entry["file"]))
        except (ValueError, KeyError, TypeError):
            standing = False
        if standing:
            yield name, entry
        else:
            storage.remove(url)


def _touched(entry: JsonObject, gone: Gone) -> bool:
    ids = [member["id"] for member in entry["members"]]
    return any(row_id in gone.rows or row_id in gone.words for row_id in ids)


def _rewritten(folder: str, name: str, entry: JsonObject, gone: Gone) -> tuple[str, JsonObject] | None:
    """(name, entry) of the tar that takes this one's place; None when nothing is left for it."""
    stem, members, pictures = entry["file"].rsplit("-", 1)[0], list[JsonObject](), list[tuple[str, JsonObject]]()
    entered = {member["id"]: member for member in entry["members"]}
    texts: list[tuple[str, str]] = []
    if all(member["id"] in gone.rows for member in entry["members"]):
        return None
    with storage.open_read(storage.join(folder, entry["file"])) as old, \
            storage.content_named(folder, stem, ".tar") as file:
        tar = TarWriter(file)
        for sample in _samples(old):
            if sample.id in gone.rows:
                continue
            sample = _without_words(sample, gone.words.get(sample.id, set()))
            offset = tar.add(sample.name, sample.data)
            tar.add(f"{sample.id}.json", sample.facts.encode())
            tar.add(f"{sample.id}.txt", sample.text.encode())
            members.append({**entered[sample.id], "offset": offset})
            pictures.append((sample.id, entered[sample.id].get("picture") or {
                "sha256": hashlib.sha256(sample.data).hexdigest(), "extension": sample.name.split(".", 1)[1]}))
            texts.append((sample.text, planned(sample.facts)))
        tar.close()
    made: JsonObject = {
        "file": file.name, "sha256": file.sha256, "bytes": file.position, "samples": len(members),
        "texts": digest(texts), "members": members, "lost": [row for row in entry["lost"] if row not in gone.rows],
    }
    anew = f"{name.split('-', 1)[0]}-{content(pictures)}.json"
    storage.write_bytes(storage.join(folder, ENTRIES, anew), json.dumps(made).encode())
    return anew, made


def _samples(old: BinaryIO) -> Iterator[Sample]:
    """A tar's pictures in order, each with its `.json` and `.txt`, as `shardfile.write_shard` puts them."""
    with tarfile.open(fileobj=old, mode="r:") as tar:
        members = iter(tar)
        for picture, facts, text in zip(members, members, members, strict=True):
            name = picture.name.split(".", 1)[0]
            yield Sample(name, picture.name, _data(tar, picture), _data(tar, facts).decode(), _data(tar, text).decode())


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None, "shards hold plain files only"
    return file.read()


def _without_words(sample: Sample, words: set[str]) -> Sample:
    facts = json.loads(sample.facts)
    if not words:
        return sample
    caption, captions = _fewer(facts["caption"], facts["captions"], words)
    facts |= {"caption": caption, "captions": captions}
    return Sample(sample.id, sample.name, sample.data, json.dumps(facts, ensure_ascii=False), caption or "")


def _fewer(caption: str | None, captions: list[str] | None, words: set[str]) -> tuple[str | None, list[str]]:
    left = [text for text in captions or [] if text not in words]
    return (caption, left) if caption not in words else (left[0] if left else None, left)


def _publish(run: Run, folder: str, replaced: dict[str, JsonObject | None], places: dict[str, ShardPlace],
             gone: Gone) -> None:
    """samples.parquet, then the index that names its hash, both only where they change."""
    url, index_url = storage.join(folder, SAMPLES_FILE), storage.join(folder, INDEX)
    if not (storage.exists(url) and storage.exists(index_url)):
        return
    table = pq.read_table(pa.BufferReader(storage.read_bytes(url)))
    rows = [_placed(row, places, gone) for row in table.to_pylist() if row["id"] in places]
    data = parquet_bytes(pa.Table.from_pylist(rows, schema=table.schema))
    index: JsonObject = json.loads(storage.read_bytes(index_url))
    shards = []
    for entry in index["shards"]:
        now = replaced.get(entry["file"], entry)
        if now is not None:
            shards.append({name: now[name] for name in ("file", "sha256", "bytes", "samples")})
    samples = {**index["samples"], "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "rows": len(rows)}
    after = {**index, "samples": samples, "shards": shards}
    if after != index:
        if run.lease is not None:
            run.lease.check()
        storage.write_bytes(url, data)
        storage.write_bytes(index_url, (json.dumps(after, indent=1) + "\n").encode())


def _placed(row: dict[str, Any], places: dict[str, ShardPlace], gone: Gone) -> dict[str, Any]:
    shard, offset = places[row["id"]]
    row = {**row, "shard": shard, "offset": offset}
    if row["id"] in gone.words:
        caption, captions = _fewer(row["caption"], row["captions"], gone.words[row["id"]])
        row |= {"caption": caption, "captions": captions, "selected": row["selected"] and caption is not None}
    return row
