"""Contact sheets: kept rows, dropped rows by reason, copies beside their keeper, captions before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.charts import number
from pipeline.report.sample import Indices, Ranks, RunRows, pick
from pipeline.report.thumbnails import Thumbnails, Variant

Key = tuple[str, Variant] | None
Found = Mapping[int, Mapping[str, Any]]
"""Row number → the row's `SHOWN`."""

SHOWN = (
    "id", "url", "page_url", "captions", "caption_origins", "label", "fetch_detail", "http_status", "sha256",
    "container", "offset", "length", "decode_detail", "format", "width", "height", "duplicate_of", "relation",
    "distance", "pooled_captions", "pooled_origins", "caption_scores", "dropped_by", "reason", "value",
    "threshold", "caption", "caption_origin", "caption_score", "original_rejected", "split", "class",
    "sample_weight",
)
"""Columns read for a row that the page shows."""

SHORT_ID = 12


@dataclass(frozen=True)
class Tile:
    """One picture with what is known of it. `crop` is the key of a 1:1 crop, `note` the deciding numbers."""

    id: str
    picture: Key
    crop: Key
    text: str
    note: str
    facts: tuple[str, ...]
    url: str
    link: str | None
    link_text: str

    @property
    def short_id(self) -> str:
        return self.id[:SHORT_ID]

    @property
    def alt(self) -> str:
        return self.text or f"picture {self.short_id}, without a caption"


@dataclass(frozen=True)
class Sheet:
    """Rows dropped for one reason. Without pictures (`pictured` False) the page lists addresses instead."""

    reason: str
    stage: str
    rows: int
    share: float
    meaning: str
    settings: tuple[str, ...]
    tiles: tuple[Tile, ...]
    pictured: bool

    @property
    def anchor(self) -> str:
        return f"{self.stage}-{self.reason}"


@dataclass(frozen=True)
class Pair:
    """A dropped copy and the row kept in its place."""

    copy: Tile
    keeper: Tile
    relation: str


@dataclass(frozen=True)
class Rewording:
    """Captions before (text, origin, score) and the chosen one after."""

    tile: Tile
    before: tuple[tuple[str, str, str], ...]
    after: tuple[str, str, str]
    why: str


def make_tile(row: Mapping[str, Any], thumbnails: Thumbnails, *, crop: bool = False, note: str = "",
              found: bool = False) -> Tile:
    """The tile of a row that has `SHOWN`; its pictures are asked of `thumbnails`.

    The text is the chosen caption, or those found where none is chosen or `found` asks for them.
    """
    texts = [row["caption"]] if row["caption"] and not found else list(row["captions"] or [])
    link = web_address(row["page_url"]) or web_address(row["url"])
    return Tile(
        id=row["id"], picture=thumbnails.want(row), crop=thumbnails.want(row, "crop") if crop else None,
        text=" · ".join(text for text in texts if text), note=note, facts=tuple(_facts(row)), url=row["url"] or "",
        link=link, link_text=(urlsplit(link).hostname or "page") if link else "",
    )


def web_address(address: str | None) -> str | None:
    """The address if a browser may be sent there: only http and https, never `javascript:` and its kin."""
    if address is None:
        return None
    try:
        return address if urlsplit(address).scheme in ("http", "https") else None
    except ValueError:
        return None


def _facts(row: Mapping[str, Any]) -> Iterable[str]:
    if row["width"]:
        yield f"{row['width']}×{row['height']} {row['format'] or ''}".strip()
    if row["class"]:
        yield str(row["class"])
    if row["caption_score"] is not None:
        yield f"CLIP {_score(row['caption_score'])}"
    if row["split"] == "validation":
        yield "validation"
    if row["http_status"] and row["http_status"] != 200:
        yield f"HTTP {row['http_status']}"


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.3f}"


def against(row: Mapping[str, Any]) -> str:
    """The deciding numbers of a dropped row: value against threshold, or what the server or decoder said."""
    if row["value"] is None:
        return str(row["fetch_detail"] or row["decode_detail"] or "")
    if row["threshold"] is None:
        return number(row["value"])
    sign = "<" if row["value"] < row["threshold"] else ">" if row["value"] > row["threshold"] else "="
    return f"{number(row['value'])} {sign} {number(row['threshold'])}"


def tiles_of(chosen: Indices, found: Found, thumbnails: Thumbnails) -> tuple[Tile, ...]:
    return tuple(make_tile(found[index], thumbnails) for index in chosen.tolist())


