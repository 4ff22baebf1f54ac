"""The autoencoder behind its small interface, and what its loss is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.errors import ModelError
from train.models import build_vae
from train.models.settings import VaeSettings
from train.models.vae import Vae, reconstruction_loss

TINY: dict[str, Any] = {"widths": (8,), "layers": 1, "latent_channels": 4, "downsample": 8}
KL: dict[str, Any] = {"kind": "kl", "widths": (8, 8, 8, 16), "layers": 1, "latent_channels": 4, "downsample": 8}


def vae(**keys: Any) -> Vae:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_vae(VaeSettings.model_validate(keys or TINY))


def pixels(count: int = 4, side: int = 32) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.mark.parametrize("keys", [TINY, KL, {**TINY, "downsample": 4}])
def test_latents_are_smaller_by_downsample_and_decode_to_the_pictures_shape(keys: dict[str, Any]) -> None:
    made = vae(**keys)
    factor = keys["downsample"]
    latents = made.encode(pixels())
    assert latents.shape == (4, 4, 32 // factor, 32 // factor)
    assert made.decode(latents).shape == (4, 3, 32, 32)
    assert (made.downsample, made.latent_channels) == (factor, 4)


@pytest.mark.parametrize("seed", range(8))
def test_a_fresh_vae_lets_every_colour_axis_through(seed: int) -> None:
    """An axis that is dead at the start stays so in a short training: once, no picture had any green."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        made = build_vae(VaeSettings())
        flat = (torch.rand(256, 3, 1, 1) * 2 - 1).expand(-1, -1, 32, 32).contiguous()
        given, drawn = flat.mean((2, 3)), made.decode(made.encode(flat)).mean((2, 3))
    for axis in ([1, 1, 1], [1, -1, 0], [1, -2, 1]):
        weights = torch.tensor(axis, dtype=torch.float)
        assert torch.corrcoef(torch.stack([given @ weights, drawn @ weights]))[0, 1] > 0.9


@pytest.mark.parametrize("keys", [TINY, KL])
def test_fit_scale_gives_latents_unit_deviation_and_changes_no_picture(keys: dict[str, Any]) -> None:
    made = vae(**keys)
    before = made.decode(made.encode(pixels()))
    made.fit_scale(made.encode(pixels()))
    latents = made.encode(pixels())
    assert float(latents.std()) == pytest.approx(1.0, abs=1e-4)
    torch.testing.assert_close(made.decode(latents), before, rtol=1e-4, atol=1e-5)


def test_a_vae_that_tells_nothing_apart_is_refused() -> None:
    with pytest.raises(ModelError, match="same latent"):
        vae().fit_scale(torch.zeros(4, 4, 4, 4))


@pytest.mark.parametrize("keys", [TINY, KL])
def test_saved_and_loaded_it_is_the_same(keys: dict[str, Any], tmp_path: Path) -> None:
    made = vae(**keys)
    made.fit_scale(made.encode(pixels()))
    made.save(str(tmp_path / "vae"))
    again = build_vae(VaeSettings.model_validate(keys), str(tmp_path / "vae"))
    assert again.fingerprint == made.fingerprint
    torch.testing.assert_close(again.encode(pixels()), made.encode(pixels()))


def test_the_fingerprint_hangs_on_weights_and_scale() -> None:
    made = vae()
    before = made.fingerprint
    assert vae().fingerprint == before
    made.fit_scale(made.encode(pixels()))
    scaled = made.fingerprint
    with torch.no_grad():
        next(made.module.parameters())[0] += 1e-3
    assert len({before, scaled, made.fingerprint}) == 3


def test_pretrained_takes_a_whole_pipelines_folder_and_freezes(tmp_path: Path) -> None:
    vae(**KL).save(str(tmp_path / "pipeline" / "vae"))
    settings = VaeSettings(pretrained=str(tmp_path / "pipeline"), subfolder="vae", downsample=8)
    ready = build_vae(settings)
    assert not ready.trainable
    assert not any(parameter.requires_grad for parameter in ready.module.parameters())


def test_a_shift_is_taken_off_and_put_back(tmp_path: Path) -> None:
    """SD3's latents: (raw − .0609) · 1.5305."""
    made = vae(**KL)
    raw = made.encode(pixels())
    made.module.register_to_config(scaling_factor=1.5305, shift_factor=0.0609)  # type: ignore[operator]
    torch.testing.assert_close(made.encode(pixels()), (raw - 0.0609) * 1.5305)
    torch.testing.assert_close(made.decode(made.encode(pixels())), made.module.decode(raw).sample)  # type: ignore[operator]


def test_a_missing_model_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere") as caught:
        build_vae(VaeSettings(pretrained=str(tmp_path / "nowhere")))
    assert "local folder" in caught.value.hint


def test_reconstruction_loss_by_hand() -> None:
    """One pixel of 2 × 2 is off by 1: L1 is ¼; of two differences across and two down one each is off: ½ + ½."""
    wrong = torch.zeros(1, 1, 2, 2)
    wrong[0, 0, 0, 0] = 1.0
    assert float(reconstruction_loss(wrong, torch.zeros(1, 1, 2, 2), 0.5)) == pytest.approx(0.25 + 0.5 * 1.0)
    assert reconstruction_loss(wrong, wrong, 0.5).tolist() == [0.0]


def test_the_kl_term_is_that_of_two_gaussians() -> None:
    """Per latent value ½ (μ² + σ² − 1 − ln σ²)."""
    made, light = vae(**KL, kl_weight=1.0), vae(**KL, kl_weight=0.0)
    posterior = made.module.encode(pixels()).latent_dist  # type: ignore[operator]
    mean, variance = posterior.mean, posterior.var
    expected = 0.5 * (mean**2 + variance - 1 - variance.log()).flatten(1).mean(1)
    torch.testing.assert_close(made.loss(pixels()) - light.loss(pixels()), expected, rtol=1e-3, atol=1e-5)


def test_noise_on_latents_counts_only_when_given() -> None:
    made = vae(**TINY, latent_noise=0.5)
    assert torch.equal(made.loss(pixels()), made.loss(pixels()))
    noise = torch.randn(4, 4, 4, 4, generator=torch.Generator().manual_seed(3))
    assert not torch.equal(made.loss(pixels(), noise), made.loss(pixels()))
    torch.testing.assert_close(made.loss(pixels(), torch.zeros(4, 4, 4, 4)), made.loss(pixels()))


def test_a_fresh_tiny_vae_lets_colour_through() -> None:
    """Flat pictures of different brightness decode to pictures in the same order, before any training."""
    made = vae(widths=(16,), layers=1, latent_channels=8, downsample=8)
    flat = torch.linspace(-1, 1, 5)[:, None, None, None].expand(5, 3, 32, 32)
    with torch.no_grad():
        drawn = made.decode(made.encode(flat))[:, :, 8:24, 8:24].mean((1, 2, 3))
    assert drawn.tolist() == sorted(drawn.tolist())
    assert float(drawn[-1] - drawn[0]) > 0.5


@pytest.mark.parametrize(("keys", "words"), [
    ({"downsample": 6}, "power of two"), ({"widths": (8, 16)}, "one width"),
    ({"kind": "kl", "widths": (8, 16), "downsample": 8}, "4 levels")])
def test_impossible_settings_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        VaeSettings.model_validate(keys)
