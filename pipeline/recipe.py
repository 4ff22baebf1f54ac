"""The typed recipe: one TOML file, a section per stage, unknown keys refused with the near miss named.

Each room owns the model of its section; this module joins them. Checks add their settings under
`[filter.<check>]`, and packages add whole sections through the entry point group `gristmill.sections`
(that is how `[train]` gets here although nothing in this package imports the trainer).
"""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, Field, ValidationError, create_model

from pipeline import storage
from pipeline.caption import CaptionSettings
from pipeline.checks import registry
from pipeline.checks.base import CheckSettings
from pipeline.dedupe import DedupeSettings
from pipeline.engine import EngineSettings
from pipeline.errors import RecipeError, SourceError, near_miss
from pipeline.ingest.settings import IngestSettings
from pipeline.measure import MeasureSettings
from pipeline.receipt import JsonObject
from pipeline.report.settings import ReportSettings
from pipeline.score import ScoreSettings
from pipeline.select import SelectSettings
from pipeline.settings import Settings
from pipeline.shard import ShardSettings
from pipeline.weigh import WeighSettings

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
RECIPES = Path(__file__).parent / "recipes"


class Recipe(Settings):
    """What a run is made of. Build one with `load` or `from_dict`, which add the sections found at run time."""

    name: str = Field(pattern=NAME, description="the run's name: folders are called by it")
    seed: int = Field(0, ge=0, description="decides every random choice of curation")
    workdir: str = Field(".", description="where manifests/, data/ and runs/ lie; a path or any fsspec URL")
    engine: EngineSettings = Field(EngineSettings(), description="where work runs")
    ingest: IngestSettings = Field(description="where pictures come from, and how they are fetched")
    measure: MeasureSettings = Field(MeasureSettings(), description="one decode per picture, all measures")
    dedupe: DedupeSettings = Field(DedupeSettings(), description="copies: which are they, which one stays")
    filter: Settings = Field(Settings(), description="thresholds, one section per check")
    score: ScoreSettings = Field(ScoreSettings(), description="CLIP embeddings and caption scores")
    caption: CaptionSettings = Field(CaptionSettings(), description="new captions for pictures that need words")
    select: SelectSettings = Field(SelectSettings(), description="caption choice, CLIP threshold, split")
    weigh: WeighSettings = Field(WeighSettings(), description="classes and their weights")
    shard: ShardSettings = Field(ShardSettings(), description="WebDataset tars")
    report: ReportSettings = Field(ReportSettings(), description="the HTML report")

    @property
    def checks(self) -> dict[str, CheckSettings]:
        """Check name → its settings."""
        return {name: cast(CheckSettings, getattr(self.filter, name)) for name in registry()}

    def section(self, name: str) -> Settings:
        """A section that another package registered, e.g. `train`. Raises RecipeError when there is none."""
        value = getattr(self, name, None)
        if not isinstance(value, Settings):
            raise RecipeError(f"the recipe has no section [{name}]", hint="install the package that registers it")
        return value

    @property
    def manifests_url(self) -> str:
        return storage.join(self.workdir, "manifests", self.name)

    @property
    def data_url(self) -> str:
        return storage.join(self.workdir, "data", self.name)

    @property
    def runs_url(self) -> str:
        return storage.join(self.workdir, "runs", self.name)


@cache
def recipe_model() -> type[Recipe]:
    """Recipe with the checks' sections and those of installed packages."""
    checks: dict[str, Any] = {
        name: (check.Settings, Field(check.Settings(), description=f"check `{name}`"))
        for name, check in registry().items()
    }
    filters = create_model("FilterSettings", __base__=Settings, **checks)
    sections: dict[str, Any] = {"filter": (filters, Field(filters(), description="thresholds, one section per check"))}
    for point in sorted(entry_points(group="gristmill.sections"), key=lambda point: point.name):
        model = point.load()
        sections[point.name] = (model, Field(model(), description=(model.__doc__ or "").split("\n")[0]))
    return create_model("Recipe", __base__=Recipe, **sections)


def load(path: str, overrides: Sequence[str] = (), *, workdir: str | None = None, source: str | None = None) -> Recipe:
    """Read a TOML file (or a shipped recipe by name), apply `key.path=value` overrides, check everything.

    `source` is a folder of pictures that takes the place of the recipe's first source; with the default recipe
    `demo` it means the shipped recipe `folder`, and the run is named after the folder. Raises RecipeError.
    """
    changes: JsonObject = {} if workdir is None else {"workdir": workdir}
    if source is not None:
        path = "folder" if path == "demo" else path
        changes |= _folder_changes(source, rename=path == "folder")
    place = Path(path)
    if not place.is_file() and (RECIPES / f"{path}.toml").exists():
        place = RECIPES / f"{path}.toml"
    try:
        raw = tomllib.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        shipped = sorted(p.stem for p in RECIPES.glob("*.toml"))
        otherwise = f"give a TOML file, or one of: {', '.join(shipped)}; `curate init` writes one"
        raise RecipeError(f"no recipe {path}", hint=near_miss(path, shipped, else_say=otherwise)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{place} is not valid TOML: {error}", hint="strings need quotes; see `curate init`"
                          ) from error
    except OSError as error:
        raise RecipeError(f"cannot read {place}: {error.strerror}", hint="give a TOML file") from error
    for key, value in changes.items():
        _put(raw, key, value)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise RecipeError(f"--set {override} has no =", hint="write --set filter.resolution.min_side=512")
        _put(raw, key.strip(), _value(text.strip()))
    return from_dict(raw, where=str(place), overridden=[override.partition("=")[0].strip() for override in overrides])


