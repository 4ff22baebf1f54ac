"""The text encoder: a transformers CLIPTextModel and its tokenizer, small and trained along, or ready and frozen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from pipeline.errors import ModelError
from train.models.loading import loaded, weights_digest
from train.models.settings import TextSettings

BEGIN, END = "<|startoftext|>", "<|endoftext|>"
END_OF_WORD = "</w>"
PAD = 1
"""Number of END, with which captions are padded too."""


class TextEncoder:
    """Captions → token states. `module` is the CLIPTextModel, whose weights are trained when `trainable`.

    As in Stable Diffusion, captions are cut or padded to one length, and the denoiser attends to the padding too.
    """

    def __init__(self, module: Any, tokenizer: Any, max_tokens: int, *, trainable: bool) -> None:
        self.module: nn.Module = module
        self.tokenizer, self.max_tokens, self.trainable = tokenizer, max_tokens, trainable
        # The pipeline that `train export` writes pads to this length.
        tokenizer.model_max_length = max_tokens
        if not trainable:
            module.requires_grad_(False).eval()

    @property
    def width(self) -> int:
        """Channels of a token state."""
        return int(cast(Any, self.module).config.hidden_size)

    @property
    def fingerprint(self) -> str:
        """16 hex characters that stand for vocabulary, length and weights."""
        vocabulary = self.tokenizer.backend_tokenizer.to_str()
        return weights_digest(self.module, f"{vocabulary} {self.max_tokens} {cast(Any, self.module).config}")

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token states (b, l, d) and which tokens are no padding (b, l), on the module's device."""
        tokens = self.tokenizer(list(captions), padding="max_length", max_length=self.max_tokens, truncation=True,
                                return_tensors="pt")
        device = next(self.module.parameters()).device
        states = self.module(tokens.input_ids.to(device))[0]
        return states, tokens.attention_mask.to(device, torch.bool)

    def is_cut(self, caption: str) -> bool:
        """Whether a caption is longer than `max_tokens`, so that its end is not seen."""
        return len(self.tokenizer(caption).input_ids) > self.max_tokens

    def save_tokenizer(self, folder: str) -> None:
        """Write the tokenizer to a local folder, from which `build` takes it up again."""
        self.tokenizer.save_pretrained(folder)


def build(settings: TextSettings, recipe_name: str, *, captions: Iterable[str] = (), folder: str | None = None
          ) -> TextEncoder:
    """See `train.models.build_text`."""
    if settings.kind == "pretrained":
        return _pretrained(settings)
    if folder is not None:
        from transformers import CLIPTokenizer

        kept = folder
        tokenizer = loaded("tokenizer", kept, lambda: CLIPTokenizer.from_pretrained(kept))
    else:
        tokenizer = learn_tokenizer(captions, settings.vocabulary)
    return TextEncoder(_fresh(settings, len(tokenizer)), tokenizer, settings.max_tokens, trainable=True)


def learn_tokenizer(captions: Iterable[str], size: int) -> Any:
    """A CLIPTokenizer whose byte-pair merges are learned from captions; frequent words become one token each.

    Same captions in any order, same tokenizer: all single characters get their numbers beforehand, so that ties
    between pairs never hang on the order in which a hash map was walked. `size` bounds the merged tokens.
    """
    import json

    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer
    from transformers import CLIPTokenizer

    letters = sorted(ByteLevel.alphabet())
    known = [BEGIN, END, *letters, *(letter + END_OF_WORD for letter in letters)]
    like_clip = CLIPTokenizer().backend_tokenizer
    learner = Tokenizer(BPE(end_of_word_suffix=END_OF_WORD))
    learner.normalizer, learner.pre_tokenizer = like_clip.normalizer, like_clip.pre_tokenizer
    trainer = BpeTrainer(vocab_size=len(known) + size, min_frequency=2, special_tokens=known,
                         initial_alphabet=letters, end_of_word_suffix=END_OF_WORD, show_progress=False)
    learner.train_from_iterator(captions, trainer)
    model = json.loads(learner.to_str())["model"]
    if not model["merges"]:
        raise ModelError("there are no captions to learn a vocabulary from",
                         hint="give captions, or set text.kind = 'pretrained'")
    return CLIPTokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])


def _fresh(settings: TextSettings, vocabulary: int) -> nn.Module:
    from transformers import CLIPTextConfig, CLIPTextModel

    model: nn.Module = CLIPTextModel(CLIPTextConfig(
        vocab_size=vocabulary, hidden_size=settings.width, intermediate_size=4 * settings.width,
        num_hidden_layers=settings.layers, num_attention_heads=settings.heads, projection_dim=settings.width,
        max_position_embeddings=settings.max_tokens, bos_token_id=0, eos_token_id=PAD, pad_token_id=PAD))
    _start_distinct(model)
    return model


@torch.no_grad()
def _start_distinct(model: Any) -> None:
    """Let words differ from the first step: unit-sized word vectors, as `torch.nn.Embedding` has them, and none for
    the padding, whose states then hold what attention gathers from the words before it.

    transformers starts words at a fiftieth of what an attention layer adds to them, so every state of a caption looks
    like every other. On the demo the denoiser then ignores the caption for its first 20,000 samples; with this it
    draws the right colour half of the time after 10,000.
    """
    words = model.get_input_embeddings().weight
    words /= words.std()
    words[PAD] = 0


def _pretrained(settings: TextSettings) -> TextEncoder:
    """A CLIP text model from a folder or the hub: a model's own, or a whole pipeline's text_encoder and tokenizer."""
    from transformers import CLIPTextModel, CLIPTokenizer

    source = cast(str, settings.pretrained)
    whole = (Path(source) / "text_encoder").is_dir()
    module = loaded("text encoder", source, lambda: CLIPTextModel.from_pretrained(
        source, subfolder="text_encoder" if whole else ""))
    tokenizer = loaded("tokenizer", source, lambda: CLIPTokenizer.from_pretrained(
        source, subfolder="tokenizer" if whole else ""))
    longest = int(module.config.max_position_embeddings)
    if settings.max_tokens > longest:
        raise ModelError(f"the text encoder {source} takes {longest} tokens, text.max_tokens is {settings.max_tokens}",
                         hint=f"set text.max_tokens = {longest}")
    return TextEncoder(module, tokenizer, settings.max_tokens, trainable=False)
