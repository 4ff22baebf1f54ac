"""`score` gives open_clip's cosines, reads pixels once, and answers changed words from the stored embedding."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import open_clip
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from pipeline import storage
from pipeline.errors import ModelError, StorageError
from pipeline.manifest import View
from pipeline.score import ScoreSettings, ScoreStage, heads, packed, vectors
from pipeline.stage import freshness, run_stage
from tests.pipeline.filtered_run import copy_of, filtered_run, run_of
from tests.pipeline.made_up import MadeUpRun
from tests.pipeline.tiny_coca import WIDTH, save_tiny_coca

PROMPTS = {
    "shape/round": ["a circle", "red circle"],
    "shape/pointed": ["a star"],
    "left": ["on the left"],
    "right": ["on the right"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local-dir:{save_tiny_coca(tmp_path_factory.mktemp('models') / 'tiny')}"


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> MadeUpRun:
    return filtered_run(tmp_path_factory.mktemp("filtered"))


@pytest.fixture
def curated(filtered: MadeUpRun, tmp_path: Path) -> MadeUpRun:
    return copy_of(filtered, tmp_path)


def score(made: MadeUpRun, settings: ScoreSettings, workers: int = 1) -> View:
    run = run_of(made, settings, workers)
    run_stage(ScoreStage(), run)
    made.manifests.reload()
    return made.manifests.joined(stages=("ingest", "dedupe", "filter", "score"), side_tables=True)


def test_scores_and_shares_are_those_of_open_clip(curated: MadeUpRun, model: str) -> None:
    rows = score(curated, ScoreSettings(model=model, pretrained=None, batch=8, zero_shot=PROMPTS)).arrow().to_pylist()
    plain, _, preprocess = open_clip.create_model_and_transforms(model)
    tokenizer = open_clip.get_tokenizer(model)
    plain.eval()
    bytes_of = {row["id"]: row.get("bytes") for row in curated.rows}
    scored = [row for row in rows if row["kept"]]
    assert len(scored) == 44  # 40 kept and 4 that only `select` drops
    with torch.no_grad():
        names = list(PROMPTS)
        ensembles = [plain.encode_text(tokenizer(PROMPTS[name]), normalize=True).mean(0) for name in names]
        directions = torch.stack([vector / vector.norm() for vector in ensembles])
        for row in scored:
            pixels = preprocess(Image.open(io.BytesIO(bytes_of[row["id"]])))[None]
            image = plain.encode_image(pixels, normalize=True)
            text = plain.encode_text(tokenizer(row["pooled_captions"]), normalize=True)
            np.testing.assert_allclose(row["caption_scores"], (image @ text.T)[0], atol=1e-3)
            logits = (plain.logit_scale.exp() * image @ directions.T)[0]
            shares = torch.cat([logits[:2].softmax(0), logits[2:].softmax(0)])
            found = dict(row["zero_shot"])
            np.testing.assert_allclose([found[name] for name in names], shares, atol=5e-3)


def test_only_kept_rows_have_values_and_every_row_stays(curated: MadeUpRun, model: str) -> None:
    rows = score(curated, ScoreSettings(model=model, pretrained=None, batch=8)).arrow().to_pylist()
    assert [row["id"] for row in rows] == [row["id"] for row in curated.rows]
    for row in rows:
        assert (row["embedding"] is not None) == row["kept"]
        assert (row["caption_scores"] is not None) == row["kept"]
        assert row["zero_shot"] is None  # no names in the settings
        if row["kept"]:
            assert len(row["caption_scores"]) == len(row["pooled_captions"])


def test_embeddings_are_stored_as_unit_vectors_in_half_precision(curated: MadeUpRun, model: str) -> None:
    score(curated, ScoreSettings(model=model, pretrained=None, batch=8))
    table = curated.manifests.stage("score", "embedding").arrow()
    assert table.schema.field("embedding").type == pa.binary(2 * WIDTH)
    found = vectors(table.column("embedding"))
    there = ~np.isnan(found[:, 0])
    np.testing.assert_allclose(np.linalg.norm(found[there], axis=1), 1, atol=2e-3)
    assert packed(found).equals(table.column("embedding").combine_chunks())


def test_changed_prompts_read_no_pixels(curated: MadeUpRun, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ScoreSettings(model=model, pretrained=None, batch=8)
    before = score(curated, plain).arrow()

    def unread(*_: object) -> bytes:
        raise AssertionError("pixels were read")

    monkeypatch.setattr(storage, "read_range", unread)
    after = score(curated, ScoreSettings(model=model, pretrained=None, batch=8, zero_shot=PROMPTS)).arrow()
    assert after.column("embedding").equals(before.column("embedding"))
    assert after.column("zero_shot").null_count < before.column("zero_shot").null_count


def test_bytes_are_the_same_for_any_number_of_workers(filtered: MadeUpRun, tmp_path: Path, model: str) -> None:
    files = []
    for workers in (1, 2):
        made = copy_of(filtered, tmp_path / str(workers))
        score(made, ScoreSettings(model=model, pretrained=None, batch=8, zero_shot=PROMPTS), workers)
        receipt = made.manifests.need("score")
        files.append({table: [part.sha256 for part in parts] for table, parts in receipt.tables.items()})
    assert files[0] == files[1]


def test_a_lost_picture_has_no_vector_until_it_is_back(
        curated: MadeUpRun, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ScoreSettings(model=model, pretrained=None, batch=8)
    lost = next(row for row in curated.rows if row["kept"])["sha256"]
    read_range = storage.read_range

    def away(url: str, offset: int, length: int, *, sha256: bytes | None = None) -> bytes:
        if sha256 == lost:
            raise StorageError("the disk is away", hint="")
        return read_range(url, offset, length, sha256=sha256)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "read_range", away)
        rows = score(curated, settings).arrow(["sha256", "embedding", "kept"]).to_pylist()
    assert {row["sha256"] for row in rows if row["kept"] and row["embedding"] is None} == {lost}
    run = run_of(curated, settings)
    curated.manifests.reload()
    state = freshness(ScoreStage(), run)
    assert (state.fresh, state.why) == (False, ["missing or cut: the bytes of 1 pictures"])
    read: list[object] = []
    monkeypatch.setattr(storage, "read_range", lambda *a, **k: read.append(a) or read_range(*a, **k))
    rows = score(curated, settings).arrow(["sha256", "embedding", "kept"]).to_pylist()
    assert len(read) == 1
    assert all((row["embedding"] is not None) == row["kept"] for row in rows)
    assert freshness(ScoreStage(), run_of(curated, settings)).fresh


def test_without_a_model_the_columns_are_null(curated: MadeUpRun) -> None:
    rows = score(curated, ScoreSettings(model="none")).arrow().to_pylist()
    assert len(rows) == len(curated.rows)
    assert all(row["caption_scores"] is None and row["zero_shot"] is None for row in rows)
    assert "embedding" not in curated.manifests.need("score").tables


def test_a_model_that_refuses_stops_before_any_work(curated: MadeUpRun) -> None:
    with pytest.raises(ModelError, match="refuses"):
        ScoreStage().check(run_of(curated, ScoreSettings(model="demo", pretrained=None)))


def test_zero_shot_names_compete_within_their_head() -> None:
    assert heads({"medium/photo": 0, "medium/drawing": 0, "safe": 0, "unsafe": 0}) == {
        "medium": ["medium/photo", "medium/drawing"],
        "": ["safe", "unsafe"],
    }
    with pytest.raises(ValidationError, match="no rival"):
        ScoreSettings(zero_shot={"nsfw": ["a nude"]})
    with pytest.raises(ValidationError, match="no prompts"):
        ScoreSettings(zero_shot={"a": [], "b": ["b"]})
