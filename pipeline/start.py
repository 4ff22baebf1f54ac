"""`curate init`: a commented recipe with every key, its unit and default, drawn from the models."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipeline.errors import SourceError, StorageError, near_miss


def write_recipe(path: Path, kind: str) -> None:
    """Write every key with its unit and default, commented out where the default does. Never overwrites."""
    if path.exists():
        raise StorageError(f"{path} exists", hint="give another name, or remove it first")
    try:
        path.write_text(recipe_text(path.stem, kind), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}", hint="choose a folder you may write to") from error


def recipe_text(name: str, kind: str) -> str:
    """The commented TOML. Raises SourceError for an unknown kind of source."""
    from pipeline.ingest.sources import registry
    from pipeline.recipe import recipe_model

    sources = registry()
    if kind not in sources:
        raise SourceError(f"no source of kind {kind!r}",
                          hint=near_miss(kind, sources, else_say=f"kinds: {', '.join(sources)}"))
    model = recipe_model()
    lines = [f"# A Gristmill recipe. Keys that are commented out show their defaults.\nname = {json.dumps(name)}"]
    top = {key: field for key, field in model.model_fields.items() if _model(field) is None and key != "name"}
    lines += [_key(key, field) for key, field in top.items()]
    given = {"ingest.fetch.contact": "https://example.org/your-page"} if sources[kind].on_web else {}
    for key, field in model.model_fields.items():
        section = _model(field)
        if section is not None:
            lines += _section(key, section, field.description or "", given, field.default)
        if key == "ingest":
            lines += _source(kind, sources[kind].Settings)
    return "\n".join(lines) + "\n"


def _source(kind: str, settings: type[BaseModel]) -> list[str]:
    lines = ["\n# Where pictures come from; repeat this block for more sources.\n[[ingest.sources]]",
             f'kind = "{kind}"']
    for key, field in settings.model_fields.items():
        if key == "kind":
            continue
        if key == "name":
            lines.append('name = "pictures"')
        elif field.is_required() or key in _FILLED_IN:
            lines += [_comment(field), f"{key} = {_example(key)}"]
        else:
            lines.append(_key(key, field))
    return lines


_FILLED_IN = {"start"}
"""Keys that are not required by themselves (a sitemap will do) but that most people want to fill in."""


def _example(key: str) -> str:
    return {"path": '"path/to/pictures"', "start": '["https://example.org/gallery"]', "urls": '["urls.parquet"]'}.get(
        key, '"…"')


def _section(path: str, model: type[BaseModel], meaning: str, given: dict[str, str], default: Any) -> list[str]:
    """The section's own defaults are those of `default`, where the field that holds the section has one."""
    lines = [f"\n# {meaning}\n[{path}]"]
    inner: list[str] = []
    for key, field in model.model_fields.items():
        section = _model(field)
        if path == "ingest" and key == "sources":
            continue
        if section is not None:
            inner += _section(f"{path}.{key}", section, field.description or "", given,
                              getattr(default, key, field.default))
        elif f"{path}.{key}" in given:
            lines.append(f"{_comment(field)}\n{key} = {toml_value(given[f'{path}.{key}'])}")
        else:
            lines.append(_key(key, field, default))
    return lines + inner


def _key(key: str, field: FieldInfo, section: Any = None) -> str:
    default = getattr(section, key, field.get_default(call_default_factory=True))
    shown = f"# {key} = {toml_value(default)}" if default is not None else f"# {key} =   (unset)"
    return f"{_comment(field)}\n{shown}"


def _comment(field: FieldInfo) -> str:
    choices = typing.get_args(field.annotation) if typing.get_origin(field.annotation) is typing.Literal else ()
    allowed = f" One of: {', '.join(map(str, choices))}." if len(choices) > 1 else ""
    return f"# {field.description or ''}{allowed}"


def _model(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def toml_value(value: Any) -> str:
    """TOML for what settings hold: strings, numbers, booleans, lists, tables, models."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
