import math

import numpy as np
import pytest

from tests.recordings import make_requests, make_rounds, record_pair
from theory.acceptance import CactusAcceptance
from theory.measurements import Measurements, Requests, measure, two_runs
from theory.rounds import Rounds

EPS = np.finfo(float).eps


def test_O64_repeated_rows_do_not_inflate():
    requests = make_requests(5, prompt=["q1", "q2", "q2", "q3", "q1"], correct=[1, 0, 0, 1, 1])
    rounds = make_rounds(3, 2, prompt=["q1", "q2", "q3"])
    measurements = measure(rounds, requests)

    assert measurements.prompts.tolist() == [3]
    assert measurements.accuracy == pytest.approx(2 / 3)
    assert measurements.duplicates.tolist() == [2]
    assert measurements.tokens.tolist() == [30]


@pytest.mark.parametrize("columns", [{"correct": [1, 0]}, {"seconds": [1.0, 1.5]}, {"seconds": [1.0, math.nan]}])
def test_O64_contradicting_rows_are_an_error(columns):
    requests = make_requests(2, prompt=["q1", "q1"], **columns)

    with pytest.raises(ValueError, match=r"must not contradict each other, got two results for .'q1', '1', 'linear:0'"):
        measure(make_rounds(1, 2, prompt=["q1"]), requests)


def test_repeated_rows_with_missing_numbers_are_equal():
    assert len(make_requests(2, prompt=["q1", "q1"], seconds=[math.nan] * 2, correct=[math.nan] * 2).distinct()) == 1


@pytest.mark.parametrize(("scores", "error"), [([1], None), ([1, 1, 0], 0.272165527)])
def test_O72_O73_accuracy_of_few_prompts(scores, error):
    count = len(scores)
    measurements = measure(make_rounds(count, 2), make_requests(count, correct=scores))

    assert measurements.scored.tolist() == [count]
    if error is None:
        assert np.isnan(measurements.accuracy_se).all()
        assert np.isnan(measurements.tokens_per_second_se).all()
        assert measurements.accuracy_low[0] == pytest.approx(0.206549, abs=1e-6)
    else:
        assert measurements.accuracy_se[0] == pytest.approx(error, abs=1e-9)


def test_prompts_that_were_not_scored_are_left_out_of_the_accuracy_alone():
    measurements = measure(make_rounds(3, 2), make_requests(3, correct=[1, math.nan, 0]))

    assert (measurements.scored[0], measurements.accuracy[0], measurements.prompts[0]) == (2, 0.5, 3)
    unscored = measure(make_rounds(1, 2), make_requests(1, correct=[math.nan]))
    assert np.isnan(unscored.accuracy).all()
    assert np.isnan(unscored.accuracy_low).all()


def test_throughput_is_total_tokens_over_total_time():
    measurements = measure(make_rounds(2, 2), make_requests(2, tokens=[10, 50], seconds=[1.0, 2.0]))

    assert measurements.tokens_per_second[0] == pytest.approx(20)
    assert measurements.seconds_per_request[0] == pytest.approx(1.5)
    # deviations 10 - 20 and 50 - 40, over 3 seconds
    assert measurements.tokens_per_second_se[0] == pytest.approx(math.sqrt(2 * 200) / 3)
    assert measurements.seconds_per_request_se[0] == pytest.approx(0.5)


def test_throughput_that_was_not_measured_is_unknown():
    measurements = measure(make_rounds(2, 2), make_requests(2, seconds=[1.0, math.nan]))

    assert np.isnan(measurements.tokens_per_second).all()
    assert np.isnan(measurements.seconds_per_request).all()


def test_cells_are_ordered_and_kept_apart():
    cells = [(2, "linear:0"), (1, "linear:1"), (1, "cactus:2"), (1, "cactus:10"), (1, "linear:0.5")]
    effort, rule = zip(*cells, strict=True)
    rounds = make_rounds(5, 4, prompt=["a"] * 5, effort=effort, rule=rule, accepted=[0, 1, 2, 0, 1])
    again = make_rounds(1, 4, prompt=["a"], replica=[1], effort=[2], accepted=[2])
    unfinished = make_rounds(1, 4, prompt=["b"], effort=[2], accepted=[2])
    requests = make_requests(5, prompt=["a"] * 5, effort=effort, rule=rule)
    measurements = measure(Rounds.concatenate([rounds, again, unfinished]), requests)

    assert list(zip(measurements.effort.tolist(), measurements.rule.tolist(), strict=True)) == [
        (1, "cactus:2"),
        (1, "cactus:10"),
        (1, "linear:0.5"),
        (1, "linear:1"),
        (2, "linear:0"),
    ]
    assert measurements.acceptance_rate == pytest.approx([2 / 3, 0, 1 / 2, 1 / 2, 0])
    assert measurements.rounds.tolist() == [1] * 5


