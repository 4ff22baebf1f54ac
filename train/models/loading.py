"""Loading of ready models from folders or the hub, with errors that say what to do, and their fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from pipeline.errors import ModelError

T = TypeVar("T")


def loaded(what: str, source: str, load: Callable[[], T]) -> T:
    """What `load` returns. Raises ModelError naming `what` and `source` when it cannot be read or fetched."""
    try:
        with quiet():
            return load()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError) as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"the {what} {source} cannot be loaded: {type(error).__name__}: {first[:200]}",
            hint="connect to the network so that it can be fetched, name a local folder, or unset `pretrained` "
            "to train one from scratch",
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, diffusers and transformers report errors only: their loaders warn of their own harmless defaults, and
    draw bars for what takes a moment."""
    import diffusers.utils.logging as diffusers_logging
    import transformers.utils.logging as transformers_logging

    libraries = (diffusers_logging, transformers_logging)
    before = [(each.get_verbosity(), each.is_progress_bar_enabled()) for each in libraries]
    for each in libraries:
        each.set_verbosity_error()
        each.disable_progress_bar()
    try:
        yield
    finally:
        for each, (verbosity, bars) in zip(libraries, before, strict=True):
            each.set_verbosity(verbosity)
            if bars:
                each.enable_progress_bar()


def weights_digest(module: nn.Module, config: str) -> str:
    """16 hex characters: BLAKE2b over a configuration and all parameters and buffers, in order."""
    digest = hashlib.blake2b(config.encode(), digest_size=8)
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # Bytes as they are: numpy has no bfloat16.
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
