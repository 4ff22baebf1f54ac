"""`curate explain`: every reason that a row can be dropped for is explained, with settings that exist."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from pipeline import checks, dedupe, image, select
from pipeline.errors import GristmillError
from pipeline.ingest.outcomes import OUTCOMES
from pipeline.reasons import explain, meanings, render
from pipeline.recipe import from_dict

EVERY = sorted({*OUTCOMES, *image.UNREADABLE, *select.REASONS, *dedupe.REASONS, *checks.reasons()} - {"ok"})


@pytest.mark.parametrize("reason", EVERY)
def test_every_reason_is_explained(reason: str) -> None:
    found = explain(reason)
    assert found.reason == reason
    assert len(found.meaning) > 20
    assert found.look
    file = io.StringIO()
    Console(width=80, file=file).print(render(found))
    assert reason in file.getvalue()
    assert max(map(len, file.getvalue().splitlines())) <= 80


@pytest.mark.parametrize("reason", EVERY)
def test_settings_named_in_an_explanation_exist(reason: str) -> None:
    found = explain(reason)
    named = set(re.findall(r"\b(?:ingest|measure|dedupe|filter|score|select)\.[a-z0-9_.]*[a-z0-9_]", found.meaning))
    assert named <= {setting.key for setting in found.settings}


def test_a_check_shows_the_recipes_own_values() -> None:
    recipe = from_dict({"name": "mine", "ingest": {"sources": []}, "filter": {"resolution": {"min_side": 512}}})
    defaults = {setting.key: setting.value for setting in explain("low_resolution").settings}
    ours = {setting.key: setting.value for setting in explain("low_resolution", recipe).settings}
    assert defaults["filter.resolution.min_side"] == 200
    assert ours["filter.resolution.min_side"] == 512
    assert explain("low_resolution").check == "resolution"
    assert explain("low_resolution").stage == "filter"


def test_an_unknown_reason_names_the_near_one() -> None:
    with pytest.raises(GristmillError, match="no drop reason 'low_resolutoin'") as unknown:
        explain("low_resolutoin")
    assert "low_resolution" in unknown.value.hint
    with pytest.raises(GristmillError) as far:
        explain("qqqqqqqqqq")
    assert "robots" in far.value.hint


def test_a_reason_of_two_stages_is_explained_for_each() -> None:
    both = explain("not_an_image")
    assert OUTCOMES["not_an_image"] in both.meaning
    assert image.UNREADABLE["not_an_image"] in both.meaning
    assert explain("not_an_image", stage="measure").meaning == image.UNREADABLE["not_an_image"]
    assert explain("not_an_image", stage="ingest").meaning == OUTCOMES["not_an_image"]


def test_ok_is_no_reason() -> None:
    assert "ok" not in meanings()
