"""A randomly initialised CoCa of a few thousand parameters, saved in the formats in which people have models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from open_clip.coca_model import CoCa
from safetensors.torch import save_file
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

WORDS = ["<pad>", "<unk>", "<s>", "</s>"]
WORDS += ["a", "red", "blue", "green", "circle", "square", "star", "small", "on", "the", "left", "right"]
WIDTH, CONTEXT, SIDE = 24, 12, 32
CONFIG: dict[str, Any] = {
    "embed_dim": WIDTH,
    "vision_cfg": {
        "image_size": SIDE,
        "patch_size": 8,
        "width": WIDTH,
        "head_width": 8,
        "layers": 1,
        "pool_type": "avg",
        "output_tokens": True,
    },
    "text_cfg": {
        "context_length": CONTEXT,
        "vocab_size": len(WORDS),
        "width": WIDTH,
        "heads": 3,
        "layers": 1,
        "embed_cls": True,
        "output_tokens": True,
        "hf_tokenizer_name": "local",
    },
    "multimodal_cfg": {"context_length": CONTEXT, "vocab_size": len(WORDS), "width": WIDTH, "heads": 3, "layers": 1},
    "custom_text": True,
}
PREPROCESS = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "interpolation": "bicubic", "resize_mode": "shortest"}


def save_tiny_coca(folder: Path, weights: Literal["safetensors", "bin"] = "safetensors", seed: int = 0) -> Path:
    """Write config, weights and tokenizer; the same seed gives the same model."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CoCa(**{name: value for name, value in CONFIG.items() if name != "custom_text"})
        torch.nn.init.normal_(model.text_decoder.text_projection, std=0.5)
        torch.nn.init.normal_(model.text.token_embedding.weight)  # large: so that it does not write one word for ever
        torch.nn.init.normal_(model.text.positional_embedding)
    folder.mkdir(parents=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG, "preprocess_cfg": PREPROCESS}))
    if weights == "safetensors":
        save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    else:
        torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    ids = {word: number for number, word in enumerate(WORDS)}
    words = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", ids["<s>"]), ("</s>", ids["</s>"])]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=CONTEXT,
    ).save_pretrained(str(folder))
    return folder
