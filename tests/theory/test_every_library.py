"""Every function of arrays gives the same numbers in every library, stays on its device, and mixes no libraries."""

import ast
import math
import re
from pathlib import Path
from types import ModuleType

import array_api_strict
import numpy as np
import pytest

from theory import acceptance, crossover, distances, proposition1, proposition2, theorem1

MODULES = (distances, acceptance, theorem1, proposition1, proposition2, crossover)
TOLERANCE = 1e-12  # of probabilities in float64, after at most 60 roundings

RNG = np.random.default_rng(31)
P, Q = RNG.dirichlet(np.ones(5), (2, 3)), RNG.dirichlet(np.ones(5), (2, 3))
DRAFTED = RNG.integers(0, 5, (2, 3))
COIN, RATES = RNG.random((2, 3)), RNG.random((2, 3))
LINEAR, CACTUS = acceptance.LinearAcceptance(leniency=0.3), acceptance.CactusAcceptance(budget=0.5)
TAYLOR = acceptance.CactusAcceptance(budget=0.5, solver="taylor")


def raised(p, q, drafted):
    return theorem1.RaiseAndRescale(raised=(1 + p) / 2).residual(p, q, drafted)


CALLS = {
    "total_variation": [(distances.total_variation, P, Q)],
    "overlap": [(distances.overlap, P, Q)],
    "kullback_leibler": [(distances.kullback_leibler, P, Q)],
    "binary_kullback_leibler": [(distances.binary_kullback_leibler, COIN, RATES)],
    "accept_prefix": [(acceptance.accept_prefix, RATES, COIN)],
    "mixture": [(acceptance.mixture, P, Q, COIN[..., None])],
    "acceptance_probability": [(acceptance.acceptance_probability, P, Q)],
    "replacement_law": [(acceptance.replacement_law, P, Q)],
    "drafted_probability": [(acceptance.drafted_probability, P, DRAFTED)],
    "raise_and_rescale": [(acceptance.raise_and_rescale, P, DRAFTED, COIN)],
    "raised_probability": [(acceptance.raised_probability, RATES, COIN)],
    "raised_probability_taylor": [(acceptance.raised_probability_taylor, RATES, COIN)],
    "LinearAcceptance.drafted_target": [(LINEAR.drafted_target, RATES, COIN)],
    "CactusAcceptance.drafted_target": [(CACTUS.drafted_target, RATES, COIN), (TAYLOR.drafted_target, RATES, COIN)],
    "LinearAcceptance.probability": [(LINEAR.probability, RATES, COIN)],
    "LinearAcceptance.target": [(lambda p, q: LINEAR.target(p, q, None), P, Q)],
    "LinearAcceptance.residual": [(lambda p, q: LINEAR.residual(p, q, None), P, Q)],
    "CactusAcceptance.probability": [(CACTUS.probability, RATES, COIN), (TAYLOR.probability, RATES, COIN)],
    "CactusAcceptance.target": [(lambda p, drafted: CACTUS.target(p, p, drafted), P, DRAFTED)],
    "CactusAcceptance.residual": [(CACTUS.residual, P, Q, DRAFTED), (TAYLOR.residual, P, Q, DRAFTED)],
    "optimal_target": [(lambda p, q: theorem1.optimal_target(p, q, 0.1), P, Q)],
    "best_acceptance": [(lambda p, q: theorem1.best_acceptance(p, q, 0.1), P, Q)],
    "RaiseAndRescale.probability": [(theorem1.RaiseAndRescale(raised=0.5).probability, P, Q)],
    "RaiseAndRescale.residual": [(raised, P, Q, DRAFTED)],
    "ExactMatch.probability": [(theorem1.ExactMatch().probability, P, Q)],
    "ExactMatch.residual": [(lambda p, drafted: theorem1.ExactMatch().residual(p, p, drafted), P, DRAFTED)],
    "VerifierReplacement.probability": [(theorem1.VerifierReplacement().probability, P, Q)],
    "VerifierReplacement.residual": [(theorem1.VerifierReplacement().residual, P, Q, DRAFTED)],
    "acceptance_rate": [(lambda p, q: theorem1.acceptance_rate(LINEAR, p, q), P, Q)],
    "emitted_law": [(lambda p, q: theorem1.emitted_law(CACTUS, p, q), P, Q)],
    "efficiency": [(lambda p, q: theorem1.efficiency(theorem1.ExactMatch(), p, q), P, Q)],
    "verified_law": [(lambda *given: proposition2.verified_law(LINEAR, *given), P[0, 0], Q[0], P[0, 1, :3])],
    "committed_early": [(proposition2.committed_early, DRAFTED)],
    "tokens_per_round": [(lambda rates: proposition1.tokens_per_round(rates, 7), RATES)],
    "tokens_per_round_derivative": [(lambda rates: proposition1.tokens_per_round_derivative(rates, 7), RATES)],
    "accepted_length_law": [(lambda rates: proposition1.accepted_length_law(rates, 7), RATES)],
    "accepted_length_variance": [(proposition1.accepted_length_variance, P)],
    "survival": [(proposition1.survival, RATES)],
    "beta_survival": [(lambda rates: proposition1.beta_survival(rates, 2.0, 7), RATES)],
    "tokens_from_survival": [(proposition1.tokens_from_survival, RATES)],
    "law_from_survival": [(proposition1.law_from_survival, RATES)],
    "tokens_at_deviation": [
        (lambda deviation, divergence: crossover.tokens_at_deviation(deviation, divergence, 7), 0.1 * COIN, RATES),
        (lambda deviation, divergence: crossover.tokens_at_deviation(deviation, divergence, math.inf), COIN, RATES),
    ],
    "largest_gain": [
        (lambda divergence, following: crossover.largest_gain(divergence, following, 3), COIN, RATES),
        (lambda divergence, following: crossover.largest_gain(divergence, following, math.inf), COIN, RATES),
    ],
    "paying_deviations": [
        (lambda d, c, e, f: crossover.paying_deviations(d, c, e, f, 7)[0], COIN, 1 + RATES, COIN / 2, 2.1 + RATES),
        (lambda d, c, e, f: crossover.paying_deviations(d, c, e, f, 7)[1], COIN, 1 + RATES, COIN / 2, 2.1 + RATES),
        (lambda d, e: crossover.paying_deviations(d, 1.0, e, 3.0, math.inf)[0], COIN, COIN / 2),
    ],
    "owns_whole_frontier": [
        (lambda divergence, seconds: crossover.owns_whole_frontier(divergence, seconds, 7), COIN, 1 + RATES)
    ],
}
ELSEWHERE = {
    "out_of_order_share": "gives a Python number; `test_proposition2.TestAudit` runs it in every library",
    "linear_program": "NumPy alone: HiGHS reads NumPy arrays",
    "text_law": "NumPy alone: enumerates in fractions too, which the array standard does not know",
    "verifier_law": "NumPy alone, as `text_law`",
}
"""Functions of arrays that are not called here, and why."""
EACH = [pytest.param(function, given, id=name) for name, calls in CALLS.items() for function, *given in calls]


