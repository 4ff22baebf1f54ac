"""Every drop reason explained: what it means, which settings change it, what to look at.

The words belong to whoever gives the reason: ingest's outcomes, the decoder, the checks, `dedupe`, `select`.
This module only finds them, and the settings that they name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.errors import GristmillError

if TYPE_CHECKING:
    from pipeline.recipe import Recipe

_SETTING = re.compile(r"\b(?:ingest|measure|dedupe|filter|score|caption|select)(?:\.[a-z][a-z0-9_]*)+")

_LOOK = {
    "ingest": "fetch_detail, http_status and final_url in `curate show ID`",
    "measure": "decode_detail in `curate show ID`; the bytes are still there and can be opened",
    "dedupe": "the pairs in the report: every dropped copy beside the row kept in its place",
    "filter": "the check's histogram and the pictures on both sides of its threshold in the report",
    "select": "captions and their scores in `curate show ID`, and the histogram of CLIP scores in the report",
}


@dataclass(frozen=True)
class Meaning:
    """What a reason means when `stage` gives it; `check` is the check's name for reasons of `filter`."""

    stage: str
    check: str | None
    text: str


@dataclass(frozen=True)
class SettingNote:
    """A setting that changes a reason: `value` is the recipe's, or the default."""

    key: str
    value: Any
    description: str


@dataclass(frozen=True)
class Explanation:
    """`check` is the check's name for reasons of `filter`, otherwise None."""

    reason: str
    stage: str
    meaning: str
    look: str
    check: str | None = None
    settings: tuple[SettingNote, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "reason": self.reason, "stage": self.stage, "check": self.check, "meaning": self.meaning,
            "look": self.look,
            "settings": [asdict(setting) for setting in self.settings],
        }


def meanings() -> dict[str, list[Meaning]]:
    """Every reason that a row can be dropped for → its meanings; two stages may give one reason."""
    from pipeline import dedupe, measure, select
    from pipeline.checks import registry
    from pipeline.ingest.outcomes import OK, OUTCOMES

    given: list[tuple[str, str | None, Mapping[str, str]]] = [
        ("ingest", None, OUTCOMES), ("measure", None, measure.REASONS), ("dedupe", None, dedupe.REASONS),
        *(("filter", name, check.reasons) for name, check in registry().items()), ("select", None, select.REASONS),
    ]
    found: dict[str, list[Meaning]] = {}
    for stage, check, reasons in given:
        for reason, text in reasons.items():
            if reason != OK:
                found.setdefault(reason, []).append(Meaning(stage, check, text))
    return found


def explain(reason: str, recipe: Recipe | None = None, *, stage: str | None = None) -> Explanation:
    """What a drop reason means. Settings show the recipe's values when one is given, else the defaults.

    A reason that several stages give is explained for the one named `stage`, or for all of them. Raises
    GristmillError for a reason that nothing gives, naming the nearest ones.
    """
    known, kind = meanings(), reason.partition(":")[0]  # behind a colon stands which of several
    if kind not in known:
        near = difflib.get_close_matches(kind, known, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"reasons are: {', '.join(sorted(known))}"
        raise GristmillError(f"there is no drop reason {reason!r}", hint=hint)
    given = [each for each in known[kind] if each.stage == stage] or known[kind]
    meaning = given[0].text
    if len(given) > 1:
        meaning = " ".join(f"By {each.stage}: {each.text}" for each in given)
    check = given[0].check
    keys = [f"filter.{check}.{name}" for name in _check_settings(check)] if check else []
    keys += [key.rstrip(".") for key in _SETTING.findall(meaning)]
    notes = (_setting(key, recipe) for key in dict.fromkeys(keys))
    look = "; ".join(_LOOK[each.stage] for each in given)
    by = " or ".join(each.stage for each in given)
    return Explanation(reason, by, meaning, look, check, tuple(note for note in notes if note))


def _check_settings(check: str) -> list[str]:
    from pipeline.checks import registry

    return list(registry()[check].Settings.model_fields)


def _setting(key: str, recipe: Recipe | None) -> SettingNote | None:
    """The setting at a dotted key; None when there is no such setting."""
    from pipeline.recipe import recipe_model

    model: type[BaseModel] = recipe_model()
    value: Any = recipe
    *sections, name = key.split(".")
    for section in sections:
        inner = model.model_fields[section].annotation if section in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return None
        model, value = inner, getattr(value, section, None)
    field = model.model_fields.get(name)
    if field is None:
        return None
    default = field.get_default(call_default_factory=True, validated_data={})
    return SettingNote(key, default if value is None else getattr(value, name), field.description or "")


def render(explanation: Explanation) -> Group:
    """An explanation for the terminal."""
    where = f"dropped by {explanation.stage}" + (f", check {explanation.check}" if explanation.check else "")
    return Group(*_lines(explanation, where))


def _lines(explanation: Explanation, where: str) -> Iterator[Text | Table | Padding]:
    yield Text.assemble((explanation.reason, "bold"), f"  ({where})")
    yield Padding(Text(explanation.meaning), (0, 0, 0, 2))
    if explanation.settings:
        yield Text("settings", style="dim")
        for setting in explanation.settings:
            yield Padding(Text.assemble((f"{setting.key} = {_plain(setting.value)}", "cyan")), (0, 0, 0, 2))
            yield Padding(Text(setting.description, style="dim"), (0, 0, 0, 4))
    yield Text("look at", style="dim")
    yield Padding(Text(explanation.look), (0, 0, 0, 2))


def _plain(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, dict):
        pairs = (f"{name if name.isidentifier() else _plain(name)} = {_plain(inner)}" for name, inner in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_plain(item) for item in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
