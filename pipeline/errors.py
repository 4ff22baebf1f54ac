"""Errors a user can cause. Each has one line saying what is wrong and one hint saying what to do.

    GristmillError
    ├── RecipeError      a setting is unknown, of the wrong type or out of range
    ├── SourceError      a folder, list, page or tar to ingest cannot be read
    ├── ManifestError    a manifest or receipt is missing, damaged or of a newer version
    ├── StorageError     a path cannot be written or read: full disk, no permission, no such bucket
    │   └── AwayError    a server or disk does not answer now; it may later
    ├── ModelError       a model named in the recipe cannot be loaded or refuses the recipe
    ├── BusyError        another process writes to the same run
    └── TrainingError    training cannot start or go on: no shards, checkpoint mismatch, diverged

The command lines print `error: …` and `hint: …` on stderr and exit with code 2, without a traceback.
`Stopped` is no error: a person or the system asked for an end (exit code 130).
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any


class GristmillError(Exception):
    """Base of all errors that a user can mend. `str(error)` is one line; `error.hint` says what to do."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(" ".join(message.split()))
        self.hint = " ".join(hint.split())

    def __reduce__(self) -> tuple[object, ...]:  # keyword-only hint must survive a worker process
        return (_rebuild, (type(self), str(self), self.hint))


def _rebuild(kind: type[GristmillError], message: str, hint: str) -> GristmillError:
    return kind(message, hint=hint)


class RecipeError(GristmillError):
    """A setting is unknown, of the wrong type or out of range."""


class SourceError(GristmillError):
    """A folder, list, page or tar to ingest cannot be read."""


class ManifestError(GristmillError):
    """A manifest or receipt is missing, damaged or written by a newer version."""


class StorageError(GristmillError):
    """A path cannot be written or read."""


class AwayError(StorageError):
    """A server or disk does not answer now; the same call may succeed later."""


class ModelError(GristmillError):
    """A model named in the recipe cannot be loaded, or refuses to serve the recipe."""


class BusyError(GristmillError):
    """Another process is writing to the same run."""


class TrainingError(GristmillError):
    """Training cannot start or go on."""


def near_miss(word: str, known: Iterable[str], *, else_say: str = "") -> str:
    """A hint for a name that does not exist: the nearest one, whatever its case, or `else_say`, or all known ones."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, 1, 0.5)
    if near:
        return f"did you mean {names[near[0]]!r}?"
    return else_say or f"known here: {', '.join(names.values()) or 'nothing'}"


class Stopped(Exception):  # noqa: N818 - an outcome, not an error
    """The command was asked to stop and did so in good order; `str()` says how far it came."""


def run_command(app: Callable[..., Any], *, kept: str) -> None:
    """Call a typer app and end the process as the command lines promise.

    `kept` says what is left standing after ctrl-C or SIGTERM, e.g. "finished work is kept".
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # children and temporary files are then cleared away
    try:
        code = app(standalone_mode=False)  # where KeyboardInterrupt comes back as the number 130
    except GristmillError as error:
        _say(str(error), error.hint)
        code = error.exit_code
    except Stopped as stop:
        sys.stderr.write(f"{stop}; {kept}, the same command goes on\n")
        raise SystemExit(130) from None
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except Exception as error:
        code = _refused(error)
    if code == 130:
        sys.stderr.write(f"stopped; {kept}, the same command goes on\n")
    raise SystemExit(code if isinstance(code, int) else 0)


def _say(what: str, hint: str) -> None:
    sys.stderr.write(f"error: {what}\nhint: {hint}\n")


def _refused(error: Exception) -> int:
    """Exit code of typer's own errors, after saying what is wrong; anything else is a fault and shows its trace."""
    if type(error).__name__ == "Abort":
        return 130
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return 2
    if not hasattr(error, "format_message"):
        raise error
    context = getattr(error, "ctx", None)
    hint = "see its --help" if context is None else f"see `{context.command_path} --help`"
    message, _, near = error.format_message().rstrip(".").partition(". Did you mean ")
    _say(message, f"did you mean {near}" if near else hint)
    return 2
