import itertools
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests import strategies
from theory import coupled
from theory.acceptance import CactusAcceptance, LinearAcceptance, parse_rule
from theory.coupled import CoupledAcceptance, coin_noise, coupled_acceptance, coupled_pair_law, coupled_token
from theory.distances import total_variation

EPS = np.finfo(float).eps
SUM_TOLERANCE = 32 * EPS  # sums of up to eight terms of at most 1, and the normalisation of the inputs
FALSE_ALARM = 1e-6  # of each statistical test here, over the choice of its fixed seed
P, Q = np.array([0.05, 0.25, 0.4, 0.3]), np.array([0.7, 0.2, 0.05, 0.05])


def exact_acceptance(p, q):
    """The formula as it is printed, in rational arithmetic over all pairs of tokens."""
    p, q = [Fraction(float(x)) for x in p], [Fraction(float(x)) for x in q]
    both = [v for v in range(len(p)) if p[v] > 0 and q[v] > 0]
    return sum(1 / sum(max(p[w] / p[v], q[w] / q[v]) for w in range(len(p))) for v in both)


@given(strategies.pairs())
def test_sums_along_the_order_of_the_ratio_are_the_printed_formula(pair):
    assert coupled_acceptance(*pair) == pytest.approx(float(exact_acceptance(*pair)), abs=SUM_TOLERANCE)


@given(strategies.pairs())
def test_acceptance_lies_between_its_bounds(pair):
    acceptance, distance = coupled_acceptance(*pair), total_variation(*pair)

    assert (1 - distance) / (1 + distance) - SUM_TOLERANCE <= acceptance <= 1 - distance + SUM_TOLERANCE


@given(strategies.probabilities, strategies.probabilities)
def test_the_upper_bound_is_reached_by_coins_and_the_lower_by_disjoint_excess(a, b):
    coins = np.array([a, 1 - a]), np.array([b, 1 - b])
    apart = np.array([1 - a, a, 0]), np.array([1 - a, 0, a])

    assert coupled_acceptance(*coins) == pytest.approx(1 - abs(a - b), abs=SUM_TOLERANCE)
    assert coupled_acceptance(*apart) == pytest.approx((1 - a) / (1 + a), abs=SUM_TOLERANCE)


@given(strategies.pairs(), st.permutations(range(4)))
def test_acceptance_is_symmetric_and_does_not_depend_on_the_names_of_the_tokens(pair, order):
    p, q = (each[list(order)] if each.size == 4 else each for each in pair)

    assert coupled_acceptance(q, p) == pytest.approx(coupled_acceptance(*pair), abs=SUM_TOLERANCE)
    assert coupled_acceptance(p, q) == pytest.approx(coupled_acceptance(*pair), abs=SUM_TOLERANCE)


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-200])
def test_tiny_probabilities_neither_overflow_nor_divide_by_zero(tiny):
    cases = [([1.0, tiny, 0], [tiny, 1.0, 0]), ([1.0, tiny, tiny], [1.0, 0, tiny]), ([0, tiny, 1.0], [1.0, tiny, 0])]

    for p, q in cases:
        assert coupled_acceptance(np.array(p), np.array(q)) == pytest.approx(float(exact_acceptance(p, q)), abs=4 * EPS)


def test_leading_axes_broadcast_alike_in_every_library(xp: ModuleType):
    p = xp.asarray([[P.tolist()], [Q.tolist()]], dtype=xp.float64)
    q = xp.asarray([[Q.tolist()], [Q.tolist()]], dtype=xp.float64)

    expected = [[float(exact_acceptance(P, Q))], [1.0]]
    np.testing.assert_allclose(np.asarray(coupled_acceptance(p, q)), expected, atol=4 * EPS)


def race(probs, count, seed):
    noise = np.random.default_rng(seed).gumbel(size=(count, len(probs)))
    return coupled_token(np.array(probs), noise), noise


@pytest.mark.parametrize(("p", "q"), [(P, Q), ([0.5, 0.3, 0.2, 0], [0.1, 0.3, 0.2, 0.4])])
def test_races_agree_as_often_as_the_formula_says(p, q):
    """Binomial; the neighbouring numbers 1 - TV, its lower bound and exact match would all be found."""
    count = 200_000
    drawn, noise = race(p, count, 0)
    agreed = int((drawn == coupled_token(np.array(q), noise)).sum())

    def chance(rate):
        return stats.binomtest(agreed, count, rate).pvalue

    distance = total_variation(np.array(p), np.array(q))
    assert chance(coupled_acceptance(np.array(p), np.array(q))) > FALSE_ALARM
    for wrong in (1 - distance, (1 - distance) / (1 + distance), float(np.dot(p, q))):
        assert chance(wrong) < FALSE_ALARM


def test_a_race_draws_its_distribution():
    drawn, _ = race(P, 100_000, 1)

    assert stats.chisquare(np.bincount(drawn), 100_000 * P).pvalue > FALSE_ALARM


def test_the_race_is_the_same_in_every_library_and_in_the_wider_type(xp: ModuleType):
    """The two scores differ by less than a step of float32, so that the race is run in the noise's float64."""
    probs = xp.asarray([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]], dtype=xp.float32)
    noise = xp.asarray([[9.0, 9 + 1e-9], [9 + 1e-9, 9.0], [99.0, -99.0]], dtype=xp.float64)

    assert np.asarray(coupled_token(probs, noise)).tolist() == [1, 0, 1]


