"""The page of all columns, drawn from the schemas: `curate schema` and `manifests/README.md`."""

from __future__ import annotations

from pipeline.checks import findings, registry
from pipeline.receipt import JsonObject
from pipeline.schema import CLUSTERS, EDGES, HELD_OUT, ID, SAMPLES, STAGES, TOPICS, TableSchema

HEAD = """# The manifests' columns

Each stage writes `manifests/<run>/<stage>/part-*.parquet` with one row per input row in the same order, and a
`receipt.json` that lists them. `pipeline.open("manifests/<run>").joined()` puts all stages side by side;
`manifests/<run>/dataset/` is the same as one wide table. This page is written by `curate schema`.

Rows that a blocklist keeps out (`blocked`) keep what their source says of them; rows that `curate forget` took down
(`forgotten`) keep `id`, `source`, `kind`, `url`, `occurrence` and, in `fetch_detail`, when and why: all else is null or
empty. `tombstones.jsonl` holds what was asked to be forgotten, `takedown.json` which rules have been carried out.
"""


def as_rows() -> list[JsonObject]:
    """One entry per column: table, name, type, unit, meaning."""
    rows: list[JsonObject] = []
    for table, schema in _tables().items():
        rows += [{"table": table, "name": c.name, "type": str(c.type), "unit": c.unit, "meaning": c.meaning}
                 for c in schema.columns]
        if table == "measure":
            rows += [{"table": table, "name": name, "type": "float", "unit": "", "meaning": meaning}
                     for check in registry().values() for name, meaning in check.columns.items()]
    return rows


def _tables() -> dict[str, TableSchema]:
    return {**STAGES, "dedupe/edges": EDGES, "dedupe/held_out": HELD_OUT,
            "filter/found": TableSchema((ID, *findings())), "select/clusters": CLUSTERS,
            "weigh/topics": TOPICS, "samples.parquet": SAMPLES}


def as_markdown() -> str:
    """The page, one Markdown table per manifest."""
    lines = [HEAD]
    last = ""
    for row in as_rows():
        if row["table"] != last:
            last = row["table"]
            lines.append(f"\n## {last}\n\n| column | type | unit | meaning |\n|---|---|---|---|")
        kind = row["type"].replace("|", "\\|")
        lines.append(f"| `{row['name']}` | {kind} | {row['unit']} | {row['meaning']} |")
    return "\n".join(lines) + "\n"
