import dataclasses
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from profiler.pairs import prompting

NOWHERE = Path("nowhere")

CHAT = {
    "plain": "2 + 2?",
    "qwen2.5": (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    ),
    "qwen3-no-thinking": ("<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"),
    "smollm2": (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    ),
    "gemma4-no-thinking": "<bos><|turn>user\n2 + 2?<turn|>\n<|turn>model\n<|channel>thought\n<channel|>",
}


def test_every_format_is_tested_here():
    assert prompting.formats() == sorted(CHAT)


@pytest.mark.parametrize("name", CHAT)
def test_formats_to_the_letter(name):
    assert prompting.render(name, NOWHERE, "2 + 2?") == CHAT[name]


def test_an_instruction_is_a_line_before_the_prompt():
    assert prompting.render("plain", NOWHERE, "2 + 2?", "Use \\boxed{}.") == "Use \\boxed{}.\n2 + 2?"


def test_braces_of_a_prompt_are_its_own():
    assert prompting.render("plain", NOWHERE, "a {prompt} {0} %s") == "a {prompt} {0} %s"


def test_a_format_may_be_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Q: {prompt}\nA:")

    for name, folder in (("mine.txt", tmp_path), (str(path), NOWHERE)):
        assert prompting.render(name, folder, "why") == "Q: why\nA:"
        assert prompting.digest(name, folder) != prompting.digest("plain", folder)


@pytest.mark.parametrize("text", ["no place", "{prompt} and {prompt}"])
def test_a_format_that_does_not_hold_the_prompt_once_is_refused(tmp_path, text):
    path = tmp_path / "mine.txt"
    path.write_text(text)

    with pytest.raises(ValueError, match=rf"must hold {{prompt}} once, got {text.count('{prompt}')} times"):
        prompting.render("mine.txt", tmp_path, "why")


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=re.escape(f"one of {', '.join(prompting.formats())}, got 'llama'")):
        prompting.template("llama", NOWHERE)


def words(*more):
    vocabulary = {word: index for index, word in enumerate(["<unk>", "a", "b", "c"])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=list(more))


def test_O29_a_prompt_that_the_two_tokenizers_read_differently_is_refused(tiny_pair):
    """The drafter's takes a word for a special token that the verifier's splits: its ids are others."""
    one, other = words(), words("b c")
    pair = dataclasses.replace(tiny_pair, tokenizer=one, drafter_tokenizer=other)

    assert pair.encode("a b b") == [1, 2, 2]
    expected = r"tiny: drafter and verifier read a prompt differently from token 1 on \(2 and 3 tokens\)"
    with pytest.raises(ValueError, match=expected):
        pair.encode("a b c")


def test_a_prompt_is_put_in_the_tasks_format(tiny_pair, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("c {prompt} c")
    task = dataclasses.replace(tiny_pair.spec.task, format="mine.txt", instruction="b")
    spec = dataclasses.replace(tiny_pair.spec, task=task, folder=tmp_path)
    pair = dataclasses.replace(tiny_pair, spec=spec, tokenizer=words(), drafter_tokenizer=None)

    assert pair.encode("a") == [3, 2, 1, 3]
