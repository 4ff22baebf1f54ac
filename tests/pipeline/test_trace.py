"""`curate show`: one row's whole story, found by id, beginning or address."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.errors import GristmillError, ManifestError
from pipeline.manifest import Manifests
from pipeline.schema import STAGES
from pipeline.trace import render_facts, row_facts
from tests.pipeline.made_up import MARKUP, THRESHOLDS, MadeUpRun


def shown(facts: dict[str, Any], width: int = 100) -> str:
    file = io.StringIO()
    Console(width=width, file=file).print(render_facts(facts))
    return file.getvalue()


@pytest.mark.parametrize("fate", list(THRESHOLDS))
def test_a_dropped_row_tells_value_and_threshold(fate: str, made_up_run: MadeUpRun) -> None:
    row = made_up_run.of(fate)[0]
    facts = row_facts(made_up_run.manifests, row["id"])
    assert facts["decision"] == {"kept": False, "dropped_by": "filter", "reason": fate, "value": row["value"],
                                 "threshold": THRESHOLDS[fate][1]}
    assert facts["filter"]["failed"] == row["failed"]
    text = shown(facts)
    assert f"by filter: {fate}" in text
    assert f"curate explain {fate}" in text


def test_a_copy_names_its_keeper_and_the_keeper_its_copies(made_up_run: MadeUpRun) -> None:
    copy = made_up_run.of("duplicate_perceptual")[0]
    facts = row_facts(made_up_run.manifests, copy["id"])
    assert facts["dedupe"]["duplicate_of"] == copy["duplicate_of"]
    assert facts["copies"][0]["id"] == copy["duplicate_of"]
    assert f"in favour of {copy['duplicate_of'][:12]}" in shown(facts)
    keeper = row_facts(made_up_run.manifests, copy["duplicate_of"])
    assert {row["id"] for row in keeper["copies"]} == {
        row["id"] for row in made_up_run.rows if row.get("duplicate_of") == copy["duplicate_of"]}


def test_a_recaptioned_row_shows_before_and_after(made_up_run: MadeUpRun) -> None:
    row = next(row for row in made_up_run.of("kept") if row["caption_origin"] == "coca")
    facts = row_facts(made_up_run.manifests, row["id"])
    assert [(c["text"], c["origin"], c["chosen"]) for c in facts["captions"]] == [
        (row["captions"][0], "alt", False), (row["caption"], "coca", True)]
    assert facts["captions"][1]["score"] == pytest.approx(row["caption_score"])
    assert facts["weigh"]["class"] == row["class"]
    assert facts["shard"]["shard"] == row["shard"]
    assert facts["measure"]["width"] == row["width"]
    assert facts["not_run"] == []


def test_facts_are_json_and_bytes_are_hex(made_up_run: MadeUpRun) -> None:
    row = made_up_run.of("kept")[0]
    facts = json.loads(json.dumps(row_facts(made_up_run.manifests, row["id"])))
    assert facts["ingest"]["sha256"] == hashlib.sha256(row["bytes"]).hexdigest()
    assert facts["measure"]["phash"] == "8f0f123456789abc"
    assert "thumb" not in facts["measure"]


def test_any_beginning_or_the_address_will_do(made_up_run: MadeUpRun) -> None:
    row = made_up_run.of("robots")[0]
    for wanted in (row["id"][:10], row["id"].upper(), f" {row['id']} ", row["url"]):
        assert row_facts(made_up_run.manifests, wanted)["id"] == row["id"]


def test_unknown_and_ambiguous_rows_name_the_near_ones(made_up_run: MadeUpRun) -> None:
    row = made_up_run.of("robots")[0]
    wrong = row["id"][:20] + ("0" if row["id"][20] != "0" else "1")
    with pytest.raises(GristmillError, match="no row") as unknown:
        row_facts(made_up_run.manifests, wrong)
    assert row["id"] in unknown.value.hint
    first = row["id"][0]
    count = sum(other["id"].startswith(first) for other in made_up_run.rows)
    with pytest.raises(GristmillError, match=f"{count} rows match"):
        row_facts(made_up_run.manifests, first)
    for wanted in ("zz", "", "https://other.example/picture.png"):
        with pytest.raises(GristmillError):
            row_facts(made_up_run.manifests, wanted)


def test_nothing_scraped_can_steer_the_terminal(made_up_run: MadeUpRun) -> None:
    row = next(row for row in made_up_run.of("kept") if row["captions"] == [MARKUP])
    text = shown(row_facts(made_up_run.manifests, row["id"]))
    assert "\x1b" not in text
    assert "word" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_nothing_is_cut_for_want_of_width(width: int, made_up_run: MadeUpRun) -> None:
    row = made_up_run.of("kept")[0]
    lines = shown(row_facts(made_up_run.manifests, row["id"]), width).splitlines()
    assert max(map(len, lines)) <= width
    assert row["sha256"].hex() in "".join(line.strip() for line in lines)
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("last", list(STAGES))
def test_a_row_can_be_asked_about_at_any_moment(last: str, tmp_path: Path, made_up_run: MadeUpRun) -> None:
    stages = list(STAGES)[: list(STAGES).index(last) + 1]
    unfinished = MadeUpRun(str(tmp_path), made_up_run.rows).write(*stages)
    for fate in ("kept", "not_found", "truncated", "duplicate_bytes", "blank"):
        row = made_up_run.of(fate)[0]
        facts = row_facts(unfinished, row["id"])
        assert facts["not_run"] == [stage for stage in STAGES if stage not in stages]
        assert facts["decision"]["kept"] == (row["dropped_by"] not in stages)
        assert row["id"] in shown(facts)


def test_nothing_ingested_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestError):
        row_facts(Manifests(str(tmp_path)), "abc")
