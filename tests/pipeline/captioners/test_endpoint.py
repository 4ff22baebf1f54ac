"""`endpoint` against a server that answers with the colour it saw: nothing is lost or given to another row."""

from __future__ import annotations

import email.utils
import time
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from numpy.typing import NDArray
from pydantic import ValidationError

from pipeline.captioners import registry
from pipeline.captioners._client import GIVE_UP_AFTER
from pipeline.captioners.base import FAILURES, Failure
from pipeline.captioners.endpoint import Endpoint, EndpointSettings
from pipeline.errors import ModelError
from tests.conftest import free_port
from tests.pipeline.captioners.chat_server import Colour, chat_server, reply, seen, shuffled

COLOURS = [(r, g, b) for r in (20, 80, 140, 200) for g in (30, 100, 170, 240) for b in (10, 90, 170, 250)]


def picture(colour: Colour, height: int = 24, width: int = 40) -> NDArray[np.uint8]:
    return np.full((height, width, 3), colour, np.uint8)


def number_of(colour: Colour) -> int:
    """Which of COLOURS was sent; JPEG moves a plain colour by a step or two."""
    apart = [max(abs(a - b) for a, b in zip(colour, one, strict=True)) for one in COLOURS]
    assert min(apart) <= 4
    return int(np.argmin(apart))


def captioner(url: str, **more: Any) -> Endpoint:
    quick = {"timeout_s": 2.0, "deadline_s": 8.0, "attempts": 4}
    return Endpoint(EndpointSettings(url=url, model="eye", **(quick | more)), "mine")


def test_answers_that_overtake_each_other_come_to_their_own_pictures() -> None:
    prompts = {"short": "a tone", "long": "one plain even tone", "tags": "tone, plain"}
    with chat_server() as server:
        writer = captioner(server.url, prompts=prompts, concurrency=24)
        written = writer.write([picture(colour) for colour in COLOURS])
        assert 12 < server.most_under_way <= 24
    assert len(written) == len(COLOURS)
    for number, texts in enumerate(written):
        assert [text.split(" of ")[0] for text in texts if isinstance(text, str)] == list(prompts.values())
        assert [number_of(seen(text)) for text in texts if isinstance(text, str)] == [number] * 3
    assert writer.told() == "192 requests, 19,200 tokens in, 1,344 out"


def test_chunks_begun_before_others_end_keep_their_order() -> None:
    with chat_server() as server:
        writer = captioner(server.url, concurrency=5)
        waits = [writer.begin([picture(one) for one in COLOURS[at : at + 16]], lambda: None) for at in range(0, 64, 16)]
        found = [seen(text) for wait in waits for [text] in wait() if isinstance(text, str)]
    assert [number_of(colour) for colour in found] == list(range(64))
    assert server.most_under_way == 5


BAD = {
    # what the server does, whatever how often it is asked → what the row says
    "malformed": web.Response(body=b'{"choices": [', content_type="application/json"),
    "too_large": web.Response(body=b" " * 70_000),
    "wrong_count": {"choices": []},
    "not_text": reply([{"type": "text", "text": "a part"}]),
    "refusal": reply(None) | {"choices": [{"message": {"content": None, "refusal": "I can't help with that."}}]},
    "cut_off": reply("a tone that goes on and", finish_reason="length"),
    "http_400": web.Response(status=400),
    "busy": web.Response(status=429, headers={"Retry-After": "0"}),
    "server_error": web.Response(status=503),
    "unreachable": "drop",
    "timeout": "drip",
}


