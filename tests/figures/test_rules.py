"""Where rules spend their deviation, on recordings whose laws are known."""

import numpy as np
import pytest

from figures import rules
from tests.recordings import make_rounds, record_pair
from theory.acceptance import CactusAcceptance, LinearAcceptance
from theory.replay import replay
from theory.rounds import Rounds

P, Q = np.array([0.55, 0.35, 0.1]), np.array([0.2, 0.3, 0.5])
CACTUS = CactusAcceptance(budget=0.1)
LOSSLESS = LinearAcceptance(leniency=0)


@pytest.fixture(scope="module")
def alike() -> Rounds:
    """Rounds of a pair with the same laws at every prefix."""
    rounds: Rounds = record_pair(P, Q, 60, 20, 4, np.random.default_rng(5), LOSSLESS)
    return rounds


@pytest.fixture(scope="module")
def unlike() -> Rounds:
    """Two slots: at the first the verifier rules a token out (TV 1/2), at the second it does not (TV 2/5)."""
    rng = np.random.default_rng(6)
    laws = [(np.array([1.0, 0.0]), np.array([0.5, 0.5])), (np.array([0.5, 0.5]), np.array([0.9, 0.1]))]
    drafted = np.stack([rng.choice(2, 1000, p=q) for _, q in laws], axis=1)
    p, q = (np.stack([laws[slot][which][drafted[:, slot]] for slot in range(2)], axis=1) for which in range(2))
    prompts = [f"prompt {row // 20}" for row in range(1000)]
    divergence = np.tile([0.5, 0.4], (1000, 1))
    return make_rounds(
        1000, 2, prompt=prompts, round=np.arange(1000) % 20, p_drafted=p, q_drafted=q, divergence=divergence
    )


def test_linear_acceptance_spends_where_the_test_comes(alike: Rounds) -> None:
    rule = LinearAcceptance(leniency=0.3)
    found = rules.spending(alike, rule)
    survival = replay(alike, rule).survival[:, :-1].mean(axis=0)

    np.testing.assert_allclose(found.by_slot, survival / survival.sum())
    np.testing.assert_allclose(found.by_tv, [0, 0, 0, 1, 0, 0, 0, 0])


def test_cactus_spends_nothing_on_a_token_that_is_ruled_out(unlike: Rounds) -> None:
    cactus, linear = rules.spending(unlike, CACTUS), rules.spending(unlike, LinearAcceptance(leniency=0.5))

    assert cactus.by_slot.tolist() == [0, 1]
    assert cactus.by_tv.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    # slot 2 is reached with probability 1 - 0.5 * 0.5, by 1000 drafts: 0.02 is four standard deviations of the share
    assert linear.by_slot[0] == pytest.approx(0.5 / (0.5 + 0.75 * 0.4), abs=0.02)
    assert linear.by_tv[[3, 4]] == pytest.approx(linear.by_slot[::-1])


def test_shares_add_up_and_long_blocks_are_grouped() -> None:
    rounds = record_pair(P, Q, 3, 10, 40, np.random.default_rng(7), LOSSLESS)

    for rule in (CACTUS, LinearAcceptance(leniency=0.9)):
        found = rules.spending(rounds, rule)
        assert found.by_slot.shape == (rules.SLOT_BINS,)
        assert found.by_slot.sum() == pytest.approx(1)
        assert found.by_tv.sum() == pytest.approx(1)


def test_what_follows_a_drafted_stop_token_is_left_out() -> None:
    rounds = make_rounds(4, 3, eos_slot=np.ones(4, int), ended=["eos"] * 4, emitted=np.ones(4, int))

    np.testing.assert_allclose(rules.spending(rounds, LinearAcceptance(leniency=0.5)).by_slot, [0.5, 0.5, 0])


@pytest.mark.parametrize("wanted", [0.0, 0.05, 0.2, 2.0])
def test_the_matching_leniency_deviates_as_much(alike: Rounds, wanted: float) -> None:
    rule = rules.matching_leniency(alike, wanted)
    played = replay(alike, rule)

    assert played.spent.sum() / played.reached.sum() == pytest.approx(min(wanted, 0.4))
    assert (rule.leniency == 1) == (wanted > 0.4)


def test_with_one_law_for_all_prefixes_no_rule_gets_more(alike: Rounds) -> None:
    difference, error = rules.gain(alike, CACTUS)
    played = replay(alike, CACTUS)

    assert played.spent.sum() / played.reached.sum() > 0.05
    assert 0 < error < 0.05
    assert abs(difference) < 4 * error  # one false alarm in 16 000 seeds


def test_a_rule_gets_more_where_it_spends_early(unlike: Rounds) -> None:
    difference, error = rules.gain(unlike, CACTUS)

    assert difference < -4 * error


@pytest.mark.parametrize("name", ["alike", "unlike"])
def test_the_standard_error_is_that_of_a_jackknife_over_prompts(name: str, request: pytest.FixtureRequest) -> None:
    rounds = request.getfixturevalue(name)
    prompts = np.unique(rounds.prompt)
    left_out = np.array([rules.gain(rounds.select(rounds.prompt != prompt), CACTUS)[0] for prompt in prompts])
    jackknife = np.sqrt((prompts.size - 1) * left_out.var())

    assert rules.gain(rounds, CACTUS)[1] == pytest.approx(jackknife, rel=0.1)


def test_a_pair_without_distance_has_nothing_to_spend() -> None:
    rounds = make_rounds(4, 3, divergence=np.zeros((4, 3)))

    assert np.isnan(rules.spending(rounds, CACTUS).by_slot).all()
    assert rules.gain(rounds, CACTUS)[0] == 0


def test_the_gain_is_said_for_each_effort_without_repeated_cells(alike: Rounds) -> None:
    more = record_pair(P, Q, 60, 2, 4, np.random.default_rng(8), LOSSLESS, effort=np.full(120, 3))
    again = record_pair(Q, P, 60, 2, 4, np.random.default_rng(9), LOSSLESS, replica=np.ones(120, int))
    difference, error = rules.gain(more, CACTUS)

    header, *lines = rules.gain_lines(Rounds.concatenate([alike, more, again]), budget=CACTUS.budget).splitlines()

    assert header == f"{CACTUS.label} minus linear acceptance of the same deviation:"
    assert [line[:5] for line in lines] == ["K = 1", "K = 3"]
    assert lines[1] == f"K = 3: {difference:+.3f} +- {1.96 * error:.3f} tokens per round"


def test_the_figure_shows_both_rules_and_leaves_repeated_cells_out(alike: Rounds) -> None:
    more = record_pair(P, Q, 60, 2, 4, np.random.default_rng(8), LOSSLESS, effort=np.full(120, 3))
    again = record_pair(Q, P, 60, 2, 4, np.random.default_rng(9), LOSSLESS, replica=np.ones(120, int))
    figure = rules.draw(Rounds.concatenate([alike, more, again]), budget=CACTUS.budget)
    slots, bins = figure.axes[0], figure.axes[4]
    linear, cactus = ([bar.get_height() for bar in slots.patches[start : start + 4]] for start in (0, 4))

    assert [axis.get_title(loc="left")[:3] for axis in figure.axes] == [f"({name})" for name in "abcdef"]
    assert slots.get_title(loc="left").endswith("K = 1")
    assert bins.get_title(loc="left").endswith("K = 3")
    np.testing.assert_allclose(cactus, rules.spending(alike, CACTUS).by_slot)
    assert linear == pytest.approx(cactus, abs=0.05)
