"""What every captioner is: one method, pictures in, texts out.

A captioner is one file in this package (its name is the kind), or an entry point in the group `gristmill.captioners`.
It knows nothing of scores, thresholds or manifests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.settings import Settings

FAILURES = {
    "busy": "the server had too much to do (HTTP 429, 408), also when asked again",
    "timeout": "no answer in time",
    "unreachable": "the connection was refused or broke off",
    "server_error": "the server failed (HTTP 5xx)",
    "malformed": "the reply is not what the protocol says",
    "wrong_count": "a reply with no choice, or with several",
    "not_text": "the answer is no text",
    "cut_off": "no whole sentence within max_tokens",
    "too_large": "a reply longer than max_reply_bytes",
    "refusal": "the model or its server declined",
}
"""Why a captioner gave no text; and `http_<status>` for any other refusal of the request."""
_AGAIN = frozenset({"busy", "timeout", "unreachable", "server_error"})


@dataclass(frozen=True)
class Failure:
    """No text, and why: one of FAILURES."""

    reason: str

    @property
    def again(self) -> bool:
        """Whether the same question may be answered later; the stage asks it again on its next run."""
        return self.reason in _AGAIN

    @property
    def unanswered(self) -> bool:
        """Whether the server never came to the question itself."""
        return self.again or self.reason.startswith("http_")


Written = Sequence[Sequence[str | Failure]]
"""Texts for each picture, best first; with a Failure in the place of one that could not be had."""


class CaptionerSettings(Settings):
    """Base of every captioner's settings; subclasses pin `kind` with a `Literal`."""

    undecided: ClassVar[frozenset[str]] = frozenset({"device", "batch", "name"})
    """Settings that change no text, only how it is come by; changing them computes nothing."""

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

    @property
    def asked(self) -> Mapping[str, str]:
        """Name → prompt of each text per picture, in order. Empty: one unnamed list of texts, no prompt."""
        return {}


class Captioner(ABC):
    """Built once per worker process from its settings; `version` rises when texts would differ."""

    Settings: ClassVar[type[CaptionerSettings]]
    version: ClassVar[int] = 1
    remote: ClassVar[bool] = False
    """Asks others over a network: runs beside this process's other work, may fail row by row, and `told` what it cost.
    """

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
    def write(self, pictures: Sequence[NDArray[np.uint8]]) -> Written:
        """Canonical RGB pictures, uint8 (height, width, 3) each → texts for each, best first; none is allowed."""

    def begin(self, pictures: Sequence[NDArray[np.uint8]], ready: Callable[[], None]) -> Callable[[], Written]:
        """Start on `write`; the returned function waits for it. Only asked of captioners that are `remote`.

        `ready` is called, from any thread, when the wait would be over, however the work ended.
        """
        written = self.write(pictures)
        ready()
        return lambda: written

    def close(self) -> None:
        """Nothing more is asked."""

    def told(self) -> str:
        """What the work has cost so far, for a person; empty: nothing to say."""
        return ""
