"""One row's way through the run: all that is known of it, and why it is, or is not, in the set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline import reasons
from pipeline.errors import GristmillError
from pipeline.funnel import decisions
from pipeline.ingest.tombstones import hidden_address
from pipeline.manifest import Manifests, View
from pipeline.schema import DECISION, STAGES

if TYPE_CHECKING:
    from pipeline.recipe import Recipe

_FULL_ID = 32
_HIDDEN = {"value_key", "thumb", "embedding"}
_DECISION = [column.name for column in DECISION]
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COPIES_SHOWN = 50
_COPY_COLUMNS = ("id", "url", "group", "duplicate_of", "relation", "distance", "width", "height", "kept",
                 "dropped_by", "reason")
_UNITS = {column.name: column.unit for schema in STAGES.values() for column in schema.columns
          if column.unit in ("px", "bytes")}
_IN_TABLES = {"captions", "caption_origins", "pooled_captions", "pooled_origins", "caption_scores", "candidates",
              "unused", "choices", "failed"}


def row_facts(manifests: Manifests, wanted: str) -> dict[str, Any]:
    """Everything known of one row, as plain JSON values. `wanted` is an id, the start of one, or an address.

    Keys: `id`, `decision` (kept, dropped_by, reason, value, threshold), one object per finished stage with
    its columns that are not null, `captions` (text, origin, score, chosen), `copies` (rows of the same duplicate
    group) and `not_run` (stages not finished). Raises GristmillError when no row or several rows match, with
    the near ones as hint, and ManifestError when nothing has been ingested.
    """
    view = manifests.joined()
    part, index = _find(view, wanted)
    rows = view.part(part).slice(index, 1)
    row = rows.to_pylist()[0]
    decided = {**dict.fromkeys(_DECISION), **decisions(rows).to_pylist()[0],
               **{name: row[name] for name in ("value", "threshold") if name in row}}
    facts: dict[str, Any] = {"id": row["id"], "decision": _jsonable(decided)}
    for stage in STAGES:
        names = _own_columns(manifests, view, stage)
        if names is not None:
            facts[stage] = {name: _jsonable(row[name], name) for name in names if row[name] is not None}
    facts["captions"] = _captions(row)
    facts["copies"] = _copies(view, row) if "group" in view.columns else []
    facts["not_run"] = [stage for stage in STAGES if manifests.receipt(stage) is None]
    return facts


def _own_columns(manifests: Manifests, view: View, stage: str) -> list[str] | None:
    """Columns that the stage wrote and no other section shows; None when it has not run or is out of line."""
    if (stage, "") not in manifests.tables_in_line([stage]):
        return None
    shown = {"id", *_HIDDEN, *_DECISION}
    return [name for name in manifests.stage(stage).columns if name not in shown and name in view.columns]


def _find(view: View, wanted: str) -> tuple[int, int]:
    """(part, row in it) of the one row that matches."""
    wanted = wanted.strip()
    if not wanted:
        raise GristmillError("no row named", hint="give an id, its first characters, or a picture's address")
    address = "/" in wanted or ":" in wanted
    matches: list[tuple[int, int, str]] = []
    for number, table in enumerate(view.parts(["id", "url"] if address else ["id"])):
        if address:
            mask = pc.is_in(table.column("url"), pa.array([wanted, hidden_address(wanted)]))
        else:
            mask = pc.starts_with(table.column("id"), wanted.lower())
        found = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
        matches += [(number, index, table.column("id")[index].as_py()) for index in found]
    if len(matches) == 1:
        return matches[0][:2]
    if matches:
        named = ", ".join(match[2][:12] for match in matches[:5])
        raise GristmillError(f"{len(matches):,} rows match {wanted!r}",
                             hint=f"give more of the id: {named}{', …' if len(matches) > 5 else ''}")
    raise GristmillError(f"no row {wanted!r} in this run", hint=_near(view, wanted, address))


def _near(view: View, wanted: str, address: bool) -> str:
    """Rows that share the longest beginning with what was asked for."""
    name = "url" if address else "id"
    column = view.arrow([name]).column(name).drop_null()
    least = max(1, len(wanted) // 2)
    for length in range(min(len(wanted), 200), least - 1, -1):
        found = column.filter(pc.starts_with(column, wanted[:length])).slice(0, 3).to_pylist()
        if found:
            return f"nearest: {', '.join(found)}"
    if address:
        return "addresses are kept in canonical form; look in the `url` column of the ingest manifest"
    return f"ids are {_FULL_ID} hex characters, any beginning will do; the report shows one under every picture"


def _captions(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Captions found (pooled from copies, scored where known), then those written; the chosen one is marked."""
    texts = row.get("pooled_captions")
    origins = row.get("pooled_origins")
    if texts is None:
        texts, origins = row.get("captions") or [], row.get("caption_origins")
    scores = row.get("caption_scores") or []
    own = len(row.get("captions") or [])
    found = [
        {"text": text, "origin": _at(origins, index), "score": _at(scores, index), "from_copy": index >= own,
         "chosen": False}
        for index, text in enumerate(texts)
    ]
    found += [{"text": item["text"], "origin": item["captioner"], "score": item["score"], "from_copy": False,
               "chosen": False} for item in row.get("candidates") or []]
    for item in found:
        if row.get("caption") is not None and (item["text"], item["origin"]) == (row["caption"],
                                                                                 row["caption_origin"]):
            item["chosen"] = True
            break
    return found


