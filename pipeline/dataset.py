"""`dataset`: the one wide manifest, everything known of every row; for people, pandas and DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from pipeline.receipt import JsonObject
from pipeline.schema import Column, TableSchema
from pipeline.stage import Output, Stage

if TYPE_CHECKING:
    from pipeline.run import Run

LEFT_OUT = ("value_key", "thumb")
"""Internal columns; embeddings lie in side tables, which the joined view leaves out by itself."""


class DatasetStage(Stage):
    name: ClassVar[str] = "dataset"
    inputs: ClassVar[tuple[str, ...]] = (
        "ingest", "measure", "dedupe", "filter", "score", "caption", "select", "weigh", "shard",
    )

    def settings(self, run: Run) -> JsonObject:
        return {}

    def tables(self, run: Run) -> dict[str, TableSchema]:
        rows = run.manifests.joined(stages=self.inputs)
        names = [name for name in rows.columns if name not in LEFT_OUT]
        types = rows.part(0, names).schema if rows.part_count else pa.schema([(name, pa.null()) for name in names])
        return {"": TableSchema(tuple(Column(name, types.field(name).type, "") for name in names))}

    def execute(self, run: Run, output: Output) -> None:
        rows = run.manifests.joined(stages=self.inputs)
        names = output.schemas[""].names
        for number in range(rows.part_count):
            output.write("", rows.part(number, names))
