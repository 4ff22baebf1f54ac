"""The set of outcomes is closed and explained."""

from __future__ import annotations

import re
from pathlib import Path

import pipeline.ingest
from pipeline.ingest.failures import RETRIED
from pipeline.ingest.freshness import BOUND_BY_LIMITS
from pipeline.ingest.outcomes import AWAY, OK, OUTCOMES
from pipeline.ingest.settings import FetchSettings


def test_each_has_an_explanation() -> None:
    assert all(len(text) > 30 and text.endswith(".") for text in OUTCOMES.values())


def test_the_code_knows_no_others() -> None:
    """Every outcome named in the code is documented, and every documented one is named in the code."""
    folder = Path(pipeline.ingest.__path__[0])
    code = "\n".join(path.read_text() for path in folder.rglob("*.py") if path.name != "outcomes.py")
    stops = set(re.findall(r'Stop\(\s*"(\w+)"', code)) - {"not_a_page"}
    assert stops <= set(OUTCOMES)
    assert set(OUTCOMES) >= RETRIED | BOUND_BY_LIMITS
    for outcome in OUTCOMES:
        assert outcome in (OK, AWAY) or f'"{outcome}"' in code, outcome


def test_settings_named_in_explanations_exist() -> None:
    named = re.findall(r"ingest\.fetch\.(\w+)", " ".join(OUTCOMES.values()))
    assert named
    assert set(named) <= set(FetchSettings.model_fields)