def functions_of_arrays(module: ModuleType) -> set[str]:
    """Public functions and methods that a module defines with an argument of type `Array` or `NDArray`."""
    found = set()

    def look(nodes, prefix):
        for node in nodes:
            if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in node.bases):
                look(node.body, f"{node.name}.")
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                types = [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]
                if any(re.search(r"\b(ND)?Array\b", text) for text in types):
                    found.add(prefix + node.name)

    look(ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body, "")
    return found


def test_no_function_is_left_out():
    assert set().union(*(functions_of_arrays(module) for module in MODULES)) == set(CALLS) | set(ELSEWHERE)


@pytest.mark.parametrize(("function", "given"), EACH)
def test_the_libraries_agree(xp: ModuleType, function, given):
    result = function(*(xp.asarray(values) for values in given))

    assert type(result) is type(xp.asarray(given[0]))
    np.testing.assert_allclose(np.asarray(result), function(*given), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("function", "given"), EACH)
def test_results_stay_on_the_device(function, given):
    elsewhere = array_api_strict.Device("device1")
    result = function(*(array_api_strict.asarray(values, device=elsewhere) for values in given))

    assert result.device == elsewhere


@pytest.mark.parametrize(("function", "given"), [each for each in EACH if "." not in each.id and each.id != "mixture"])
def test_arrays_of_two_libraries_are_refused(function, given):
    """By every function that looks up the library; a mixture is arithmetic alone, and the methods use the functions."""
    for stranger in range(len(given) if len(given) > 1 else 0):
        mixed = [array_api_strict.asarray(values) if i == stranger else values for i, values in enumerate(given)]

        with pytest.raises(TypeError, match="Multiple namespaces"):
            function(*mixed)
