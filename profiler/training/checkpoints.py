"""A trained network as an ordinary checkpoint folder: safetensors in half precision, tokenizer.json, configs."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from profiler.tasks.word_problems import END, MASK, PAD
from profiler.training.data import TOKEN_IDS


def write_checkpoint(model: Qwen2ForCausalLM, folder: Path) -> None:
    """Write model and tokenizer to `folder`, in the form that `from_pretrained` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.float16).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, words apart by spaces."""
    words = Tokenizer(WordLevel(TOKEN_IDS, unk_token=PAD))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token=PAD, eos_token=END, mask_token=MASK)
