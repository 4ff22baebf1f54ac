"""What the blocklist keeps out, before anything is asked for, stored or shown."""

from __future__ import annotations

import gzip
import hashlib
import io
from pathlib import Path
from typing import Any

import imagehash
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from pipeline import recipe
from pipeline.errors import RecipeError, StorageError
from pipeline.ingest.blocklist import BlocklistSettings, rules
from pipeline.ingest.rules import Rule, RuleSet
from tests.pipeline.ingest import hostile
from tests.pipeline.ingest.hostile import reply
from tests.pipeline.ingest.test_ingest_stage import ingest, site_settings

SHA = hashlib.sha256(b"x").hexdigest()
HASH = "ffd8a0c1b2e3f405"


def compiled(**settings: Any) -> RuleSet:
    rule_set = RuleSet("blocked")
    for rule in rules(BlocklistSettings(**settings)):
        rule_set.add(rule)
    return rule_set.close()


@pytest.mark.parametrize(("settings", "blocked", "free"), [
    ({"hosts": ["Example.org"]},
     ["http://example.org/a", "https://a.b.example.org/", "http://example.org:8080/a"],
     ["http://badexample.org/", "http://example.org.evil.net/", "http://other/example.org"]),
    ({"hosts": ["*.example.org", "bücher.example"]}, ["http://example.org/a", "http://xn--bcher-kva.example/"], []),
    ({"urls": ["HTTP://Example.org:80/a/../b#c"]}, ["http://example.org/b"], ["http://example.org/b?x"]),
    ({"urls": ["*://example.org/private/*"]},
     ["http://example.org/private/", "https://example.org/private/a?b"],
     ["http://example.org/", "http://a.example.org/private/x", "http://evil/?http://example.org/private/"]),
    ({"urls": ["example.org/*.gif"]}, ["https://example.org/a/b.gif"], ["https://example.org/a.gif?x"]),
    ({"urls": ["https://*/people/ä*"]}, ["https://x.y/people/%C3%A4bc"], ["http://x.y/people/%C3%A4bc"]),
    ({"urls": ["*secret*"]}, ["http://a/secret/b", "file:///home/secret.png"], ["http://a/b"]),
])
def test_addresses(settings: dict[str, Any], blocked: list[str], free: list[str]) -> None:
    rule_set = compiled(**settings)
    assert [url for url in (*blocked, *free) if rule_set.address(url)] == blocked


def test_hashes() -> None:
    ends_in_zero = hashlib.sha256(b"x").digest()[:31] + b"\0"
    rule_set = compiled(sha256=[SHA.upper(), ends_in_zero.hex()], phash=[HASH, "0000000000000000~0"], distance=2)
    assert rule_set.content(bytes.fromhex(SHA)) == ("blocked", f"sha256 {SHA}")
    assert rule_set.content(ends_in_zero) is not None
    assert rule_set.content(hashlib.sha256(b"y").digest()) is None
    assert rule_set.looks(int(HASH, 16) ^ 0b11) == ("blocked", f"phash {HASH}~2")
    assert rule_set.looks(int(HASH, 16) ^ 0b111) is None
    assert (rule_set.looks(0), rule_set.looks(1)) == (("blocked", "phash 0000000000000000"), None)


def test_rules_still_stand_or_not() -> None:
    rule_set = compiled(sha256=[SHA], phash=[HASH], hosts=["example.org"], urls=["http://a/*"])
    refusals = [rule_set.content(bytes.fromhex(SHA)), rule_set.looks(int(HASH, 16)),
                rule_set.address("http://example.org/"), rule_set.address("http://a/b")]
    details = [refusal[1] for refusal in refusals if refusal]
    assert [rule_set.stands(detail) for detail in details] == [True] * 4
    assert [compiled(hosts=["example.com"]).stands(detail) for detail in (*details, None)] == [False] * 5


