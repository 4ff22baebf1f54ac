"""A chat-completions server on loopback that really looks: it answers with the mean colour of the picture it was sent.

What else it does, good or bad, is said per request by a `Manner`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web
from PIL import Image

Colour = tuple[int, int, int]
Manner = Callable[[Colour, str, int], "web.StreamResponse | str | float | dict[str, Any] | None"]
"""(mean colour, prompt, times asked) → an HTTP answer, "drop", "drip", seconds to wait, a reply; None: good."""


def seen(text: str) -> Colour:
    """The colour that an answer names."""
    red, green, blue = (int(part) for part in text.split(" of ")[1].split())
    return red, green, blue


def reply(text: Any, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | more
    return {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}}


@dataclass
class ChatServer:
    manner: Manner
    models: list[str] | None = field(default_factory=lambda: ["eye"])
    key: str = ""
    asked: Counter[tuple[Colour, str]] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    sides: list[tuple[int, int]] = field(default_factory=list)
    url: str = ""
    under_way: int = 0
    most_under_way: int = 0

    async def listed(self, request: web.Request) -> web.StreamResponse:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "wrong key"}, status=401)
        if self.models is None:
            return web.Response(status=404)
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "wrong key"}, status=401)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return await self._chat(request)
        finally:
            self.under_way -= 1

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        text, picture = body["messages"][0]["content"]
        image = Image.open(io.BytesIO(base64.b64decode(picture["image_url"]["url"].split(",", 1)[1])))
        self.bodies.append({name: value for name, value in body.items() if name != "messages"})
        self.sides.append(image.size)
        red, green, blue = np.asarray(image.convert("RGB")).reshape(-1, 3).mean(0).round().astype(int).tolist()
        colour, prompt = (red, green, blue), text["text"]
        self.asked[colour, prompt] += 1
        does = self.manner(colour, prompt, self.asked[colour, prompt])
        good = reply(f"{prompt} of {red} {green} {blue}")
        if does == "drop":
            assert request.transport is not None
            request.transport.close()
        if does == "drip":
            return await _drip(request)
        if isinstance(does, web.StreamResponse):
            return does
        if isinstance(does, float):
            await asyncio.sleep(does)
        return web.json_response(does if isinstance(does, dict) else good)


async def _drip(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(200):
        await answer.write(b" ")
        await asyncio.sleep(0.05)
    return answer


def shuffled(colour: Colour, prompt: str, times: int) -> float:
    """A wait that differs from request to request, so that answers overtake each other."""
    return random.Random(f"{colour}{prompt}{times}").uniform(0, 0.05)


@contextlib.contextmanager
def chat_server(manner: Manner = shuffled, **more: Any) -> Iterator[ChatServer]:
    """Served in a thread of its own until the end of the block."""
    server, loop = ChatServer(manner, **more), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    app = web.Application(client_max_size=1 << 24)
    app.add_routes([web.get("/v1/models", server.listed), web.post("/v1/chat/completions", server.chat)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)

    async def begin() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    asyncio.run_coroutine_threadsafe(begin(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
