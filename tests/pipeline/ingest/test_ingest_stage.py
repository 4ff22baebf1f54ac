"""The whole stage on a small site, a folder and a list: rows, ids, freshness, repair."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from pipeline import storage
from pipeline.engine import LocalEngine
from pipeline.errors import RecipeError, SourceError, StorageError
from pipeline.ingest import body
from pipeline.ingest.addresses import row_id
from pipeline.ingest.outcomes import failures
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.stage import IngestStage
from pipeline.measure import MeasureSettings
from pipeline.progress import Progress
from pipeline.receipt import Receipt
from pipeline.recipe import Recipe
from pipeline.run import Run
from pipeline.schema import INGEST
from pipeline.stage import freshness, run_stage
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import PICTURE, Hostile, reply

INDEX = """<title>index</title><a href="two.html">two</a> <a href="secret/index.html">no</a> <a href="gone.html">x</a>
<figure><img src="1.png" alt="first"><figcaption>The first</figcaption></figure>
<img src="1.png" alt="first again"><img src="secret/2.png" alt="hidden"><img src="missing.png"><img src="http:///">"""
TWO = '<meta name="robots" content="noai"><img src="3.png" alt="not for training"><img src="1.png" alt="first, closed">'
PATHS: dict[str, bytes | hostile.Behaviour] = {
    "/robots.txt": reply(b"User-agent: *\nDisallow: /secret/", kind="text/plain"),
    "/": reply(INDEX.encode(), kind="text/html"), "/two.html": reply(TWO.encode(), kind="text/html"),
    "/1.png": reply(hostile.png(1)), "/secret/2.png": reply(hostile.png(2)), "/3.png": reply(hostile.png(3)),
    "/secret/index.html": reply(b"", kind="text/html"),
}


FOR_ROBOTS = {"/robots.txt", "/.well-known/tdmrep.json"}


@dataclass
class RecipeStub:
    """The parts of a recipe that this stage looks at."""

    ingest: IngestSettings
    manifests_url: str
    data_url: str
    measure: MeasureSettings = field(default_factory=MeasureSettings)


def make_run(folder: Path, ingest: dict[str, Any], *, refresh: bool = False) -> Run:
    recipe = RecipeStub(IngestSettings.model_validate(ingest), str(folder / "manifests"), str(folder / "data"))
    run = Run(cast(Recipe, recipe), Progress(quiet=True), refresh)
    run.__dict__["engine"] = LocalEngine(1)
    return run


def ingest(folder: Path, settings: dict[str, Any], *, refresh: bool = False) -> tuple[list[dict[str, Any]], bool]:
    """Rows, and whether anything was computed."""
    run = make_run(folder, settings, refresh=refresh)
    _, computed = run_stage(IngestStage(), run)
    return run.manifests.stage("ingest").arrow().to_pylist(), computed


def site_settings(server: Hostile, **fetch: Any) -> dict[str, Any]:
    return {
        "sources": [{"kind": "site", "name": "web", "start": [server.base]}],
        "fetch": {"contact": "t@example.org", "allow_hosts": ["127.0.0.1"], "retries": 0, "deadline_s": 5, **fetch},
    }


@pytest.fixture
def server() -> Iterator[Hostile]:
    with hostile.serve(PATHS) as running:
        yield running


def test_a_site_becomes_rows(server: Hostile, tmp_path: Path) -> None:
    rows, _ = ingest(tmp_path, site_settings(server))
    base = server.base
    assert [(r["url"].removeprefix(base), r["occurrence"], r["captions"], r["fetch_outcome"]) for r in rows] == [
        ("/1.png", 0, ["first", "The first"], "ok"), ("/1.png", 1, ["first again"], "ok"),
        ("/secret/2.png", 0, ["hidden"], "robots"), ("/missing.png", 0, [], "not_found"),
        ("/3.png", 0, ["not for training"], "opt_out"), ("/1.png", 2, ["first, closed"], "opt_out"),
    ]
    assert [r["page_url"].removeprefix(base) for r in rows] == ["/"] * 4 + ["/two.html"] * 2
    assert rows[0]["caption_origins"] == ["alt", "figcaption"]
    assert [r["id"] for r in rows] == [row_id("web", "site", r["url"], r["occurrence"]) for r in rows]
    assert rows[0]["sha256"] == rows[1]["sha256"] == hashlib.sha256(hostile.png(1)).digest()
    assert rows[0]["container"] == rows[1]["container"]
    assert rows[0]["offset"] == rows[1]["offset"]
    assert list(rows[0]) == INGEST.names
    # asked for once although shown three times; never where robots or the page said no
    assert [server.hits[path] for path in ("/1.png", "/secret/2.png", "/3.png", "/secret/index.html")] == [1, 0, 0, 0]


def test_what_could_not_be_read_is_kept_beside_the_listing(server: Hostile, tmp_path: Path) -> None:
    ingest(tmp_path, site_settings(server))
    [log] = list((tmp_path / "manifests/ingest/listing").glob("web-*.json"))
    told = json.loads(log.read_text())
    assert {(Path(page["url"]).name, page["outcome"]) for page in told["failed"]} == {
        ("index.html", "robots"), ("gone.html", "not_found")}
    assert told["counts"] == {"pages": 2, "pages that opt out": 1, "rows": 6}


def test_twice_is_once_and_the_same(server: Hostile, tmp_path: Path) -> None:
    first, computed = ingest(tmp_path / "a", site_settings(server))
    assert computed
    before = Counter(server.hits)
    again, computed = ingest(tmp_path / "a", site_settings(server))
    assert (again, computed) == (first, False)
    assert server.hits == before
    other, _ = ingest(tmp_path / "b", site_settings(server))
    assert other == first  # also `container`: it is relative to the run's data, so a run may be moved
    raws = [sorted((p.name, p.read_bytes()) for p in (tmp_path / f / "data/raw").iterdir()) for f in "ab"]
    assert raws[0] == raws[1]


def test_the_web_is_looked_at_again_only_when_asked(server: Hostile, tmp_path: Path) -> None:
    first, _ = ingest(tmp_path, site_settings(server))
    server.paths["/1.png"] = reply(hostile.png(9))
    server.paths["/"] = reply(INDEX.replace("missing.png", "3.png").encode(), kind="text/html")
    same, computed = ingest(tmp_path, site_settings(server))
    assert (same, computed) == (first, False)
    anew, computed = ingest(tmp_path, site_settings(server), refresh=True)
    assert computed
    assert anew[0]["sha256"] == hashlib.sha256(hostile.png(9)).digest()
    assert anew[0]["id"] == first[0]["id"]
    assert anew[3]["fetch_outcome"] == "ok"
    still, computed = ingest(tmp_path, site_settings(server))
    assert (still, computed) == (anew, False)
    # the first generation's bytes and listing are gone with it
    assert {f"raw/{p.name}" for p in (tmp_path / "data/raw").iterdir()} == {
        r["container"] for r in anew if r["container"]}
    assert len(list((tmp_path / "manifests/ingest/listing").glob("*.parquet"))) == 1


def test_a_lost_or_cut_raw_tar_is_fetched_again(server: Hostile, tmp_path: Path) -> None:
    first, _ = ingest(tmp_path, site_settings(server))
    [raw] = (tmp_path / "data/raw").iterdir()
    whole = raw.read_bytes()
    for damage in (raw.unlink, lambda: os.truncate(raw, 520)):
        damage()
        state = freshness(IngestStage(), make_run(tmp_path, site_settings(server)))
        assert not state.fresh
        assert raw.name in state.why[0]
        again, computed = ingest(tmp_path, site_settings(server))
        assert (again, computed) == (first, True)
        assert raw.read_bytes() == whole


def test_failed_rows_are_tried_again_when_a_limit_changes(server: Hostile, tmp_path: Path) -> None:
    server.paths["/1.png"] = reply(PICTURE + b"\0" * 5000)
    small = site_settings(server, max_bytes=4000)
    assert [r["fetch_outcome"] for r in ingest(tmp_path, small)[0]][:2] == ["too_large", "too_large"]
    before = Counter(server.hits)
    rows, _ = ingest(tmp_path, site_settings(server, max_bytes=8000))
    assert [r["fetch_outcome"] for r in rows][:2] == ["ok", "ok"]
    assert set(server.hits - before) <= {"/1.png", *FOR_ROBOTS}  # no page, no picture that had an answer
    changed, computed = ingest(tmp_path, site_settings(server, max_bytes=8000, concurrency=3, delay_s=0.001))
    assert (changed, computed) == (rows, False)  # what decides no outcome makes nothing stale


def test_adding_a_source_appends_rows_and_fetches_only_those(server: Hostile, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats/a b.png").write_bytes(hostile.png(4))
    (folder / "cats/no.jpg").write_bytes(b"<html>")
    (folder / "cats/none.jpg").write_bytes(b"")
    listed = tmp_path / "more.csv"
    listed.write_text(f"url,caption,width\n{server.base}/3.png,three,30\nftp://x,bad,\n{server.base}/3.png,tres,31\n")
    settings = site_settings(server)
    first, _ = ingest(tmp_path, settings)
    before = Counter(server.hits)
    settings["sources"] += [
        {"kind": "folder", "name": "disk", "path": str(folder), "label_from": "parent"},
        {"kind": "urls", "name": "list", "path": str(listed), "captions": ["caption"]},
    ]
    rows, _ = ingest(tmp_path, settings)
    assert [{k: v for k, v in r.items() if k != "source_width"} for r in rows[:len(first)]] == first
    assert {r["source_width"] for r in rows[:len(first)]} == {None}
    disk, urls = rows[6:9], rows[9:]
    assert [(r["captions"], r["label"], r["fetch_outcome"]) for r in disk] == [
        (["a b"], "cats", "ok"), (["no"], "cats", "not_an_image"), (["none"], "cats", "empty")]
    assert (disk[0]["container"], disk[0]["offset"]) == (str(folder / "cats/a b.png"), 0)
    assert disk[0]["url"] == f"file://{folder}/cats/a%20b.png"
    assert disk[0]["id"] == row_id("disk", "folder", "cats/a b.png", 0)
    assert [(r["url"], r["captions"], r["source_width"], r["fetch_outcome"]) for r in urls] == [
        (f"{server.base}/3.png", ["three"], "30", "ok"), ("ftp://x", ["bad"], "", "bad_url"),
        (f"{server.base}/3.png", ["tres"], "31", "ok")]
    assert set(server.hits - before) == {"/3.png", *FOR_ROBOTS}


def test_folder_ids_survive_a_move(tmp_path: Path) -> None:
    def rows(where: str) -> list[dict[str, Any]]:
        source = {"kind": "folder", "name": "disk", "path": str(tmp_path / where)}
        return ingest(tmp_path / "run", {"sources": [source]})[0]

    (tmp_path / "here/sub").mkdir(parents=True)
    (tmp_path / "here/sub/a.png").write_bytes(PICTURE)
    before = rows("here")
    (tmp_path / "here").rename(tmp_path / "there")
    after = rows("there")
    assert [r["id"] for r in before] == [r["id"] for r in after]
    assert after[0]["container"] == str(tmp_path / "there/sub/a.png")


def test_only_rows_that_failed_as_named_are_asked_for_again(server: Hostile, tmp_path: Path) -> None:
    settings = site_settings(server)
    first, _ = ingest(tmp_path, settings)
    server.paths["/missing.png"], server.paths["/1.png"] = reply(hostile.png(7)), reply(hostile.png(9))
    before = Counter(server.hits)
    run = make_run(tmp_path, settings)
    run.retry = failures("timeout, not_found")
    run_stage(IngestStage(), run, force=True)
    rows = run.manifests.stage("ingest").arrow().to_pylist()
    assert [row["fetch_outcome"] for row in rows] == ["ok", "ok", "robots", "ok", "opt_out", "opt_out"]
    assert rows[3]["sha256"] == hashlib.sha256(hostile.png(7)).digest()
    assert [rows[at] for at in (0, 1, 2, 4, 5)] == [first[at] for at in (0, 1, 2, 4, 5)]
    assert set(server.hits - before) == {"/missing.png", *FOR_ROBOTS}
    assert ingest(tmp_path, settings) == (rows, False)


def test_a_failure_to_retry_must_exist() -> None:
    assert failures("") == frozenset()
    with pytest.raises(RecipeError, match="'time-out'") as caught:
        failures("dns,time-out")
    assert "did you mean 'timeout'?" in caught.value.hint
    with pytest.raises(RecipeError, match="'ok'"):
        failures("ok")


def test_a_changed_folder_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(PICTURE)
    settings = {"sources": [{"kind": "folder", "name": "disk", "path": str(folder)}]}
    ingest(tmp_path, settings)
    assert ingest(tmp_path, settings)[1] is False
    (folder / "b.txt").write_text("bee")
    (folder / "b.png").write_bytes(hostile.png(2))
    rows, computed = ingest(tmp_path, settings)
    assert computed
    assert [r["captions"] for r in rows] == [["a"], ["bee"]]


def test_a_crawl_that_dies_leaves_nothing_frozen(server: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 ) -> None:
    from pipeline.ingest.sources.site import SiteSource

    whole = SiteSource.rows

    def dies(self: SiteSource, web: Any, log: Any) -> Iterator[Any]:
        yield next(iter(whole(self, web, log)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SiteSource, "rows", dies)
        with pytest.raises(KeyboardInterrupt):
            ingest(tmp_path, site_settings(server))
    assert not list((tmp_path / "manifests/ingest").rglob("*.parquet"))
    assert len(ingest(tmp_path, site_settings(server))[0]) == 6


def test_finished_chunks_are_not_fetched_again(tmp_path: Path) -> None:
    pictures = {f"/{n}.png": reply(hostile.png(n + 1)) for n in range(12)}
    index = reply("".join(f'<img src="{path}">' for path in pictures).encode(), kind="text/html")
    with hostile.serve({"/robots.txt": reply(b"", 404), "/": index, **pictures}) as server:
        settings = {**site_settings(server), "chunk_rows": 4}

        class Dies(LocalEngine):
            def as_done(self, factory: Any, jobs: Any, *, kind: Any, rescue: Any = None) -> Generator[Any, None, None]:
                for count, entry in enumerate(super().as_done(factory, jobs, kind=kind, rescue=rescue)):
                    if count == 2:
                        raise KeyboardInterrupt
                    yield entry

        run = make_run(tmp_path / "a", settings)
        run.__dict__["engine"] = Dies(1)
        with pytest.raises(KeyboardInterrupt):
            run_stage(IngestStage(), run)
        before = Counter(server.hits)
        resumed, _ = ingest(tmp_path / "a", settings)
        asked = server.hits - before
        assert asked.keys() >= FOR_ROBOTS
        chunk = {path for path in asked if path not in FOR_ROBOTS}  # no page, and one of the three chunks
        assert chunk in [{f"/{n}.png" for n in range(start, start + 4)} for start in (0, 4, 8)]
        whole, _ = ingest(tmp_path / "b", settings)
        assert resumed == whole
        names = [sorted(p.name for p in (tmp_path / f / "data/raw").iterdir()) for f in "ab"]
        assert names[0] == names[1]
        assert len(names[0]) == 3


def test_an_unreachable_site_is_one_clear_line(tmp_path: Path) -> None:
    settings = {"sources": [{"kind": "site", "name": "web", "start": [f"http://127.0.0.1:{hostile.free_port()}/"]}],
                "fetch": {"contact": "t@example.org", "retries": 0}}
    with pytest.raises(SourceError, match="private_address") as caught:
        ingest(tmp_path, settings)
    assert "allow_hosts" in caught.value.hint
    settings["fetch"] = {"contact": "t@example.org", "retries": 0, "allow_hosts": ["127.0.0.1"]}
    with pytest.raises(SourceError, match="connect"):
        ingest(tmp_path, settings)


@pytest.mark.parametrize(("settings", "message"), [
    ({"sources": [{"kind": "site", "name": "s", "start": ["http://h/"]}]}, "contact"),
    ({"sources": [{"kind": "folder", "name": "s", "path": "a"}, {"kind": "folder", "name": "s", "path": "b"}]}, "'s'"),
    ({"sources": [{"kind": "folder", "name": "../s", "path": "a"}]}, "pattern"),
    ({"sources": [{"kind": "sight", "name": "s"}]}, "site"),
    ({"sources": [{"kind": "folder", "name": "s", "path": "a", "label_from": "metadata"}]}, "metadata_label"),
])
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        IngestSettings.model_validate(settings)


def test_a_run_without_sources_stops_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"ingest\.sources is empty"):
        ingest(tmp_path, {})


def test_a_full_temporary_disk_is_no_broken_connection(server: Hostile, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    monkeypatch.setattr(body, "IN_MEMORY", 10)
    with pytest.raises(StorageError, match="No space left") as caught:
        ingest(tmp_path, site_settings(server))
    assert "TMPDIR" in caught.value.hint


def test_every_setting_is_described() -> None:
    from pipeline.ingest.sources import registry

    models = [IngestSettings, IngestSettings.model_fields["fetch"].annotation]
    models += [IngestSettings.model_fields["blocklist"].annotation]
    models += [source.Settings for source in registry().values()]
    for model in models:
        assert model is not None
        for name, described in model.model_fields.items():
            assert described.description, name


def test_receipt_counts_outcomes(server: Hostile, tmp_path: Path) -> None:
    receipt: Receipt = run_stage(IngestStage(), make_run(tmp_path, site_settings(server)))[0]
    assert receipt.counts == {"ok": 2, "robots": 1, "not_found": 1, "opt_out": 2}


def test_file_names_that_are_no_text_and_odd_ones_are_read(tmp_path: Path) -> None:
    names = [b"bad\xff.png", b"new\nline.png", "é ☃ %41 #?.png".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/in-" + name)).write_bytes(PICTURE)
    rows, _ = ingest(tmp_path / "run", {"sources": [{"kind": "folder", "name": "disk", "path": str(tmp_path)}]})
    assert [row["fetch_outcome"] for row in rows] == ["ok"] * 3
    for row in rows:
        assert storage.read_range(row["container"], 0, row["length"], sha256=row["sha256"]) == PICTURE