def choose_kept(decided: pa.Table, order: Ranks, count: int) -> Indices:
    return pick(np.asarray(pc.fill_null(decided.column("kept"), False)), order, count)


def choose_dropped(decided: pa.Table, stage: str, reason: str, order: Ranks, count: int) -> Indices:
    same = pc.and_(pc.equal(decided.column("dropped_by"), stage), pc.equal(decided.column("reason"), reason))
    return pick(np.asarray(pc.fill_null(same, False)), order, count)


def sheet_tiles(chosen: Indices, found: Found, thumbnails: Thumbnails, *, crop: bool) -> tuple[Tile, ...]:
    """Tiles of dropped rows, each with the numbers that decided."""
    return tuple(make_tile(found[index], thumbnails, crop=crop, note=against(found[index]))
                 for index in chosen.tolist())


def choose_pairs(rows: RunRows, order: Ranks, count: int) -> list[tuple[int, int]]:
    """(copy, keeper) row numbers, from each relation in turn, so that the rare ones are seen too."""
    if not rows.has("duplicate_of", "relation") or count <= 0:
        return []
    columns = rows.columns(["id", "duplicate_of", "relation"])
    if rows.has("similar_to"):
        alike = rows.columns(["similar_to"]).column("similar_to")
        relation = pc.if_else(pc.is_valid(alike), "semantic", columns.column("relation"))
        keeper = pc.coalesce(alike, columns.column("duplicate_of"))
        columns = pa.table({"id": columns.column("id"), "duplicate_of": keeper, "relation": relation})
    relations = sorted(set(columns.column("relation").drop_null().to_pylist()))
    turns = [pick(np.asarray(pc.fill_null(pc.equal(columns.column("relation"), relation), False)), order, count)
             for relation in relations]
    share = _fair_share([len(turn) for turn in turns], count)
    copies = [index for turn in turns for index in turn[:share].tolist()][:count]
    keepers = columns.column("duplicate_of").take(pa.array(copies, pa.int64()))
    places = pc.index_in(keepers, value_set=columns.column("id").combine_chunks()).to_pylist()
    return [(copy, place) for copy, place in zip(copies, places, strict=True) if place is not None]


def make_pair(copy: Mapping[str, Any], keeper: Mapping[str, Any], thumbnails: Thumbnails) -> Pair:
    return Pair(make_tile(copy, thumbnails), make_tile(keeper, thumbnails), _relation(copy))


def _relation(row: Mapping[str, Any]) -> str:
    if row.get("similar_to"):
        return f"alike to CLIP, cosine {row['value'] or 0:.3f}"
    if row["relation"] in ("perceptual", "mirrored"):
        how = "alike" if row["relation"] == "perceptual" else "mirror image"
        return f"{how}, {row['distance'] or 0} of 64 bits apart"
    return f"same {row['relation']}"


def _fair_share(sizes: list[int], count: int) -> int:
    """The largest equal number taken from each list that stays within `count` in all, at least 1."""
    share = count
    while share > 1 and sum(min(size, share) for size in sizes) > count:
        share -= 1
    return share


def choose_reworded(rows: RunRows, decided: pa.Table, order: Ranks, count: int) -> tuple[Indices, int]:
    """Sampled kept rows whose chosen caption is none of the found ones, and how many there are."""
    none = np.empty(0, np.int64)
    if not rows.has("caption", "caption_origin", "pooled_origins"):
        return none, 0
    columns = rows.columns(["caption_origin", "pooled_origins"])
    origins = columns.column("caption_origin")
    found_origins = pc.unique(pc.list_flatten(columns.column("pooled_origins")))
    written = pc.and_(pc.is_valid(origins), pc.invert(pc.is_in(origins, value_set=found_origins)))
    mask = np.asarray(pc.and_(pc.fill_null(decided.column("kept"), False), written))
    return pick(mask, order, count), int(mask.sum())


def make_rewording(row: Mapping[str, Any], thumbnails: Thumbnails) -> Rewording:
    texts, scores = row["pooled_captions"] or [], row["caption_scores"] or []
    before = tuple(
        (text or "(empty)", origin or "", _score(scores[at] if at < len(scores) else None))
        for at, (text, origin) in enumerate(zip(texts, row["pooled_origins"] or [], strict=False))
    )
    after = (row["caption"], row["caption_origin"], _score(row["caption_score"]))
    return Rewording(make_tile(row, thumbnails), before, after, row["original_rejected"] or "")
