"""The shipped model on scenes drawn for this test, and the exactness of what it was taught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import clip
from pipeline.clip_files import DEMO_FOLDER
from pipeline.demo import clip_eval
from pipeline.demo.clip_data import draw_pictures, junk_text, near_miss, sample_scenes, scene_facts, text_facts, truth
from pipeline.demo.clip_model import PATCH, SIDE
from pipeline.demo.scenes import COLOURS, SHAPES, WITHHELD, caption, draw, full_caption, is_true

UNSEEN_SEED = 90_210


@pytest.fixture(scope="module")
def report() -> clip_eval.Report:
    scenes = clip_eval.held_out_scenes(400, UNSEEN_SEED, seen=())
    return clip_eval.examine(DEMO_FOLDER, scenes, UNSEEN_SEED)


def test_it_tells_captions_of_another_picture_apart(report: clip_eval.Report) -> None:
    assert report.recall >= 0.95
    assert report.precision >= 0.95


def test_it_finds_a_true_caption_among_all(report: clip_eval.Report) -> None:
    assert report.retrieval_text >= 0.6
    assert report.retrieval_image >= 0.6


def test_the_captions_it_writes_have_colour_and_shape_right(report: clip_eval.Report) -> None:
    assert report.written_gist >= 0.95
    assert report.written_background >= 0.95
    assert report.written_size >= 0.95
    assert report.written_place >= 0.95


def test_pairs_kept_off_the_website_are_known_as_well() -> None:
    rng = np.random.default_rng(UNSEEN_SEED)
    drawn = [scene for scene in sample_scenes(600, rng, 0) if len(scene.shapes) == 1]
    scenes = [scene for scene in drawn if (scene.shapes[0].colour, scene.shapes[0].kind) in WITHHELD]
    model = clip.load("demo", None, recipe_name="demo")
    images = model.embed_images([draw(scene) for scene in scenes])
    names = [f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES]
    chosen = (images @ model.embed_texts(names).T).argmax(1)
    right = [names[k] == f"a {s.shapes[0].colour} {s.shapes[0].kind}" for k, s in zip(chosen, scenes, strict=True)]
    assert len(right) > 50
    assert np.mean(right) >= 0.95


def test_it_is_small_and_knows_every_word() -> None:
    assert sum(file.stat().st_size for file in DEMO_FOLDER.iterdir()) <= 8_000_000
    model = clip.load("demo", None, recipe_name="demo")
    inner = model._tokenizer.tokenizer
    rng = np.random.default_rng(1)
    texts = [write for scene in sample_scenes(300, rng) for write in (caption(scene, rng), full_caption(scene))]
    ids = np.array(inner(texts, padding=True).input_ids)
    assert not (ids == inner.unk_token_id).any()
    assert not any(model.truncated(text) for text in texts)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_labels_are_the_truth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scenes = sample_scenes(12, rng, two_shapes=0.4)
    texts = [write(scene, rng) for scene in scenes for write in (caption, near_miss)]
    texts += [full_caption(scene) for scene in scenes]
    whole, gist = truth(scene_facts(scenes), text_facts(texts))
    assert whole.tolist() == [[is_true(text, scene) for text in texts] for scene in scenes]
    assert not (whole & ~gist).any()
    assert all(not gist[number, 2 * number + 1] for number in range(len(scenes)))  # a near miss misses


def test_words_that_describe_nothing_are_true_of_nothing() -> None:
    rng = np.random.default_rng(0)
    whole, gist = truth(scene_facts(sample_scenes(5, rng)), text_facts([junk_text(rng) for _ in range(20)]))
    assert not whole.any()
    assert not gist.any()


def test_patches_are_labelled_where_the_shape_is() -> None:
    rng = np.random.default_rng(5)
    scene = next(s for s in sample_scenes(50, rng, 0) if s.shapes[0].size == "large")
    shape = scene.shapes[0]
    pictures = draw_pictures([scene], SIDE, PATCH, rng)
    grid = SIDE // PATCH
    labels = pictures.patch_labels[0].reshape(grid, grid, 2)
    assert labels[int(shape.y * grid), int(shape.x * grid)].tolist() == [
        list(SHAPES).index(shape.kind) + 1, list(COLOURS).index(shape.colour) + 1
    ]  # fmt: skip
    assert pictures.pixels.shape == (1, SIDE, SIDE, 3)
    assert (labels[..., 0] > 0).mean() < 0.5


def test_scenes_that_were_trained_on_are_refused() -> None:
    scenes = clip_eval.held_out_scenes(20, 4, seen=())
    with pytest.raises(ValueError, match="1 held-out scenes were trained on"):
        clip_eval.held_out_scenes(20, 4, seen={scenes[7], replace(scenes[3], seed=1)})
