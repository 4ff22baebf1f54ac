"""The same on object storage, where nothing can be renamed and nothing overwritten in part."""

from __future__ import annotations

import fsspec

from pipeline.run import Run
from pipeline.takedown.command import forget
from tests.pipeline.ingest import hostile
from tests.pipeline.takedown.marked import WORDS, curate, recipe, rows_of, site
from tests.pipeline.takedown.test_forget import MARKED
from train.shards import open_shards


def test_on_object_storage(s3: str) -> None:
    place = f"{s3}/forget"
    with hostile.serve(site().paths) as server:
        given = recipe(place, server)
        run = curate(given)
        ids = set(open_shards(f"{place}/data/marked/shards").table["id"].to_pylist())
        files, _ = fsspec.url_to_fs(place)
        assert any(MARKED in files.cat_file(path) for path in files.find(place))
        forget(Run(given), [rows_of(run)["marked.png"]["id"]])
        files.invalidate_cache()
        for path in files.find(place):
            data = files.cat_file(path)
            assert MARKED[200:260] not in data, path
            assert WORDS.encode() not in data, path
        run = curate(given, refresh=True)
        gone = {row["id"] for row in rows_of(run).values() if row["fetch_outcome"] == "forgotten"}
        assert len(gone) == 2
        shards = open_shards(f"{place}/data/marked/shards")
        assert set(shards.table["id"].to_pylist()) == ids - gone
        for position in range(len(shards)):
            shards.read(position)
        assert server.hits["/marked.png"] == 1
