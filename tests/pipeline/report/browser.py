"""A real browser for the page's tests: Chromium without a window, asked over its DevTools protocol."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Visit:
    """What happened while a page was open. `answers` are the values of the expressions asked for."""

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)


@contextmanager
def chromium(folder: Path) -> Iterator[str]:
    """Address of a fresh Chromium's DevTools for the length of the block; its profile is made in `folder`."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, f"no browser: none of {', '.join(NAMES)} is installed (apt-get install chromium)"
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen([program, *FLAGS, f"--user-data-dir={folder}", "about:blank"], stdout=log,
                                   stderr=log)
        try:
            yield _address(folder / "DevToolsActivePort", process)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "Chromium ended"
        if file.exists() and file.read_text().count("\n"):
            return f"http://127.0.0.1:{file.read_text().splitlines()[0]}"
        time.sleep(0.05)
    raise TimeoutError("Chromium did not start")


def visit(address: str, page: Path, *expressions: str, width: int = 1400, scheme: str = "light") -> Visit:
    """Open a page, wait until it is loaded, evaluate the JavaScript expressions."""
    return asyncio.run(_visit(address, page.as_uri(), expressions, width, scheme))


async def _visit(address: str, url: str, expressions: tuple[str, ...], width: int, scheme: str) -> Visit:
    async with aiohttp.ClientSession() as session:
        async with session.put(f"{address}/json/new?about:blank") as answer:
            tab = await answer.json()
        async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tools = _Tools(socket)
            for domain in ("Page", "Runtime", "Log", "Network"):
                await tools.call(f"{domain}.enable")
            await tools.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                             mobile=width < 700)
            await tools.call("Emulation.setEmulatedMedia",
                             features=[{"name": "prefers-color-scheme", "value": scheme}])
            await tools.call("Page.navigate", url=url)
            await tools.until("Page.loadEventFired")
            for expression in expressions:
                made = await tools.call("Runtime.evaluate", expression=expression, returnByValue=True,
                                        awaitPromise=True)
                assert "exceptionDetails" not in made, made
                tools.seen.answers.append(made["result"].get("value"))
        await session.get(f"{address}/json/close/{tab['id']}")
    return tools.seen


class _Tools:
    """One tab's protocol: numbered calls, and events collected on the way."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.seen, self.number = socket, Visit(), 0
        self.events: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        await self.socket.send_str(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = await self._receive()
            if message.get("id") == self.number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def until(self, event: str) -> None:
        while event not in self.events:
            await self._receive()

    async def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads((await asyncio.wait_for(self.socket.receive(), 60)).data)
        method, parameters = message.get("method", ""), message.get("params", {})
        self.events.append(method)
        if method == "Log.entryAdded":
            self.seen.messages.append(parameters["entry"]["text"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.seen.messages.append(json.dumps(parameters))
        elif method == "Network.requestWillBeSent":
            self.seen.requests.append(parameters["request"]["url"])
        return message