def from_dict(raw: JsonObject, *, where: str = "the recipe", overridden: Sequence[str] = ()) -> Recipe:
    """Check a parsed recipe. Raises RecipeError for the first fault, with the near miss or allowed values.

    `where` is said to hold the fault, unless it lies at a key that --set `overridden`.
    """
    try:
        return recipe_model().model_validate(raw)
    except ValidationError as error:
        raise _explained(error, where, overridden) from None


def _folder_changes(source: str, *, rename: bool) -> JsonObject:
    folder = Path(source)
    if not folder.is_dir():
        raise SourceError(f"{source} is not a folder", hint="give a folder of pictures, or a recipe with other sources")
    changes: JsonObject = {"ingest.sources.0.path": str(folder.resolve())}
    if rename:
        changes["name"] = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-_") or "folder"
    return changes


def _value(text: str) -> object:
    """TOML if it is TOML, otherwise the text itself, so that plain words need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(raw: JsonObject, key: str, value: object) -> None:
    names = key.split(".")
    place: Any = raw
    for name, following in pairwise(names):
        if isinstance(place, list):
            place = _item(place, name, key)
        else:
            place = place.setdefault(name, [] if following.isdigit() else {})
        if not isinstance(place, (dict, list)):
            raise RecipeError(f"{key}: {name} is a value, not a section", hint="see `curate init` for the sections")
    if isinstance(place, list):
        _item(place, names[-1], key)
        place[int(names[-1])] = value
    else:
        place[names[-1]] = value


def _item(items: list[Any], name: str, key: str) -> Any:
    if not name.isdigit() or int(name) >= len(items):
        raise RecipeError(f"{key}: the list has {len(items)} entries, {name!r} is none of them",
                          hint="count from 0")
    return items[int(name)]


def _explained(error: ValidationError, where: str, overridden: Sequence[str]) -> RecipeError:
    errors = error.errors()
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])  # explains the others
    path = [str(name) for name in first["loc"]]
    key = ".".join(path)
    if any(f"{key}.".startswith(f"{each}.") for each in overridden):
        where = "--set"
    if first["type"] == "extra_forbidden":
        where = "--set" if any(each.startswith(f"{key}.") for each in overridden) else where
        return RecipeError(f"{where}: unknown key {key!r}", hint=near_miss(path[-1], sorted(_known_keys(path[:-1]))))
    if first["type"] == "union_tag_invalid":  # only the kinds of sources are told apart by a tag
        kinds = re.findall(r"'(\w+)'", str(first.get("ctx", {}).get("expected_tags")))
        tag = str(first.get("ctx", {}).get("tag"))
        place = "--set" if f"{key}.kind" in overridden else where
        return RecipeError(f"{place}: {key}.kind: no kind {tag!r}",
                           hint=near_miss(tag, kinds, else_say=f"kinds: {', '.join(kinds)}"))
    message = re.sub(r"^(Value error|Assertion failed), ", "", first["msg"])
    got = "" if first["type"] in ("missing", "value_error") else f", got {str(first['input'])[:60]!r}"
    return RecipeError(f"{where}: {key}: {message[:1].lower()}{message[1:]}{got}", hint=_advice(path))


def _advice(path: Sequence[str]) -> str:
    model = _model_at(path[:-1])
    field = model.model_fields.get(path[-1]) if model is not None else None
    if field is None:
        return "`curate init` writes a recipe with every key explained"
    return f"{path[-1]}: {field.description}"


def _known_keys(path: Sequence[str]) -> list[str]:
    model = _model_at(path)
    return [] if model is None else list(model.model_fields)


def _model_at(path: Sequence[str]) -> type[BaseModel] | None:
    """The settings model at a key path; list positions and union tags are stepped over."""
    models: list[type[BaseModel]] = [recipe_model()]
    for name in path:
        if name.isdigit():
            continue
        following = [m for model in models if name in model.model_fields
                     for m in _models_in(model.model_fields[name].annotation)]
        tagged = [model for model in models if "kind" in model.model_fields
                  and name in typing.get_args(model.model_fields["kind"].annotation)]
        models = following or tagged or models
    return models[0] if models else None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for argument in typing.get_args(annotation) for model in _models_in(argument)]