@given(strategies.distributions(5), st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=5))
def test_a_token_of_probability_0_is_never_drawn(probs, noise):
    assert probs[coupled_token(probs, np.array(noise))] > 0


# The digest's example: p uniform; position 2 is committed first, position 1 then repeats it with probability .95.
UNIFORM = np.full(2, 0.5), np.full((2, 2), 0.5)
REPEATING = np.full(2, 0.5), np.array([[0.95, 0.05], [0.05, 0.95]])


def test_keyed_noise_keeps_the_joint_law_and_redrawn_noise_does_not():
    keyed = coupled_pair_law(UNIFORM, REPEATING, coin_noise(20))
    redrawn = coupled_pair_law(UNIFORM, REPEATING, coin_noise(20), redrawn=True)

    np.testing.assert_allclose(keyed, 0.25, atol=EPS)
    np.testing.assert_allclose(redrawn, [[0.3625, 0.1375], [0.1375, 0.3625]], atol=EPS)
    assert total_variation(redrawn.ravel(), keyed.ravel()) == pytest.approx(0.225, abs=4 * EPS)


def test_redrawn_noise_does_no_harm_where_the_later_token_decides_nothing():
    independent = np.full(2, 0.5), np.array([[0.7, 0.3], [0.7, 0.3]])

    law = coupled_pair_law(UNIFORM, independent, coin_noise(20), redrawn=True)

    np.testing.assert_allclose(law, 0.25, atol=4 * EPS)


def plain_law(verifier, noise):
    """What the verifier alone writes, one token after the other, over all pairs of noise vectors."""
    first, second = verifier
    law = np.zeros_like(second)
    for one, two in itertools.product(noise, noise):
        with np.errstate(divide="ignore"):
            token = int(np.argmax(np.log(first) + one))
            law[token, int(np.argmax(np.log(second[token]) + two))] += 1 / len(noise) ** 2
    return law


def random_laws(rng, size):
    sharp = rng.dirichlet(np.full(size, 0.3), size=size)
    return rng.dirichlet(np.ones(size)), sharp


def test_any_drafter_with_keyed_noise_writes_what_the_verifier_alone_writes():
    """Whatever the noise: here three tokens, one of them ruled out after another, and seven arbitrary vectors."""
    biases = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        verifier, drafter, noise = random_laws(rng, 3), random_laws(rng, 3), rng.normal(size=(7, 3))
        verifier[1][0] = [0, 0.4, 0.6]

        law = coupled_pair_law(verifier, drafter, noise)

        np.testing.assert_allclose(law, plain_law(verifier, noise), atol=64 * EPS)
        redrawn = coupled_pair_law(verifier, drafter, noise, redrawn=True)
        biases.append(total_variation(redrawn.ravel(), law.ravel()))

    assert np.mean(biases) > 0.02


@pytest.mark.parametrize(
    "broken",
    [lambda drafted, own: np.ones_like(own, dtype=bool), lambda drafted, own: drafted != own],
    ids=["every token is kept", "the others are kept"],
)
def test_a_drafted_token_that_is_not_the_verifiers_must_not_be_kept(monkeypatch, broken):
    rng = np.random.default_rng(0)
    verifier, drafter, noise = random_laws(rng, 3), random_laws(rng, 3), rng.normal(size=(7, 3))
    monkeypatch.setattr(coupled, "_kept", broken)

    law = coupled_pair_law(verifier, drafter, noise)

    assert total_variation(law.ravel(), plain_law(verifier, noise).ravel()) > 0.1


def test_the_drafter_decides_how_many_tokens_pass_and_no_more(monkeypatch):
    """One that is always right passes both tokens; one that never is writes the same text, a token a round."""
    noise, seen = coin_noise(20), []
    kept = coupled._kept
    monkeypatch.setattr(coupled, "_kept", lambda drafted, own: seen.append(kept(drafted, own)) or seen[-1])

    right = coupled_pair_law(UNIFORM, UNIFORM, noise)
    wrong = coupled_pair_law((np.array([1.0, 0]), UNIFORM[1]), (UNIFORM[0], np.array([[0, 1.0], [0, 1]])), noise)

    np.testing.assert_allclose(right, 0.25, atol=4 * EPS)
    np.testing.assert_allclose(wrong, [[0.5, 0.5], [0, 0]], atol=4 * EPS)
    assert [each.mean() for each in seen[:2] + seen[3:4]] == [1, 1, 0]


@pytest.mark.parametrize("level", range(11))
def test_coins_fall_exactly_right_on_their_grid(level):
    probs = np.array([1 - level / 10, level / 10])

    assert coupled_token(probs, coin_noise(10)).mean() == pytest.approx(level / 10, abs=EPS)


def test_coin_noise_tends_to_the_logistic_law():
    difference = np.diff(coin_noise(1000)).ravel()

    assert stats.kstest(difference, "logistic").statistic <= 1 / 2000 + EPS


def test_coupled_is_a_rule_with_a_label():
    assert CoupledAcceptance().label == "coupled"
    assert parse_rule("coupled") == CoupledAcceptance()
    assert CoupledAcceptance() not in (LinearAcceptance(leniency=0), CactusAcceptance(budget=0))


@pytest.mark.parametrize("label", ["coupled:", "coupled:0", "Coupled", "couple"])
def test_other_spellings_of_coupled_are_refused(label):
    with pytest.raises(ValueError, match=rf"`label` must be linear:LENIENCY, .* or coupled, got '{label}'"):
        parse_rule(label)