def _at(values: Any, index: int) -> Any:
    return values[index] if values is not None and index < len(values) else None


def _copies(view: View, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Other rows of the duplicate group: the keeper first, then by id."""
    if row.get("group") is None:
        return []
    names = [name for name in _COPY_COLUMNS if name in view.columns]
    found: list[dict[str, Any]] = []
    for table in view.parts(names):
        others = pc.not_equal(table.column("id"), row["id"])
        mask = pc.and_(pc.equal(table.column("group"), row["group"]), others)
        found += table.filter(pc.fill_null(mask, False)).drop(["group"]).to_pylist()
        if len(found) > _COPIES_SHOWN:
            break
    found.sort(key=lambda copy: (copy["id"] != row.get("duplicate_of"), copy["id"]))
    return found[:_COPIES_SHOWN]


def _jsonable(value: Any, name: str = "") -> Any:
    """Bytes as hex, the perceptual hash as 16 hex digits, maps as objects."""
    if isinstance(value, bytes):
        return value.hex()
    if name == "phash":
        return f"{value:016x}"
    if isinstance(value, Mapping):
        return {key: _jsonable(item, key) for key, item in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {str(key): _jsonable(item) for key, item in value}
        return [_jsonable(item) for item in value]
    return value


def explain(reason: str, recipe: Recipe | None = None) -> Group:
    """What a drop reason means, for the terminal. Raises GristmillError for an unknown one."""
    return reasons.render(reasons.explain(reason, recipe))


def render_facts(facts: Mapping[str, Any]) -> Group:
    """A row's facts for the terminal."""
    return Group(*_sections(facts))


def _sections(facts: Mapping[str, Any]) -> Iterator[Text | Table]:
    yield Text.assemble((facts["id"], "bold"))
    yield from _verdict(facts)
    if facts["captions"]:
        yield _heading("captions")
        yield _caption_table(facts["captions"])
    failed = (facts.get("filter") or {}).get("failed")
    if failed:
        yield _heading("failed checks")
        yield _failed_table(failed)
    if facts["copies"]:
        yield _heading(f"copies ({len(facts['copies'])})")
        yield _copy_table(facts["copies"])
    for stage in STAGES:
        shown = {name: value for name, value in (facts.get(stage) or {}).items() if name not in _IN_TABLES}
        if shown:
            yield _heading(stage)
            yield _pairs(shown)
    if facts["not_run"]:
        yield Text(f"not run yet: {', '.join(facts['not_run'])}", style="dim")


def _verdict(facts: Mapping[str, Any]) -> Iterator[Text]:
    decision = facts["decision"]
    if decision["kept"]:
        yield Text("kept", style="bold green")
        return
    line = Text.assemble(("dropped", "bold red"), f" by {decision['dropped_by']}: ",
                         (str(decision["reason"]), "bold"))
    keeper = (facts.get("dedupe") or {}).get("duplicate_of")
    if decision["dropped_by"] == "dedupe" and keeper:
        line.append(f", in favour of {keeper[:12]}")
    elif alike := (facts.get("select") or {}).get("similar_to"):
        line.append(f", in favour of {alike[:12]}, cosine {_number(decision['value'])} against "
                    f"{_number(decision['threshold'])}")
    elif decision["value"] is not None:
        line.append(f", {_number(decision['value'])}")
        if decision["threshold"] is not None:
            line.append(f" against {_number(decision['threshold'])}")
    yield line
    yield Text(f"curate explain {decision['reason']}", style="dim")


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _caption_table(captions: list[dict[str, Any]]) -> Table:
    table = _plain_table(4)
    for item in captions:
        origin = str(item["origin"] or "") + (" (copy)" if item["from_copy"] else "")
        table.add_row("→" if item["chosen"] else "", clean(item["text"] or "(empty)"),
                      Text(origin, style="dim"), _number(item["score"]))
    return table


def _failed_table(failed: list[dict[str, Any]]) -> Table:
    table = _plain_table(3)
    for item in failed:
        table.add_row(item["reason"], f"{_number(item['value'])} against {_number(item['threshold'])}",
                      Text(f"{item['action']}, check {item['check']}", style="dim"))
    return table


def _copy_table(copies: list[dict[str, Any]]) -> Table:
    table = _plain_table(4)
    for copy in copies:
        size = f"{copy['width']}×{copy['height']}" if copy.get("width") else ""
        state = "kept" if copy.get("kept") else copy.get("reason") or copy.get("relation") or ""
        table.add_row(copy["id"][:12], size, state, clean(copy["url"]))
    return table


def _pairs(values: Mapping[str, Any]) -> Table:
    table = _plain_table()
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {_number(item)}" for key, item in value.items())
        text = _number(value) if isinstance(value, float) else str(value)
        table.add_row(Text(name, style="dim"), clean(f"{text} {_UNITS.get(name, '')}".rstrip()))
    return table


def _plain_table(columns: int = 2) -> Table:
    """Without lines; long values are folded, never cut: people copy hashes and paths from here."""
    table = Table(box=None, show_header=False, pad_edge=True, padding=(0, 1, 0, 1))
    for _ in range(columns):
        table.add_column(overflow="fold")
    return table


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def clean(text: str) -> Text:
    """Text from the web for a terminal: control and direction characters could forge output, so they go."""
    return Text(_CONTROL.sub("�", text))
