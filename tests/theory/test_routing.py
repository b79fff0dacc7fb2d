from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recordings import record_pair
from tests.strategies import classes_of_settings
from tests.theory.test_prediction import linear, paper_calibration
from theory.acceptance import LOSSLESS
from theory.calibration import Calibration, calibrate
from theory.models import LENIENCIES, predict_best
from theory.planner import recommend
from theory.prediction import predict
from theory.rounds import Rounds
from theory.routing import main, recommend_mixture, route

PROGRAM_TOLERANCE = 1e-6  # the linear program's own


def cells(agreement, speed):
    """A prediction of one effort with these cells, known exactly."""
    calibration = paper_calibration(
        efforts=(1,), divergence=(0.5,), divergence_low=(0.5,), divergence_high=(0.5,), exactness=("joint",)
    )
    grid = predict(calibration, linear(*np.linspace(0, 1, len(agreement))))
    values = {"agreement": np.array(agreement, dtype=float), "tokens_per_second": np.array(speed, dtype=float)}
    return replace(grid, **values, **{f"{name}_low": value for name, value in values.items()})


def least_seconds(classes, floor):
    """Least mean seconds per token, by trying every vertex: one setting per class, or one class split between two."""
    best = np.inf
    options = [list(zip(each.agreement, 1 / each.tokens_per_second, strict=True)) for each in classes]
    for first in product(*options):
        for split, others in enumerate(options):
            for other in others:
                second = [*first[:split], other, *first[split + 1 :]]
                (a, s), (b, t) = (np.mean(each, axis=0) for each in (first, second))
                share = 1.0 if a >= floor else (b - floor) / (b - a) if b > floor else -1.0
                if 0 <= share <= 1:
                    best = min(best, share * s + (1 - share) * t)
    return best


@settings(max_examples=40)
@given(classes_of_settings(), st.integers(0, 20))
def test_routing_against_every_vertex(classes, floor):
    predictions = {
        f"class {i}": cells(np.array(each)[:, 0] / 20, np.array(each)[:, 1]) for i, each in enumerate(classes)
    }
    expected = least_seconds(list(predictions.values()), floor / 20)
    if not np.isfinite(expected):
        with pytest.raises(ValueError, match="`minimum_agreement` must be within reach"):
            route(predictions, minimum_agreement=floor / 20)
        return
    routing = route(predictions, minimum_agreement=floor / 20)

    assert 1 / routing.tokens_per_second == pytest.approx(expected, rel=PROGRAM_TOLERANCE)
    assert routing.agreement >= floor / 20 - PROGRAM_TOLERANCE
    assert sum(len(parts) == 2 for parts in routing.classes.values()) <= 1
    for parts in routing.classes.values():
        assert len(parts) in (1, 2)
        assert sum(part.share for part in parts) == pytest.approx(1)
    if routing.uniform is not None:
        assert routing.gain >= -PROGRAM_TOLERANCE


def test_a_mixture_lies_on_the_hull_between_two_settings():
    """Agreement .95 from 1 (2 ms a token) and .9 (1 ms a token): half each, 1.5 ms a token."""
    mixture = recommend_mixture(cells([1, 0.9, 0.8], [500, 1000, 1010]), minimum_agreement=0.95)
    first, second = mixture.classes["all"]

    assert [first.setting.rule, second.setting.rule] == ["linear:0", "linear:0.5"]
    assert [first.share, second.share] == pytest.approx([0.5, 0.5])
    assert mixture.tokens_per_second == pytest.approx(1 / 0.0015)
    assert mixture.agreement == pytest.approx(0.95)
    assert mixture.uniform.rule == "linear:0"
    assert mixture.gain == pytest.approx(2 / 1.5 - 1)


def test_tokens_share_time_and_not_speed():
    """Half the tokens at 100 and half at 300 a second make 150 a second, not 200: 170 for all of them is faster."""
    mixture = recommend_mixture(cells([1, 0.9, 0.8], [100, 170, 300]), minimum_agreement=0.9)
    (only,) = mixture.classes["all"]

    assert only.setting.rule == "linear:0.5"
    assert mixture.tokens_per_second == pytest.approx(170)


def test_a_mixture_is_never_slower_than_the_best_single_setting():
    prediction = predict(paper_calibration(), linear(*np.linspace(0, 1, 6)))
    for floor in np.linspace(0.6, 1, 9):
        single = recommend(prediction, minimum_agreement=floor, caution=0)
        mixture = recommend_mixture(prediction, minimum_agreement=floor, caution=0)

        assert mixture.tokens_per_second >= single.tokens_per_second * (1 - PROGRAM_TOLERANCE)
        assert (mixture.uniform.effort, mixture.uniform.rule) == (single.effort, single.rule)


def test_caution_keeps_the_floor_at_the_worse_end():
    prediction = predict(paper_calibration(), linear(0, 1))
    mixture = recommend_mixture(prediction, minimum_agreement=0.9)
    worse = {
        (effort, rule): low
        for effort, rule, low in zip(prediction.effort, prediction.rule, prediction.agreement_low, strict=True)
    }
    low = sum(part.share * worse[part.setting.effort, part.setting.rule] for part in mixture.classes["all"])

    assert low == pytest.approx(0.9)
    assert mixture.agreement > 0.9


