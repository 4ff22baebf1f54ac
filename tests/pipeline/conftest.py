"""Fixtures for the tests of `pipeline`."""

from __future__ import annotations

import pytest

from tests.pipeline.made_up import MadeUpRun, make_up


@pytest.fixture(scope="session")
def made_up_run(tmp_path_factory: pytest.TempPathFactory) -> MadeUpRun:
    """A small run made up by hand, all stages finished. Tests must not write to it."""
    run = make_up(tmp_path_factory.mktemp("made-up"))
    run.write()
    return run
