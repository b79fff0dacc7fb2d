import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from profiler.sampling import Sampling, permitted_logits
from profiler.training import drafter as training
from profiler.training.data import MASK_ID, TOKEN_IDS, batches
from profiler.training.drafter import denoising_loss
from tests.profiler.scripted import masked_drafter

SIZE, BLOCKS = 8, training._BLOCKS
PASS_TOLERANCE = 2e-4
"""Between two float32 passes that sum in another order, in a logit; ten times what is seen."""


@pytest.fixture(scope="module")
def batch():
    (only,) = itertools.islice(batches(seed=0, size=16, drill_share=0.2, steps=1), 1)
    return only


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Recorder:
    """Wraps a model, or answers with constant logits, and keeps what the loss asked it."""

    def __init__(self, model=None):
        self.model = model

    def __call__(self, *, input_ids, attention_mask, position_ids, use_cache):
        self.tokens, self.mask, self.positions = input_ids, attention_mask, position_ids
        if self.model is None:
            return SimpleNamespace(logits=self.logits())
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=use_cache
        )

    def logits(self):
        return torch.zeros(*self.tokens.shape, len(TOKEN_IDS))


class Oracle(Recorder):
    """Certain of the clean token `ahead` places after each place."""

    def __init__(self, batch, ahead):
        super().__init__()
        self.clean, self.ahead = batch.tokens, ahead

    def logits(self):
        width = self.clean.shape[1]
        places = (self.positions + self.ahead).clamp(max=width - 1)
        known = self.clean.gather(1, places)
        return 50.0 * torch.nn.functional.one_hot(known, len(TOKEN_IDS)).float()


@pytest.fixture
def laid_out(batch):
    """What the loss shows the model: tokens, mask, positions of the clean part and of the blocks."""
    recorder = Recorder()
    denoising_loss(recorder, batch, 0, generator())
    return recorder


@pytest.mark.parametrize("step", [0, 3])
def test_O24_the_loss_rewards_the_next_token_alone(batch, step):
    assert denoising_loss(Oracle(batch, 1), batch, step, generator()) < 1e-6
    assert denoising_loss(Oracle(batch, 0), batch, step, generator()) > 10
    assert denoising_loss(Oracle(batch, 2), batch, step, generator()) > 10


def test_every_fourth_step_trains_blocks_of_sixteen(batch):
    recorder, lengths = Recorder(), []
    for step in range(8):
        denoising_loss(recorder, batch, step, generator())
        lengths.append(recorder.tokens.shape[1] - batch.tokens.shape[1])

    assert lengths == [BLOCKS * 9, BLOCKS * 9, BLOCKS * 9, BLOCKS * 17] * 2


def blocks_of(recorder, batch):
    """Tokens and positions (N, blocks, 9) of the blocks."""
    width = batch.tokens.shape[1]
    return (part[:, width:].unflatten(1, (BLOCKS, SIZE + 1)) for part in (recorder.tokens, recorder.positions))


def test_a_block_is_an_anchor_and_slots_that_are_masked_or_true(batch, laid_out):
    tokens, positions = blocks_of(laid_out, batch)
    width = batch.tokens.shape[1]
    truth = batch.tokens.gather(1, positions.clamp(max=width - 1).flatten(1)).view_as(positions)
    inside = positions < batch.length[:, None, None]

    assert torch.equal(laid_out.tokens[:, :width], batch.tokens)
    assert torch.equal(tokens[..., 0], truth[..., 0])  # the anchor is clean
    slots = tokens[..., 1:]
    assert ((slots == MASK_ID) | ((slots == truth[..., 1:]) & inside[..., 1:])).all()
    assert (slots == MASK_ID)[~inside[..., 1:]].all()
    assert (positions.diff(dim=-1) == 1).all()
    anchors = positions[..., 0]
    assert (anchors >= batch.answer_start[:, None] - 1).all()
    assert (anchors < batch.length[:, None] - 1).all()  # at least one slot is inside


def test_about_half_of_the_blocks_hide_everything_after_a_clean_start():
    masks = training._masks(2000, SIZE, generator())

    rising = (masks[..., 1:] | ~masks[..., :-1]).all(-1)
    assert masks.shape == (2000, BLOCKS, SIZE)
    assert 0.55 < float(rising.float().mean()) < 0.75  # half by design, the others by chance
    assert 0.45 < float(masks.float().mean()) < 0.6
    first = training._masks(2000, SIZE, generator(1))[:, :, 0]
    assert 0.2 < float(first.float().mean()) < 0.45