def test_leniency_goes_to_the_class_where_it_costs_least():
    """Easy prompts lose .02 of agreement for twice the speed, hard ones .4: the easy ones spend it."""
    easy, hard = cells([1, 0.98], [100, 200]), cells([1, 0.6], [100, 200])
    routing = route({"easy": easy, "hard": hard}, minimum_agreement=0.99)

    assert [part.setting.rule for part in routing.classes["easy"]] == ["linear:1"]
    assert [part.setting.rule for part in routing.classes["hard"]] == ["linear:0"]
    assert routing.agreement == pytest.approx(0.99)
    assert routing.tokens_per_second == pytest.approx(1 / (0.5 / 200 + 0.5 / 100))
    assert routing.uniform.rule == "linear:0"
    assert routing.gain == pytest.approx(100 * routing.tokens_per_second / 1e4 - 1)


def test_weights_count_tokens():
    easy, hard = cells([1, 0.98], [100, 200]), cells([1, 0.6], [100, 200])
    routing = route({"easy": easy, "hard": hard}, minimum_agreement=0.9, weights={"hard": 1, "easy": 3})

    # 3/4 of the tokens at .98; the rest may lose .085 / .4 of its lenient share
    lenient = routing.classes["hard"][1]
    assert lenient.setting.rule == "linear:1"
    assert lenient.share == pytest.approx((1 - 0.9 - 0.75 * 0.02) / 0.25 / 0.4)


def test_classes_that_share_no_setting_have_no_uniform_one():
    other = predict(
        paper_calibration(efforts=(8,), divergence=(0.3,), divergence_low=(0.3,), divergence_high=(0.3,)), linear(0)
    )
    routing = route({"a": cells([1], [100]), "b": other}, minimum_agreement=1)

    assert (routing.uniform, routing.gain) == (None, None)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": 1, "b": 0}, "`weights` must be positive for each of"),
        ({"a": 1}, r"for each of \['a', 'b'\], got \{'a': 1\}"),
    ],
)
def test_weights_must_fit_the_classes(weights, message):
    both = {"a": cells([1], [100]), "b": cells([1], [100])}

    with pytest.raises(ValueError, match=message):
        route(both, minimum_agreement=1, weights=weights)
    with pytest.raises(ValueError, match="`predictions` must hold at least one class, got none"):
        route({}, minimum_agreement=1)
    with pytest.raises(ValueError, match=r"must be within reach, got 1; the best available over all classes is 0.950"):
        route({"a": cells([1], [100]), "b": cells([0.9], [100])}, minimum_agreement=1)


@pytest.fixture
def runs(tmp_path):
    """Two classes: drafter and verifier differ by .1 on easy prompts and by .6 on hard ones; a round takes 10 ms."""
    for name, shift in (("easy", 0.1), ("hard", 0.6)):
        p, q = np.array([0.8, 0.2]), np.array([0.8 - shift, 0.2 + shift])
        times = {"draft_seconds": np.full(40, 0.004), "verify_seconds": np.full(40, 0.006)}
        rounds = record_pair(p, q, 10, 4, 3, np.random.default_rng(0), LOSSLESS, **times)
        (tmp_path / name).mkdir()
        calibrate(rounds, block_size=3, identity={}, exactness=("joint",)).to_json(tmp_path / name / "calibration.json")
        rounds.write(tmp_path / name / "rounds.parquet")
    return [f"{name}={tmp_path / name}" for name in ("easy", "hard")]


def test_the_command_routes_the_recordings_of_the_classes(runs, capsys):
    predictions = {}
    for name, _, run in (each.partition("=") for each in runs):
        calibration, rounds = Calibration.from_json(f"{run}/calibration.json"), Rounds.read(f"{run}/rounds.parquet")
        predictions[name] = predict_best(calibration, rounds, linear(*LENIENCIES))
    expected = route(predictions, minimum_agreement=0.97, weights={"easy": 3, "hard": 1})

    assert main([*runs, "--minimum-agreement", "0.97", "--weights", "3", "1"]) == 0
    *lines, together = capsys.readouterr().out.splitlines()
    parts = [(name, part) for name, each in expected.classes.items() for part in each]
    assert lines == [f"{name}: {part.share:.0%} of the tokens by K = 1, {part.setting.rule}" for name, part in parts]
    assert together == (
        f"together {expected.tokens_per_second:.0f} tokens/s at an agreement of {expected.agreement:.3f}, "
        f"{expected.gain:.1%} more than by one setting for all"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda runs: runs[0].partition("=")[2:], "a class must be NAME=RUN, got"),
        (lambda runs: [*runs, "--weights", "1"], "--weights must be one number a class, got 1 for 2"),
        (lambda runs: ["easy=nowhere"], "nowhere"),
        (lambda runs: [*runs, "--minimum-agreement", "1.5"], "must lie in"),
    ],
)
def test_the_command_says_what_to_mend(runs, change, message, capsys):
    assert main(list(change(runs))) == 2
    assert message in capsys.readouterr().err
