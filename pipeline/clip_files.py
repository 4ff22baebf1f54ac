"""Which files a CLIP model named in a recipe consists of, whether they are here, and their fingerprint.

A model is named by `model` and `pretrained`:

    "ViT-B-32", "laion2b_s34b_b79k"      an architecture and a tag that open_clip knows; downloaded once
    "ViT-B-32", "/path/weights.bin"      an architecture and a weights file
    "local-dir:/path/to/folder"          a folder with open_clip_config.json, weights and tokenizer
    "hf-hub:organisation/repository"     the same, fetched from the Hugging Face Hub
    "demo"                               the small CoCa shipped for the demo; refuses every other recipe
    "none"                               no model: the model columns are null

torch and open_clip are imported when a model is needed, not before.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.errors import ModelError

NONE, DEMO = "none", "demo"
LOCAL, HUB = "local-dir:", "hf-hub:"
DEMO_FOLDER = Path(__file__).parent / "demo" / "clip"
CONFIG = "open_clip_config.json"
WAYS_OUT = (
    'connect to the network so that the weights can be fetched, name a local folder (model = "local-dir:/path") '
    'or weights file (pretrained = "/path"), or set model = "none"'
)


@dataclass(frozen=True)
class Described:
    """What a model is, read without loading it. `fingerprint` hashes weights, configuration and tokenizer."""

    width: int
    fingerprint: str


def check(model: str, pretrained: str | None, *, recipe_name: str) -> None:
    """Make sure that the model can be loaded; fetch its weights if they are not here yet.

    Raises ModelError with the ways out. Loads no weights into memory.
    """
    if model == NONE:
        return
    if model == DEMO and not recipe_name.startswith(DEMO):
        raise ModelError(
            f"the demo's model knows only the demo's coloured shapes and refuses the recipe {recipe_name!r}",
            hint='set model = "ViT-B-32" and pretrained = "laion2b_s34b_b79k", '
            'a local folder ("local-dir:/path"), or model = "none"',
        )
    _files(model, pretrained)


def describe(model: str, pretrained: str | None) -> Described:
    """Width of the embedding and fingerprint. Raises ModelError when the model cannot be found."""
    files = _files(model, pretrained)
    return Described(
        int(_config(model)["embed_dim"]),
        _fingerprint(model, tuple(files), tuple(_stamp(file) for file in files)),
    )


def factory_name(model: str) -> str:
    """The name that open_clip's factory knows."""
    if model == DEMO:
        return f"{LOCAL}{DEMO_FOLDER}"
    return f"{LOCAL}{model}" if not model.startswith((LOCAL, HUB)) and Path(model).is_dir() else model


def _files(model: str, pretrained: str | None) -> list[Path]:
    """Configuration, weights and tokenizer files, fetched if need be. Raises ModelError."""
    name = factory_name(model)
    if name.startswith(LOCAL):
        return _folder_files(Path(name[len(LOCAL) :]))
    with explained(model, pretrained), quiet():
        from open_clip import list_models
        from open_clip.pretrained import (
            download_pretrained,
            download_pretrained_from_hf,
            get_pretrained_cfg,
            list_pretrained_tags_by_model,
        )

        if name.startswith(HUB):
            repository = name[len(HUB) :]
            found = [
                download_pretrained_from_hf(repository, filename=CONFIG),
                download_pretrained_from_hf(repository),
            ]
            return [Path(file) for file in found]
        if name.replace("/", "-") not in list_models():
            raise _unknown("model", model, list_models())
        if not pretrained:
            raise ModelError(f"{model} is named without weights", hint="set pretrained to a tag or a weights file")
        if Path(pretrained).is_file():
            return [Path(pretrained)]
        known = get_pretrained_cfg(name.replace("/", "-"), pretrained)
        if not known:
            raise _unknown(f"weights of {model}", pretrained, list_pretrained_tags_by_model(model))
        return [Path(download_pretrained(known))]


def _folder_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ModelError(f"the model's folder {folder} does not exist", hint=WAYS_OUT)
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{folder} has no {CONFIG}", hint="save the model with open_clip.push_to_hf_hub.save_for_hf")
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("*.pth")]
    if not weights:
        raise ModelError(f"{folder} has no weights", hint="put open_clip_model.safetensors or .bin beside the config")
    return [
        folder / CONFIG,
        *sorted(weights),
        *sorted(folder.glob("*token*.json")),
        *sorted(folder.glob("vocab*")),
    ]


def _unknown(what: str, name: str, known: Sequence[str]) -> ModelError:
    near = difflib.get_close_matches(name, known, 3, 0.4) or list(known)[:5]
    return ModelError(f"open_clip knows no {what} {name!r}", hint=f"for example: {', '.join(near)}; or a local path")


def _config(model: str) -> dict[str, Any]:
    """The `model_cfg` of a model: from its folder, or as open_clip knows it."""
    name = factory_name(model)
    if name.startswith(LOCAL):
        file = Path(name[len(LOCAL) :]) / CONFIG
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["model_cfg"]
            int(found["embed_dim"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{file} is damaged ({error!r})", hint="copy the folder again") from error
        return found
    with explained(model, None), quiet():
        from open_clip import get_model_config, list_models

        known = get_model_config(name if name.startswith(HUB) else name.replace("/", "-"))
        if known is None:
            raise _unknown("model", model, list_models())
        return dict(known)


def _stamp(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_size, state.st_mtime_ns


@lru_cache(maxsize=8)
def _fingerprint(model: str, files: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> str:
    state = hashlib.blake2b(digest_size=16)
    state.update(b"" if model == DEMO or LOCAL in factory_name(model) else model.encode())
    for file in files:
        with file.open("rb") as opened:
            state.update(hashlib.file_digest(opened, "sha256").digest())
    return state.hexdigest()


@contextmanager
def explained(model: str, pretrained: str | None) -> Iterator[None]:
    """Whatever open_clip or the hub client raises becomes one line with the three ways out."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        which = f"{model} / {pretrained}" if pretrained else model
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ModelError(f"the model {which} cannot be loaded: {reason}", hint=WAYS_OUT) from error


@contextmanager
def quiet() -> Iterator[None]:
    """open_clip logs every step of loading to the root logger; none of it is for the user of a recipe."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def writes_captions(model: str) -> bool:
    """Whether a model has CoCa's text decoder, by its configuration."""
    return "multimodal_cfg" in _config(model)
