"""Models load from every place a recipe can name, give what open_clip gives, and refuse in one clear line."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from pipeline import clip
from pipeline.errors import ModelError
from tests.pipeline.tiny_coca import CONTEXT, SIDE, WIDTH, save_tiny_coca

TEXTS = ["a red circle", "small blue star on the left", "", "IMG_2231.jpg", "Green Square."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_coca(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> clip.Clip:
    return clip.load(f"local-dir:{folder}", None, recipe_name="mine", batch=4)


def pictures(count: int) -> list[Image.Image]:
    rng = np.random.default_rng(3)
    sizes = rng.integers(40, 120, (count, 2))
    return [Image.fromarray(rng.integers(0, 255, (h, w, 3), np.uint8)) for h, w in sizes]


def no_network(*_: object, **__: object) -> None:
    raise AssertionError("the network was used")


@pytest.mark.parametrize("weights", ["safetensors", "bin"])
def test_a_local_folder_loads_without_network(
    weights: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", no_network)
    place = save_tiny_coca(tmp_path / "model", weights)  # type: ignore[arg-type]
    clip.check(str(place), None, recipe_name="mine")
    loaded = clip.load(str(place), None, recipe_name="mine", batch=4)  # a plain path will do
    assert loaded.width == clip.describe(str(place), None).width == WIDTH
    same = clip.load(f"local-dir:{folder}", None, recipe_name="mine", batch=4)
    np.testing.assert_allclose(loaded.embed_texts(TEXTS), same.embed_texts(TEXTS), atol=1e-6)


def test_values_are_those_of_open_clip_itself(folder: Path, model: clip.Clip) -> None:
    plain, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    plain.eval()
    shown = pictures(7)
    with torch.no_grad():
        image = plain.encode_image(torch.stack([preprocess(picture) for picture in shown]), normalize=True).numpy()
        text = plain.encode_text(tokenizer(TEXTS), normalize=True).numpy()
    np.testing.assert_allclose(model.embed_images(shown) @ model.embed_texts(TEXTS).T, image @ text.T, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(model.embed_images(shown), axis=1), 1, atol=1e-5)


def test_rows_do_not_depend_on_their_company(model: clip.Clip) -> None:
    shown = pictures(9)
    together = model.embed_images(shown)
    alone = np.concatenate([model.embed_images([picture]) for picture in shown])
    assert together.tobytes() == alone.tobytes()
    assert model.embed_texts(TEXTS).tobytes() == np.concatenate([model.embed_texts([t]) for t in TEXTS]).tobytes()
    other_batch = clip.Clip(model._model, model._preprocess, model._tokenizer, fingerprint="", device="cpu", batch=5)
    np.testing.assert_allclose(other_batch.embed_images(shown), together, atol=1e-3)
    assert model.embed_images([]).shape == (0, WIDTH)


def test_arrays_and_pictures_are_alike(model: clip.Clip) -> None:
    shown = pictures(2)
    as_arrays = model.embed_images([np.asarray(picture) for picture in shown])
    assert as_arrays.tobytes() == model.embed_images(shown).tobytes()
    assert tuple(model.prepare(shown[0]).shape) == (3, SIDE, SIDE)


def test_long_texts_are_cut_with_their_end_kept(model: clip.Clip) -> None:
    long = "red " * (CONTEXT + 5)
    exact = ("red " * (CONTEXT - 2)).strip()  # start and end take two places
    assert model.truncated(long)
    assert not model.truncated(exact)
    assert model.truncated(f"{exact} red")
    ids = model._ids([long])[0].tolist()
    assert len(ids) == CONTEXT
    assert ids[-1] == model._special_ids()[1]
    np.testing.assert_allclose(model.embed_texts([long]), model.embed_texts([exact]), atol=1e-6)


def test_open_clips_own_tokenizer_keeps_the_end_too() -> None:
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    plain = clip.Clip(torch.nn.Identity(), None, tokenizer, fingerprint="", device="cpu", batch=2)
    for count, cut in ((74, False), (75, False), (76, True), (200, True)):  # 77 less start and end
        text = "x " * count
        assert plain.truncated(text) is cut
        assert plain._ids([text])[0].max() == tokenizer.eot_token_id


def test_token_states_have_a_mask_up_to_the_end_token(model: clip.Clip) -> None:
    states, mask = model.token_states(TEXTS)
    assert tuple(states.shape) == (len(TEXTS), CONTEXT, WIDTH)
    assert mask.sum(1).tolist() == [5, 8, 2, 5, 5]  # words and marks, plus start and end
    alone, _ = model.token_states(TEXTS[:1])
    torch.testing.assert_close(alone[0], states[0])


def test_generate_follows_the_decoders_own_logits(model: clip.Clip) -> None:
    shown = pictures(3)
    texts = model.generate(shown)
    plain, tokenizer = model._model, model._tokenizer
    pixels = torch.stack([model.prepare(picture) for picture in shown])
    for text, image in zip(texts, pixels, strict=True):
        ids = torch.tensor([[tokenizer.tokenizer.bos_token_id]])
        with torch.no_grad():
            while ids.shape[1] < CONTEXT and ids[0, -1] != tokenizer.tokenizer.eos_token_id:
                chosen = plain(image[None], ids, output_labels=False)["logits"][0, -1].argmax()
                ids = torch.cat([ids, chosen[None, None]], 1)
        assert text == " ".join(tokenizer.tokenizer.decode(ids[0], skip_special_tokens=True).split())
    assert any(texts)


def test_the_fingerprint_follows_weights_and_settings_not_the_place(tmp_path: Path, folder: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    assert clip.describe(str(moved), None) == clip.describe(f"local-dir:{folder}", None)
    other = save_tiny_coca(tmp_path / "other", seed=1)
    assert clip.describe(str(other), None).fingerprint != clip.describe(str(moved), None).fingerprint
    config = moved / "open_clip_config.json"
    config.write_text(config.read_text().replace("0.6", "0.55"))
    assert clip.describe(str(moved), None).fingerprint != clip.describe(str(folder), None).fingerprint


def test_none_needs_nothing() -> None:
    clip.check("none", None, recipe_name="anything")


@pytest.mark.parametrize(
    ("name", "pretrained", "said", "hinted"),
    [
        ("local-dir:/nowhere", None, "/nowhere does not exist", 'model = "none"'),
        ("ViT-B-23", "openai", "no model 'ViT-B-23'", "ViT-B-32"),
        ("ViT-B-32", "laion2b", "no weights of ViT-B-32 'laion2b'", "laion2b_s34b_b79k"),
        ("ViT-B-32", None, "without weights", "pretrained"),
    ],
)
def test_a_wrong_name_is_told_with_what_would_be_right(
    name: str, pretrained: str | None, said: str, hinted: str
) -> None:
    with pytest.raises(ModelError) as caught:
        clip.check(name, pretrained, recipe_name="mine")
    assert said in str(caught.value)
    assert hinted in caught.value.hint


def test_no_network_is_told_with_three_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> str:
        raise OSError("Name or service not known\nmore")

    monkeypatch.setattr("open_clip.pretrained.download_pretrained", offline)
    with pytest.raises(ModelError) as caught:
        clip.check("ViT-B-32", "laion2b_s34b_b79k", recipe_name="mine")
    assert "ViT-B-32 / laion2b_s34b_b79k cannot be loaded: Name or service not known" in str(caught.value)
    for way in ("connect", "local folder", 'model = "none"'):
        assert way in caught.value.hint


def test_folders_without_config_weights_or_sense_are_refused(tmp_path: Path, folder: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    with pytest.raises(ModelError, match=r"no open_clip_config\.json"):
        clip.check(str(place), None, recipe_name="mine")
    shutil.copy(folder / "open_clip_config.json", place)
    with pytest.raises(ModelError, match="no weights"):
        clip.check(str(place), None, recipe_name="mine")
    (place / "open_clip_model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="cannot be loaded"):
        clip.load(str(place), None, recipe_name="mine")
    (place / "open_clip_config.json").write_text("{}")
    with pytest.raises(ModelError, match="damaged"):
        clip.describe(str(place), None)


def test_the_demos_model_refuses_other_recipes() -> None:
    with pytest.raises(ModelError, match="refuses the recipe 'flowers'") as caught:
        clip.check("demo", None, recipe_name="flowers")
    assert "laion2b_s34b_b79k" in caught.value.hint
    with pytest.raises(ModelError):
        clip.load("demo", None, recipe_name="flowers")
