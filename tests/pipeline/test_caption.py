"""`caption`: who gets new words and why, what is computed again, and that candidates are the captioner's own."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from pipeline import clip
from pipeline.caption import CaptionSettings, CaptionStage, why_captioned
from pipeline.captioners import registry
from pipeline.captioners.coca import Coca, CocaSettings
from pipeline.checks.caption import Caption
from pipeline.errors import ModelError
from pipeline.image import decode
from pipeline.score import ScoreSettings, ScoreStage, vectors
from pipeline.stage import run_stage
from pipeline.zeroshot import Bounds
from tests.pipeline.filtered_run import copy_of, filtered_run, run_of
from tests.pipeline.made_up import MadeUpRun
from tests.pipeline.tiny_coca import save_tiny_coca

CHECK = Caption.Settings()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local-dir:{save_tiny_coca(tmp_path_factory.mktemp('models') / 'tiny')}"


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> MadeUpRun:
    return filtered_run(tmp_path_factory.mktemp("filtered"))


@pytest.fixture
def curated(filtered: MadeUpRun, tmp_path: Path) -> MadeUpRun:
    return copy_of(filtered, tmp_path)


def captioner(model: str, **more: Any) -> dict[str, Any]:
    return {"kind": "coca", "model": model, "pretrained": None, "batch": 8, **more}


def caption(made: MadeUpRun, score: ScoreSettings, settings: CaptionSettings) -> list[dict[str, Any]]:
    run = run_of(made, score, caption=settings)
    run_stage(ScoreStage(), run)
    run_stage(CaptionStage(), run)
    made.manifests.reload()
    return made.manifests.joined(stages=("ingest", "filter", "score", "caption"), side_tables=True).arrow().to_pylist()


def test_weak_captions_get_candidates_scored_like_captions(curated: MadeUpRun, model: str) -> None:
    settings = CaptionSettings(when="weak", min_score=-1, captioners=[captioner(model)])
    rows = caption(curated, ScoreSettings(model=model, pretrained=None, batch=8), settings)
    made_up = {row["id"]: row for row in curated.rows}
    weak = {key for key, row in made_up.items() if row["kept"] and row["failed"]}
    assert len(weak) == 8
    assert {row["id"] for row in rows if row["why_captioned"]} == weak
    judge = clip.load(model, None, recipe_name="mine", batch=8)
    for row in rows:
        if row["id"] not in weak:
            assert row["candidates"] is None
            continue
        pixels = decode(made_up[row["id"]]["bytes"]).rgb
        assert row["why_captioned"] == "weak"
        [candidate] = row["candidates"]
        assert (candidate["captioner"], candidate["text"]) == ("coca", judge.generate([pixels])[0])
        cosine = judge.embed_images([pixels])[0] @ judge.embed_texts([candidate["text"]])[0]
        assert candidate["score"] == pytest.approx(cosine, abs=1e-3)


def test_thresholds_caption_only_rows_let_in(curated: MadeUpRun, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    plain = Coca.write

    def counted(self: Coca, pictures: Any) -> list[list[str]]:
        written.append(len(pictures))
        return plain(self, pictures)

    monkeypatch.setattr(Coca, "write", counted)
    score = ScoreSettings(model=model, pretrained=None, batch=8)
    counts = {}
    for threshold in (-1.0, 1.0, -1.0):
        rows = caption(curated, score, CaptionSettings(min_score=threshold, captioners=[captioner(model)]))
        counts[threshold] = sum(row["why_captioned"] is not None for row in rows)
    assert counts == {-1.0: 8, 1.0: 44}
    assert sum(written) == 44  # 8, then the 36 others, then none
    both = [captioner(model), captioner(model, name="second")]
    rows = caption(curated, score, CaptionSettings(min_score=-1.0, captioners=both))
    assert sum(written) == 44 + 8  # the new captioner only
    found = [[c["captioner"] for c in row["candidates"]] for row in rows if row["why_captioned"]]
    assert found == [["coca", "second"]] * 8


def test_without_a_score_model_candidates_have_no_score(curated: MadeUpRun, model: str) -> None:
    settings = CaptionSettings(captioners=[captioner(model)])
    rows = caption(curated, ScoreSettings(model="none"), settings)
    found = [row["candidates"] for row in rows if row["why_captioned"]]
    assert len(found) == 8
    assert all(one["score"] is None and one["text"] for [one] in found)


@pytest.mark.parametrize("settings", [CaptionSettings(), CaptionSettings(when="none", captioners=[{"kind": "coca"}])])
def test_nobody_writes_unless_told(curated: MadeUpRun, model: str, settings: CaptionSettings) -> None:
    rows = caption(curated, ScoreSettings(model="none"), settings)
    assert len(rows) == len(curated.rows)
    assert all(row["why_captioned"] is None and row["candidates"] is None for row in rows)


def rows_of(*rows: tuple[bool, list[str] | None, list[float] | None]) -> pa.Table:
    return pa.table(
        {
            "id": [f"{number:032x}" for number in range(len(rows))],
            "kept": [row[0] for row in rows],
            "pooled_captions": pa.array([row[1] for row in rows], pa.list_(pa.string())),
            "caption_scores": pa.array([row[2] for row in rows], pa.list_(pa.float32())),
            "zero_shot": pa.nulls(len(rows), pa.map_(pa.string(), pa.float32())),
        }
    )


def test_who_needs_words_and_why() -> None:
    table = rows_of(
        (True, ["a red circle"], [0.4]),
        (True, [], []),
        (True, ["  "], [0.0]),
        (True, ["IMG_1.jpg", "photo"], [0.05, 0.5]),
        (True, ["IMG_1.jpg", "a red circle"], [0.05, 0.31]),
        (True, ["a blue star", "a home"], [0.11, 0.1]),
        (True, ["a blue star", "IMG_2.jpg"], [0.1, 0.25]),  # the file name's score is no reason to leave it
        (True, ["a blue star"], None),
        (False, [], []),
    )
    writers = [{"kind": "coca"}]
    weak = why_captioned(table, CaptionSettings(when="weak", min_score=0.2, captioners=writers), CHECK, 0, {})
    assert weak == [None, "empty", "empty", "weak", None, "low_score", "low_score", None, None]
    every = why_captioned(table, CaptionSettings(when="all", captioners=writers), CHECK, 0, {})
    assert every == ["all"] * 8 + [None]


def test_what_a_zero_shot_bound_will_drop_gets_no_words() -> None:
    table = rows_of(*[(True, [], [])] * 4)
    shares = [[("nsfw", 0.9), ("safe", 0.1)], [("nsfw", 0.5), ("safe", 0.5)], [("nsfw", 0.1), ("safe", 0.9)], None]
    table = table.set_column(table.column_names.index("zero_shot"), "zero_shot",
                             pa.array(shares, pa.map_(pa.string(), pa.float32())))
    bounds = {"nsfw": Bounds(max=0.5), "safe": Bounds(min=0.2, max=0.8)}
    for when, word in (("weak", "empty"), ("all", "all")):
        settings = CaptionSettings(when=when, captioners=[{"kind": "coca"}])
        assert why_captioned(table, settings, CHECK, 0, bounds) == [None, word, None, word]


def test_words_that_many_pictures_share_count_only_from_copies() -> None:
    table = rows_of((True, ["our holiday home"], [0.4]), (True, ["our holiday home", "a blue bed"], [0.4, 0.4]),
                    (True, ["our holiday home"], [0.4]))  # fmt: skip
    failed = [[{"reason": "repeated_caption"}]] * 2 + [[]]
    table = table.append_column("failed", pa.array(failed, pa.list_(pa.struct([("reason", pa.string())]))))
    table = table.append_column("captions", pa.array([["our holiday home"]] * 3))
    settings = CaptionSettings(when="weak", min_score=0.2, captioners=[{"kind": "coca"}])
    assert why_captioned(table, settings, CHECK, 0, {}) == ["weak", None, None]


def test_a_share_of_good_rows_is_sampled_by_id_alone() -> None:
    good = [(True, ["a red circle"], [0.4])] * 2000
    settings = CaptionSettings(sample=0.25, captioners=[{"kind": "coca"}])
    drawn = np.array([why == "sample" for why in why_captioned(rows_of(*good), settings, CHECK, 3, {})])
    assert abs(drawn.mean() - 0.25) < 4 * (0.25 * 0.75 / 2000) ** 0.5
    fewer = why_captioned(rows_of(*good[:100]), settings, CHECK, 3, {})
    assert [why == "sample" for why in fewer] == drawn[:100].tolist()


def test_a_lower_score_threshold_lets_go(curated: MadeUpRun) -> None:
    rows = rows_of((True, ["one ship"], [0.19]), (True, ["two ships"], [0.2]))
    settings = CaptionSettings(min_score=0.2, captioners=[{"kind": "coca"}])
    assert why_captioned(rows, settings, CHECK, 0, {}) == ["low_score", "low_score" if np.float32(0.2) < 0.2 else None]


def test_captioners_are_found_by_file_and_told_apart_by_name(model: str) -> None:
    assert registry()["coca"] is Coca
    with pytest.raises(ValidationError, match="two captioners are called 'coca'"):
        CaptionSettings(captioners=[captioner(model), captioner(model)])


def test_a_model_that_cannot_write_stops_before_any_work() -> None:
    recipe = types.SimpleNamespace(
        name="mine", seed=0, caption=CaptionSettings(captioners=[{"kind": "coca", "model": "ViT-B-32"}])
    )
    with pytest.raises(ModelError, match="ViT-B-32 is no CoCa model"):
        CaptionStage().check(types.SimpleNamespace(recipe=recipe))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no CoCa"):
        Coca.check(CocaSettings(model="none"), "mine")


def test_stored_vectors_are_what_candidates_are_scored_against(curated: MadeUpRun, model: str) -> None:
    settings = CaptionSettings(when="all", captioners=[captioner(model)])
    rows = caption(curated, ScoreSettings(model=model, pretrained=None, batch=8), settings)
    judge = clip.load(model, None, recipe_name="mine", batch=8)
    stored = vectors(curated.manifests.stage("score", "embedding").arrow().column("embedding"))
    for row, vector in zip(rows, stored, strict=True):
        if row["candidates"]:
            expected = judge.embed_texts([row["candidates"][0]["text"]])[0] @ vector
            assert row["candidates"][0]["score"] == pytest.approx(expected, abs=1e-6)
