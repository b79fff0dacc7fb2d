"""From prompts to drafters that load: the whole training on a tiny verifier, and what the shipped one is made of."""

import threading
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from profiler import pairs, tasks
from profiler.decode import decode
from profiler.distillation import drafters
from profiler.distillation.loop import Recipe
from profiler.distillation.samples import read_samples
from profiler.pairs.prompting import render
from profiler.streams import Streams
from tests.profiler.distillation.conftest import STOP, VOCABULARY
from theory.acceptance import LOSSLESS

SHIPPED = Path(pairs.__file__).parent / "smollm2"
PAIR = """
description = "A tiny verifier and what is trained for it."
block_size = 4
efforts = [1, 2]

[drafter]
{drafter}
tokenizer = "verifier"
temperature = 0.7
top_p = 0.9

[verifier]
checkpoint = "verifier"
temperature = 0.7
top_p = 0.9

[[task]]
name = "code"
token_limit = 12

[[task]]
name = "instructions"
token_limit = 12
"""
KINDS = {
    "early_exit": 'family = "early_exit"\ncheckpoint = "early-exit"',
    "lora": 'family = "lora"\ncheckpoint = "lora"\nadapter = "."\n'
    'config = "verifier/config.json"\nrank = 2\nalpha = 4.0',
}


@pytest.fixture
def tiny(verifier, tmp_path, monkeypatch):
    """The TOML files of two pairs with one tiny verifier, and a training that takes a moment."""
    verifier.save_pretrained(tmp_path / "verifier")
    words = WordLevel({f"w{index}": index for index in range(VOCABULARY)}, unk_token="w1")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=f"w{STOP}").save_pretrained(tmp_path / "verifier")
    for name, drafter in KINDS.items():
        (tmp_path / f"{name}.toml").write_text(PAIR.format(drafter=drafter))
    monkeypatch.setattr(drafters, "EARLY_EXIT", str(tmp_path / "early_exit.toml"))
    for name, value in {"PROMPTS": 4, "_SHARD": 4, "_TOKEN_LIMIT": 8, "_LAYERS": 2, "_HEAD": 200}.items():
        monkeypatch.setattr(drafters, name, value)
    recipe = Recipe(title="test", steps=2, batch=1, rate=1e-3)
    monkeypatch.setattr(drafters, "RECIPES", dict.fromkeys(KINDS, recipe))
    return tmp_path


@pytest.mark.parametrize("name", KINDS)
def test_what_is_trained_loads_and_drafts(name, tiny):
    lock = threading.RLock()
    drafters.sample(tiny / "work", 0, (0, 1), lock)
    drafters.train_drafter(str(tiny / f"{name}.toml"), tiny, tiny / "work", 0, 0, lock)

    assert len(read_samples(tiny / "work" / "samples")) == 4
    pair = pairs.load(str(tiny / f"{name}.toml"), device="cpu")
    rounds = list(decode(pair, [1, 3, 4], effort=2, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=12))
    assert sum(len(each.tokens) for each in rounds) <= 12
    assert all(each.passes == 2 for each in rounds if each.drafted > 1)


def test_training_prompts_come_from_all_tasks_in_turn_and_from_no_held_out_one():
    spec = pairs.read("smollm2")
    training = list(drafters.training_texts(spec, 0))

    assert [task.name for task, _ in training[:4]] == ["mathematics", "instructions", "code", "mathematics"]
    assert len({text for _, text in training}) == len(training) == drafters.PROMPTS
    held_out = {
        prompt.text for task in spec.tasks for seed in (0, 1) for prompt in tasks.load(task.name).prompts(50, seed)
    }
    assert held_out.isdisjoint(text for _, text in training)
    assert render("smollm2", spec.folder, training[0][1]).count("<|im_start|>") == 3


def test_shipped_drafters_are_small():
    files = list(SHIPPED.rglob("*.safetensors"))

    assert len(files) == 2
    assert sum(file.stat().st_size for file in files) < 30e6
