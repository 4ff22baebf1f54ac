"""Models: thin adapters over diffusers and transformers, all built from settings.

`build_vae`, `build_text` and `build_denoiser` import torch only when called, so that the recipe can read
`train.models.settings` in no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from train.models.settings import DenoiserSettings, TextSettings, VaeSettings

if TYPE_CHECKING:
    from torch import nn

    from train.models.text import TextEncoder
    from train.models.vae import Vae


def build_vae(settings: VaeSettings, folder: str | None = None) -> Vae:
    """A VAE with fresh weights, with those that `Vae.save` left in `folder`, or the pretrained one. ModelError."""
    from train.models import vae

    return vae.build(settings, folder)


def build_text(
    settings: TextSettings, recipe_name: str, *, captions: Iterable[str] = (), folder: str | None = None
) -> TextEncoder:
    """A text encoder. `words` learns its vocabulary from `captions`, or takes the one saved in `folder`. ModelError."""
    from train.models import text

    return text.build(settings, recipe_name, captions=captions, folder=folder)


def build_denoiser(settings: DenoiserSettings, text_width: int, latent_shape: tuple[int, int, int]) -> nn.Module:
    """A denoiser with fresh weights for latents (c, h, w), called `denoiser(noisy_bchw, t_b, text_bld, mask_bl)`."""
    from train.models import unet

    return unet.build(settings, text_width, latent_shape)
