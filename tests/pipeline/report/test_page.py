"""The report as a person meets it: whole, self-contained, readable, the same every time, at any moment of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline import report, storage
from pipeline.errors import ManifestError
from pipeline.manifest import Manifests
from pipeline.recipe import Recipe, from_dict
from pipeline.report import thumbnails
from pipeline.report.page import HERE
from pipeline.schema import STAGES
from tests.pipeline.made_up import MARKUP, MIN_CLIP_SCORE, PLANTED, MadeUpRun, make_up
from tests.pipeline.report.browser import chromium, visit

BROKEN = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.alt)"
WITHOUT_ALT = "[...document.images].filter(i => !i.alt).length"
PICTURES = "document.images.length"
TOO_WIDE = ("[...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > "
            "innerWidth + 1 && !e.closest('.scroll, .frame img')).map(e => e.outerHTML.slice(0, 120))")
DEAD_LINKS = ("[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.hash.slice(1))"
              ".filter(id => !document.getElementById(id))")
DOUBLE_IDS = "[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, at, all) => all.indexOf(id) != at)"
SCRIPTS = "document.scripts.length"
FRESH: dict[str, tuple[bool, str]] = {}


def recipe_of(run: MadeUpRun, **report_settings: int) -> Recipe:
    return from_dict({"name": run.name, "workdir": run.workdir, "ingest": {"sources": []},
                      "select": {"min_clip_score": MIN_CLIP_SCORE}, "report": report_settings})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> MadeUpRun:
    made = make_up(tmp_path_factory.mktemp("page"))
    made.write()
    return made


@pytest.fixture(autouse=True)
def _drawn_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting worker processes takes longer than drawing these few pictures."""
    request.getfixturevalue("page")  # this one is drawn by workers, as a real report is
    monkeypatch.setattr(thumbnails, "FEW", 1000)


@pytest.fixture(scope="module")
def page(run: MadeUpRun) -> Path:
    return Path(report.write(run.manifests, recipe_of(run), states=FRESH))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address


@pytest.mark.parametrize("width", [390, 768, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_whole(width: int, scheme: str, page: Path, browser: str) -> None:
    seen = visit(browser, page, BROKEN, WITHOUT_ALT, TOO_WIDE, DEAD_LINKS, DOUBLE_IDS, SCRIPTS, PICTURES, width=width,
                 scheme=scheme)
    *faults, pictures = seen.answers
    assert faults == [[], 0, [], [], [], 0]
    assert pictures > 100
    assert seen.messages == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [page.as_uri()]


def test_it_lies_beside_the_runs_bytes(page: Path, run: MadeUpRun) -> None:
    assert str(page) == storage.join(run.workdir, "data", run.name, "report", "index.html")


def test_the_figures_are_those_planted(page: Path) -> None:
    text = " ".join(re.sub(r"<[^>]+>", " ", page.read_text("utf-8")).split())
    assert f"rows in {sum(PLANTED.values())}" in text
    assert f"kept {PLANTED['kept']}" in text
    for reason, rows in PLANTED.items():
        if reason != "kept":
            assert f"{reason.replace('_', ' ')} −{rows} " in text, reason
    assert "weak caption 8" in text
    assert "circle 25 23 2" in text or re.search(r"circle \d+ \d+ \d+", text)


def test_each_reason_has_its_pictures_with_value_and_id(page: Path, run: MadeUpRun) -> None:
    html = page.read_text("utf-8")
    for fate in ("low_resolution", "extreme_aspect", "blank"):
        article = html.split(f'<article class="reason" id="filter-{fate}"')[1].split("</article>")[0]
        for row in run.of(fate):
            assert row["id"][:12] in article
            assert row["page_url"] in article
        assert article.count("<img") == PLANTED[fate]
    truncated = html.split('id="measure-truncated"')[1].split("</article>")[0]
    assert truncated.count('aria-label="no picture: truncated"') == PLANTED["truncated"]
    missing = html.split('id="ingest-not_found"')[1].split("</article>")[0]
    assert missing.count("404 Not Found") == PLANTED["not_found"]
    assert "<img" not in missing


def test_faults_of_detail_are_shown_at_full_size(page: Path) -> None:
    html = page.read_text("utf-8")
    crushed = html.split('id="check-heavy_compression"')[1].split("</article>")[0]
    assert crushed.count("detail of the same picture") == crushed.count('<figure class="tile double">') > 0
    assert "detail of the same picture" not in html.split('id="check-low_resolution"')[1].split("</article>")[0]


def test_copies_stand_beside_their_keepers(page: Path, run: MadeUpRun) -> None:
    pairs = page.read_text("utf-8").split('<div class="pair">')[1:]
    shown = {tuple(re.findall(r"curate show ([0-9a-f]{32})", pair)[:2]) for pair in pairs}
    assert shown == {(row["id"], row["duplicate_of"]) for row in run.rows if "duplicate_of" in row}


def test_what_was_scraped_cannot_become_markup(page: Path) -> None:
    html = page.read_text("utf-8")
    assert "<script" not in html
    assert "&lt;script&gt;alert(" in html
    assert MARKUP not in html


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if name == "href"]


def test_links_lead_to_the_web_only(run: MadeUpRun, tmp_path: Path) -> None:
    addresses = ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "http://[bad", "vbscript:x", None)
    rows = [row | {"page_url": addresses[at % 6], "url": addresses[at % 5]} for at, row in enumerate(run.rows)]
    other = MadeUpRun(str(tmp_path), rows)
    html = Path(report.write(other.write(), recipe_of(other), states=FRESH)).read_text("utf-8")
    links = Links()
    links.feed(html)
    assert all(target.startswith("#") or target == "data:," for target in links.targets)


