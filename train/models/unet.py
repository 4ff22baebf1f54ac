"""The denoiser: diffusers' UNet2DConditionModel, called the way the trainer calls every denoiser."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from train.models.norms import norm_groups
from train.models.settings import DenoiserSettings


class UNet(nn.Module):
    """`model` is the diffusers module that `train export` saves."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, noisy_bchw: Tensor, t_b: Tensor, text_bld: Tensor, mask_bl: Tensor | None = None) -> Tensor:
        """Prediction (b, c, h, w) at timesteps t_b in 0..1000, attending to the text states (b, l, d).

        As Stable Diffusion does, it attends to the padding too, so `mask_bl` is not looked at: a causal text model's
        padding states sum up the caption, and StableDiffusionPipeline passes no mask.
        """
        return cast(Tensor, self.model(noisy_bchw, t_b, encoder_hidden_states=text_bld, return_dict=False)[0])


def build(settings: DenoiserSettings, text_width: int, latent_shape: tuple[int, int, int]) -> UNet:
    """See `train.models.build_denoiser`."""
    from diffusers import UNet2DConditionModel

    channels, height, width = latent_shape
    attention = settings.attention or (True,) * len(settings.widths)
    return UNet(UNet2DConditionModel(
        sample_size=height if height == width else (height, width), in_channels=channels, out_channels=channels,
        block_out_channels=settings.widths, layers_per_block=settings.layers,
        down_block_types=tuple("CrossAttnDownBlock2D" if attend else "DownBlock2D" for attend in attention),
        up_block_types=tuple("CrossAttnUpBlock2D" if attend else "UpBlock2D" for attend in reversed(attention)),
        cross_attention_dim=text_width,
        # diffusers' name notwithstanding, Stable Diffusion's configs give the number of heads here.
        attention_head_dim=settings.heads,
        addition_embed_type="text" if settings.pooled_text else None, addition_embed_type_num_heads=settings.heads,
        resnet_time_scale_shift="scale_shift" if settings.scale_shift else "default",
        norm_num_groups=norm_groups(settings.widths)).to(memory_format=torch.channels_last))
