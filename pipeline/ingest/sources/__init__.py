"""Kinds of sources, one file each; third parties add theirs by an entry point in `gristmill.sources`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

from pipeline.errors import SourceError
from pipeline.ingest.sources.base import Source, SourceSettings

ENTRY_POINTS = "gristmill.sources"


@cache
def registry() -> dict[str, type[Source]]:
    """Kind → source class: this package's modules by name, then entry points. Raises SourceError on a clash."""
    found: dict[str, type[Source]] = {}
    for module in sorted(info.name for info in iter_modules(__path__) if info.name != "base" and info.name[0] != "_"):
        found[module] = _source_of(import_module(f"{__name__}.{module}").__dict__, module)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        if point.name in found:
            raise SourceError(
                f"the source kind {point.name!r} of {point.value} is already taken",
                hint="uninstall one of the packages, or rename its entry point",
            )
        found[point.name] = point.load()
    return found


def build(settings: SourceSettings) -> Source:
    """The source that these settings describe."""
    return registry()[settings.kind](settings)


def _source_of(members: dict[str, object], module: str) -> type[Source]:
    [source] = [
        member for member in members.values()
        if isinstance(member, type) and issubclass(member, Source) and member.__module__ == f"{__name__}.{module}"
    ]
    return source
