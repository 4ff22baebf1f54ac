"""All that keeps pictures out of a run: its tombstones and the recipe's blocklist, asked in the cheapest order.

Addresses are judged in the listing, before any request, and again on every redirect; SHA-256 when a body is complete
and before it is stored; perceptual hashes, which need a decode, last and only where there are such rules.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline import storage
from pipeline.errors import StorageError
from pipeline.ingest import blocklist, tombstones
from pipeline.ingest.blocklist import BlocklistSettings
from pipeline.ingest.rules import Refusal, RuleSet
from pipeline.receipt import JsonObject

if TYPE_CHECKING:
    from pipeline.run import Run

BLOCKED, FORGOTTEN = "blocked", tombstones.OUTCOME
KEPT_OUT = (BLOCKED, FORGOTTEN)
"""Outcomes of rows that a rule keeps out."""


@lru_cache(maxsize=2)
def _blocked(listed: BlocklistSettings, states: tuple[str, ...]) -> RuleSet:
    """The compiled blocklist; its files are read again only when their `states` have changed."""
    blocked = RuleSet(BLOCKED)
    for rule in blocklist.rules(listed):
        blocked.add(rule)
    return blocked.close()


class Ban:
    """Rule sets, the first that holds decides. Without any it is never asked, and costs nothing. Picklable."""

    def __init__(self, sets: Sequence[RuleSet] = (), max_pixels: int = 0) -> None:
        self._sets = tuple(each for each in sets if not each.empty)
        self._max_pixels = max_pixels

    @classmethod
    def of(cls, run: Run) -> Ban:
        """A run's tombstones, then its blocklist. Raises RecipeError, StorageError and ManifestError."""
        listed = run.recipe.ingest.blocklist
        forgotten = tombstones.rule_set(tombstones.read(run.recipe.manifests_url))
        blocked = _blocked(listed, tuple(map(storage.state, listed.files)))
        return cls((forgotten, blocked), run.recipe.measure.max_pixels)

    @property
    def empty(self) -> bool:
        return not self._sets

    @property
    def perceptual(self) -> bool:
        return any(len(each.phashes) for each in self._sets)

    @property
    def forgets(self) -> bool:
        return any(each.outcome == FORGOTTEN for each in self._sets)

    def basis(self) -> JsonObject:
        """For receipts: how many rules there are, and a digest of them; nothing where there are none."""
        return {each.outcome: f"{each.size} rules, {each.digest}" for each in self._sets}

    def address(self, url: str) -> Refusal | None:
        return self._first(lambda each: each.address(url))

    def row(self, row_id: str, url: str, page_url: str | None) -> Refusal | None:
        """What keeps a listed row out, before anything is asked for: its id, its address, its page's address."""
        return self._first(lambda each: each.row(row_id) or each.address(url)
                           or (each.address(page_url) if page_url else None))

    def hides(self, row_id: str) -> bool:
        """Whether the row's address is not to be written anywhere."""
        return any(row_id in each.hidden_ids for each in self._sets)

    def content(self, sha256: bytes) -> Refusal | None:
        return self._first(lambda each: each.content(sha256))

    def looks(self, phash: int) -> Refusal | None:
        return self._first(lambda each: each.looks(phash))

    async def picture(self, sha256: bytes, read: Callable[[], bytes]) -> Refusal | None:
        """What keeps out a picture whose bytes are at hand; they are read, and decoded, only for perceptual rules."""
        refusal = self.content(sha256) if self._sets else None
        if refusal is None and self.perceptual:
            return await asyncio.get_running_loop().run_in_executor(_decoders(), self.seen, read)
        return refusal

    def all_seen(self, reads: Sequence[Callable[[], bytes]]) -> list[Refusal | None]:
        """`seen` for many pictures, side by side."""
        return list(_decoders().map(self.seen, reads))

    def seen(self, read: Callable[[], bytes]) -> Refusal | None:
        """What keeps a picture out by its looks. One that cannot be read or decoded matches nothing: `measure` will say
        why, and nobody is ever shown it."""
        from pipeline.image import Unreadable, decode
        from pipeline.phash import phash

        try:
            picture = decode(read(), max_pixels=self._max_pixels)
        except (Unreadable, StorageError, MemoryError):
            return None
        return self.looks(phash(picture.levels))

    def stand(self, values: pa.Table) -> NDArray[np.bool_]:
        """Which fetched rows may be taken over: those kept out by a rule that still stands, and pictures that no rule
        keeps out by their content."""
        good = np.ones(values.num_rows, bool)
        if self.empty and not kept_out(values):
            return good
        hashes = np.array([value or b"" for value in values.column("sha256").to_pylist()], "S32")
        for each in self._sets:
            good &= ~np.isin(hashes, each.hashes)
        sets = {each.outcome: each for each in self._sets}
        pairs = zip(*(values.column(name).to_pylist() for name in ("fetch_outcome", "fetch_detail")), strict=True)
        for row, (outcome, detail) in enumerate(pairs):
            if outcome in KEPT_OUT:
                good[row] = outcome in sets and sets[outcome].stands(detail)
        return good

    def _first(self, ask: Callable[[RuleSet], Refusal | None]) -> Refusal | None:
        return next((refusal for each in self._sets if (refusal := ask(each)) is not None), None)


NOTHING = Ban()


@cache
def _decoders() -> ThreadPoolExecutor:
    """As many as there are cores: a decoded picture takes far more memory than its file."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="blocklist")


def kept_out(values: pa.Table) -> bool:
    """Whether any row of fetched values was kept out by a rule."""
    return bool(pc.any(pc.is_in(values.column("fetch_outcome"), pa.array(KEPT_OUT))).as_py())
