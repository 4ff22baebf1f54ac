"""The denoiser as the trainer calls it."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

from train.models import build_denoiser
from train.models.settings import DenoiserSettings


def unet(**keys: Any) -> nn.Module:
    settings = DenoiserSettings.model_validate({"widths": (16, 32), "heads": 2, **keys})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_denoiser(settings, 12, (4, 8, 8))


def inputs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(2, 4, 8, 8, generator=generator), torch.tensor([10.0, 900.5]),
            torch.randn(2, 6, 12, generator=generator), torch.ones(2, 6, dtype=torch.bool))


def test_it_predicts_something_of_the_latents_shape_that_hangs_on_every_input() -> None:
    model, (noisy, t, text, mask) = unet(), inputs()
    base = model(noisy, t, text, mask)
    assert base.shape == noisy.shape
    for changed in ((noisy + 0.1, t, text), (noisy, t + 50, text), (noisy, t, text + 0.1)):
        assert not torch.allclose(model(*changed, mask), base)


def test_stable_diffusions_settings_give_stable_diffusions_network() -> None:
    """859,520,964 parameters, counted without making them."""
    settings = DenoiserSettings(widths=(320, 640, 1280, 1280), layers=2, heads=8,
                                attention=(True, True, True, False), pooled_text=False, scale_shift=False)
    with torch.device("meta"):
        model = build_denoiser(settings, 768, (4, 64, 64))
    assert sum(parameter.numel() for parameter in model.parameters()) == 859_520_964


@pytest.mark.parametrize("pooled", [True, False])
def test_the_pooled_caption_reaches_the_network_without_attention(pooled: bool) -> None:
    """With every cross-attention's output at nothing, only the pooled caption can make a difference."""
    model, (noisy, t, text, mask) = unet(pooled_text=pooled), inputs()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attn2.to_out" in name:
                parameter.zero_()
        changed = torch.equal(model(noisy, t, text, mask), model(noisy, t, text.flip(0), mask))
    assert changed is not pooled


def test_attention_is_where_it_is_asked_for() -> None:
    config = cast(Any, unet(attention=(False, True))).model.config
    assert config.down_block_types == ("DownBlock2D", "CrossAttnDownBlock2D")
    assert config.up_block_types == ("CrossAttnUpBlock2D", "UpBlock2D")


@pytest.mark.parametrize(("keys", "words"), [
    ({"attention": (True,)}, "attention names 1"), ({"widths": (16, 30), "heads": 4}, "multiple of heads")])
def test_impossible_settings_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DenoiserSettings.model_validate(keys)
