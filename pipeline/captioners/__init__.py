"""Captioners, one file each; third parties add theirs by an entry point in `gristmill.captioners`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

from pipeline.captioners.base import Captioner
from pipeline.errors import RecipeError

ENTRY_POINTS = "gristmill.captioners"


@cache
def registry() -> dict[str, type[Captioner]]:
    """Kind → captioner: this package's modules by name, then entry points. Raises RecipeError on a clash."""
    found: dict[str, type[Captioner]] = {}
    files = (info.name for info in iter_modules(__path__))
    for module in sorted(name for name in files if name != "base" and not name.startswith("_")):
        found[module] = _captioner_of(import_module(f"{__name__}.{module}").__dict__, module)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        if point.name in found:
            raise RecipeError(
                f"the captioner kind {point.name!r} of {point.value} is already taken",
                hint="uninstall one of the packages, or rename its entry point",
            )
        found[point.name] = point.load()
    return found


def _captioner_of(members: dict[str, object], module: str) -> type[Captioner]:
    [captioner] = [
        member
        for member in members.values()
        if isinstance(member, type) and issubclass(member, Captioner) and member.__module__ == f"{__name__}.{module}"
    ]
    return captioner
