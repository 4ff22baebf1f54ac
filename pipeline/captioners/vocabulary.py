"""Vocabulary: words that CLIP ranks highest for a picture, composed into a sentence. Works with any CLIP model.

In the manner of CLIP Interrogator and of "Socratic models" (Zeng et al. 2022): the best subject of a list, then the
best attribute *of that subject*, place and medium. A word other than the subject is used only where the model is sure
of it among its list. All lists can be replaced in the recipe by words of one's own field.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline import clip
from pipeline.captioners.base import Captioner, CaptionerSettings
from pipeline.errors import ModelError

Floats = NDArray[np.float32]

SUBJECTS = tuple(
    """man, woman, child, baby, crowd, couple, family, face, hand, dog, cat, horse, cow, sheep, bird, duck, eagle, owl,
    fish, butterfly, bee, insect, spider, snake, lizard, turtle, frog, elephant, lion, tiger, bear, deer, rabbit,
    monkey, flower, rose, tree, forest, leaf, mushroom, grass field, mountain, hill, valley, desert, beach, sea, wave,
    lake, river, waterfall, island, cliff, cave, glacier, volcano, sky, cloud, sunset, moon, star field, rainbow, storm,
    road, street, bridge, railway, tunnel, harbour, city skyline, skyscraper, house, cottage, church, castle, temple,
    tower, lighthouse, barn, ruin, statue, fountain, garden, park, fence, wall, door, window, stair, room, kitchen,
    bedroom, office, shop, market, library, museum, stadium, car, truck, bus, bicycle, motorcycle, train, tram, boat,
    ship, airplane, helicopter, balloon, rocket, tractor, chair, table, sofa, bed, lamp, clock, mirror, book, newspaper,
    letter, map, painting, poster, logo, sign, flag, chart, diagram, screenshot, text, computer, laptop, keyboard,
    phone, camera, television, radio, guitar, piano, violin, drum, ball, toy, doll, dress, shirt, shoe, hat, bag,
    jewellery, ring, watch, umbrella, knife, bottle, glass, cup, plate of food, bread, cake, fruit, apple, orange,
    banana, vegetable, salad, pizza, soup, meat, coffee, wine, candle, fire, tool, machine, engine, robot, coin, key,
    box, basket, pattern, texture, geometric shape""".replace("\n", " ").split(",")
)
ATTRIBUTES = tuple(
    """red, orange, yellow, green, blue, purple, pink, brown, black, white, grey, golden, silver, colourful, small,
    large, tall, old, modern, wooden, metal, stone, glass, plastic, wet, snowy, broken, shiny, rusty, blurred, running,
    flying, sitting, standing, sleeping, smiling, empty, crowded""".replace("\n", " ").split(",")
)
PLACES = tuple(
    """on a plain background, indoors, outdoors, on a table, in a garden, in a forest, in a field, in the mountains,
    on a beach, by the sea, in the water, in the snow, in the rain, in the sky, on a street, in a city, at night,
    at sunset, in a studio, on a wall""".replace("\n", " ").split(",")
)
MEDIA = tuple(
    """photo, painting, watercolour, pencil drawing, cartoon, icon, illustration, 3D render, engraving, screenshot,
    black-and-white photo, close-up photo, aerial photo""".replace("\n", " ").split(",")
)


def _tidy(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(word.split()) for word in words)


SUBJECT_WORDS = _tidy(SUBJECTS)


class VocabularySettings(CaptionerSettings):
    kind: Literal["vocabulary"] = Field("vocabulary", description="words ranked by CLIP, composed into a sentence")
    model: str = Field(
        "ViT-B-32", description='open_clip architecture, "local-dir:/folder" or "hf-hub:name/repository"'
    )
    pretrained: str | None = Field(
        "laion2b_s34b_b79k", description="open_clip weights tag or a weights file; unused for folders"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="number format of the model")
    device: str = Field("auto", description='torch device, e.g. "cuda:0"; auto: a GPU if there is one')
    batch: int = Field(64, ge=1, description="pictures or texts per model batch; short batches are padded to it")
    subjects: tuple[str, ...] = Field(SUBJECT_WORDS, min_length=1, description="what a picture may show")
    attributes: tuple[str, ...] = Field(_tidy(ATTRIBUTES), description="what its subject may be like")
    places: tuple[str, ...] = Field(_tidy(PLACES), description="where it may be; whole phrases")
    media: tuple[str, ...] = Field(_tidy(MEDIA), description="what kind of picture it may be")
    certainty: float = Field(
        0.4,
        ge=0,
        le=1,
        description="share of the probability a word other than the subject needs within its list, 0..1",
    )


class Vocabulary(Captioner):
    """Writes one caption per picture."""

    Settings = VocabularySettings

    @classmethod
    def check(cls, settings: CaptionerSettings, recipe_name: str) -> None:
        given = cast(VocabularySettings, settings)
        if given.model == clip.NONE:
            raise ModelError("the captioner vocabulary needs a CLIP model", hint='name one, or caption.when = "none"')
        clip.check(given.model, given.pretrained, recipe_name=recipe_name)

    @classmethod
    def fingerprint(cls, settings: CaptionerSettings) -> dict[str, Any]:
        given = cast(VocabularySettings, settings)
        return {"clip": clip.describe(given.model, given.pretrained).fingerprint}

    def __init__(self, settings: CaptionerSettings, recipe_name: str) -> None:
        self.settings = given = cast(VocabularySettings, settings)
        self.clip = clip.load(
            given.model, given.pretrained, recipe_name=recipe_name, device=given.device,
            precision=given.precision, batch=given.batch,
        )  # fmt: skip
        self._directions = lru_cache(maxsize=1024)(self._embedded)

    def write(self, pictures: Sequence[NDArray[np.uint8]]) -> list[list[str]]:
        return [[self._sentence(picture)] for picture in self.clip.embed_images(pictures)]

    def _sentence(self, picture: Floats) -> str:
        given = self.settings
        subject, _ = self._best(picture, tuple(with_article(name) for name in given.subjects), given.subjects)
        described = self._sure(
            picture, tuple(with_article(f"{a} {subject}") for a in given.attributes), given.attributes
        )
        noun = with_article(f"{described} {subject}" if described else subject)
        place = self._sure(picture, tuple(f"{noun} {place}" for place in given.places), given.places)
        medium = self._sure(picture, tuple(f"{with_article(m)} of {noun}" for m in given.media), given.media)
        sentence = f"{noun} {place}" if place else noun
        return f"{with_article(medium)} of {sentence}" if medium else sentence

    def _sure(self, picture: Floats, prompts: tuple[str, ...], words: Sequence[str]) -> str | None:
        if not words:
            return None
        word, share = self._best(picture, prompts, words)
        return word if share >= self.settings.certainty else None

    def _best(self, picture: Floats, prompts: tuple[str, ...], words: Sequence[str]) -> tuple[str, float]:
        logits = self.clip.logit_scale * (self._directions(prompts) @ picture)
        shares = np.exp(logits - logits.max())
        at = int(logits.argmax())
        return words[at], float(shares[at] / shares.sum())

    def _embedded(self, prompts: tuple[str, ...]) -> Floats:
        return self.clip.embed_texts(prompts)


def with_article(noun: str) -> str:
    """`a`, or `an` before a vowel: "an old man"."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
