import pytest

from profiler.cli import guarded
from profiler.training import evaluate
from theory.acceptance import LOSSLESS

pytestmark = pytest.mark.usefixtures("restored_torch")


def rows(printed):
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in printed.splitlines()]


def test_every_way_of_writing_is_scored_alone(tiny_pair_file, capsys, monkeypatch):
    monkeypatch.setattr(
        evaluate.tasks.load("word_problems"), "is_correct", lambda prompt, text: prompt.id.endswith("/0")
    )

    evaluate.main(["--pair", str(tiny_pair_file), "--prompts", "2", "--efforts", "1,8"])

    header, *lines = rows(capsys.readouterr().out)
    assert header == ["text from", "accuracy", "95 % interval"]
    assert [line[0] for line in lines] == ["verifier alone", "drafter alone, K = 1", "drafter alone, K = 8"]
    assert {line[1] for line in lines} == {"0.500"}


def test_an_unknown_pair_is_one_line_with_exit_code_2(capsys):
    assert guarded(evaluate.main, ["--pair", "dream"]) == 2
    assert capsys.readouterr().err.startswith("error: `pair` must be")


def test_the_embedded_pair_is_what_its_model_card_says(embedded_pair):
    """Twenty prompts of a fresh seed: a verifier that is nearly always right, a one-step drafter that seldom is.

    Accuracies of at least .92 and at most .3 fail these bounds with chances of 1e-5 and 3e-5.
    """
    prompts = evaluate.tasks.load("word_problems").prompts(20, seed=12345)
    noise = [evaluate.Streams(seed=12345, request=request) for request in range(20)]
    ids = [embedded_pair.tokenizer(each.text, add_special_tokens=False)["input_ids"] for each in prompts]

    def right(complete):
        texts = [embedded_pair.tokenizer.decode(complete(*each)) for each in zip(ids, noise, strict=True)]
        return sum(evaluate.tasks.load("word_problems").is_correct(*each) for each in zip(prompts, texts, strict=True))

    def verified(prompt, streams):
        rounds = evaluate.decode(embedded_pair, prompt, effort=4, rule=LOSSLESS, streams=streams, token_limit=64)
        return [token for each in rounds for token in each.tokens]

    def drafted(prompt, streams):
        blocks = evaluate.decode_drafter_alone(embedded_pair, prompt, effort=1, streams=streams, token_limit=64)
        return [token for block in blocks for token in block]

    assert right(verified) >= 12
    assert right(drafted) <= 15
