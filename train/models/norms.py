"""How many channels the group norms of our networks take together."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST_PER_GROUP = 4
"""Channels that are normalised together (EDM: Karras et al. 2022). One alone would lose its mean in every layer, and
with it what the channel says of the picture as a whole."""


def norm_groups(widths: Sequence[int]) -> int:
    """Groups of the group norms: at most 32, at least LEAST_PER_GROUP channels each on every level."""
    common = math.gcd(*widths)
    return max((groups for groups in range(1, 33) if common % groups == 0 and common // groups >= LEAST_PER_GROUP),
               default=1)
