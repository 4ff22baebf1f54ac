"""A run: one recipe, its folders and the engine that works for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pipeline import storage
from pipeline.engine import Engine, build_engine
from pipeline.lease import Lease
from pipeline.manifest import Manifests
from pipeline.progress import Progress

if TYPE_CHECKING:
    from pipeline.recipe import Recipe



@dataclass
class Run:
    """`refresh`: look at web sources again although their addresses are frozen. `retry`: fetch outcomes whose rows are
    asked for once more. `lease`: held while writing."""

    recipe: Recipe
    progress: Progress = field(default_factory=Progress)
    refresh: bool = False
    retry: frozenset[str] = frozenset()
    lease: Lease | None = None

    @cached_property
    def engine(self) -> Engine:
        return build_engine(self.recipe.engine)

    def close(self) -> None:
        """Stop the engine's workers, if it was ever needed."""
        if "engine" in vars(self):
            self.engine.close()

    @cached_property
    def manifests(self) -> Manifests:
        return Manifests(self.recipe.manifests_url)

    @property
    def data(self) -> str:
        """Where the bytes of this run lie."""
        return self.recipe.data_url

    def folder(self, *names: str) -> str:
        return storage.join(self.recipe.manifests_url, *names)
