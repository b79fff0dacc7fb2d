import torch

from profiler.distillation.samples import read_samples
from profiler.sampling import probabilities
from tests.profiler.distillation.conftest import PROMPTS, SAMPLING, STOP, write


def test_answers_follow_their_prompts(sampled):
    assert [sample.tokens[: sample.start].tolist() for sample in sampled] == PROMPTS
    for sample in sampled:
        answer = sample.tokens[sample.start :]
        assert len(answer) == len(sample.target_ids) == len(sample.target_probs)
        assert len(answer) == 16 or answer[-1] == STOP
        assert STOP not in answer[:-1]


def test_targets_are_what_the_verifier_samples_from(sampled, verifier):
    """In a batch of rows padded on the left as alone; half precision and a tail beyond 32 tokens are what is lost."""
    for sample in sampled:
        logits = verifier(input_ids=sample.tokens[None]).logits[0, sample.start - 1 : -1]
        alone = probabilities(logits, SAMPLING)
        torch.testing.assert_close(alone.gather(1, sample.target_ids), sample.target_probs, atol=2e-3, rtol=0)
        drawn = sample.tokens[sample.start :, None]
        assert (alone.gather(1, drawn) > 0).all()


def test_an_interrupted_run_and_two_workers_write_the_same(sampled, verifier, tmp_path):
    write(verifier, tmp_path, share=(1, 2))
    (tmp_path / "0000.part").write_bytes(b"cut off")
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["0001.safetensors"]
    write(verifier, tmp_path)

    for sample, again in zip(sampled, read_samples(tmp_path), strict=True):
        assert torch.equal(sample.tokens, again.tokens)
        assert torch.equal(sample.target_probs, again.target_probs)
    write(verifier, tmp_path / "other", seed=1)
    assert any(
        sample.tokens.tolist() != other.tokens.tolist()
        for sample, other in zip(sampled, read_samples(tmp_path / "other"), strict=True)
    )