def test_a_second_report_is_the_same_byte_for_byte(page: Path, run: MadeUpRun) -> None:
    before = page.read_bytes()
    assert Path(report.write(run.manifests, recipe_of(run), states=FRESH)) == page
    assert page.read_bytes() == before
    page.with_name("thumbnails.parquet").unlink()
    report.write(run.manifests, recipe_of(run), states=FRESH)
    assert page.read_bytes() == before


@pytest.mark.parametrize("last", list(STAGES))
def test_it_draws_the_run_at_any_moment(last: str, run: MadeUpRun, tmp_path: Path, browser: str) -> None:
    stages = list(STAGES)[: list(STAGES).index(last) + 1]
    unfinished = MadeUpRun(str(tmp_path), run.rows)
    unfinished.write(*stages)
    path = Path(report.write(unfinished.manifests, recipe_of(unfinished, samples=4, kept_samples=4), states=FRESH))
    seen = visit(browser, path, BROKEN, DEAD_LINKS, DOUBLE_IDS)
    assert seen.answers == [[], [], []]
    assert seen.messages == []
    html = path.read_text("utf-8")
    assert ("Not run yet" in html) == (last != "shard")


def test_a_stale_stage_is_named(run: MadeUpRun, tmp_path: Path) -> None:
    other = MadeUpRun(str(tmp_path), run.rows)
    other.write()
    html = Path(report.write(other.manifests, recipe_of(other, samples=0, kept_samples=0, near_threshold=0),
                             states={"filter": (False, "min_side: 200 → 512"), "score": (False, "follows filter")},
                             )).read_text("utf-8")
    assert "filter is stale</b>: min_side: 200 → 512" in html
    assert "Stale with it:</b> score." in html


def test_without_being_told_it_asks_the_stages(run: MadeUpRun, tmp_path: Path) -> None:
    other = MadeUpRun(str(tmp_path), run.rows)
    other.write()
    few = {"samples": 0, "kept_samples": 0, "near_threshold": 0, "duplicate_pairs": 0, "captions": 0}
    html = Path(report.write(other.manifests, recipe_of(other, **few))).read_text("utf-8")
    assert "ingest is stale</b>" in html  # these receipts were made up: no stage would have written them


def test_nothing_ingested_is_a_users_error(run: MadeUpRun, tmp_path: Path) -> None:
    with pytest.raises(ManifestError):
        report.write(Manifests(str(tmp_path)), recipe_of(run), states=FRESH)


def test_bytes_that_are_gone_leave_tiles_that_say_so(run: MadeUpRun, tmp_path: Path) -> None:
    other = MadeUpRun(str(tmp_path), [row | {"container": str(tmp_path / "gone.tar")} if row.get("container") else row
                                      for row in run.rows])
    html = Path(report.write(other.write(), recipe_of(other), states=FRESH)).read_text("utf-8")
    assert "<img" not in html
    assert html.count("bytes lost") > PLANTED["kept"]


def luminance(colour: str) -> float:
    """WCAG 2.2 relative luminance of `#rrggbb`."""
    channels = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "muted", "accent", "drop", "keep"])
@pytest.mark.parametrize("ground", ["paper", "surface", "sunken"])
def test_text_has_contrast(scheme: int, text: str, ground: str) -> None:
    css = (HERE / "page.css").read_text("utf-8").split(":root {")[1:][scheme].split("}")[0]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", css))
    bright, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.2, level AA


def test_the_browser_would_have_seen_faults(tmp_path: Path, browser: str) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="data:image/webp;base64,AAAA" alt="a"><img src="gone.png"><a href="#nowhere">x</a>'
                   '<i id="a"></i><i id="a"></i><main><p style="width: 3000px">wide</p></main>'
                   "<script>console.error('loud')</script>")
    seen = visit(browser, bad, BROKEN, WITHOUT_ALT, TOO_WIDE, DEAD_LINKS, DOUBLE_IDS)
    assert seen.answers[0] == ["a", ""]
    assert seen.answers[1] == 1
    assert len(seen.answers[2]) == 1
    assert seen.answers[3:] == [["nowhere"], ["a"]]
    assert any("loud" in message for message in seen.messages)
    assert (tmp_path / "gone.png").as_uri() in seen.requests
