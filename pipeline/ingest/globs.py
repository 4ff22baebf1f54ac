"""Patterns with `*`, matched in linear time: neither a site nor a long list must be able to keep us busy."""

from __future__ import annotations

from collections.abc import Sequence


def matches(pieces: Sequence[str], text: str, *, whole: bool) -> bool:
    """Whether `text` begins with the first piece and the others follow in order, with anything between them.

    `pieces` are what stands between a pattern's stars. `whole`: the last one must end the text. Each is taken where it
    comes first, which finds a match wherever there is one.
    """
    first, *rest = pieces
    if not text.startswith(first):
        return False
    at, last = len(first), rest.pop() if whole and rest else None
    for piece in rest:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    if not whole:
        return True
    return at == len(text) if last is None else text.endswith(last) and len(text) - len(last) >= at
