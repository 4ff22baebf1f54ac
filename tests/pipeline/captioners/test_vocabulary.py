"""`vocabulary` names what is to be seen, with words of the recipe's own, and keeps quiet where the model is unsure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.captioners import registry
from pipeline.captioners.vocabulary import Vocabulary, VocabularySettings, with_article
from pipeline.demo.clip_data import sample_scenes
from pipeline.demo.scenes import BACKGROUNDS, COLOURS, SHAPES, caption_attributes, draw
from pipeline.errors import ModelError


def captioner(**more: object) -> Vocabulary:
    lists: dict[str, Sequence[str]] = {
        "subjects": SHAPES, "attributes": tuple(COLOURS),
        "places": tuple(f"on a {ground} background" for ground in BACKGROUNDS), "media": (),
    }  # fmt: skip
    return Vocabulary(VocabularySettings(model="demo", **(lists | more)), "demo")  # type: ignore[arg-type]


def test_it_names_colour_shape_and_background() -> None:
    scenes = sample_scenes(150, np.random.default_rng(55), two_shapes=0)
    scenes = [scene for scene in scenes if len(scene.shapes) == 1]
    texts = captioner(certainty=0).write([np.asarray(draw(scene)) for scene in scenes])
    right = []
    for [text], scene in zip(texts, scenes, strict=True):
        said, shape = caption_attributes(text), scene.shapes[0]
        right.append((said["shapes"] == (shape.kind,), said["colours"] == (shape.colour,),
                      said["background"] == scene.background))  # fmt: skip
    shape_right, colour_right, ground_right = np.mean(right, axis=0)
    assert shape_right >= 0.9
    assert colour_right >= 0.95
    assert ground_right >= 0.8


def test_words_it_is_not_sure_of_are_left_out() -> None:
    scene = sample_scenes(1, np.random.default_rng(1), two_shapes=0)[0]
    picture = np.asarray(draw(scene))
    [[bare]] = captioner(certainty=1).write([picture])
    assert bare in [with_article(shape) for shape in SHAPES]
    [[full]] = captioner(certainty=0).write([picture])
    assert full.endswith("background")


def test_lists_may_be_empty_but_for_the_subjects() -> None:
    scene = sample_scenes(1, np.random.default_rng(1), two_shapes=0)[0]
    [[text]] = captioner(attributes=(), places=()).write([np.asarray(draw(scene))])
    assert text in [with_article(shape) for shape in SHAPES]
    assert captioner().write([]) == []
    with pytest.raises(ValidationError, match="subjects"):
        VocabularySettings(subjects=())


def test_default_words_are_distinct_and_clean() -> None:
    settings = VocabularySettings()
    for words in (settings.subjects, settings.attributes, settings.places, settings.media):
        assert len(set(words)) == len(words)
        assert all(word == " ".join(word.split()) and word for word in words)


def test_it_is_registered_and_needs_a_model() -> None:
    assert registry()["vocabulary"] is Vocabulary
    with pytest.raises(ModelError, match="needs a CLIP model"):
        Vocabulary.check(VocabularySettings(model="none"), "mine")
    with pytest.raises(ModelError, match="refuses"):
        Vocabulary.check(VocabularySettings(model="demo"), "mine")


def test_articles() -> None:
    assert [with_article(noun) for noun in ("old man", "Icon", "dog")] == ["an old man", "an Icon", "a dog"]