def test_every_kind_of_file(tmp_path: Path) -> None:
    text = f"# kept out\n{SHA}\n\n  {HASH}~3\nexample.org\n*.example.net\nhttp://a/b\nhttp://a/c*\nhost: cafe\n"
    (tmp_path / "a.txt").write_text(text)
    with gzip.open(tmp_path / "b.txt.gz", "wt") as packed:
        packed.write(text)
    (tmp_path / "c.csv").write_text(f"note,sha256,phash,distance\nx,{SHA},,\ny,,{HASH},3\n")
    table = pa.table({"sha256": pa.array([bytes.fromhex(SHA), None], pa.binary(32)),
                      "phash": pa.array([None, int(HASH, 16)], pa.uint64()), "distance": [None, 3]})
    pq.write_table(table, tmp_path / "d.parquet")
    hashes = [Rule("sha256", SHA), Rule("phash", HASH, 3)]
    places = [Rule("host", "example.org"), Rule("host", "example.net"), Rule("url", "http://a/b"),
              Rule("url", "http://a/c*"), Rule("host", "cafe")]
    for name, expected in (("a.txt", hashes + places), ("b.txt.gz", hashes + places), ("c.csv", hashes),
                           ("d.parquet", hashes)):
        assert list(rules(BlocklistSettings(files=(str(tmp_path / name),)))) == expected, name


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.txt", f"{SHA}\n{SHA[:-1]}\n", r"a\.txt, line 2: .*64 hex digits"),
    ("a.txt", f"{HASH}~99\n", r"line 1: .*16 hex digits"),
    ("a.txt", "# x\n\nexample.org:80\n", r"line 3: .*a host is a name"),
    ("a.txt", "ftp://a/b\n", r"line 1: .*begins with http"),
    ("a.txt", "*://*\n", r"line 1: .*everything"),
    ("a.csv", f"sha256\n{SHA}\nabc\n", r"a\.csv, line 3: 'abc': .*64 hex digits"),
    ("a.csv", "phash,distance\n" + f"{HASH},x\n", r"line 2: 'x' in the column distance"),
    ("a.csv", "url,host\n,\n", r"line 2: the row has none"),
    ("a.csv", "address\nhttp://a/\n", "has none of the columns sha256"),
])
def test_a_malformed_file_stops_with_its_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    settings = {"sources": [{"kind": "folder", "name": "disk", "path": str(tmp_path)}],
                "blocklist": {"files": [str(tmp_path / name)]}}
    with pytest.raises(RecipeError, match=message):
        ingest(tmp_path / "run", settings)
    with pytest.raises(StorageError, match="does not exist"):
        list(rules(BlocklistSettings(files=(str(tmp_path / "none.txt"),))))


