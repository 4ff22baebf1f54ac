"""Errors a user can cause. Each has one line saying what is wrong and one hint saying what to do.

    GristmillError
    ├── RecipeError      a setting is unknown, of the wrong type or out of range
    ├── SourceError      a folder, list, page or tar to ingest cannot be read
    ├── ManifestError    a manifest or receipt is missing, damaged or of a newer version
    ├── StorageError     a path cannot be written or read: full disk, no permission, no such bucket
    ├── ModelError       a model named in the recipe cannot be loaded or refuses the recipe
    ├── BusyError        another process writes to the same run
    └── TrainingError    training cannot start or go on: no shards, checkpoint mismatch, diverged

The command lines print `error: …` and `hint: …` on stderr and exit with code 2, without a traceback.
"""

from __future__ import annotations


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


class ModelError(GristmillError):
    """A model named in the recipe cannot be loaded, or refuses to serve the recipe."""


class BusyError(GristmillError):
    """Another process is writing to the same run."""


class TrainingError(GristmillError):
    """Training cannot start or go on."""
