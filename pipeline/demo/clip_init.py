"""A starting point from which a small vision transformer learns shapes in minutes instead of hours.

Two ideas. The patch embedding starts as whitening: colour fills nearly all the variance of pixels, and shape hides in
what is left (principal components, each scaled to unit variance). And most heads start out looking at one neighbour
each, so that the first layers begin as a convolution would: places are coded one-hot per axis in a subspace that the
content leaves free, and queries are the code of the place next door (cf. Cordonnier et al. 2020, "On the relationship
between self-attention and convolutional layers").
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NEIGHBOURS = (
    ((0, 1), (0, -1), (1, 0), (-1, 0)),
    ((1, 1), (-1, -1), (1, -1), (-1, 1)),
    ((0, 2), (0, -2), (2, 0), (-2, 0)),
    ((0, 1), (0, -1), (1, 0), (-1, 0)),
)
"""Per layer, the steps (down, right) that its first heads look at; further heads and layers start at random."""

NOISE_FLOOR = 0.02  # variance below which a component is grain rather than shape
BUSY = 0.9  # quantile of patch contrast up to which places outweigh content


def start(visual: Any, pixels_bchw: Tensor, generator: torch.Generator) -> None:
    """Initialise open_clip's vision transformer in place from normalised training pictures (b, 3, side, side)."""
    width, channels, patch, _ = visual.conv1.weight.shape
    grid = pixels_bchw.shape[-1] // patch
    axes = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    code, content = axes[:, : 2 * grid], axes[:, 2 * grid :]
    cut = pixels_bchw.unfold(2, patch, patch).unfold(3, patch, patch)
    patches = cut.permute(0, 2, 3, 1, 4, 5).reshape(-1, channels * patch * patch)
    weight = content @ _whitening(patches, content.shape[1])
    visual.conv1.weight.data.copy_(weight.reshape(visual.conv1.weight.shape))
    energy = (patches @ weight.T).pow(2).sum(1).quantile(BUSY)
    down, right = (axis.flatten() for axis in torch.meshgrid(torch.arange(grid), torch.arange(grid), indexing="ij"))
    places = (energy / 2).sqrt() * (code[:, right].T + code[:, grid + down].T)
    visual.positional_embedding.data[1:] = places
    visual.positional_embedding.data[0] = 0
    for block, steps in zip(visual.transformer.resblocks, NEIGHBOURS, strict=False):
        _look_at(block.attn, steps, code.T, grid)


def _whitening(patches_nd: Tensor, count: int) -> Tensor:
    """The first `count` principal directions as rows, scaled to unit variance."""
    variances, directions = torch.linalg.eigh(torch.cov(patches_nd[:40_000].T))
    leading = slice(-count, None)
    rows: Tensor = (directions[:, leading] / (variances[leading] + NOISE_FLOOR).sqrt()).T
    return rows


def _look_at(attention: Any, steps: tuple[tuple[int, int], ...], code: Tensor, grid: int) -> None:
    """Make head h attend to the patch `steps[h]` away. `code` is (2 grid, width): columns, then rows of the grid."""
    weight = attention.in_proj_weight.data
    width, head_width = attention.embed_dim, attention.head_dim
    for head, (down, right) in enumerate(steps):
        query = torch.zeros_like(code)
        for place in range(grid):
            if 0 <= place + right < grid:
                query[place + right] = code[place]
            if 0 <= place + down < grid:
                query[grid + place + down] = code[grid + place]
        first = head * head_width
        weight[first : first + 2 * grid] = query
        weight[width + first : width + first + 2 * grid] = code
        for rest in (weight[:width], weight[width : 2 * width]):
            rest[first + 2 * grid : first + head_width] *= 0.5
