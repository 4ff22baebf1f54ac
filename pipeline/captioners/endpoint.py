"""Endpoint: any OpenAI-compatible chat server that sees pictures, such as vLLM, llama.cpp or a hosted one.

Each picture goes as a JPEG in a data URL, once per prompt. Several prompts give several captions of different length
or kind, which trainers mix. A server's answers are its own: greedy decoding and a seed make them likely to come again,
not certain.
"""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field, field_validator

from pipeline.captioners._client import Client, Limits, models_at
from pipeline.captioners.base import Captioner, CaptionerSettings, Failure, Written
from pipeline.errors import ModelError, near_miss

_OURS = frozenset({"model", "messages", "stream", "n"})


class EndpointSettings(CaptionerSettings):
    undecided: ClassVar[frozenset[str]] = CaptionerSettings.undecided | {
        "url", "key_env", "concurrency", "attempts", "timeout_s", "deadline_s", "max_reply_bytes", "price_in",
        "price_out",
    }

    kind: Literal["endpoint"] = Field("endpoint", description="an OpenAI-compatible chat server")
    url: str = Field("http://127.0.0.1:8000/v1", description="the server's base address, up to and with /v1")
    model: str = Field("", description="the model's name at the server")
    key_env: str = Field(
        "", description="name of the environment variable with the API key; empty: no key. The key itself never "
        "stands in a recipe or manifest",
    )
    prompt: str = Field(
        "Describe this picture in one plain sentence. Say what is to be seen and nothing else.",
        min_length=1, description="what is asked with each picture, where `prompts` is empty",
    )
    prompts: dict[str, str] = Field(
        {}, description='name → prompt, for several captions of each picture, e.g. short, long and tags; the captions '
        'of one are called captioner/name',
    )
    temperature: float = Field(0.0, ge=0, description="0: the likeliest words; no unit")
    seed: int = Field(0, description="sent along, for servers that know it")
    max_tokens: int = Field(256, ge=1, description="longest answer, tokens; a cut one ends at its last whole sentence")
    omit: tuple[Literal["temperature", "seed", "max_tokens"], ...] = Field(
        (), description="request fields that the server refuses to know"
    )
    extra: dict[str, Any] = Field(
        {}, description="further request fields, e.g. {max_completion_tokens = 256} or {top_p = 0.9}"
    )
    side: int = Field(768, ge=32, description="longer side of the picture sent, px; smaller ones are not enlarged")
    quality: int = Field(90, ge=1, le=95, description="JPEG quality of the picture sent")
    concurrency: int = Field(16, ge=1, description="requests under way at once")
    attempts: int = Field(5, ge=1, description="requests per caption, where the server is busy, fails or breaks off")
    timeout_s: float = Field(60.0, gt=0, description="longest wait for one answer, seconds")
    deadline_s: float = Field(180.0, gt=0, description="longest wait for a caption with all attempts, seconds")
    max_reply_bytes: int = Field(1 << 20, ge=1024, description="longer replies are not read, bytes")
    price_in: float = Field(0.0, ge=0, description="price of a million prompt tokens, any currency; for the last line")
    price_out: float = Field(0.0, ge=0, description="price of a million tokens of answers, the same currency")

    @property
    def asked(self) -> Mapping[str, str]:
        return self.prompts or {"": self.prompt}

    @field_validator("url")
    @classmethod
    def _is_web(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and name a host")
        if parts.username is not None or parts.password is not None or parts.query:
            raise ValueError("must hold no key or password; name an environment variable in key_env")
        return url

    @field_validator("key_env")
    @classmethod
    def _is_variable(cls, key_env: str) -> str:
        if key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key_env):
            raise ValueError("must be the name of an environment variable, not the key itself")
        return key_env

    @field_validator("prompts")
    @classmethod
    def _named(cls, prompts: dict[str, str]) -> dict[str, str]:
        for name, prompt in prompts.items():
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or not prompt.strip():
                raise ValueError(f"prompt {name!r} needs a name of letters, digits, - and _, and words")
        return prompts

    @field_validator("extra")
    @classmethod
    def _not_ours(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OURS & extra.keys()):
            raise ValueError(f"{taken[0]!r} cannot be set here")
        return extra


class Endpoint(Captioner):
    """Writes one caption per prompt."""

    Settings = EndpointSettings
    remote = True

    @classmethod
    def check(cls, settings: CaptionerSettings, recipe_name: str) -> None:
        given = cast(EndpointSettings, settings)
        if not given.model:
            raise ModelError("the captioner endpoint names no model", hint='e.g. model = "Qwen/Qwen2.5-VL-7B-Instruct"')
        offered = models_at(given.url, _key(given))
        if offered and given.model not in offered:
            raise ModelError(f"{given.url} offers no model {given.model!r}", hint=near_miss(given.model, offered))

    @classmethod
    def fingerprint(cls, settings: CaptionerSettings) -> dict[str, Any]:
        return {}

    def __init__(self, settings: CaptionerSettings, recipe_name: str) -> None:
        self.settings = given = cast(EndpointSettings, settings)
        limits = Limits(given.concurrency, given.attempts, given.timeout_s, given.deadline_s, given.max_reply_bytes)
        self.client = Client(given.url, _key(given), limits)

    def write(self, pictures: Sequence[NDArray[np.uint8]]) -> Written:
        return self.begin(pictures, lambda: None)()

    def begin(self, pictures: Sequence[NDArray[np.uint8]], ready: Callable[[], None]) -> Callable[[], Written]:
        prompts = tuple(self.settings.asked.values())
        sent = [data_url(picture, self.settings.side, self.settings.quality) for picture in pictures]
        wait = self.client.start([self._body(picture, prompt) for picture in sent for prompt in prompts], ready)

        def answers() -> list[list[str | Failure]]:
            flat = wait()
            return [flat[start : start + len(prompts)] for start in range(0, len(flat), len(prompts))]

        return answers

    def close(self) -> None:
        self.client.close()

    def told(self) -> str:
        given, client = self.settings, self.client
        cost = (client.usage.prompt * given.price_in + client.usage.completion * given.price_out) / 1e6
        priced = f", {cost:,.4f} by the recipe's prices" if given.price_in or given.price_out else ""
        failed = "".join(f", {reason} {count:,}" for reason, count in sorted(client.failures.items()))
        return (f"{client.requests:,} requests, {client.usage.prompt:,} tokens in, {client.usage.completion:,} out"
                f"{priced}{failed}")

    def _body(self, picture: str, prompt: str) -> dict[str, Any]:
        given = self.settings
        content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": picture}}]
        chosen = {"temperature": given.temperature, "seed": given.seed, "max_tokens": given.max_tokens}
        return {
            "model": given.model, "messages": [{"role": "user", "content": content}], "stream": False, "n": 1,
            **{name: value for name, value in chosen.items() if name not in given.omit}, **given.extra,
        }  # fmt: skip


def data_url(picture: NDArray[np.uint8], side: int, quality: int) -> str:
    """RGB uint8 (height, width, 3) → a JPEG of at most `side` px as a data URL."""
    image = Image.fromarray(picture)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _key(settings: EndpointSettings) -> str:
    key = os.environ.get(settings.key_env, "").strip() if settings.key_env else ""
    if settings.key_env and (not key or not key.isascii() or not key.isprintable()):
        raise ModelError(f"the environment variable {settings.key_env} holds no key",
                         hint=f"export {settings.key_env}=…, or empty the captioner's key_env")
    return key
