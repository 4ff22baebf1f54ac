"""What is trained: a module whose forward maps a batch to one loss per sample. The loop knows nothing else.

The VAE and the denoiser are two tasks on the same spine. Frozen models are kept beside a task, not inside it,
so that they are in no checkpoint and no average.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from train.config import VaeSettings
from train.feed import Batch


class Vae(Protocol):
    """See `train.models.build_vae`."""

    module: nn.Module

    def encode(self, pixels_bchw: Tensor, generator: torch.Generator | None = None) -> Tensor: ...

    def decode(self, latents_bchw: Tensor) -> Tensor: ...


class TextEncoder(Protocol):
    """See `train.models.build_text`."""

    trainable: bool
    fingerprint: str

    def encode(self, captions: list[str]) -> tuple[Tensor, Tensor]: ...


class Objective(Protocol):
    """See `train.objective`."""

    def noised(self, latents_bchw: Tensor, noise_bchw: Tensor, t_b: Tensor) -> Tensor: ...

    def target(self, latents_bchw: Tensor, noise_bchw: Tensor, t_b: Tensor) -> Tensor: ...

    def loss(self, prediction_bchw: Tensor, target_bchw: Tensor, t_b: Tensor) -> Tensor: ...

    def timesteps(self, uniform_b: Tensor) -> Tensor: ...


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
    """Reconstruction: L1 on pixels, L1 on their differences (so that edges stay sharp), and a latent penalty."""

    name = "vae"

    def __init__(self, vae: Vae, settings: VaeSettings) -> None:
        super().__init__()
        self.module = vae.module
        self._vae, self._settings = (vae,), settings

    def forward(self, batch: Batch) -> Tensor:
        pixels = to_signed(batch.images)
        latents = self._vae[0].encode(pixels, None)
        drawn = self._vae[0].decode(latents).float()
        loss = _mean((drawn - pixels).abs())
        if self._settings.edge_weight:
            loss = loss + self._settings.edge_weight * edge_loss(drawn, pixels)
        if self._settings.kl_weight:
            loss = loss + self._settings.kl_weight * _mean(latents.float().square())
        return loss


class DenoiserTask(Task):
    """One denoising step: noise the latents, predict, compare (see `train.objective`)."""

    name = "denoiser"

    def __init__(self, denoiser: nn.Module, objective: Objective, text: TextEncoder, vae: Vae) -> None:
        super().__init__()
        self.denoiser = denoiser
        if text.trainable:
            self.text = text if isinstance(text, nn.Module) else getattr(text, "module", None)
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
            return self._vae[0].encode(to_signed(batch.images), None).float()

    def _text(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if batch.text is not None and batch.text_mask is not None:
            return batch.text, batch.text_mask
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._encoder[0].trainable):
            return self._encoder[0].encode(list(batch.captions))


def edge_loss(a_bchw: Tensor, b_bchw: Tensor) -> Tensor:
    """Mean absolute difference of the horizontal and of the vertical pixel differences, per sample (b,)."""
    difference = a_bchw - b_bchw
    across = difference[..., :, 1:] - difference[..., :, :-1]
    down = difference[..., 1:, :] - difference[..., :-1, :]
    return _mean(across.abs()) + _mean(down.abs())


def _mean(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1)
