"""The text encoder: a vocabulary learnt from captions, token states, ready models from a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ModelError
from train.models import build_text
from train.models.settings import TextSettings
from train.models.text import TextEncoder, learn_tokenizer

CAPTIONS = [f"a {size} {colour} {shape} on white" for size in ("small", "large") for colour in ("red", "blue", "teal")
            for shape in ("circle", "star", "ring")]
SMALL: dict[str, Any] = {"width": 16, "heads": 2, "layers": 1, "max_tokens": 12}


def encoder(**keys: Any) -> TextEncoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_text(TextSettings.model_validate({**SMALL, **keys}), "any", captions=CAPTIONS)


@pytest.fixture(scope="module")
def text() -> TextEncoder:
    return encoder()


def test_frequent_words_are_one_token_each(text: TextEncoder) -> None:
    assert text.tokenizer.tokenize("A large TEAL ring on white") == [
        "a</w>", "large</w>", "teal</w>", "ring</w>", "on</w>", "white</w>"]


@settings(max_examples=60)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20))
def test_any_text_has_tokens_and_reads_back(text_in: str) -> None:
    """Byte-level pairs know every character, so no word is unknown."""
    tokenizer = _shared()
    ids = tokenizer(text_in).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in ids[1:-1]


_kept: list[Any] = []


def _shared() -> Any:
    if not _kept:
        _kept.append(learn_tokenizer(CAPTIONS, 500))
    return _kept[0]


def test_the_vocabulary_is_the_same_in_every_process_and_order() -> None:
    script = ("import sys; from train.models.text import learn_tokenizer;"
              "t = learn_tokenizer(sys.argv[1:], 500); print(sorted(t.get_vocab().items(), key=lambda i: i[1]))")
    runs = [subprocess.run([sys.executable, "-c", script, *order], capture_output=True, text=True, check=True).stdout
            for order in (CAPTIONS, CAPTIONS[::-1])]
    assert runs[0] == runs[1]
    assert "circle</w>" in runs[0]


def test_the_vocabulary_is_bounded() -> None:
    assert len(learn_tokenizer(CAPTIONS, 5)) == 2 + 2 * 256 + 5


def test_states_have_the_settings_shape_and_mask_the_padding(text: TextEncoder) -> None:
    states, mask = text.encode(["a red circle", "", "a small blue star on white " * 5])
    assert states.shape == (3, 12, 16)
    assert mask.sum(1).tolist() == [5, 2, 12]  # start and end count
    assert text.width == 16


def test_states_do_not_hang_on_the_rest_of_the_batch(text: TextEncoder) -> None:
    together, _ = text.encode(["a red circle", "a blue star"])
    torch.testing.assert_close(together[1:], text.encode(["a blue star"])[0])


def test_long_captions_are_cut_with_their_end_kept_and_known(text: TextEncoder) -> None:
    long = "red " * 40
    tokens = text.tokenizer([long], padding="max_length", max_length=12, truncation=True).input_ids[0]
    assert tokens[-1] == text.tokenizer.eos_token_id
    assert text.is_cut(long)
    assert not text.is_cut("a red circle")


def test_gradients_reach_the_words(text: TextEncoder) -> None:
    assert text.trainable
    text.encode(["a red circle"])[0].sum().backward()
    assert all(parameter.grad is not None for parameter in text.module.parameters() if parameter.ndim > 1)


def test_the_tokenizer_is_taken_up_from_its_folder(tmp_path: Path) -> None:
    first = encoder()
    first.save_tokenizer(str(tmp_path / "tokenizer"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        again = build_text(TextSettings.model_validate(SMALL), "any", folder=str(tmp_path / "tokenizer"))
    assert again.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    torch.testing.assert_close(again.encode(CAPTIONS[:3])[0], first.encode(CAPTIONS[:3])[0])
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize("whole", [True, False])
def test_a_ready_model_is_loaded_and_frozen(tmp_path: Path, whole: bool) -> None:
    made = encoder()
    made.module.save_pretrained(tmp_path / "text_encoder" if whole else tmp_path)  # type: ignore[operator]
    made.save_tokenizer(str(tmp_path / "tokenizer" if whole else tmp_path))
    ready = build_text(TextSettings(kind="pretrained", pretrained=str(tmp_path), max_tokens=12), "any")
    assert not ready.trainable
    torch.testing.assert_close(ready.encode(["a red star"])[0], made.encode(["a red star"])[0])
    with pytest.raises(ModelError, match="takes 12 tokens"):
        build_text(TextSettings(kind="pretrained", pretrained=str(tmp_path), max_tokens=77), "any")


def test_missing_models_and_words_are_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        build_text(TextSettings(kind="pretrained", pretrained=str(tmp_path / "nowhere")), "any")
    with pytest.raises(ModelError, match="no captions"):
        build_text(TextSettings.model_validate(SMALL), "any")
    with pytest.raises(ValueError, match="needs `pretrained`"):
        TextSettings(kind="pretrained")


def test_words_tell_captions_apart_from_the_first_step() -> None:
    """States of different words point apart, and the padding already knows which caption it follows."""
    text = encoder(width=64, heads=4)
    with torch.no_grad():
        (red, blue), _ = text.encode(["a red circle", "a blue star"])
    alike = torch.nn.functional.cosine_similarity(red, blue, dim=1)
    assert alike[1] > 0.9, "the same word after the same words"
    assert alike[2].abs() < 0.6, "red against blue"
    assert alike[3].abs() < 0.6, "circle against star"
    assert alike[4:].max() < 0.9, "padding after either"
