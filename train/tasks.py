"""What is trained: a module whose forward maps a batch to one loss per sample. The loop knows nothing else.

The VAE and the denoiser are two tasks on the same spine. Frozen models are kept beside a task, not inside it,
so that they are in no checkpoint and no average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from train.feed import Batch

if TYPE_CHECKING:
    from train.models.text import TextEncoder
    from train.models.vae import Vae
    from train.objective import Objective


def to_signed(pixels_bchw: Tensor) -> Tensor:
    """uint8 pixels as float32 in −1..1."""
    return pixels_bchw.float() / 127.5 - 1.0


class Task(nn.Module):
    """Base of all tasks. Parameters that require a gradient are trained, averaged and checkpointed."""

    name: str

    def forward(self, batch: Batch) -> Tensor:
        """Loss per sample, shape (b,), float32."""
        raise NotImplementedError


class VaeTask(Task):
    """Reconstruction of pixels; `batch.noise` (of the latents' shape) is what the VAE puts on its latents."""

    name = "vae"

    def __init__(self, vae: Vae) -> None:
        super().__init__()
        self.module = vae.module
        self._vae = (vae,)

    def forward(self, batch: Batch) -> Tensor:
        return self._vae[0].loss(to_signed(batch.images), batch.noise)


class DenoiserTask(Task):
    """One denoising step: noise the latents, predict, compare (see `train.objective`)."""

    name = "denoiser"

    def __init__(self, denoiser: nn.Module, objective: Objective, text: TextEncoder, vae: Vae) -> None:
        super().__init__()
        self.denoiser = denoiser
        if text.trainable:
            self.text = text.module
        self._objective, self._encoder, self._vae = objective, (text,), (vae,)

    def forward(self, batch: Batch) -> Tensor:
        assert batch.noise is not None
        latents, noise = self._latents(batch), batch.noise
        text_bld, mask_bl = self._text(batch)
        t_b = self._objective.timesteps(batch.times)
        prediction = self.denoiser(self._objective.noised(latents, noise, t_b), t_b, text_bld, mask_bl)
        target = self._objective.target(latents, noise, t_b)
        return self._objective.loss(prediction.float(), target, t_b)

    def _latents(self, batch: Batch) -> Tensor:
        if batch.images.dtype != torch.uint8:
            return batch.images
        with torch.no_grad():
            return self._vae[0].encode(to_signed(batch.images)).float()

    def _text(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if batch.text is not None and batch.text_mask is not None:
            return batch.text, batch.text_mask
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._encoder[0].trainable):
            return self._encoder[0].encode(list(batch.captions))
