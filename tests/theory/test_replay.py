import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recordings import make_rounds, record_pair
from tests.strategies import recordings, rules
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.coupled import CoupledAcceptance
from theory.replay import deviation, replay

EPS = np.finfo(float).eps
LOSSLESS = LinearAcceptance(leniency=0)
RULES = [LinearAcceptance(leniency=x) for x in (0, 0.3, 1)]
RULES += [CactusAcceptance(budget=0.4), CactusAcceptance(budget=0.4, solver="taylor")]


def played(rounds, row, rule, token_limit):
    """Every outcome of the tests of one round with its chance, each counted as the decoding loop counts it."""
    size, stop = rounds.drafted[row], rounds.eos_slot[row]
    totals = dict.fromkeys(("reached", "accepted", "divergence", "spent", "emitted"), 0.0)
    survival, lengths = np.zeros((2, rounds.p_drafted.shape[1] + 1))
    chances = [float(rule.probability(*np.array([p, q])[:, None])[0])
               for p, q in zip(rounds.p_drafted[row, :size], rounds.q_drafted[row, :size], strict=True)]  # fmt: skip
    for passes in itertools.product([True, False], repeat=size):
        chance = math.prod(a if passed else 1 - a for a, passed in zip(chances, passes, strict=True))
        accepted = passes.index(False) if False in passes else size
        tokens = ["stop" if slot == stop else "word" for slot in range(accepted)] + ["added"]
        tokens = tokens[: tokens.index("stop") + 1] if "stop" in tokens else tokens
        tokens = tokens[: token_limit - (rounds.prefix_length[row] - 10)]
        seen = [slot for slot in range(min(accepted + 1, size)) if stop < 0 or slot <= stop]
        survival[: accepted + 1] += chance
        lengths[sum(token != "added" for token in tokens)] += chance
        totals["emitted"] += chance * len(tokens)
        totals["reached"] += chance * len(seen)
        totals["accepted"] += chance * sum(passes[slot] for slot in seen)
        totals["divergence"] += chance * sum(rounds.divergence[row, slot] for slot in seen)
        totals["spent"] += chance * sum(deviation(rounds, rule)[row, slot] for slot in seen)
    return totals, survival, lengths


@given(recordings(), rules, st.integers(1, 6))
def test_expectations_are_those_of_all_outcomes(rounds, rule, token_limit):
    """The rounds of a prompt start where the text has grown to; a limit may cut anywhere in the block."""
    numbered = dict.fromkeys(rounds.prompt.tolist(), -1)
    count = [numbered.__setitem__(each, numbered[each] + 1) or numbered[each] for each in rounds.prompt.tolist()]
    columns = {name: value for name, value in vars(rounds).items() if name not in ("round", "prefix_length")}
    produced = np.minimum(np.array(count, dtype=int), token_limit - 1)
    rounds = make_rounds(len(rounds), rounds.slot.size, **columns, round=count, prefix_length=10 + produced)
    result = replay(rounds, rule, token_limit=token_limit)

    for row in range(len(rounds)):
        totals, survival, lengths = played(rounds, row, rule, token_limit)
        tolerance = 2 ** (rounds.slot.size + 3) * EPS
        np.testing.assert_allclose(result.survival[row], survival, atol=tolerance)
        np.testing.assert_allclose(result.accepted_lengths[row], lengths, atol=tolerance)
        for name, expected in totals.items():
            assert getattr(result, name)[row] == pytest.approx(expected, abs=tolerance), name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
