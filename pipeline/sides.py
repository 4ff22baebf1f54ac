"""Which captions are true of a picture and false of its mirror image."""

from __future__ import annotations

import re

SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)
"""Words that name a side; English only."""
