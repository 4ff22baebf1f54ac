"""The demo's CoCa as open_clip's `local-dir:` schema wants it: architecture, word-level tokenizer, fp16 weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import nn

from .scenes import VOCABULARY

PAD, UNKNOWN, START, END = "<pad>", "<unknown>", "<start>", "<end>"
PUNCTUATION = (".", ",", ":", "-")
WEIGHTS = "open_clip_model.safetensors"
MEAN = (0.5, 0.5, 0.5)
STD = (0.25, 0.25, 0.25)
SIDE, PATCH, WIDTH, HEADS, CONTEXT = 72, 12, 160, 5, 40


def words() -> list[str]:
    """The vocabulary in id order: padding is 0, as CoCa expects."""
    return [PAD, UNKNOWN, START, END, *PUNCTUATION, *VOCABULARY]


def model_config() -> dict[str, Any]:
    """The `open_clip_config.json` of the model: architecture and preprocessing."""
    text = {
        "context_length": CONTEXT,
        "vocab_size": len(words()),
        "width": WIDTH,
        "heads": HEADS,
        "layers": 2,
        "mlp_ratio": 2.0,
        "embed_cls": True,
        "output_tokens": True,
        "hf_tokenizer_name": "local",
    }
    vision = {
        "image_size": SIDE,
        "patch_size": PATCH,
        "width": WIDTH,
        "head_width": WIDTH // HEADS,
        "layers": 5,
        "mlp_ratio": 2.0,
        "pool_type": "avg",
        "output_tokens": True,
    }
    # CoCa passes its vocabulary's size, not `embed_dim`, as the decoder's output width.
    decoder = {
        "context_length": CONTEXT, "vocab_size": len(words()), "width": WIDTH, "heads": HEADS, "layers": 1,
    }  # fmt: skip
    model = {
        "embed_dim": WIDTH,
        "vision_cfg": vision,
        "text_cfg": text,
        "multimodal_cfg": decoder,
        "custom_text": True,
        "init_logit_scale": math.log(10),
        "init_logit_bias": -8.0,
    }
    preprocess = {
        "mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "shortest",
    }  # fmt: skip
    return {"model_cfg": model, "preprocess_cfg": preprocess}


def tokenizer() -> Any:
    """A word-level tokenizer: lower case, split at punctuation, `<start> words <end>`."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordLevel

    ids = {word: i for i, word in enumerate(words())}
    made = Tokenizer(WordLevel(ids, unk_token=UNKNOWN))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, ids[START]), (END, ids[END])]
    )
    made.add_special_tokens([PAD, UNKNOWN, START, END])
    return made


def save(model: nn.Module, folder: Path) -> None:
    """Write the folder that open_clip's `local-dir:` schema loads: config, fp16 weights, tokenizer."""
    from safetensors.torch import save_file
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().half().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    (folder / "open_clip_config.json").write_text(json.dumps(model_config(), indent=2) + "\n")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), pad_token=PAD, unk_token=UNKNOWN, bos_token=START, eos_token=END,
        model_max_length=CONTEXT,
    )  # fmt: skip
    fast.save_pretrained(str(folder))
