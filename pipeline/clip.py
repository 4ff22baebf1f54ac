"""CLIP and CoCa models, loaded through open_clip's own factory: pictures and texts to vectors, pictures to words.

How a recipe names a model, and how it is checked before any work, is in `pipeline.clip_files`. torch and open_clip
are imported when a model is needed, not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.clip_files import (
    DEMO,
    HUB,
    LOCAL,
    NONE,
    Described,
    check,
    describe,
    explained,
    factory_name,
    quiet,
    writes_captions,
)
from pipeline.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DEMO", "NONE", "Clip", "Described", "check", "describe", "load", "writes_captions"]

Floats = NDArray[np.float32]
RgbPicture = Image.Image | NDArray[np.uint8]

MAX_WORDS = 40  # tokens a caption may grow to before it is cut off


def load(
    model: str, pretrained: str | None, *, recipe_name: str, device: str = "auto", precision: str = "fp32",
    batch: int = 64,
) -> Clip:  # fmt: skip
    """Load a model, once per process. Raises ModelError when it cannot be loaded or refuses the recipe."""
    check(model, pretrained, recipe_name=recipe_name)
    return _load(model, pretrained, _device(device), precision, batch)


class Clip:
    """A model with its own preprocessing and tokenizer.

    Everything runs in batches padded to a fixed size, so a picture's or text's values do not depend on how
    many others were asked for with it. `width` is the embedding's length.
    """

    def __init__(
        self, model: Any, preprocess: Any, tokenizer: Any, *, fingerprint: str, device: str, batch: int
    ) -> None:
        self._model, self._preprocess, self._tokenizer = model, preprocess, tokenizer
        self.fingerprint, self.device, self.batch = fingerprint, device, batch
        self.context_length = int(tokenizer.context_length)
        self.writes_captions = hasattr(model, "text_decoder")

    @cached_property
    def width(self) -> int:
        return int(self.embed_texts(["a"]).shape[1])

    @property
    def logit_scale(self) -> float:
        """The factor that training put on cosines before the softmax."""
        return float(self._model.logit_scale.exp())

    def prepare(self, picture: RgbPicture) -> Tensor:
        """The model's own preprocessing of one RGB picture: float (3, side, side). Safe to call from threads."""
        image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
        prepared: Tensor = self._preprocess(image)
        return prepared

    def embed_images(self, pictures: Sequence[RgbPicture | Tensor]) -> Floats:
        """Pictures, prepared or not → unit vectors, float32 (n, width)."""

        def encode(pixels_bchw: Tensor) -> Tensor:
            vectors: Tensor = self._model.encode_image(pixels_bchw, normalize=True)
            return vectors

        return self._collect(encode, self._image_batches(pictures), len(pictures))

    def embed_texts(self, texts: Sequence[str]) -> Floats:
        """Texts → unit vectors, float32 (n, width). Longer texts are cut, their end token kept."""

        def encode(ids_bl: Tensor) -> Tensor:
            vectors: Tensor = self._model.encode_text(ids_bl, normalize=True)
            return vectors

        return self._collect(encode, self._text_batches(texts), len(texts))

    def token_states(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Last hidden states after the final norm, float32 (n, context, width), and the mask of real tokens.

        Raises ModelError for text towers that keep their states to themselves.
        """
        import torch

        states = []
        for ids_bl in self._text_batches(texts):
            try:
                with torch.inference_mode():
                    out = self._model.forward_intermediates(
                        text=ids_bl, text_indices=1, normalize_intermediates=True, intermediates_only=True
                    )
            except (AttributeError, NotImplementedError, TypeError) as error:
                raise ModelError(
                    "this model's text tower gives no token states",
                    hint="use a model with a built-in text tower, e.g. ViT-B-32 or ViT-L-14",
                ) from error
            states.append(out["text_intermediates"][-1].float())
        if not texts:
            return torch.empty(0, self.context_length, 0), torch.empty(0, self.context_length, dtype=torch.bool)
        mask = self._mask(self._ids(texts))
        return torch.cat(states)[: len(texts)].clone(), mask.to(states[0].device)

    def generate(self, pictures: Sequence[RgbPicture | Tensor]) -> list[str]:
        """One caption per picture, by greedy decoding. Raises ModelError when the model has no decoder."""
        if not self.writes_captions:
            raise ModelError("this model writes no captions", hint="use a CoCa model, e.g. coca_ViT-L-14")
        captions: list[str] = []
        for pixels_bchw in self._image_batches(pictures):
            captions += [self._spell(ids) for ids in self._decode(pixels_bchw)]
        return captions[: len(pictures)]

    def truncated(self, text: str) -> bool:
        """Whether a text has more tokens than the model reads."""
        ids = self._tokenizer([text], context_length=max(4 * self.context_length, 2 * len(text) + 8))
        return int(self._mask(ids).sum()) > self.context_length

    def _decode(self, pixels_bchw: Tensor) -> list[list[int]]:
        import torch

        start, end, pad = self._special_ids()
        limit = min(MAX_WORDS, self.context_length)
        grows = getattr(self._model.text, "cls_emb", None) is not None
        with torch.inference_mode():
            latent, patches_bld = self._model._encode_image(pixels_bchw)
            ids = torch.full((len(pixels_bchw), 1), start, device=pixels_bchw.device)
            for at in range(limit - 1):
                # A tower without CoCa's own class token masks at full length only.
                given = ids if grows else _padded(ids, self.context_length, pad)
                out = self._model(None, given, image_latent=latent, image_embs=patches_bld, output_labels=False)
                chosen = out["logits"][:, at].argmax(-1)
                done = (ids == end).any(1)
                ids = torch.cat([ids, torch.where(done, pad, chosen)[:, None]], 1)
                if bool((ids == end).any(1).all()):
                    break
        found: list[list[int]] = ids[:, 1:].tolist()
        return [line[: line.index(end)] if end in line else line for line in found]

    def _special_ids(self) -> tuple[int, int, int]:
        inner = getattr(self._tokenizer, "tokenizer", None)
        if inner is not None:
            return int(inner.bos_token_id), int(inner.eos_token_id), int(inner.pad_token_id)
        return int(self._tokenizer.sot_token_id), int(self._tokenizer.eot_token_id), 0

    def _spell(self, ids: list[int]) -> str:
        inner = getattr(self._tokenizer, "tokenizer", None)
        text = inner.decode(ids, skip_special_tokens=True) if inner is not None else self._tokenizer.decode(ids)
        return " ".join(str(text).split())

    def _ids(self, texts: Sequence[str]) -> Tensor:
        ids: Tensor = self._tokenizer(list(texts))
        return ids

    def _mask(self, ids_bl: Tensor) -> Tensor:
        """True up to the last token that is no padding: a padding id may also be a word's, but never the end's."""
        import torch

        pad = self._special_ids()[2]
        places = torch.arange(ids_bl.shape[1])
        last = torch.where(ids_bl != pad, places, 0).amax(1, keepdim=True)
        return places <= last

    def _text_batches(self, texts: Sequence[str]) -> Iterator[Tensor]:
        for start in range(0, len(texts), self.batch):
            chunk = list(texts[start : start + self.batch])
            yield self._ids(chunk + [""] * (self.batch - len(chunk))).to(self.device)

    def _image_batches(self, pictures: Sequence[RgbPicture | Tensor]) -> Iterator[Tensor]:
        import torch

        dtype = self._model.visual.conv1.weight.dtype if hasattr(self._model.visual, "conv1") else None
        for start in range(0, len(pictures), self.batch):
            chunk = [
                picture if isinstance(picture, torch.Tensor) else self.prepare(picture)
                for picture in pictures[start : start + self.batch]
            ]
            chunk += [torch.zeros_like(chunk[0])] * (self.batch - len(chunk))
            yield torch.stack(chunk).to(self.device, dtype)

    def _collect(self, encode: Any, batches: Iterator[Tensor], count: int) -> Floats:
        import torch

        with torch.inference_mode():
            found = [encode(batch).float().cpu().numpy() for batch in batches]
        if not found:
            return np.empty((0, self.width), np.float32)
        joined: Floats = np.concatenate(found)[:count]
        return joined


def _padded(ids_bl: Tensor, length: int, pad: int) -> Tensor:
    from torch.nn import functional as F

    return F.pad(ids_bl, (0, length - ids_bl.shape[1]), value=pad)


def _device(device: str) -> str:
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@lru_cache(maxsize=2)
def _load(model: str, pretrained: str | None, device: str, precision: str, batch: int) -> Clip:
    with explained(model, pretrained), quiet():
        import open_clip
        from open_clip.transform import PreprocessCfg, image_transform_v2

        name = factory_name(model)
        tag = None if name.startswith((LOCAL, HUB)) else pretrained
        loaded = open_clip.create_model(
            name, tag, precision=precision, device=device, require_pretrained=True,
            force_quick_gelu=_quick_gelu(name, tag),
        )  # fmt: skip
        preprocess = image_transform_v2(PreprocessCfg(**loaded.visual.preprocess_cfg), is_train=False)
        tokenizer = open_clip.get_tokenizer(name)
    loaded.eval().requires_grad_(False)
    fingerprint = describe(model, pretrained).fingerprint
    return Clip(loaded, preprocess, tokenizer, fingerprint=fingerprint, device=device, batch=batch)


def _quick_gelu(name: str, tag: str | None) -> bool:
    """Weights trained with QuickGELU must run with it; open_clip itself would only warn."""
    from open_clip.pretrained import get_pretrained_cfg

    known = get_pretrained_cfg(name.replace("/", "-"), tag) if tag else None
    return bool(known and known.get("quick_gelu"))
