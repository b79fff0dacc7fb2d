import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from profiler import exactness
from profiler.decode import decode
from profiler.sampling import Sampling
from profiler.streams import Streams
from profiler.verification import Coupling
from tests.profiler.scripted import MarkovVerifier, OneStepDrafter, TableModel, masked_drafter, pair_of, prompt_ids
from theory.acceptance import LinearAcceptance
from theory.coupled import CoupledAcceptance, coupled_acceptance
from theory.distances import overlap, total_variation
from theory.exactness import Bias, Price, visible_bias
from theory.proposition2 import text_law, verifier_law
from theory.toys import ToyDrafter

LOSSLESS, COUPLED = LinearAcceptance(leniency=0), CoupledAcceptance()
MASK = 3
VERIFIER = torch.tensor([[0.1, 0.6, 0.3, 0], [0.45, 0.15, 0.4, 0], [0.2, 0.5, 0.3, 0], [0, 0, 0, 1.0]])
BEFORE = torch.tensor([[0.5, 0.3, 0.2, 0], [0.2, 0.5, 0.3, 0], [0.6, 0.1, 0.3, 0], [0.1, 0.2, 0.7, 0]])
AFTER = torch.tensor([[3.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 3.0, 0], [0, 0, 0, 0]])


class BothWays(TableModel):
    """The logits of a slot depend on the tokens before and after it, so that a late slot can pull an early one."""

    def forward(self, input_ids, *, logits_to_keep, **_):
        outputs = super().forward(input_ids, logits_to_keep=input_ids.shape[1])
        after = torch.cat([input_ids[:, 2:], input_ids[:, :2] * 0 + MASK], dim=1)
        outputs.logits = (outputs.logits + AFTER[after])[:, -logits_to_keep:]
        return outputs


def masked(model, **settings):
    size = len(model.table)
    return masked_drafter(
        model,
        mask_id=size - 1,
        banned=torch.arange(size) == size - 1,
        sampling=Sampling(),
        shifted=True,
        causal_prefix=False,
        **({"order": "left_to_right"} | settings),
    )


@pytest.fixture
def scripted():
    drafter = masked(BothWays((BEFORE + 1e-9).log()))
    return pair_of(drafter, MarkovVerifier(VERIFIER), vocabulary_size=4, block_size=2)


def enumerated_bias(start, order, effort):
    """Total variation of two emitted tokens, by every trajectory of the drafter after the token `start`."""

    def law(before, after):
        logits = (BEFORE[before] + 1e-9).log() + AFTER[after]
        return logits[:MASK].double().softmax(-1).numpy()

    def denoiser(prefix, block):
        last = (start, *prefix)[-1]
        table = np.empty((4,) * block + (block, MASK))
        for canvas in np.ndindex(table.shape[:block]):
            row = [last, *canvas, MASK]
            table[canvas] = [law(row[slot], row[slot + 2]) for slot in range(block)]
        return table

    verifier = [VERIFIER[start, :MASK].double().numpy(), VERIFIER[:MASK, :MASK].double().numpy()]
    emitted = text_law(ToyDrafter(denoiser=denoiser, order=order, effort=effort), verifier, LOSSLESS, block_size=2)
    return float(total_variation(emitted.ravel(), verifier_law(verifier).ravel()))


def error_of_a_distance(draws):
    """What a cross-fitted distance may be off, but for a false alarm in 1e6: 4.9 standard errors.

    It is half the mean of two sums of signs times the frequencies of a half of the draws, whose standard error is at
    most one over the root of their number.
    """
    return 4.9 * 0.5 / math.sqrt(draws / 2)


def test_the_bias_is_the_enumerated_one_and_none_where_the_order_is_exact(scripted):
    """After each of three prefixes: .08 to .09 for late slots first, nothing for one step or left to right."""
    table = exactness.bias(
        scripted, [[0], [1], [2]], orders=["left_to_right", "entropy"], efforts=[1, 2], draws=1500, seed=0
    )

    cells = zip(table.order.tolist(), table.effort.tolist(), strict=True)
    expected = np.array([[enumerated_bias(start, *cell) for start in range(3)] for cell in cells])
    assert list(zip(table.order, table.effort, strict=True)) == [
        ("left_to_right", 1), ("left_to_right", 2), ("entropy", 1), ("entropy", 2)
    ]  # fmt: skip
    assert expected[:3].max() < 1e-6
    assert expected[3].min() > 0.075
    error = error_of_a_distance(1500)
    np.testing.assert_allclose(table.pair, expected, atol=error)
    np.testing.assert_allclose(table.first, 0, atol=error)
    np.testing.assert_allclose(table.pair.mean(axis=1), expected.mean(axis=1), atol=error / math.sqrt(3))
    assert expected[3].mean() > 1.5 * error / math.sqrt(3), "enough to be missed"


