"""The autoencoder: diffusers' AutoencoderTiny or AutoencoderKL behind one small interface, and its training loss."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from pipeline.errors import ModelError
from train.models.loading import loaded, weights_digest
from train.models.norms import norm_groups
from train.models.settings import VaeSettings

COARSE_LEVELS = 2
OTHER_WEIGHTS = 0.3
"""Size of a fresh convolution's weights beside its identity, as a share of torch's own."""


class Vae:
    """Pixels (b, 3, h, w) in -1..1 ↔ latents (b, c, h/f, w/f) of about unit standard deviation.

    `module` is the diffusers model, whose config holds `scaling_factor` and `shift_factor`:
    latent = (raw − shift) · scaling. A fresh model's factor is 1 until `fit_scale` has measured it.
    """

    def __init__(self, module: Any, settings: VaeSettings, *, trainable: bool) -> None:
        self.module: nn.Module = module
        self.settings, self.trainable = settings, trainable
        if not trainable:
            module.requires_grad_(False).eval()

    @property
    def _model(self) -> Any:
        return self.module

    @property
    def downsample(self) -> int:
        """Pixels per latent cell along one side."""
        return int(2 ** (len(self._model.config.block_out_channels) - 1))

    @property
    def latent_channels(self) -> int:
        return int(self._model.config.latent_channels)

    @property
    def scale(self) -> float:
        """Factor from raw latents to those of unit standard deviation."""
        return float(self._model.config.scaling_factor)

    @property
    def shift(self) -> float:
        """What is taken off raw latents first; 0 for most models, .0609 for SD3's, .1159 for FLUX's."""
        return float(self._model.config.get("shift_factor") or 0.0)

    @property
    def fingerprint(self) -> str:
        """16 hex characters that stand for weights and scale."""
        return weights_digest(self.module, f"{type(self._model).__name__} {self.scale} {self.shift}")

    def encode(self, pixels_bchw: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Scaled latents. AutoencoderKL: drawn from the posterior with a generator, its mean without."""
        encoded = self._model.encode(pixels_bchw)
        if hasattr(encoded, "latent_dist"):
            posterior = encoded.latent_dist
            raw = posterior.mode() if generator is None else posterior.sample(generator)
        else:
            raw = encoded.latents
        return cast(Tensor, (raw - self.shift) * self.scale)

    def decode(self, latents_bchw: Tensor) -> Tensor:
        """Pixels (b, 3, h, w), about -1..1, not clamped."""
        return cast(Tensor, self._model.decode(latents_bchw / self.scale + self.shift, return_dict=False)[0])

    def loss(self, pixels_bchw: Tensor, noise_bchw: Tensor | None = None) -> Tensor:
        """Training loss per sample (b,): see `reconstruction_loss`, plus what keeps latents near the origin.

        `noise_bchw` is unit Gaussian noise of the latents' shape; without it none is added. AutoencoderKL draws its
        posterior with it and pays the KL divergence from a unit Gaussian; AutoencoderTiny gets `latent_noise` times
        the noise on its latents and pays for their mean square.
        """
        settings, encoded = self.settings, self._model.encode(pixels_bchw)
        if hasattr(encoded, "latent_dist"):
            posterior = encoded.latent_dist
            raw, deviation = posterior.mean, posterior.std
            penalty_b = settings.kl_weight * posterior.kl() / raw[0].numel()
        else:
            raw, deviation = encoded.latents, settings.latent_noise
            penalty_b = settings.latent_weight * _mean(raw.float().square())
        if noise_bchw is not None:
            raw = raw + deviation * noise_bchw
        drawn = self._model.decode(raw, return_dict=False)[0]
        return cast(Tensor, reconstruction_loss(drawn.float(), pixels_bchw, settings.edge_weight) + penalty_b)

    def fit_scale(self, latents_bchw: Tensor) -> float:
        """Set the scale so that latents like these (from `encode`) have unit standard deviation; returns it."""
        deviation = float(latents_bchw.detach().double().std())
        if not deviation > 0 or deviation != deviation:
            raise ModelError("the VAE maps every picture to the same latent", hint="train it for more steps, "
                             "or lower vae.latent_weight or vae.kl_weight")
        self._model.register_to_config(scaling_factor=self.scale / deviation)
        return self.scale

    def save(self, folder: str) -> None:
        """Write config.json and safetensors weights to a local folder."""
        self._model.save_pretrained(folder, safe_serialization=True)


