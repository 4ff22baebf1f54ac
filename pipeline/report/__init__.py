"""The HTML report: `write(manifests, recipe)` draws a run as it stands into one self-contained page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.report.settings import ReportSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.manifest import Manifests
    from pipeline.recipe import Recipe

__all__ = ["ReportSettings", "write"]


def write(manifests: Manifests, recipe: Recipe, *, states: Mapping[str, tuple[bool, str]] | None = None) -> str:
    """See `pipeline.report.page.write`, which is imported only now: the recipe needs the settings alone."""
    from pipeline.report import page

    return page.write(manifests, recipe, states=states)
