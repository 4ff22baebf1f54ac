"""What was taken down is nowhere, all else is as it was, and nothing brings it back."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import imagehash
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pipeline import stages, trace
from pipeline.cli import app
from pipeline.errors import GristmillError
from pipeline.image import decode
from pipeline.measure import thumb
from pipeline.recipe import from_dict
from pipeline.run import Run
from pipeline.takedown.command import forget
from tests.pipeline.ingest import hostile
from tests.pipeline.takedown.conftest import Made
from tests.pipeline.takedown.marked import (
    POOLED,
    WORDS,
    curate,
    encoded,
    marked_picture,
    other_picture,
    recipe,
    rows_of,
    site,
    traces,
)
from train.latents import ArrayStore, content_key
from train.shards import ByteCache, open_shards

MARKED = encoded(marked_picture())
SHA = hashlib.sha256(MARKED).hexdigest()


def needles(row: dict[str, Any]) -> dict[str, bytes]:
    picture = decode(MARKED)
    return {"bytes": MARKED[200:260], "words": WORDS.encode(), "pooled": POOLED.encode(), "thumb": thumb(picture),
            "digest": picture.digest(), "member": f"{row['id']}.png".encode(), "surname": b"Quixworth"}


def trained(workdir: Path, run: Run) -> dict[str, ArrayStore]:
    """What the trainer would have left: latents, text states, bytes of remote shards, drawings."""
    folder = workdir / "runs/marked"
    stores = {"latents": ArrayStore(str(folder / "latents/x-64x64")), "text": ArrayStore(str(folder / "text/y"))}
    rows = [row for row in rows_of(run).values() if row["sha256"] is not None]
    cache = ByteCache(str(folder / "cache"), 10**9)
    for row in rows:
        number = float(int.from_bytes(row["sha256"][:2], "big"))
        keys = [row["sha256"], row["sha256"] + b"sided"]
        stores["latents"].append(keys, {"latents": np.full((2, 3), number, np.float32)})
        stores["text"].append([content_key(text) for text in row["captions"]],
                              {"text": np.full((len(row["captions"]), 2), number, np.float32)})
    larger = rows_of(run)["larger.jpg"]["sha256"]
    stores["latents"].append([bytes.fromhex(SHA) + b"x", larger + b"x"], {"latents": np.eye(2, 3, dtype=np.float32)})
    cache.put(bytes.fromhex(SHA), MARKED)
    cache.put(larger, b"larger")
    (folder / "vae/grids").mkdir(parents=True)
    (folder / "vae/grids/grid-1.png").write_bytes(MARKED)
    (folder / "vae/model").write_bytes(b"weights")
    for store in stores.values():
        store.refresh()
    return stores


def reachable(workdir: Path, run: Run) -> set[str]:
    """Ids that the trainer can read, every one of them read and checked; index, samples and manifests agree."""
    shards = open_shards(f"{workdir}/data/marked/shards")
    for position in range(len(shards)):
        shards.read(position)
    ids = set(shards.table["id"].to_pylist())
    joined = run.manifests.joined(["id", "shard", "shard_offset"]).arrow().to_pylist()
    places = {row["id"]: (row["shard"], row["shard_offset"]) for row in joined if row["shard"] is not None}
    assert places == {row["id"]: (row["shard"], row["offset"]) for row in shards.table.to_pylist()}
    tars = {path.name for path in (workdir / "data/marked/shards").glob("*.tar")}
    assert tars == {row["shard"] for row in shards.table.to_pylist()}
    return ids


def test_nothing_is_left_of_it_and_nothing_else_is_touched(made: Made, tmp_path: Path) -> None:
    given = made.copy(tmp_path)
    run = Run(given)
    before = rows_of(run)
    marked, again, larger = before["marked.png"], before["again.png"], before["larger.jpg"]
    trained(tmp_path, run)
    sought = needles(marked)
    told = {name for _, name in traces(tmp_path, sought)}
    assert told == {*sought, "magenta"}, "the search must find what is there"
    keeper = run.manifests.joined(["id", "duplicate_of"]).arrow().to_pylist()
    assert {row["id"]: row["duplicate_of"] for row in keeper}[marked["id"]] == larger["id"]
    raw = {path.name: path.read_bytes() for path in (tmp_path / "data/marked/raw").iterdir()}
    ids = reachable(tmp_path, run)

    answer = forget(Run(given), [marked["id"][:9]], reason="she asked")
    assert {row["id"] for row in answer["rows"]} == {marked["id"], again["id"]}
    assert answer["pictures"] == 1
    run = Run(given)
    left = traces(tmp_path, sought)
    assert {name for _, name in left} <= {"magenta"}, left  # the larger copy is another picture, and stays
    after = rows_of(run)
    for name in ("marked.png", "again.png"):
        row = after[name]
        assert (row["id"], row["url"], row["fetch_outcome"]) == (before[name]["id"], before[name]["url"], "forgotten")
        assert "she asked" in row["fetch_detail"]
        assert {column for column, value in row.items() if value not in (None, [])} == {
            "id", "source", "kind", "url", "occurrence", "fetch_outcome", "fetch_detail"}
    assert {name: row for name, row in after.items() if row["sha256"]} == {
        name: row for name, row in before.items() if row["sha256"] != bytes.fromhex(SHA)}
    for name, data in raw.items():  # same names and sizes; all others' bytes at their places
        now = (tmp_path / "data/marked/raw" / name).read_bytes()
        assert (len(now), MARKED in now) == (len(data), False)
        assert now == data or MARKED in data
    assert reachable(tmp_path, run) == ids - {marked["id"], again["id"]}
    stores = {name: ArrayStore(str(next((tmp_path / "runs/marked" / name).iterdir()))) for name in ("latents", "text")}
    assert bytes.fromhex(SHA) not in stores["latents"]
    assert stores["latents"].take([larger["sha256"] + b"x"])["latents"].tolist() == [[0.0, 1.0, 0.0]]
    assert [content_key(text) in stores["text"] for text in (WORDS, POOLED, "a pattern of squares")] == [
        False, False, True]
    assert [path.read_bytes() for path in (tmp_path / "runs/marked/cache").rglob("*") if path.is_file()] == [b"larger"]
    assert not (tmp_path / "runs/marked/vae/grids").exists()
    assert (tmp_path / "runs/marked/vae/model").exists()
    facts = trace.row_facts(run.manifests, marked["id"])
    assert facts["decision"]["reason"] == "forgotten"
    assert "she asked" in facts["ingest"]["fetch_detail"]


def test_no_rerun_brings_it_back(made: Made, tmp_path: Path) -> None:
    given, pages, server = made.copy(tmp_path), site(), made.server
    marked = rows_of(Run(given))["marked.png"]
    sought = needles(marked)
    forget(Run(given), [f"{server.base}/marked.png"])
    for turn in ("again", "refresh", "force", "elsewhere"):
        if turn == "elsewhere":  # the same picture under another address, and named by another source
            pages.captions["/new.png"], pages.pictures["/new.png"] = "a new name", MARKED
            server.paths.update(pages.paths)
            listed = tmp_path / "list.csv"
            listed.write_text(f"url,caption\n{server.base}/marked.png,{WORDS}\n{server.base}/0.png,zero\n")
            sources = [*given.model_dump(mode="json")["ingest"]["sources"],
                       {"kind": "urls", "name": "list", "path": str(listed), "captions": ["caption"]}]
            given = recipe(str(tmp_path), server, sources=sources)
        run = curate(given, refresh=turn in ("refresh", "elsewhere"), force=turn == "force")
        rows = run.manifests.stage("ingest").arrow().to_pylist()
        forgotten = [row for row in rows if row["fetch_outcome"] == "forgotten"]
        assert len(forgotten) == (4 if turn == "elsewhere" else 2), turn
        left = traces(tmp_path / "manifests", sought) | traces(tmp_path / "data", sought)
        assert {name for _, name in left} <= {"magenta"}, (turn, left)
    assert (server.hits["/marked.png"], server.hits["/new.png"]) == (0, 1)
    assert marked["id"] not in reachable(tmp_path, run)


@pytest.mark.parametrize("what", ["sha256", "host", "similar", "phash"])
def test_every_way_to_name_it(what: str, made: Made, tmp_path: Path) -> None:
    given = made.copy(tmp_path)
    run = Run(given)
    rows = rows_of(run)
    looks = {row["id"]: row["phash"] for row in run.manifests.stage("measure").arrow(["id", "phash"]).to_pylist()}
    asked = {"sha256": SHA, "host": "127.0.0.1", "similar": rows["marked.png"]["id"],
             "phash": f"phash:{looks[rows['marked.png']['id']]:016x}"}[what]
    answer = forget(Run(given), [asked], similar=4 if what in ("similar", "phash") else None)
    same = {"marked.png", "again.png"}
    expected = {"sha256": same, "host": set(rows), "similar": {*same, "larger.jpg"},
                "phash": {*same, "larger.jpg"}}[what]
    assert {row["url"].rsplit("/", 1)[-1] for row in answer["rows"]} == expected
    after = rows_of(Run(given))
    assert {name for name, row in after.items() if row["fetch_outcome"] == "forgotten"} == expected
    magenta = {name for _, name in traces(tmp_path, {"bytes": MARKED[200:260]})}
    assert magenta == ({"magenta"} if what == "sha256" else set())


def test_a_dry_run_and_a_no_change_nothing(made: Made, tmp_path: Path) -> None:
    given = made.copy(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for options in ({"dry_run": True}, {"agree": lambda _: False}):
        answer = forget(Run(given), [SHA], **options)  # type: ignore[arg-type]
        assert (len(answer["rows"]), answer["done"]) == (2, False)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    for asked, message in (("beef0123", "no row"), ("what is this", "nothing that can be forgotten"),
                           ("ftp://x/y", "no address")):
        with pytest.raises(GristmillError, match=message):
            forget(Run(given), [SHA, asked])
    assert not (tmp_path / "manifests/marked/tombstones.jsonl").exists()


def test_addresses_can_be_hidden(made: Made, tmp_path: Path) -> None:
    given = made.copy(tmp_path)
    row = rows_of(Run(given))["marked.png"]
    forget(Run(given), [row["url"]], hide=True)
    sought = {"address": row["url"].encode(), "copy": row["url"].replace("marked", "again").encode()}
    assert {name for _, name in traces(tmp_path, sought)} == {"magenta"}
    run = curate(given, refresh=True)
    assert {name for _, name in traces(tmp_path, sought)} == {"magenta"}
    assert made.server.hits["/marked.png"] == 0
    facts = trace.row_facts(run.manifests, row["url"])  # whoever has the address can still ask
    assert (facts["id"], facts["decision"]["reason"]) == (row["id"], "forgotten")
    with pytest.raises(GristmillError, match="cannot be hidden"):
        forget(Run(given), ["127.0.0.1"], hide=True)


def test_pictures_in_place_stay_where_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for seed in range(3):
        (folder / f"{seed}.png").write_bytes(encoded(other_picture(seed)))
    (folder / "marked.png").write_bytes(MARKED)
    (folder / "marked.txt").write_text(WORDS)
    with hostile.serve({}) as server:
        given = recipe(str(tmp_path / "w"), server, sources=[{"kind": "folder", "name": "disk", "path": str(folder)}])
        curate(given)
        answer = forget(Run(given), [SHA])
        assert answer["in_place"] == [str(folder / "marked.png")]
        run = curate(given)
    assert (folder / "marked.png").read_bytes() == MARKED
    assert rows_of(run)["marked.png"]["fetch_outcome"] == "forgotten"
    assert traces(tmp_path / "w", {"bytes": MARKED[200:260], "words": WORDS.encode()}) == set()


def test_a_longer_blocklist_takes_down_what_was_there(made: Made, tmp_path: Path) -> None:
    run = Run(made.copy(tmp_path))
    before, ids = rows_of(run), reachable(tmp_path, run)
    run = curate(recipe(str(tmp_path), made.server, blocklist={"sha256": [SHA], "urls": ["*/0.png"]}))
    after = rows_of(run)
    assert {name: (row["fetch_outcome"], row["fetch_detail"]) for name, row in after.items() if not row["sha256"]} == {
        "0.png": ("blocked", "url */0.png"), "marked.png": ("blocked", f"sha256 {SHA}"),
        "again.png": ("blocked", f"sha256 {SHA}")}
    assert after["marked.png"]["captions"] == [WORDS]
    assert sum(made.server.hits.values()) == 0, "what is there is known: nothing is asked for"
    gone = {before[name]["id"] for name in ("0.png", "marked.png", "again.png")}
    assert reachable(tmp_path, run) == ids - gone
    raw = b"".join(path.read_bytes() for path in (tmp_path / "data/marked/raw").iterdir())
    assert MARKED not in raw
    run = curate(recipe(str(tmp_path), made.server))
    back = rows_of(run)
    assert [back[name]["sha256"] for name in back] == [before[name]["sha256"] for name in back]
    assert reachable(tmp_path, run) == ids


@pytest.mark.parametrize("measured", ["whole", "header", "nothing"])
def test_looks_that_were_not_measured_yet(measured: str, made: Made, tmp_path: Path) -> None:
    """A perceptual rule that comes after `ingest` is held against what `measure` took, else against the bytes."""
    given = made.copy(tmp_path)
    looks = imagehash.phash(marked_picture())
    if measured != "whole":
        for stage in stages.STAGES:
            if stage != "ingest":
                shutil.rmtree(tmp_path / "manifests/marked" / stage)
    if measured == "header":
        small = {"resolution": {"action": "drop", "min_side": 1000}}
        run = curate(from_dict({**given.model_dump(mode="json"), "measure": {"early_exit": True}, "filter": small}))
        assert set(run.manifests.stage("measure").arrow()["decode_outcome"].to_pylist()) == {"header_only"}
    run = curate(recipe(str(tmp_path), made.server, blocklist={"phash": [f"{looks}~4"]}))
    assert {name for name, row in rows_of(run).items() if row["fetch_outcome"] == "blocked"} == {
        "marked.png", "again.png", "larger.jpg"}
    assert traces(tmp_path, {"bytes": MARKED[200:260]}) == set()
    assert rows_of(run).keys() == rows_of(Run(given)).keys()


def test_the_command(made: Made, tmp_path: Path) -> None:
    made.copy(tmp_path)
    recipe_file = tmp_path / "my.toml"
    recipe_file.write_text(f'name = "marked"\nworkdir = "{tmp_path}"\n[ingest.fetch]\ncontact = "t@example.org"\n'
                           f'[[ingest.sources]]\nkind = "site"\nname = "web"\nstart = ["{made.server.base}"]\n')
    asked = ["forget", "--recipe", str(recipe_file), "-q", SHA]
    would = CliRunner().invoke(app, [*asked, "--dry-run"])
    assert "would take down 2 rows with 1 pictures" in would.stdout, would.output
    did = json.loads(CliRunner().invoke(app, [*asked, "--json", "--reason", "she asked"]).stdout)
    assert (did["done"], len(did["rows"]), did["matched_nothing"], Path(did["report"]).name) == (
        True, 2, [], "index.html")
    again = CliRunner().invoke(app, [*asked, "127.0.0.2"]).stdout
    told = " ".join(again.split())
    assert f"{SHA}: was forgotten before" in told
    assert "127.0.0.2: no row of this run; it is kept out from now on" in told


def test_tombstones_are_damaged_by_hand(made: Made, tmp_path: Path) -> None:
    given = made.copy(tmp_path)
    forget(Run(given), [SHA])
    place = tmp_path / "manifests/marked/tombstones.jsonl"
    assert json.loads(place.read_text())["sha256"] == [SHA]
    place.write_text(place.read_text() + "{\n")
    with pytest.raises(GristmillError, match=r"tombstones\.jsonl, line 2 is damaged"):
        curate(given)


def test_spare_values_go_too(made: Made, tmp_path: Path) -> None:
    """A row that left the listing keeps its values in reserve: thumbnail and hashes."""
    pages, given = site(), made.copy(tmp_path)
    row = rows_of(Run(given))["marked.png"]
    for path in ("/marked.png", "/again.png"):
        del pages.captions[path]
    made.server.paths["/"] = pages.paths["/"]
    curate(given, refresh=True)
    thumbs = [value for path in (tmp_path / "manifests").rglob("spare-*.parquet")
              for value in pq.read_table(path).to_pylist()]
    assert thumb(decode(MARKED)) in [value.get("thumb") for value in thumbs]
    forget(Run(given), [SHA])
    assert {name for _, name in traces(tmp_path / "manifests", needles(row))} <= {"magenta"}
