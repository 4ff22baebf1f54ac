"""The built website: every planted fault is really there at its strength, every innocent is really innocent."""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import numpy as np
import pytest
from PIL import Image

from pipeline.demo.captions import caption_attributes
from pipeline.demo.plan import plan_site, signature
from pipeline.demo.site import Site, build
from pipeline.demo.truth import FAULTS, LOOKALIKES, read_truth
from pipeline.errors import ManifestError, StorageError

SCENES, PER_FAULT = 240, 8
Truth = list[dict[str, Any]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return build(str(tmp_path_factory.mktemp("demo") / "site"), seed=5, scenes=SCENES, processes=1)


@pytest.fixture(scope="module")
def truth(site: Site) -> Truth:
    rows: Truth = read_truth(site.truth).to_pylist()
    return rows


def path_of(site: Site, url: str) -> str:
    return site.www + urlsplit(url).path


def data_of(site: Site, url: str) -> bytes:
    return Path(path_of(site, url)).read_bytes()


def picture_of(site: Site, url: str) -> Image.Image:
    return Image.open(path_of(site, url)).convert("RGB")


def of_fault(truth: Truth, fault: str | None) -> Truth:
    return [row for row in truth if row["fault"] == fault]


def test_every_fault_is_planted_as_often_and_every_lookalike_is_there(truth: Truth) -> None:
    counts = Counter(row["fault"] for row in truth)
    assert {fault: counts[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, PER_FAULT)
    assert {row["lookalike"] for row in truth if row["lookalike"]} == set(LOOKALIKES)
    assert all(row["fault"] is None for row in truth if row["lookalike"])
    assert len({row["url"] for row in truth}) == len(truth)


def test_innocents_open_whole_and_have_the_size_the_truth_says(site: Site, truth: Truth) -> None:
    for row in of_fault(truth, None):
        picture = picture_of(site, row["url"])
        assert picture.size == (row["width"], row["height"])
        assert min(picture.size) >= 256
        assert max(picture.size) / min(picture.size) <= 2.45
        assert np.asarray(picture.convert("L"), float).std() > 2.5


def test_copies(site: Site, truth: Truth) -> None:
    for row in of_fault(truth, "exact_copy"):
        assert hashlib.sha256(data_of(site, row["url"])).digest() == hashlib.sha256(data_of(site, row["of"])).digest()
    for fault in ("reencoded_copy", "rescaled_copy"):
        for row in of_fault(truth, fault):
            copy, original = picture_of(site, row["url"]), picture_of(site, row["of"])
            assert data_of(site, row["url"]) != data_of(site, row["of"])
            scale = row["strength"] if fault == "rescaled_copy" else 1
            assert copy.size == (round(original.width * scale), round(original.height * scale))
            assert min(copy.size) >= 255
            small = [np.asarray(p.resize((16, 16), Image.Resampling.BOX), float) for p in (copy, original)]
            assert np.abs(small[0] - small[1]).mean() < 3
            assert row["family"] == row["of"]


def test_twins_differ_in_one_attribute_and_plainly(site: Site, truth: Truth) -> None:
    by_url = {row["url"]: row for row in truth}
    twins = [row for row in truth if row["lookalike"] == "twin"]
    assert len(twins) == PER_FAULT
    for row in twins:
        other = by_url[row["of"]]
        assert other["fault"] is None
        assert row["family"] != other["family"]
        assert (row["colour"] != other["colour"]) + (row["shape"] != other["shape"]) == 1
        small = [np.asarray(picture_of(site, u).resize((8, 8), Image.Resampling.BOX), float)
                 for u in (row["url"], row["of"])]  # fmt: skip
        assert np.abs(small[0] - small[1]).max() > 12


def test_thumbnails_and_slivers(site: Site, truth: Truth) -> None:
    rows = of_fault(truth, "thumbnail")
    assert sum(row["of"] is not None for row in rows) == PER_FAULT // 2
    for row in rows:
        size = picture_of(site, row["url"]).size
        assert min(size) == row["strength"]
        assert 40 <= min(size) <= 120
    for row in of_fault(truth, "sliver"):
        size = picture_of(site, row["url"]).size
        assert max(size) / min(size) == pytest.approx(row["strength"], rel=0.01)
        assert max(size) / min(size) > 3.4
        assert min(size) >= 256


def test_crushed_files_carry_the_quality_in_their_tables(site: Site, truth: Truth) -> None:
    """IJG: the first luma entry is 16, scaled by 5000 / quality per cent for qualities below 50."""
    with_header = 0
    for row in of_fault(truth, "heavy_jpeg"):
        with Image.open(path_of(site, row["url"])) as picture:
            assert 1 <= row["strength"] <= 15
            if picture.format == "JPEG":
                with_header += 1
                scale = 5000 // round(row["strength"])
                assert picture.quantization[0][0] == min(255, (16 * scale + 50) // 100)  # type: ignore[attr-defined]
    assert with_header >= PER_FAULT // 2


def _detail(picture: Image.Image, factor: float) -> float:
    """Root mean square of what a reduction by `factor` and enlargement lose, in levels."""
    small = picture.resize((round(picture.width / factor), round(picture.height / factor)), Image.Resampling.LANCZOS)
    back = small.resize(picture.size, Image.Resampling.BICUBIC)
    return float(np.sqrt(((np.asarray(picture, float) - np.asarray(back, float)) ** 2).mean()))


def test_blurred_and_blown_up_pictures_hold_no_fine_detail(site: Site, truth: Truth) -> None:
    innocent = np.median([_detail(picture_of(site, row["url"]), 2) for row in of_fault(truth, None)[:60]])
    for fault, least in (("blurred", 3.0), ("blown_up", 3.0)):
        rows = of_fault(truth, fault)
        assert all(row["strength"] >= least for row in rows)
        details = [_detail(picture_of(site, row["url"]), 2) for row in rows]
        assert max(details) < innocent


def test_blank_pictures_are_nearly_flat(site: Site, truth: Truth) -> None:
    for row in of_fault(truth, "blank"):
        luma = np.asarray(picture_of(site, row["url"]).convert("L"), float)
        assert luma.std() < 2.5
        assert min(luma.shape) >= 256
        assert row["colour"] is None


def test_unreadable_files_cannot_be_decoded(site: Site, truth: Truth) -> None:
    for row in of_fault(truth, "truncated"):
        with pytest.raises((OSError, SyntaxError)):
            Image.open(io.BytesIO(data_of(site, row["url"]))).load()
        assert 0.1 <= row["strength"] <= 0.9
    for row in of_fault(truth, "html_as_image"):
        assert row["url"].endswith(".jpg")
        assert data_of(site, row["url"]).startswith(b"<!DOCTYPE html>")


def test_missing_forbidden_and_opted_out_addresses(site: Site, truth: Truth) -> None:
    behaviour = json.loads(Path(site.behaviour).read_text())
    for row in of_fault(truth, "not_found"):
        assert not os.path.exists(path_of(site, row["url"]))
        assert behaviour["statuses"][urlsplit(row["url"]).path] == row["strength"]
    for row in of_fault(truth, "robots"):
        assert urlsplit(row["url"]).path.startswith("/private/")
        assert not urlsplit(row["url"]).path.startswith("/private/open/")
    for row in truth:
        tag = behaviour["headers"].get(urlsplit(row["url"]).path, {}).get("X-Robots-Tag", "").lower()
        ours = "" if tag.startswith("otherbot:") else tag
        assert ("noai" in ours or "noimageai" in ours) == (row["fault"] == "opt_out_header")
        if row["lookalike"] == "allowed":
            assert urlsplit(row["url"]).path.startswith("/private/open/")
    assert behaviour["delays"]["/slow/1.html"] >= 2


IMG = re.compile(r"<figure><img (?P<attributes>[^>]*)>(?:\s*<figcaption>(?P<caption>.*?)</figcaption>)?", re.DOTALL)


def shown(site: Site, base: str) -> dict[str, tuple[str, list[str], str]]:
    """url → (page text, captions, attributes), by following links from the index as a visitor does."""
    found: dict[str, tuple[str, list[str], str]] = {}
    queue, seen = [f"{base}/index.html"], {f"{base}/index.html"}
    while queue:
        url = queue.pop()
        text = Path(path_of(site, url)).read_text()
        given = re.search(r'<base href="([^"]+)">', text)
        origin = urljoin(url, given.group(1)) if given else url
        for link in re.findall(r'<a href="([^"]+)"', text):
            target = urljoin(origin, link)
            if target not in seen:
                seen.add(target)
                queue.append(target)
        for match in IMG.finditer(text):
            attributes = match["attributes"]
            source = re.search(r'(?<!\S)src="([^"]+)"', attributes)
            assert source is not None
            alt = re.search(r'alt="([^"]*)"', attributes)
            words = [unescape(alt.group(1))] if alt and alt.group(1) else []
            words += [unescape(re.sub("<[^>]+>", "", match["caption"]))] if match["caption"] else []
            address = urljoin(origin, source.group(1))
            assert address not in found
            found[address] = text, words, attributes
    return found


def test_pages_lead_to_every_picture_once_with_the_right_words(site: Site, truth: Truth) -> None:
    found = shown(site, site.base_url)
    assert set(found) == {row["url"] for row in truth}
    styles = Counter("base" if "<base" in text else "srcset" if "srcset" in attributes else "plain"
                     for text, _, attributes in found.values())  # fmt: skip
    assert set(styles) == {"base", "srcset", "plain"}
    for row in truth:
        text, words, _ = found[row["url"]]
        opted_out = re.search(r'<meta name="robots" content="[^"]*(noai|noimageai)', text, re.IGNORECASE)
        assert (opted_out is not None) == (row["fault"] == "opt_out_page")
        stated = [caption_attributes(caption) for caption in words]
        assert stated
        if row["fault"] == "filename_caption":
            assert len(words) == 1
            assert re.fullmatch(r"[\w-]+(\.(jpg|png|webp))?", words[0], re.IGNORECASE)
        elif row["colour"] is not None:
            real = Counter({(row["colour"], row["shape"]): 1})
            if row["second_colour"]:
                real[row["second_colour"], row["second_shape"]] += 1
            for attributes in stated:
                named = Counter((mention["colour"], mention["shape"]) for mention in attributes["mentions"])
                assert (named <= real) == (row["fault"] != "wrong_caption")


def test_srcset_candidates_exist(site: Site) -> None:
    for text, _, attributes in shown(site, site.base_url).values():
        for name in re.findall(r'srcset="([^"]+)"', attributes):
            small = name.split(",")[0].split()[0]
            (hit,) = [p for p in Path(site.www).rglob("*-small.*") if p.name == posixpath.basename(small)]
            assert hit.stat().st_size > 0
            assert "base href" not in text


def test_a_site_that_stands_is_not_built_again(site: Site) -> None:
    before = os.stat(site.truth).st_mtime_ns
    assert build(site.folder, seed=5, scenes=SCENES) == site
    assert os.stat(site.truth).st_mtime_ns == before


def _digests(site: Site) -> dict[str, str]:
    root = Path(site.folder)
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(root.rglob("*")) if p.is_file()}  # fmt: skip


def test_same_seed_same_bytes_on_two_processes_over_the_ruins_of_a_killed_build(site: Site, tmp_path: Path) -> None:
    ruins = tmp_path / "site.partial" / "www"
    ruins.mkdir(parents=True)
    (ruins / "half.jpg").write_bytes(b"\xff\xd8")
    (tmp_path / "site").mkdir()  # an older site without a stamp
    again = build(str(tmp_path / "site"), seed=5, scenes=SCENES, processes=2)
    assert _digests(again) == _digests(site)
    assert not (tmp_path / "site.partial").exists()


def test_another_seed_is_another_site() -> None:
    one, two = plan_site(0, 90), plan_site(1, 90)
    assert {item.path for item in one}.isdisjoint(item.path for item in two)


def test_no_two_scenes_of_the_site_are_alike_by_chance_and_classes_are_unbalanced() -> None:
    items = [item for item in plan_site(3, 3000) if not item.is_copy and item.fault not in
             ("blank", "not_found", "html_as_image")]  # fmt: skip
    assert len(items) == 3000
    assert len({signature(item.scene) for item in items}) == 3000
    kinds = Counter(item.scene.shapes[0].kind for item in items)
    assert 0.36 < kinds["circle"] / 3000 < 0.44
    assert 0.01 < kinds["cross"] / 3000 < 0.04


def test_an_unwritable_place_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot write the demo website") as caught:
        build(str(tmp_path / "file" / "site"), seed=0, scenes=30, processes=1)
    assert caught.value.hint


def test_a_missing_truth_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no truth table"):
        read_truth(str(tmp_path / "truth.parquet"))
    (tmp_path / "truth.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ManifestError, match="damaged"):
        read_truth(str(tmp_path / "truth.parquet"))