def test_what_goes_wrong_stays_with_its_row() -> None:
    reasons = list(BAD)

    def manner(colour: Colour, prompt: str, times: int) -> Any:
        number = number_of(colour)
        if number % 4 == 0 and number // 4 < len(reasons):
            does = BAD[reasons[number // 4]]
            return web.Response(status=does.status, body=does.body, headers=does.headers) if isinstance(
                does, web.Response) else does  # fmt: skip
        if number % 4 == 1 and times == 1:  # comes right when asked again
            busy = web.Response(status=429, headers={"Retry-After": "0"})
            return ("drop", busy, web.Response(status=500))[number % 3]
        return shuffled(colour, prompt, times)

    with chat_server(manner) as server:
        writer = captioner(server.url, timeout_s=0.6, attempts=2, max_reply_bytes=65_536, concurrency=64)
        written = writer.write([picture(colour) for colour in COLOURS])
    for number, [text] in enumerate(written):
        if number % 4 == 0 and number // 4 < len(reasons):
            assert text == Failure(reasons[number // 4])
        else:
            assert isinstance(text, str)
            assert number_of(seen(text)) == number
    again = {number_of(colour): times for (colour, _), times in server.asked.items() if times > 1}
    expected = {4 * reasons.index(reason) for reason in ("busy", "server_error", "unreachable", "timeout")}
    assert again == dict.fromkeys(expected | set(range(1, 64, 4)), 2)
    assert set(BAD) - {"http_400"} == set(FAILURES)
    assert ", malformed 1, not_text 1," in writer.told()


@pytest.mark.parametrize("form", ["number", "date"])
def test_it_waits_as_long_as_it_is_told(form: str) -> None:
    came: list[float] = []

    def manner(colour: Colour, prompt: str, times: int) -> Any:
        came.append(time.time())
        until = email.utils.formatdate(time.time() + 2, usegmt=True)  # whole seconds: 1 to 2 from now
        if times > 1:
            return None
        return web.Response(status=429, headers={"Retry-After": "1" if form == "number" else until})

    with chat_server(manner) as server:
        [[text]] = captioner(server.url).write([picture(COLOURS[5])])
    assert isinstance(text, str)
    assert came[1] - came[0] >= 0.95


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    with chat_server(lambda *_: web.Response(status=429, headers={"Retry-After": "3600"})) as server:
        assert captioner(server.url).write([picture(COLOURS[5])]) == [[Failure("busy")]]
        assert sum(server.asked.values()) == 1


def test_a_server_that_dies_ends_the_work() -> None:
    with chat_server(lambda *_: web.Response(status=403)) as server:
        writer = captioner(server.url, concurrency=4)
        assert len(writer.write([picture(COLOURS[0])] * (GIVE_UP_AFTER - 1))) == GIVE_UP_AFTER - 1
        with pytest.raises(ModelError, match=f"no answer to {GIVE_UP_AFTER} requests"):
            writer.write([picture(COLOURS[0])] * 50)
        assert sum(server.asked.values()) < GIVE_UP_AFTER + 8


def test_a_key_taken_back_ends_the_work() -> None:
    with chat_server(lambda *_: web.Response(status=401)) as server:
        with pytest.raises(ModelError, match="refuses the key"):
            captioner(server.url).write([picture(COLOURS[0])])


def test_what_is_sent() -> None:
    with chat_server() as server:
        tall = picture(COLOURS[3], 900, 300)
        captioner(server.url, side=96, extra={"top_k": 1}, omit=["seed"]).write([tall, picture(COLOURS[4])])
    assert sorted(server.sides) == [(32, 96), (40, 24)]
    ours = {"model": "eye", "stream": False, "n": 1, "temperature": 0.0, "max_tokens": 256}
    assert server.bodies == [ours | {"top_k": 1}] * 2


def test_an_answer_cut_short_ends_with_its_last_sentence() -> None:
    long = "A tone. It fills 3.5 parts. It is plain and"
    with chat_server(lambda *_: reply(long, finish_reason="length")) as server:
        assert captioner(server.url).write([picture(COLOURS[0])]) == [["A tone. It fills 3.5 parts."]]


def test_what_would_stop_it_is_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(**given: Any) -> None:
        Endpoint.check(EndpointSettings(**({"model": "eye"} | given)), "mine")

    monkeypatch.setenv("EYE_KEY", "sesame-1")
    with chat_server(key="sesame-1", models=["eye", "ear"]) as server:
        check(url=server.url, key_env="EYE_KEY")
        with pytest.raises(ModelError, match="refuses the key") as caught:
            check(url=server.url)
        assert "key_env" in caught.value.hint
        with pytest.raises(ModelError, match="offers no model 'eyes'") as caught:
            check(url=server.url, key_env="EYE_KEY", model="eyes")
        assert caught.value.hint == "did you mean 'eye'?"
        with pytest.raises(ModelError, match="names no model"):
            check(url=server.url, model="")
        with pytest.raises(ModelError, match="NO_SUCH_KEY holds no key"):
            check(url=server.url, key_env="NO_SUCH_KEY")
    with chat_server(models=None) as server:
        check(url=server.url)  # a server need not list its models
    with pytest.raises(ModelError, match="no captioning server answers") as caught:
        check(url=f"http://127.0.0.1:{free_port()}/v1")
    assert "start it" in caught.value.hint


@pytest.mark.parametrize("given", [
    {"url": "127.0.0.1:8000"}, {"url": "http://user:word@127.0.0.1/v1"}, {"url": "http://127.0.0.1/v1?key=1"},
    {"key_env": "sk-12345"}, {"prompts": {"a b": "what"}}, {"prompts": {"a": " "}}, {"extra": {"messages": []}},
    {"omit": ["model"]},
])  # fmt: skip
def test_settings_that_cannot_be(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EndpointSettings(**given)


def test_it_is_registered_and_its_helpers_are_not() -> None:
    assert registry()["endpoint"] is Endpoint
    assert not [kind for kind in registry() if kind.startswith("_")]
