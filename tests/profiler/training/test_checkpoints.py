import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from profiler.tasks import word_problems
from profiler.training.checkpoints import word_tokenizer, write_checkpoint
from profiler.training.data import END_ID, MASK_ID, PAD_ID, TOKEN_IDS
from profiler.training.loop import network


def test_a_checkpoint_is_read_back_as_it_was_in_half_precision(tmp_path):
    model = network(2, intermediate=16)
    weights = {name: value.half() for name, value in model.state_dict().items()}

    write_checkpoint(model, tmp_path / "deep" / "folder")
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "deep" / "folder", dtype=torch.float16)

    assert all(torch.equal(value, weights[name]) for name, value in read.state_dict().items())
    assert read.config.mask_token_id == MASK_ID
    assert read.generation_config.eos_token_id == END_ID


def test_the_tokenizer_is_read_back_with_its_special_tokens(tmp_path):
    word_tokenizer().save_pretrained(tmp_path)
    read = PreTrainedTokenizerFast.from_pretrained(tmp_path)

    assert read.get_vocab() == TOKEN_IDS
    assert (read.pad_token_id, read.eos_token_id, read.mask_token_id) == (PAD_ID, END_ID, MASK_ID)


def test_text_comes_back_from_its_tokens_word_by_word():
    tokenizer = word_tokenizer()
    for problem in (next(word_problems.problems(seed, held_out=True)) for seed in range(50)):
        text = f"{problem.prompt} {problem.answer} <eos>"
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]

        assert ids == [TOKEN_IDS[word] for word in text.split()]
        assert tokenizer.decode(ids) == text
        assert word_problems.final_number(tokenizer.decode(ids)) == problem.value
