"""Answers of a server as a run keeps them: named, beside their failures, judged from columns, asked for once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from pipeline import answers
from pipeline.caption import CaptionSettings, CaptionStage
from pipeline.image import decode
from pipeline.score import ScoreSettings, ScoreStage
from pipeline.stage import freshness, run_stage
from tests.pipeline.captioners.chat_server import ChatServer, Colour, chat_server, reply, seen
from tests.pipeline.filtered_run import copy_of, filtered_run, run_of
from tests.pipeline.made_up import MadeUpRun

PROMPTS = {"short": "a picture", "tags": "tag, tag"}


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> MadeUpRun:
    return filtered_run(tmp_path_factory.mktemp("filtered"))


@pytest.fixture
def curated(filtered: MadeUpRun, tmp_path: Path) -> MadeUpRun:
    return copy_of(filtered, tmp_path)


def run_for(made: MadeUpRun, url: str, **more: Any) -> Any:
    given = {"kind": "endpoint", "url": url, "model": "eye", "prompts": PROMPTS, "attempts": 1, "timeout_s": 2.0}
    return run_of(made, ScoreSettings(model="none"), caption=CaptionSettings(when="all", captioners=[given | more]))


def caption(run: Any) -> dict[str, dict[str, Any]]:
    for stage in (ScoreStage(), CaptionStage()):
        run_stage(stage, run)
    run.manifests.reload()
    return {row["id"]: row for row in run.manifests.stage("caption").arrow().to_pylist()}


def mean_of(data: bytes) -> Colour:
    red, green, blue = decode(data).rgb.reshape(-1, 3).mean(0).tolist()
    return red, green, blue


def odd(colour: Colour) -> bool:
    return sum(colour) % 2 == 1


def asked(server: ChatServer) -> int:
    return sum(server.asked.values())


def test_each_row_has_the_words_for_its_own_picture(curated: MadeUpRun, capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server() as server:
        rows = caption(run_for(curated, server.url, price_in=2.0, price_out=10.0))
        kept = {row["id"]: row for row in curated.rows if rows[row["id"]]["why_captioned"] == "all"}
        assert len(kept) == 44
        assert asked(server) == 2 * len({row["sha256"] for row in kept.values()})
        for row_id, row in rows.items():
            if row_id not in kept:
                assert row["candidates"] is None
                continue
            assert [one["captioner"] for one in row["candidates"]] == ["endpoint/short", "endpoint/tags"]
            for one in row["candidates"]:
                np.testing.assert_allclose(seen(one["text"]), mean_of(kept[row_id]["bytes"]), atol=3)
            assert row["unused"] == []
        told = " ".join(capsys.readouterr().err.split())
        cost = asked(server) * (100 * 2.0 + 7 * 10.0) / 1e6
        assert f"caption endpoint: {asked(server)} requests, {100 * asked(server):,} tokens in" in told
        assert f"{cost:,.4f} by the recipe's prices" in told


def test_what_failed_for_a_while_is_asked_again_and_nothing_else(curated: MadeUpRun) -> None:
    well = False

    def manner(colour: Colour, prompt: str, times: int) -> Any:
        if prompt == PROMPTS["tags"] and odd(colour):
            return None if well else web.Response(status=503)
        if prompt == PROMPTS["tags"]:
            return reply("I'm sorry, I can't help with that.")
        return None

    with chat_server(manner) as server:
        run = run_for(curated, server.url)
        first = caption(run)
        failing = {row["id"] for row in first.values() if {"server_error"} & {u["reason"] for u in row["unused"] or []}}
        refused = {row["id"] for row in first.values() if {"refusal"} & {u["reason"] for u in row["unused"] or []}}
        assert len(failing) + len(refused) == 44
        assert min(len(failing), len(refused)) > 5
        for row in first.values():
            if row["unused"] is not None:
                assert [one["captioner"] for one in row["candidates"]] == ["endpoint/short"]
                assert [one["captioner"] for one in row["unused"]] == ["endpoint/tags"]
        assert not freshness(CaptionStage(), run).fresh
        before, well = asked(server), True
        second = caption(run)
        assert asked(server) - before == 2 * len(failing)
        assert all(len(second[row_id]["candidates"]) == 2 for row_id in failing)
        assert all(second[row_id] == first[row_id] for row_id in refused)
        assert freshness(CaptionStage(), run).fresh


def test_another_address_or_speed_asks_nothing_and_another_size_everything(curated: MadeUpRun) -> None:
    with chat_server() as first, chat_server() as second:
        caption(run_for(curated, first.url))
        caption(run_for(curated, second.url, concurrency=3, price_in=1.0))
        assert asked(second) == 0
        caption(run_for(curated, second.url, side=32))
        assert asked(second) == asked(first)


def test_better_rules_ask_nobody_again(curated: MadeUpRun, monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server(lambda colour, prompt, times: reply("a red a red a red a red")) as server:
        run = run_for(curated, server.url)
        rows = caption(run)
        once = asked(server)
        assert {one["reason"] for row in rows.values() for one in row["unused"] or []} == {"loop"}
        monkeypatch.setattr(answers, "VERSION", answers.VERSION + 1)
        assert not freshness(CaptionStage(), run).fresh
        caption(run)
        assert asked(server) == once


def test_the_key_is_written_nowhere(curated: MadeUpRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("EYE_KEY", "sesame-sesame")
    with chat_server(key="sesame-sesame") as server:
        rows = caption(run_for(curated, server.url, key_env="EYE_KEY"))
    assert sum(len(row["candidates"] or []) for row in rows.values()) == 88
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"sesame" in file.read_bytes()]
    assert "sesame" not in "".join(capsys.readouterr())


def test_lone_surrogates_and_odd_marks_are_stored(curated: MadeUpRun) -> None:
    def manner(colour: Colour, prompt: str, times: int) -> Any:
        return web.Response(body=b'{"choices": [{"message": {"content": "a \\ud800 tone \\u0000 here"}}]}')

    with chat_server(manner) as server:
        rows = caption(run_for(curated, server.url))
    assert all("tone" in one["text"] for row in rows.values() for one in row["candidates"] or [])