def test_clean_rows_look_back_and_blocks_at_their_prefix_and_themselves(batch, laid_out):
    """Row by row from the sentence in the docstring."""
    allowed = laid_out.mask[:, 0] == 0
    width = batch.tokens.shape[1]
    _, positions = blocks_of(laid_out, batch)
    for row in range(4):
        for place in range(width):
            assert allowed[row, place].nonzero()[:, 0].tolist() == list(range(place + 1))
        for block in range(BLOCKS):
            begin = width + block * (SIZE + 1)
            own = list(range(begin, begin + SIZE + 1))
            prefix = list(range(int(positions[row, block, 0])))
            for place in own:
                assert allowed[row, place].nonzero()[:, 0].tolist() == prefix + own


@pytest.fixture(scope="module")
def model(tiny_pair):
    return tiny_pair.drafter.model


@torch.inference_mode()
def logits_of(model, tokens, recorder):
    return model(
        input_ids=tokens, attention_mask=recorder.mask, position_ids=recorder.positions, use_cache=False
    ).logits


def largest_change(model, recorder, changed, rows):
    before = logits_of(model, recorder.tokens, recorder)
    after = logits_of(model, changed, recorder)
    return float((before - after)[:, rows].abs().max())


def test_a_slot_of_one_block_is_seen_by_that_block_alone(batch, laid_out, model):
    width = batch.tokens.shape[1]
    changed = laid_out.tokens.clone()
    changed[:, width + 2 * (SIZE + 1) + 3] = TOKEN_IDS["pens"]
    own = range(width + 2 * (SIZE + 1), width + 3 * (SIZE + 1))
    others = [place for place in range(changed.shape[1]) if place not in own]

    assert largest_change(model, laid_out, changed, others) == 0
    assert largest_change(model, laid_out, changed, list(own)) > 0.1


def test_clean_tokens_from_the_anchor_on_are_hidden_from_the_block(batch, laid_out, model):
    """The answer itself stands there."""
    width = batch.tokens.shape[1]
    _, positions = blocks_of(laid_out, batch)
    for block in range(BLOCKS):
        own = list(range(width + block * (SIZE + 1), width + (block + 1) * (SIZE + 1)))
        anchor = positions[:, block, :1]
        hidden, seen = laid_out.tokens.clone(), laid_out.tokens.clone()
        at_or_after = torch.arange(width) >= anchor
        hidden[:, :width][at_or_after] = TOKEN_IDS["pens"]
        seen[:, :width].scatter_(1, anchor - 1, TOKEN_IDS["pens"])

        assert largest_change(model, laid_out, hidden, own) == 0
        assert largest_change(model, laid_out, seen, own) > 0.01


def test_training_shows_a_block_what_the_drafter_shows_it(batch, laid_out, model):
    """The logits of a block in the training layout are those of the masked drafter at the same prefix and slots."""
    width = batch.tokens.shape[1]
    tokens, positions = blocks_of(laid_out, batch)
    logits = logits_of(model, laid_out.tokens, laid_out)[:, width:].unflatten(1, (BLOCKS, SIZE + 1))
    banned = torch.arange(len(TOKEN_IDS)) == MASK_ID
    for row in range(4):
        for block in range(BLOCKS):
            drafter = masked_drafter(
                model,
                mask_id=MASK_ID,
                banned=banned,
                sampling=Sampling(),
                order="left_to_right",
                shifted=True,
                causal_prefix=True,
            )
            prefix = batch.tokens[row, : positions[row, block, 0] + 1]
            with torch.inference_mode():
                served = drafter.block_logits(prefix, tokens[row, block, 1:])

            trained = permitted_logits(logits[row, block, :-1], banned)
            torch.testing.assert_close(
                trained.softmax(-1), permitted_logits(served, banned).softmax(-1), rtol=0, atol=PASS_TOLERANCE
            )


def test_the_clean_part_is_the_verifiers_loss_at_a_lower_weight(batch):
    """With blocks that are known, what is left is the next-token loss of the clean answer."""

    class BlocksKnown(Oracle):
        def logits(self):
            logits = super().logits()
            logits[:, : self.clean.shape[1]] = 0
            return logits

    loss = denoising_loss(BlocksKnown(batch, 1), batch, 0, generator())

    assert float(loss) == pytest.approx(training._CLEAN_WEIGHT * math.log(len(TOKEN_IDS)), rel=1e-5)