def build(settings: VaeSettings, folder: str | None = None) -> Vae:
    """See `train.models.build_vae`."""
    from diffusers import AutoModel

    source = settings.pretrained or folder
    if source is None:
        return Vae(_fresh(settings).to(memory_format=torch.channels_last), settings, trainable=True)
    subfolder = settings.subfolder if settings.pretrained else None
    module = loaded("VAE", source, lambda: AutoModel.from_pretrained(
        source, subfolder=subfolder, low_cpu_mem_usage=False))
    if not hasattr(module, "decode") or not hasattr(module.config, "scaling_factor"):
        raise ModelError(f"{source} holds a {type(module).__name__}, which is no VAE",
                         hint="name the folder of a diffusers VAE; vae.subfolder = 'vae' for a whole pipeline")
    return Vae(module, settings, trainable=settings.pretrained is None)


def _fresh(settings: VaeSettings) -> nn.Module:
    from diffusers import AutoencoderKL, AutoencoderTiny

    levels = settings.downsample.bit_length()
    if settings.kind == "kl":
        widths = settings.widths
        kl: nn.Module = AutoencoderKL(
            latent_channels=settings.latent_channels, block_out_channels=widths, layers_per_block=settings.layers,
            down_block_types=("DownEncoderBlock2D",) * levels, up_block_types=("UpDecoderBlock2D",) * levels,
            norm_num_groups=norm_groups(widths), scaling_factor=1.0)
        return kl
    width = (settings.widths[0],) * levels
    # Residual blocks at full resolution would cost most of the time and add little: the coarse levels decide.
    blocks = tuple(settings.layers if level >= levels - COARSE_LEVELS else 0 for level in range(levels))
    tiny: nn.Module = AutoencoderTiny(
        latent_channels=settings.latent_channels, encoder_block_out_channels=width,
        decoder_block_out_channels=width, num_encoder_blocks=blocks, num_decoder_blocks=blocks[::-1])
    _start_near_identity(tiny)
    return tiny


@torch.no_grad()
def _start_near_identity(tiny: Any) -> None:
    """Let the picture through from the first step: convolutions without a skip around them start as an identity over
    channels and little else, and residual blocks start small.

    Without it colour has to find its way through ten plain layers first: in 3,200 pictures of the demo the
    reconstruction reaches 23 dB instead of 19. With torch's own weights at full size beside the identity, rectifiers
    often kill one of three colour axes before it is learnt, and then no green is left for good.
    """
    for layer in [*tiny.encoder.layers, *tiny.decoder.layers]:
        if isinstance(layer, nn.Conv2d):
            layer.weight *= OTHER_WEIGHTS
            layer.weight += nn.init.dirac_(torch.empty_like(layer.weight))
            if layer.bias is not None:
                layer.bias.zero_()
        elif hasattr(layer, "conv"):
            layer.conv[-1].weight *= 0.1
            layer.conv[-1].bias.zero_()


def reconstruction_loss(drawn_bchw: Tensor, pixels_bchw: Tensor, edge_weight: float) -> Tensor:
    """Per sample (b,): mean absolute error of pixels, and `edge_weight` times that of their differences to the
    neighbour on the right and below, which keeps edges sharp without a perceptual network."""
    error = drawn_bchw - pixels_bchw
    across, down = error[..., :, 1:] - error[..., :, :-1], error[..., 1:, :] - error[..., :-1, :]
    return _mean(error.abs()) + edge_weight * (_mean(across.abs()) + _mean(down.abs()))


def _mean(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1)
