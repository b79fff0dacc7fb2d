import itertools
from types import SimpleNamespace

import pytest
import torch

from profiler.training.data import MASK_ID, TOKEN_IDS, batches
from profiler.training.verifier import corrupted, next_token_loss


@pytest.fixture(scope="module")
def batch():
    (only,) = itertools.islice(batches(seed=0, size=512, drill_share=0.2, steps=1), 1)
    return only


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Oracle:
    """A model that knows the clean text: it is certain of the token `ahead` places after each place."""

    def __init__(self, batch, ahead):
        self.tokens, self.ahead = batch.tokens, ahead

    def __call__(self, *, input_ids, use_cache):
        self.inputs = input_ids
        known = torch.nn.functional.pad(self.tokens, (0, 2))[:, self.ahead : self.ahead + input_ids.shape[1]]
        return SimpleNamespace(logits=50.0 * torch.nn.functional.one_hot(known, len(TOKEN_IDS)).float())


def test_O24_the_loss_rewards_the_next_token_alone(batch):
    assert next_token_loss(Oracle(batch, 1), batch, 0, generator()) < 1e-6
    assert next_token_loss(Oracle(batch, 0), batch, 0, generator()) > 10
    assert next_token_loss(Oracle(batch, 2), batch, 0, generator()) > 10


def test_the_loss_predicts_clean_tokens_from_a_corrupted_prefix(batch):
    oracle = Oracle(batch, 1)

    loss = next_token_loss(oracle, batch, 0, generator())

    assert torch.equal(oracle.inputs, corrupted(batch, generator())[:, :-1])
    assert not torch.equal(oracle.inputs, batch.tokens[:, :-1])
    assert loss < 1e-6


def test_only_the_answer_is_scored(batch):
    """An oracle that is wrong outside of the answer loses nothing."""
    oracle = Oracle(batch, 1)
    oracle.tokens = torch.where(batch.in_answer(), batch.tokens, TOKEN_IDS["pens"])

    assert next_token_loss(oracle, batch, 0, generator()) < 1e-6


def test_only_answers_are_corrupted_and_never_by_padding_end_or_mask(batch):
    for seed in range(20):
        tokens = corrupted(batch, generator(seed))
        changed = tokens != batch.tokens

        assert not (changed & ~batch.in_answer()).any()
        assert (tokens[changed] > MASK_ID).all()
        assert (tokens[changed] < len(TOKEN_IDS)).all()


def test_the_share_of_corrupted_tokens_is_as_stated():
    """40 % of the rows, each with a share that is uniform in [0, 15 %]: 3 % in all, less the draws of the same word.

    The tolerance is five standard errors, from the spread of the rows' shares.
    """
    (batch,) = itertools.islice(batches(seed=1, size=4000, drill_share=0.0, steps=1), 1)
    changed = corrupted(batch, generator()) != batch.tokens
    share = changed.sum(1) / batch.in_answer().sum(1)
    words = len(TOKEN_IDS) - MASK_ID - 1

    expected = 0.4 * 0.075 * (1 - 1 / words)
    assert float(share.mean()) == pytest.approx(expected, abs=5 * float(share.std()) / 4000**0.5)
    assert 0.28 < float((share > 0).float().mean()) < 0.40  # a row may be chosen and keep every word
    assert float(share.max()) < 0.45


def test_the_original_batch_is_left_alone(batch):
    before = batch.tokens.clone()
    corrupted(batch, generator())

    assert torch.equal(batch.tokens, before)