@pytest.mark.parametrize(("key", "entry", "message"), [
    ("sha256", "abc", "'abc': a SHA-256 is 64 hex digits"), ("phash", "xyz", "16 hex digits"),
    ("hosts", "https://example.org/", "a host is a name"), ("urls", "*", "everything"),
])
def test_a_malformed_recipe_stops_at_once(key: str, entry: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        BlocklistSettings(**{key: (entry,)})
    with pytest.raises(RecipeError, match=rf"ingest\.blocklist\.{key}: "):
        recipe.load("folder", [f'ingest.blocklist.{key}=["{entry}"]'])


def coloured(seed: int, size: int = 64, kind: str = "PNG") -> bytes:
    """Smooth blotches, different for each seed."""
    coarse = Image.effect_noise((6, 6), 90 + seed).resize((64, 64), Image.Resampling.BICUBIC)
    picture = Image.merge("RGB", [coarse, coarse.rotate(90), coarse.rotate(180)]).resize((size, size))
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return buffer.getvalue()


def web(settings: dict[str, Any], **blocklist: Any) -> dict[str, Any]:
    return {**settings, "blocklist": blocklist}


def outcomes(rows: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(Path(row["url"]).name, row["fetch_outcome"] if row["fetch_outcome"] != "blocked" else row["fetch_detail"])
            for row in rows]


def test_what_is_kept_out_is_not_asked_for_or_stored(tmp_path: Path) -> None:
    first, second, third, fourth = (coloured(seed) for seed in range(4))
    alike = io.BytesIO()
    Image.open(io.BytesIO(third)).resize((96, 96)).save(alike, "JPEG", quality=80)
    looks = imagehash.phash(Image.open(io.BytesIO(third)))
    page = "".join(f'<img src="{name}">' for name in (
        "a.png", "b.png", "c.jpg", "d.png", "private/e.png", "hop.png")) + '<a href="secret.html">more</a>'
    paths: dict[str, bytes | hostile.Behaviour] = {
        "/robots.txt": reply(b"", 404), "/": reply(page.encode(), kind="text/html"),
        "/a.png": reply(first), "/b.png": reply(second), "/c.jpg": reply(alike.getvalue()), "/d.png": reply(fourth),
        "/private/e.png": reply(coloured(5)), "/hop.png": hostile.redirect("/private/f.png"),
        "/private/f.png": reply(coloured(6)), "/secret.html": reply(b'<img src="z.png">', kind="text/html"),
        "/z.png": reply(coloured(7)),
    }
    with hostile.serve(paths) as server:
        rows, _ = ingest(tmp_path, web(
            site_settings(server), sha256=[hashlib.sha256(second).hexdigest()], phash=[f"{looks}~6"],
            urls=["*/private/*", f"{server.base}/secret.html"]))
        assert outcomes(rows) == [
            ("a.png", "ok"), ("b.png", f"sha256 {hashlib.sha256(second).hexdigest()}"), ("c.jpg", f"phash {looks}~6"),
            ("d.png", "ok"), ("e.png", "url */private/*"), ("hop.png", "url */private/*")]
        assert [server.hits[path] for path in ("/private/e.png", "/private/f.png", "/secret.html", "/z.png")] == [0] * 4
    assert {row["sha256"] for row in rows if row["fetch_outcome"] == "blocked"} == {None}
    raw = b"".join(path.read_bytes() for path in (tmp_path / "data/raw").iterdir())
    assert [picture in raw for picture in (first, second, alike.getvalue(), fourth)] == [True, False, False, True]


def test_pictures_in_place_are_kept_out_where_they_lie(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    pictures = {f"{seed}.png": coloured(seed) for seed in range(3)}
    for name, data in pictures.items():
        (folder / name).write_bytes(data)
    (folder / "half.png").write_bytes(pictures["2.png"][:900])  # cannot be decoded, and so looks like nothing
    settings = {"sources": [{"kind": "folder", "name": "disk", "path": str(folder)}]}
    looks = imagehash.phash(Image.open(folder / "2.png"))
    rows, _ = ingest(tmp_path / "run", web(settings, sha256=[hashlib.sha256(pictures["1.png"]).hexdigest()],
                                           phash=[f"{looks}"]))
    assert [row["fetch_outcome"] for row in rows] == ["ok", "blocked", "blocked", "ok"]
    assert (rows[2]["container"], rows[2]["length"]) == (None, None)
    assert (folder / "1.png").read_bytes() == pictures["1.png"]


def test_removed_rules_let_rows_be_fetched_again(tmp_path: Path) -> None:
    pictures = {f"/{n}.png": reply(hostile.png(n + 1)) for n in range(3)}
    index = reply("".join(f'<img src="{path}">' for path in pictures).encode(), kind="text/html")
    second = hashlib.sha256(hostile.png(2)).hexdigest()
    with hostile.serve({"/robots.txt": reply(b"", 404), "/": index, **pictures}) as server:
        settings = site_settings(server)
        both = web(settings, sha256=[second], urls=["*/2.png"])
        rows, _ = ingest(tmp_path, both)
        assert [row["fetch_outcome"] for row in rows] == ["ok", "blocked", "blocked"]
        assert ingest(tmp_path, both) == (rows, False)
        before = server.hits.copy()
        rows, _ = ingest(tmp_path, web(settings, urls=["*/2.png"]))
        assert [row["fetch_outcome"] for row in rows] == ["ok", "ok", "blocked"]
        assert (server.hits["/0.png"], server.hits["/2.png"]) == (before["/0.png"], 0)
        free, _ = ingest(tmp_path, settings)
        assert [row["fetch_outcome"] for row in free] == ["ok"] * 3
        never, _ = ingest(tmp_path / "other", settings)
        drop = {"value_key", "container", "offset"}
        assert [{k: v for k, v in row.items() if k not in drop} for row in free] == [
            {k: v for k, v in row.items() if k not in drop} for row in never]


def test_an_empty_blocklist_leaves_receipts_as_they_were(tmp_path: Path) -> None:
    from pipeline.ingest.stage import IngestStage
    from tests.pipeline.ingest.test_ingest_stage import make_run

    (tmp_path / "pictures").mkdir()
    settings = {"sources": [{"kind": "folder", "name": "disk", "path": str(tmp_path / "pictures")}]}
    assert set(IngestStage().settings(make_run(tmp_path, settings))) == {"sources", "manners", "limits"}
    listed = web(settings, hosts=["a.example", "b.example"])
    told = IngestStage().settings(make_run(tmp_path, listed))["blocked"]
    turned = web(settings, hosts=["b.example", "a.example"])
    assert IngestStage().settings(make_run(tmp_path, turned))["blocked"] == told
    assert IngestStage().settings(make_run(tmp_path, web(settings, hosts=["b.example"])))["blocked"] != told