def test_averaged_over_all_drafts_it_is_algorithm_1(rule):
    """A pair of three words, the last of them the stop token: two slots, every draft, every outcome, every replacement.

    The oracle follows the tokens themselves: their number, and the law of the first, whose distance from the verifier's
    is the deviation spent in the first slot.
    """
    p, q, stop = np.array([0.5, 0.2, 0.3]), np.array([0.2, 0.45, 0.35]), 2
    drafts = np.array(list(itertools.product(range(3), repeat=2)))
    chance = q[drafts].prod(axis=1)
    length, first = 0.0, np.zeros(3)
    for (a, b), weight in zip(drafts, chance, strict=True):
        keep = [float(rule.probability(p[[y]], q[[y]])[0]) for y in (a, b)]
        residual = [rule.residual(p, q, np.asarray(y)) for y in (a, b)]
        for x in range(3):
            first[x] += weight * ((1 - keep[0]) * residual[0][x] + keep[0] * (a == x))
            length += weight * (1 - keep[0]) * residual[0][x]  # rejected at once: x alone
            second = 2.0  # the replacement, or the draft's stop token
            third = 2.0 if b == stop else 3.0
            after = (1 - keep[1]) * residual[1][x] * second + keep[1] * p[x] * third
            length += weight * keep[0] * (p[x] if a == stop else after) * 1.0
    eos = np.where(drafts[:, 0] == stop, 0, np.where(drafts[:, 1] == stop, 1, -1))
    divergence = np.full(drafts.shape, np.abs(p - q).sum() / 2)
    rounds = make_rounds(9, 2, p_drafted=p[drafts], q_drafted=q[drafts], divergence=divergence, eos_slot=eos)
    result = replay(rounds, rule)

    assert chance @ result.emitted == pytest.approx(length, rel=32 * EPS)
    assert chance @ deviation(rounds, rule)[:, 0] == pytest.approx(np.abs(first - p).sum() / 2, abs=32 * EPS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
def test_a_lossless_recording_tells_what_another_rule_measures(rule):
    """A pair without memory has no shift of prefixes: replay at any rule equals a recording of that rule.

    Two means of 6 000 rounds each within 5 standard errors: a false alarm once in a million for each of the two.
    Counting one bonus token less is 40 standard errors away.
    """
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    rng = np.random.default_rng(10)
    recorded = record_pair(p, q, 60, 100, 4, rng, LOSSLESS)
    measured = record_pair(p, q, 60, 100, 4, rng, rule)
    result = replay(recorded, rule)

    for predicted, found in ((result.emitted, measured.emitted), (result.reached, measured.reached.sum(axis=1))):
        error = math.hypot(predicted.std(), found.std()) / math.sqrt(6000)
        assert abs(predicted.mean() - found.mean()) <= 5 * error


def test_leniency_1_accepts_all_and_stops_at_the_stop_token_and_the_limit():
    columns = {"prompt": ["a"] * 4, "round": range(4), "prefix_length": [10, 14, 15, 18], "eos_slot": [-1, 2, -1, 1]}
    rounds = make_rounds(4, 4, drafted=[4, 4, 2, 4], **columns)
    whole, cut = LinearAcceptance(leniency=1), {"token_limit": 10}

    assert replay(rounds, whole, **cut).emitted.tolist() == [5, 3, 3, 2]
    assert replay(rounds, whole, token_limit=9).emitted.tolist() == [5, 3, 3, 1]
    assert replay(rounds, whole, cut=False, **cut).emitted.tolist() == [5, 5, 3, 5]
    assert replay(rounds, whole, **cut).reached.tolist() == [4, 3, 2, 2]
    assert replay(rounds, whole, **cut).accepted_lengths.argmax(axis=1).tolist() == [4, 3, 2, 2]
    assert replay(rounds, whole, token_limit=9).accepted_lengths.argmax(axis=1).tolist() == [4, 3, 2, 1]
    assert replay(rounds, whole, cut=False).accepted_lengths.argmax(axis=1).tolist() == [4, 4, 2, 4]
    np.testing.assert_allclose(replay(rounds, whole).spent, [2, 1.5, 1, 1])


def test_a_limit_needs_the_length_of_the_prompt():
    rounds = make_rounds(2, 2, prompt=["a", "b"], round=[0, 3])

    assert replay(rounds, LOSSLESS).emitted.size == 2
    with pytest.raises(ValueError, match="`rounds` must hold round 0 of every prompt, got none for b; pass whole"):
        replay(rounds, LOSSLESS, token_limit=20)


def test_deviation_is_nothing_at_zero_and_the_total_variation_at_one():
    p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    rounds = record_pair(p, q, 2, 3, 2, np.random.default_rng(8), LOSSLESS)

    for rule, expected in ((CactusAcceptance(budget=0), 0), (LOSSLESS, 0), (LinearAcceptance(leniency=1), 0.4)):
        np.testing.assert_allclose(deviation(rounds, rule), expected, atol=4 * EPS)


def test_coupled_verification_deviates_by_nothing_and_cannot_be_replayed():
    rounds = make_rounds(2, 3, rule=["coupled", "coupled"], drafted=[2, 3])

    np.testing.assert_array_equal(deviation(rounds, CoupledAcceptance()), [[0, 0, np.nan], [0, 0, 0]])
    with pytest.raises(ValueError, match="`rule` must test a ratio, got coupled; measure it with python -m profiler"):
        replay(rounds, CoupledAcceptance())