def test_commits_by_drawn_value_bias_the_first_token_and_the_second_is_not_told():
    """The verifier is even. The drafter is sure of slot 1 and gives symbol 0 of slot 0 3/5; what it drew with more than
    1/2 it keeps, so that symbol 1 gets a second chance alone: symbol 0 comes out with .7 instead of .5."""
    table = torch.tensor([[0.6, 0.4, 0], [1.0, 0, 0], [1.0, 0, 0]])
    drafter = masked(TableModel((table + 1e-9).log()), confidence=0.5)
    verifier = MarkovVerifier(torch.tensor([[0.5, 0.5, 0]]).expand(3, -1))
    pair = pair_of(drafter, verifier, vocabulary_size=3, block_size=2)

    found = exactness.bias(pair, [[0]], orders=["confidence"], efforts=[1, 2], draws=1000, seed=0)

    np.testing.assert_allclose(found.first, [[0], [0.2]], atol=error_of_a_distance(1000))
    assert np.isnan(found.pair).tolist() == [[False], [True]]


def test_bias_refuses_what_it_cannot_tell(scripted):
    asked = {"orders": ["entropy"], "efforts": [2], "draws": 10, "seed": 0}

    with pytest.raises(ValueError, match="`draws` must be at least 2, got 1"):
        exactness.bias(scripted, [[0]], **(asked | {"draws": 1}))
    other = replace(scripted, drafter=OneStepDrafter(BEFORE))
    with pytest.raises(ValueError, match="`pair` must have a masked drafter, got OneStepDrafter"):
        exactness.bias(other, [[0]], **asked)


def test_own_laws_are_the_verifiers(scripted):
    first, second = exactness.own_laws(scripted, [2])

    np.testing.assert_allclose(first, VERIFIER[2], atol=1e-7)
    np.testing.assert_allclose(second[:MASK], VERIFIER[:MASK], atol=1e-7)


def test_an_order_is_changed_in_a_copy(tiny_pair):
    changed = exactness.with_order(tiny_pair, "margin")

    assert (changed.drafter.canvas.order, tiny_pair.drafter.canvas.order) == ("margin", "left_to_right")
    assert changed.verifier is tiny_pair.verifier


def test_prefixes_are_prompts_with_a_part_of_the_verifiers_own_answer_up_to_an_open_place(tiny_pair):
    pair = replace(tiny_pair, stop_ids=frozenset())
    prompts = [prompt_ids(pair)[:length] for length in (4, 7, 9)]

    prefixes = exactness.open_prefixes(pair, prompts, seed=5)

    for request, (prompt, prefix) in enumerate(zip(prompts, prefixes, strict=True)):
        streams = Streams(seed=5, request=request)
        alone = [
            token
            for each in decode(pair, prompt, effort=0, rule=COUPLED, streams=streams, token_limit=24)
            for token in each.tokens
        ]
        assert prefix[: len(prompt)] == prompt
        assert prefix[len(prompt) :] == alone[: len(prefix) - len(prompt)]
        assert len(prefix) <= len(prompt) + 22
        assert exactness.own_laws(pair, prefix)[0].max() < exactness.SURE
    assert len({len(prefix) - len(prompt) for prompt, prefix in zip(prompts, prefixes, strict=True)}) > 1


def test_places_where_the_next_token_is_sure_are_passed_over():
    """Only what follows token 1 is open; a text that never comes there gives no prefix."""
    law = torch.tensor([[0, 1.0, 0], [0, 0.5, 0.5], [0, 0, 1.0]])
    pair = pair_of(OneStepDrafter(law[[0]]), MarkovVerifier(law), vocabulary_size=3, block_size=1, token_limit=9)

    prefixes = exactness.open_prefixes(pair, [[0], [2], [1]], seed=1)

    assert len(prefixes) == 2
    assert {prefix[-1] for prefix in prefixes} == {1}


@pytest.mark.parametrize(("order", "effort"), [("left_to_right", 1), ("left_to_right", 4), ("margin", 1)])
def test_exact_drafts_are_accepted_at_reached_slots_as_both_formulas_say(tiny_pair, order, effort):
    """Given what came before it, a reached slot is accepted with its chance, so that the sum of the differences is a
    martingale: within 4.9 standard deviations but for a false alarm in 1e6."""
    pair = exactness.with_order(replace(tiny_pair, stop_ids=frozenset()), order)

    for rule, name in ((LOSSLESS, "ratio_chance"), (COUPLED, "coupled_chance")):
        surplus, deviation = accepted_beyond(pair, name, effort=effort, rule=rule)
        assert abs(surplus) < 4.9 * deviation


def test_noise_that_is_not_shared_shows_in_the_acceptance(tiny_pair, monkeypatch):
    """The drafter has another position's: the text is still the verifier's, which no comparison of texts objects to."""
    shared, later = Coupling.noise, lambda place: replace(place, position=place.position + 1000)
    monkeypatch.setattr(Coupling, "noise", lambda way, place, *rest: shared(way, later(place), *rest))
    pair = replace(tiny_pair, stop_ids=frozenset())

    surplus, deviation = accepted_beyond(pair, "coupled_chance", effort=4, rule=COUPLED)

    assert surplus < -4.9 * deviation


