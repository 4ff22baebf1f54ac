"""What every captioner is: one method, pictures in, texts out.

A captioner is one file in this package (its name is the kind), or an entry point in the group `gristmill.captioners`.
It knows nothing of scores, thresholds or manifests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.settings import Settings


class CaptionerSettings(Settings):
    """Base of every captioner's settings; subclasses pin `kind` with a `Literal`."""

    kind: str = Field("", description="the captioner's kind")
    name: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_-]*$",
        description="name of its captions in the manifests; empty: the kind. Two of one kind need two names",
    )

    @property
    def label(self) -> str:
        """What its captions are called."""
        return self.name or self.kind


class Captioner(ABC):
    """Built once per worker process from its settings; `version` rises when texts would differ."""

    Settings: ClassVar[type[CaptionerSettings]]
    version: ClassVar[int] = 1

    @classmethod
    @abstractmethod
    def check(cls, settings: CaptionerSettings, recipe_name: str) -> None:
        """Raise ModelError for anything that would keep the captioner from working."""

    @classmethod
    @abstractmethod
    def fingerprint(cls, settings: CaptionerSettings) -> dict[str, Any]:
        """What decides the texts besides the settings: the model's weights."""

    @abstractmethod
    def __init__(self, settings: CaptionerSettings, recipe_name: str) -> None: ...

    @abstractmethod
    def write(self, pictures: Sequence[NDArray[np.uint8]]) -> list[list[str]]:
        """Canonical RGB pictures, uint8 (height, width, 3) each → texts for each, best first; none is allowed."""
