"""One writer per run: a lease on the run's manifests folder.

Locally it is a file lock, which the system releases however the process ends. On object storage it is
an object with an expiry that the holder renews; a holder that died is overtaken when it has expired.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
import time
from types import TracebackType
from typing import IO, Any

from pipeline import storage
from pipeline.errors import BusyError

_log = logging.getLogger(__name__)

LEASE = ".lease"
EXPIRES_AFTER = 60.0
"""Seconds after which a remote lease that was not renewed is free."""


class Lease:
    """Context manager. Raises BusyError when another process holds the run."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._url = storage.join(folder, LEASE)
        self._file: IO[str] | None = None
        self._stop = threading.Event()
        self.overtaken = False
        self._thread: threading.Thread | None = None
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{time.monotonic_ns()}"

    def __enter__(self) -> Lease:
        path = storage.local(self._url)
        if path is None:
            self._take_remote()
        else:
            storage.make_folder(self._folder)
            self._file = open(path, "a+")  # held open for the lease's life
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.seek(0)
                holder = self._file.read().strip() or "another process"
                self._file.close()
                raise self._busy(holder) from None
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
            self._file.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            if self._mine():  # another one may have overtaken this one when it could not renew in time
                storage.remove(self._url)

    def _busy(self, holder: str) -> BusyError:
        return BusyError(f"{self._folder} is being written by {holder}",
                         hint="wait until it ends, or use another run name (name = … in the recipe)")

    def _take_remote(self) -> None:
        held = self._read_remote()
        if held is not None and held["expires"] > time.time():
            raise self._busy(str(held["owner"]))
        self._renew()
        time.sleep(0.2)  # two that took it at once: the later write stands, the other sees it and leaves
        if not self._mine():
            held = self._read_remote()
            raise self._busy("another process" if held is None else str(held["owner"]))
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _mine(self) -> bool:
        held = self._read_remote()
        return held is not None and held["owner"] == self._owner

    def _read_remote(self) -> dict[str, Any] | None:
        """Who holds the run until when; None when nobody does. A damaged lease holds nothing."""
        if not storage.exists(self._url):
            return None
        try:
            held = json.loads(storage.read_bytes(self._url))
            return {"owner": str(held["owner"]), "expires": float(held["expires"])}
        except (ValueError, KeyError, TypeError):
            return None

    def _renew(self) -> None:
        lease = {"owner": self._owner, "expires": time.time() + EXPIRES_AFTER}
        storage.write_bytes(self._url, json.dumps(lease).encode())

    def _keep(self) -> None:
        """Renew until the end. A renewal that fails is tried again: there are three before the lease expires."""
        while not self._stop.wait(EXPIRES_AFTER / 4):
            try:
                if not self._mine():
                    self.overtaken = True
                    return
                self._renew()
            except Exception as error:  # a thread's exception would end renewing without anybody hearing of it
                _log.warning("the lease %s could not be renewed: %s", self._url, error)

    def check(self) -> None:
        """Raises BusyError when another process has taken the run over meanwhile."""
        if self.overtaken or (self._thread is not None and not self._mine()):
            raise BusyError(f"another process has taken over {self._folder}, because this one could not renew its "
                            "lease in time", hint="wait until it ends, then run the same command: nothing is lost")