def test_the_verifier_alone_has_requests_without_rounds():
    measurements = measure(make_rounds(0, 2), make_requests(2, effort=[0, 0]))

    assert measurements.effort.tolist() == [0]
    assert measurements.tokens_per_second == pytest.approx(10)
    assert np.isnan(measurements.acceptance_rate).all()
    assert np.isnan(measurements.agreement).all()


def test_requests_without_rounds_are_named():
    with pytest.raises(
        ValueError, match="got none for prompt 1 at effort 1, linear:0; pass the rounds of the same run"
    ):
        measure(make_rounds(1, 2), make_requests(2))


def test_agreement_of_linear_acceptance_is_leniency_times_divergence_at_reached_slots():
    rounds = make_rounds(2, 2, rule=["linear:0.5"] * 2, accepted=[1, 0], divergence=[[0.2, 0.4], [0.6, 1.0]])
    measurements = measure(rounds, make_requests(2, rule=["linear:0.5"] * 2))

    assert measurements.agreement[0] == pytest.approx(1 - 0.5 * 0.4)
    # deviations from the mean of .4: prompt 0 .6 - .8, prompt 1 .6 - .4; halved, over three slots
    assert measurements.agreement_se[0] == pytest.approx(0.5 * math.sqrt(2 * 0.08) / 3)


@pytest.mark.parametrize("solver", ["exact", "taylor"])
def test_agreement_under_cactus_is_that_of_the_emitted_law(solver):
    """The deviation is estimated from two scalars a slot; the oracle enumerates the emitted law.

    6 000 or more slots, and 4.5 standard errors: a false alarm once in 150 000 seeds. Taking the budgeted target's own
    deviation, or λ TV, instead would miss by more than ten.
    """
    rule = CactusAcceptance(budget=0.1, solver=solver)
    p, q = np.array([0.5, 0.25, 0.15, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    law = np.zeros(4)
    for y in range(4):
        passes = rule.probability(p[y], q[y])
        law[y] += q[y] * passes
        law += q[y] * (1 - passes) * rule.residual(p, q, np.asarray(y))
    rounds = record_pair(p, q, 100, 30, 4, np.random.default_rng(7), rule)
    measurements = measure(rounds, make_requests(100, rule=[rule.label] * 100))
    agreement, error = measurements.agreement[0], measurements.agreement_se[0]

    assert rounds.reached.sum() > 6000
    assert agreement == pytest.approx(1 - np.abs(law - p).sum() / 2, abs=4.5 * error)
    targets = [rule.target(p, q, np.asarray(y)) for y in range(4)]
    wrong = 1 - q @ [np.abs(target - p).sum() / 2 for target in targets]
    assert abs(agreement - wrong) > 10 * error


def test_cells_of_a_rule_without_a_number_are_sorted_too():
    rules = ["linear:0.5", "coupled", "linear:0", "cactus:1"]
    prompts = [f"prompt {row}" for row in range(4)]

    cells = measure(make_rounds(4, 2, rule=rules, prompt=prompts), make_requests(4, rule=rules, prompt=prompts))

    assert cells.rule.tolist() == ["cactus:1", "coupled", "linear:0", "linear:0.5"]
    assert cells.agreement[1] == 1


def test_written_and_read_back(tmp_path):
    requests = make_requests(2, correct=[1, math.nan])
    measurements = measure(make_rounds(2, 2), requests)
    for table, name in ((requests, "requests.parquet"), (measurements, "measurements.parquet")):
        table.write(tmp_path / name)
    again = Requests.read(tmp_path / "requests.parquet"), Measurements.read(tmp_path / "measurements.parquet")

    for table, read in zip((requests, measurements), again, strict=True):
        for name, values in vars(table).items():
            np.testing.assert_array_equal(getattr(read, name), values)
    with pytest.raises(ValueError, match="must hold a Measurements table, got Requests"):
        Measurements.read(tmp_path / "requests.parquet")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"correct": [0.5]}, "`correct` must be 0, 1 or NaN, got 0.5"),
        ({"tokens": [-1]}, "`tokens` must not be negative"),
        ({"seconds": [-1.0]}, "`seconds` must be finite and not negative"),
    ],
)
def test_requests_that_cannot_have_happened(columns, message):
    with pytest.raises(ValueError, match=message):
        make_requests(1, **columns)


def test_two_runs_of_some_prompts_are_compared_on_these_alone():
    """Prompts a and b, of which b was decoded twice: 3 and then 2 tokens in a round, in 1 and then 2 seconds."""
    columns = {"prompt": ["a", "b", "b"], "replica": [0, 0, 1]}
    rounds = make_rounds(3, 4, accepted=[0, 2, 1], **columns)
    requests = make_requests(3, tokens=[1, 3, 2], seconds=[1.0, 1.0, 2.0], **columns)
    first, again = (measure(*run) for run in two_runs(rounds, requests))

    assert (first.prompts, again.prompts) == (1, 1)
    assert (first.tokens_per_round, again.tokens_per_round) == (3, 2)
    assert (first.tokens_per_second, again.tokens_per_second) == (3, 1)
    assert two_runs(rounds, requests.select(requests.replica == 0)) is None
