"""What a chat-completions server answered: one text, or why there is none, and the tokens it counted."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pipeline.captioners.base import Failure

_SENTENCES = re.compile(r"^.*?[.!?。！？](?=[\"'”’)\]]*(?:\s|$|[^\x00-\x7f]))", re.DOTALL)


@dataclass(frozen=True)
class Usage:
    """Tokens as the server counts them: of prompts with their pictures, and of answers."""

    prompt: int = 0
    completion: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt + other.prompt, self.completion + other.completion)


def text_in(raw: bytes) -> tuple[str | Failure, Usage]:
    """A reply's body → its only choice's text, or a Failure: malformed, wrong_count, refusal, not_text, cut_off."""
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError):
        return Failure("malformed"), Usage()
    if not isinstance(reply, dict) or not isinstance(reply.get("choices"), list):
        return Failure("malformed"), Usage()
    used, choices = _usage(reply.get("usage")), reply["choices"]
    if len(choices) != 1:
        return Failure("wrong_count"), used
    return _said(choices[0]), used


def _said(choice: Any) -> str | Failure:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return Failure("malformed")
    if message.get("refusal") or choice.get("finish_reason") == "content_filter":
        return Failure("refusal")
    text = message.get("content")
    if not isinstance(text, str):
        return Failure("not_text")
    return text if choice.get("finish_reason") != "length" else _whole_sentences(text)


def _whole_sentences(text: str) -> str | Failure:
    """An answer that ran into max_tokens, up to the end of its last whole sentence."""
    end = 0
    while (found := _SENTENCES.match(text[end:])) is not None:
        end += found.end()
    return text[:end] if end else Failure("cut_off")


def _usage(usage: Any) -> Usage:
    found = usage if isinstance(usage, dict) else {}
    counts = [found.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return Usage(*(count if isinstance(count, int) and count >= 0 else 0 for count in counts))