def accepted_beyond(pair, name, **settings):
    """Accepted slots beyond the sum of their chances, and the standard deviation that it should have."""
    slots = exactness.reached_slots(pair, [prompt_ids(pair)] * 12, seed=3, **settings)
    chance = slots[name]
    return (slots["accepted"] - chance).sum(), math.sqrt((chance * (1 - chance)).sum())


def test_reached_slots_are_those_of_the_rounds_with_the_chances_of_their_laws():
    """One slot a round: 1 - TV and the formula, whichever rule decodes; the stop token ends the second request."""
    p, q = VERIFIER[0], torch.tensor([[0.5, 0.2, 0.3, 0]])
    pair = pair_of(
        OneStepDrafter(q), MarkovVerifier(p.expand(4, -1)), vocabulary_size=4, block_size=1, stop_ids=[2], token_limit=9
    )

    for rule in (LOSSLESS, COUPLED):
        slots = exactness.reached_slots(pair, [[0], [1]], effort=1, rule=rule, seed=0)
        rounds = [
            list(decode(pair, [0], effort=1, rule=rule, streams=Streams(seed=0, request=request), token_limit=9))
            for request in (0, 1)
        ]
        assert slots["prompt"].tolist() == [request for request in (0, 1) for _ in rounds[request]]
        assert slots["accepted"].tolist() == [each.accepted == 1 for request in rounds for each in request]
        np.testing.assert_allclose(slots["ratio_chance"], float(overlap(p.double(), q[0].double())))
        np.testing.assert_allclose(slots["coupled_chance"], float(coupled_acceptance(p.double(), q[0].double())))


def test_the_price_lists_every_cell_measured_and_predicted(tiny_pair):
    pair = replace(tiny_pair, stop_ids=frozenset())
    prompts = [prompt_ids(pair)[:length] for length in (6, 9, 12)]

    table = exactness.price(pair, prompts, orders=["left_to_right"], efforts=[1, 4], seed=0)

    assert table.order.tolist() == ["left_to_right"] * 2
    assert table.effort.tolist() == [1, 4]
    assert (table.coupled_least <= table.coupled_predicted).all()
    assert (table.coupled_predicted < table.ratio_predicted).all()
    slots = exactness.reached_slots(pair, prompts, effort=4, rule=COUPLED, seed=0)
    assert table.coupled[1] == slots["accepted"].mean()
    assert table.coupled_low[1] < table.coupled[1] < table.coupled_high[1]
    tested = exactness.reached_slots(pair, prompts, effort=4, rule=LOSSLESS, seed=0)
    assert table.ratio[1] == tested["accepted"].mean()
    assert table.ratio_predicted[1] == pytest.approx(tested["ratio_chance"].mean())
    assert table.coupled_predicted[1] == pytest.approx(tested["coupled_chance"].mean())
    least = (tested["ratio_chance"] / (2 - tested["ratio_chance"])).mean()
    assert table.coupled_least[1] == pytest.approx(least)


def test_the_tables_print_every_cell_and_a_dash_for_what_was_not_measured():
    cells = {"order": np.array(["entropy", "confidence"]), "effort": np.array([1, 4])}
    values = np.array([[0.0, 0.02, 0.04], [0.1, 0.1, 0.1]])
    bias = Bias(**cells, first=values, pair=values * [[1], [np.nan]])
    names = ("ratio", "coupled", "ratio_predicted", "coupled_predicted", "coupled_least")
    price = Price(
        **cells,
        **{name: np.array([0.9, 0.8]) - 0.01 * place for place, name in enumerate(names)},
        **{f"{name}_low": np.full(2, 0.7) for name in ("ratio", "coupled")},
        **{f"{name}_high": np.full(2, 0.95) for name in ("ratio", "coupled")},
    )

    rows = [line.split() for line in exactness.bias_table(bias).splitlines()[1:]]
    assert rows == [
        ["entropy", "1", *["+0.0200", "[-0.0297,", "+0.0697]", f"{visible_bias(values[0]):.3f}", "0.040"] * 2],
        ["confidence", "4", "+0.1000", "[+0.1000,", "+0.1000]", "0.000", "0.100", "-", "-", "-", "-"],
    ]
    rows = [line.split() for line in exactness.price_table(price).splitlines()[1:]]
    assert rows == [
        ["entropy", "1", "0.900", "[0.700,", "0.950]", "0.880", "0.890", "[0.700,", "0.950]", "0.870", "0.860"],
        ["confidence", "4", "0.800", "[0.700,", "0.950]", "0.780", "0.790", "[0.700,", "0.950]", "0.770", "0.760"],
    ]
