"""Groups of group norms."""

from __future__ import annotations

import pytest

from train.models.norms import norm_groups


@pytest.mark.parametrize(("widths", "groups"), [
    ((320, 640, 1280), 32), ((32, 64, 128), 8), ((48, 96), 12), ((6, 12), 1)])
def test_no_channel_is_normalised_alone(widths: tuple[int, ...], groups: int) -> None:
    """Stable Diffusion's widths keep their 32 groups; narrow ones get at least four channels each (EDM), as far as
    they can be divided."""
    assert norm_groups(widths) == groups
