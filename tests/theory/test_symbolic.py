import pytest
import sympy as sp

from theory import symbolic
from theory.crossover import largest_gain, paying_deviations
from theory.proposition1 import beta_survival, tokens_from_survival
from theory.proposition1 import tokens_per_round as tokens_in_numbers

DERIVATIONS = [
    symbolic.tokens_per_round,
    symbolic.rates_at_leniency,
    symbolic.effect_of_leniency,
    symbolic.long_blocks,
    symbolic.crossover,
    symbolic.convexity,
    symbolic.shared_rate,
]
ROUNDING = 1e-12


@pytest.mark.parametrize("derive", DERIVATIONS, ids=lambda derive: derive.__name__)
def test_every_step_holds(derive):
    derivation = derive()

    assert derivation.gaps == ()
    assert derivation.holds
    assert derivation.vanishing or derivation.nonnegative


def gaps(derivation) -> set[str]:
    assert not derivation.holds
    return set(derivation.gaps)


class TestWrongFormulasLeaveGaps:
    def test_tokens_without_the_bonus_token(self):
        wrong = symbolic.tokens_per_round(lambda rate, size: (1 - rate**size) / (1 - rate))

        assert gaps(wrong) == {"no drafted token", "one more drafted token", "all accepted"}

    def test_tokens_with_a_wrong_start_alone(self):
        wrong = symbolic.tokens_per_round(lambda rate, size: rate * (1 - rate**size) / (1 - rate))

        assert gaps(wrong) == {"no drafted token", "all accepted"}

    def test_a_target_that_moves_too_far(self):
        wrong = symbolic.rates_at_leniency(target=lambda p, q, leniency: p + 2 * leniency * (q - p))

        assert {"rejected where the drafter has more", "the target stays below the drafter"} <= gaps(wrong)

    def test_a_target_that_favours_the_drafter_alone(self):
        wrong = symbolic.rates_at_leniency(target=lambda p, q, leniency: p + leniency * sp.Max(q - p, 0))

        assert "moved where the verifier has more" in gaps(wrong)

    def test_rates_with_leniency_and_strictness_exchanged(self):
        wrong = symbolic.rates_at_leniency(acceptance_rate=lambda divergence, leniency: 1 - leniency * divergence)
        other = symbolic.rates_at_leniency(agreement=lambda divergence, leniency: 1 - (1 - leniency) * divergence)

        assert gaps(wrong) == {"rejected where the drafter has more"}
        assert gaps(other) == {"moved where the drafter has more"}

    def test_leniency_that_costs_acceptance(self):
        wrong = symbolic.effect_of_leniency(acceptance_rate=lambda divergence, leniency: 1 - leniency * divergence)
        other = symbolic.effect_of_leniency(agreement=lambda divergence, leniency: leniency * divergence)

        assert gaps(wrong) == {"acceptance rises", "each power of it rises"}
        assert gaps(other) == {"agreement falls"}

    def test_a_limit_without_the_correction(self):
        assert gaps(symbolic.long_blocks(lambda rate: rate / (1 - rate))) == {"limit of the sum", "at a deviation"}

    def test_a_crossover_with_the_rounds_exchanged(self):
        wrong = symbolic.crossover(lambda d, c, next_d, next_c: (next_d * c - d * next_c) / (next_c - c))

        assert gaps(wrong) == {"both are equally fast", "from the lossless end on if d' c' <= d c"}

    def test_a_crossover_past_the_next_divergence(self):
        wrong = symbolic.crossover(lambda d, c, next_d, next_c: d)

        assert "before the next effort accepts everything" in gaps(wrong)

    def test_convexity_from_five_tokens_on(self):
        wrong = symbolic.convexity(lambda size: (size + 1) ** 2 * size * (size - 5) / 12)

        assert gaps(wrong) == {"at α = 1", "from B = 4 on"}

    def test_convexity_for_every_block(self):
        wrong = symbolic.convexity(lambda size: (size + 1) ** 2 * size**2 / 12)

        assert gaps(wrong) == {"at α = 1", "below 4 it is at most -1"}

    def test_moments_of_another_law(self):
        wrong = symbolic.shared_rate(lambda a, b, size, moment: ((a + b - 1) - (a + 2 * size) * moment) / (b - 1))

        assert gaps(wrong) == {"one more drafted token"}


class TestAgainstNumbers:
    def test_eq_9(self):
        closed = symbolic.tokens_per_round().statement.rhs
        value = closed.subs({sp.Symbol("alpha"): sp.Rational(434, 1000), symbolic.B: 512})

        assert float(value) == pytest.approx(float(tokens_in_numbers(0.434, 512)), rel=ROUNDING)

    def test_the_tokens_of_a_beta_law(self):
        a, b = sp.Rational(3, 2), sp.Rational(5, 2)
        size = 6
        moment = sp.rf(a, size) / sp.rf(a + b, size)
        a_, b_ = sp.symbols("a b", positive=True)
        closed = symbolic.shared_rate().statement.rhs
        value = closed.subs({a_: a, b_: b, symbolic.B: size, sp.Symbol("M_B"): moment})

        assert float(value) == pytest.approx(float(tokens_from_survival(beta_survival(3 / 8, 4.0, size))), rel=ROUNDING)

    def test_the_crossover(self):
        names = sp.symbols("d c d' c'")
        numbers = [sp.Rational(text) for text in ("0.566", "1", "0.36", "2")]
        value = symbolic.crossover().statement.rhs.subs(dict(zip(names, numbers, strict=True)))
        first, _ = paying_deviations(0.566, 1.0, 0.36, 2.0, float("inf"))

        assert value == sp.Rational("0.154")
        assert float(first) == pytest.approx(0.154, rel=ROUNDING)

    @pytest.mark.parametrize(("block_size", "at_the_end"), [(3, False), (4, True)])
    def test_convexity_decides_where_the_gain_is_largest(self, block_size, at_the_end):
        """A step that improves little, next to leniency 1, where log N is convex or not."""
        here, there = 0.02, 0.01
        end = float(tokens_in_numbers(1.0, block_size) / tokens_in_numbers(1 - here + there, block_size))

        assert (float(largest_gain(here, there, block_size)) <= end * (1 + ROUNDING)) == at_the_end
