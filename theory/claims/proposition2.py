"""Claims about Proposition 2: what lossless verification of a multi-step draft keeps, and what it does not."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from theory import proposition2, toys
from theory.acceptance import LOSSLESS, LinearAcceptance
from theory.claims.claim import Claim, Finding, Method, Verdict, largest
from theory.proposition2 import Exactness

TOLERANCE = 1e-14
"""Rounding of one position: sums over at most eight tokens and six proposals."""
JOINT_TOLERANCE = 1e-13
"""Rounding of a text: sums over up to 20,000 trajectories, whose errors average out."""
VISIBLE = 1e-3
"""A bias that no rounding explains."""
Orders: TypeAlias = tuple[toys.ToyOrder, ...]

DRAFTERS_OWN: Orders = ("entropy", "margin", "max_probability", "certainty", "right_to_left")
"""Commit orders that look at the distributions alone, or at nothing, and may commit a later slot first."""

EXACT_CLASSES: tuple[tuple[str, Orders, tuple[int, ...], dict[str, bool]], ...] = (
    ("drafts of one step", ("entropy", "max_probability"), (1,), {}),
    ("commits from left to right", ("left_to_right",), (2, 3), {}),
    ("all tokens are drawn in the last step", ("redraw",), (2,), {}),
    ("one-hot drafts, in any order", (*DRAFTERS_OWN, "confidence"), (2, 3), {"certain": True}),
    ("late slots first, but no slot reads a later one", DRAFTERS_OWN, (2, 3), {"causal": True}),
)
"""Drafts that keep the law of the whole text: name, orders, efforts and what the drafter is restricted to."""

Instance: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
"""The law of the emitted text and the verifier's own, ``(V,) * L`` each."""


def _one_position(thorough: bool, *, leniency: float) -> Finding:
    """The mean law of a token over random proposals against the target that Proposition 2 names."""
    rng = np.random.default_rng(2)
    instances, off = (4000 if thorough else 400), []
    for _ in range(instances):
        size, values = int(rng.integers(2, 9)), int(rng.integers(1, 7))
        concentration = rng.choice([0.1, 1.0])
        p, weights = rng.dirichlet(np.full(size, concentration)), rng.dirichlet(np.ones(values))
        proposals = rng.dirichlet(np.full(size, concentration), values)
        law = proposition2.verified_law(LinearAcceptance(leniency=leniency), p, proposals, weights)
        off.append(_distance(law, (1 - leniency) * p + leniency * weights @ proposals))
    worst = largest(off)
    return Finding(
        verdict=Verdict.of(worst <= TOLERANCE),
        covered=f"{instances:,} random laws of Q on up to 6 values, V = 2..8",
        worst_error=worst,
    )


def _joint(thorough: bool, *, orders: Orders, efforts: tuple[int, ...], **denoiser: bool) -> Finding:
    """The law of the whole text against the verifier's, over every trajectory."""
    biases = [_distance(*texts) for texts in _texts(orders, efforts, thorough, **denoiser)]
    worst = largest(biases)
    return Finding(
        verdict=Verdict.of(worst <= JOINT_TOLERANCE),
        covered=_covered(len(biases), efforts),
        worst_error=worst,
    )


def _in_fractions(thorough: bool) -> Finding:
    """The exact classes again, without rounding and with the rule written out a second time."""
    rng = np.random.default_rng(4)
    off = []
    for _, orders, efforts, settings in EXACT_CLASSES:
        for size, slots in [(2, 2), (3, 2), (2, 3), (3, 3)][: 4 if thorough else 3]:
            law, own = _random_text(rng, orders[-1], efforts[0], size, slots, rational=True, **settings)
            off.append(Fraction(abs(law - own).sum()))
    return Finding(
        verdict=Verdict.of(not any(off)),
        covered=f"{len(off)} instances of the exact classes in fractions",
        worst_error=largest(off),
    )


def _any_draft(thorough: bool) -> Finding:
    """Joint exactness of out-of-order drafts: random instances, and the example in fractions."""
    drafter, verifier = toys.late_first(Fraction)
    law = proposition2.text_law(drafter, verifier, toys.RationalLossless(), block_size=2)
    efforts = (2, 3)
    biases = {order: [_distance(*texts) for texts in _texts((order,), efforts, thorough)] for order in DRAFTERS_OWN}
    example, every = _distance(law, proposition2.verifier_law(verifier)), [*chain.from_iterable(biases.values())]
    found = ", ".join(f"{order} {max(found):.3f} ({np.mean(found):.3f})" for order, found in biases.items())
    return Finding(
        verdict=Verdict.of(not (example > VISIBLE and max(every) > VISIBLE)),
        covered=f"{_covered(len(every), efforts)}; largest (and mean) joint TV: {found}",
        worst_error=largest([*every, example]),
        counterexample="two slots, two symbols, uniform verifier; slot 2 is drafted first, uniformly, and slot 1 "
        f"copies it with probability 19/20: equal symbols come out with {law[0, 0]} = {float(law[0, 0])} each, "
        f"unequal ones with {law[0, 1]} = {float(law[0, 1])}, instead of 1/4; joint TV {example}",
    )


def _first_token(thorough: bool) -> Finding:
    """The law of the first token alone, for commit orders that look at the distributions."""
    efforts = (2, 3)
    biases = [_distance(_first(law), _first(own)) for law, own in _texts(DRAFTERS_OWN, efforts, thorough)]
    worst = largest(biases)
    return Finding(
        verdict=Verdict.of(worst <= JOINT_TOLERANCE),
        covered=_covered(len(biases), efforts),
        worst_error=worst,
    )


def _first_token_of_any_draft(thorough: bool) -> Finding:
    """The law of the first token when tokens are committed because of their own value."""
    drafter, verifier = toys.kept_when_likely(Fraction)
    law = _first(proposition2.text_law(drafter, verifier, toys.RationalLossless(), block_size=2))
    orders: Orders = ("confidence",)
    efforts = (2, 3)
    texts = list(_texts(orders, efforts, thorough))
    biases = [_distance(_first(law), _first(own)) for law, own in texts]
    joint = [_distance(*pair) for pair in texts]
    example = _distance(law, verifier[0])
    return Finding(
        verdict=Verdict.of(not (example > VISIBLE and max(biases) > VISIBLE)),
        covered=f"{_covered(len(biases), efforts)}; largest (and mean) TV of the first token {max(biases):.3f} "
        f"({np.mean(biases):.3f}), of the text {max(joint):.3f} ({np.mean(joint):.3f})",
        worst_error=largest([*biases, example]),
        counterexample="two symbols, uniform verifier; slot 1 holds symbol 0 with probability 3/5, and a drawn token "
        "is kept in the first of two steps only if its probability is above 1/2: symbol 0 comes out with "
        f"{law[0]} instead of 1/2",
    )


def _mean_proposal(thorough: bool) -> Finding:
    """The law of texts whose drafts are verified against the mean of what each slot may be drawn from."""
    rng = np.random.default_rng(5)
    first, joint = [], []
    for _ in range(100 if thorough else 10):
        verifier = toys.random_verifier(rng, 2, 2)
        drafter = toys.ToyDrafter(denoiser=toys.random_denoiser(rng, 2), order="left_to_right", effort=2)
        law = proposition2.text_law(partial(_averaged, drafter), verifier, LOSSLESS, block_size=2)
        own = proposition2.verifier_law(verifier)
        first.append(_distance(_first(law), _first(own)))
        joint.append(_distance(law, own))
    return Finding(
        verdict=Verdict.of(not (max(joint) > VISIBLE)),
        covered=f"every trajectory of {len(joint)} random pairs, V = B = K = 2",
        worst_error=largest(joint),
        counterexample="commits from left to right are exact against Q; against E[Q] the first token keeps its law (TV "
        f"up to {max(first):.0e}), the text does not (up to {max(joint):.3f}, in the mean {np.mean(joint):.3f})",
    )


def _averaged(drafter: toys.ToyDrafter, prefix: tuple[int, ...], block: int) -> proposition2.Trajectories:
    drafted = drafter(prefix, block)
    mean = np.tensordot(drafted.probability, drafted.proposals, axes=1)
    return replace(drafted, proposals=np.broadcast_to(mean, drafted.proposals.shape))


def _guarantees(thorough: bool) -> Finding:
    """`proposition2.exactness` against enumeration, for every commit order, effort and kind of draft."""
    wrong = []
    orders = proposition2.ORDERS
    settings = [(order, effort, greedy) for order in orders for effort in (1, 2, 3) for greedy in (False, True)]
    for order, effort, greedy in settings:
        texts = list(_texts((order,), (effort,), thorough, certain=greedy))
        joint = largest(_distance(*pair) for pair in texts)
        first = largest(_distance(_first(law), _first(own)) for law, own in texts)
        found = Exactness.JOINT if joint <= JOINT_TOLERANCE else Exactness.FIRST_TOKEN
        if first > JOINT_TOLERANCE:
            found = Exactness.NONE
        if proposition2.exactness(order, effort, greedy=greedy) != found or JOINT_TOLERANCE < joint < VISIBLE:
            wrong.append(f"{order}, K = {effort}{', greedy' if greedy else ''}: {found}, joint TV {joint:.1e}")
    return Finding(
        verdict=Verdict.of(not wrong),
        covered=f"{len(settings)} settings: {len(orders)} orders, K = 1..3, soft and one-hot drafts",
        counterexample="; ".join(wrong),
    )


def _texts(orders: Orders, efforts: tuple[int, ...], thorough: bool, **denoiser: bool) -> Iterator[Instance]:
    """Texts of random pairs, for V and B in 2..3, every order and every effort that the block has room for."""
    rng = np.random.default_rng(3)
    for _ in range(20 if thorough else 2):
        for size, slots in ((2, 2), (3, 2), (2, 3), (3, 3)):
            for order in orders:
                for effort in efforts:
                    if effort <= slots:
                        yield _random_text(rng, order, effort, size, slots, **denoiser)


def _random_text(
    rng: np.random.Generator,
    order: toys.ToyOrder,
    effort: int,
    size: int,
    slots: int,
    *,
    rational: bool = False,
    **denoiser: bool,
) -> Instance:
    verifier = toys.random_verifier(rng, size, slots, rational=rational)
    drafter = toys.ToyDrafter(
        denoiser=toys.random_denoiser(rng, size, rational=rational, **denoiser), order=order, effort=effort
    )
    rule = toys.RationalLossless() if rational else LOSSLESS
    law = proposition2.text_law(drafter, verifier, rule, block_size=slots)
    return law, proposition2.verifier_law(verifier)


def _distance(law: NDArray[Any], other: NDArray[Any]) -> float:
    return float(abs(law - other).sum() / 2)


def _first(law: NDArray[Any]) -> NDArray[Any]:
    first: NDArray[Any] = law.sum(axis=tuple(range(1, law.ndim)))
    return first


def _covered(instances: int, efforts: tuple[int, ...]) -> str:
    steps = f"{efforts[0]}..{efforts[-1]}" if len(efforts) > 1 else f"{efforts[0]}"
    return f"every trajectory of {instances} random pairs, V, B = 2..3, K = {steps}"


CLAIMS = (
    Claim(
        statement="One position, verified against its realised proposal Q, emits the target whatever the law of Q",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=partial(_one_position, leniency=0.0),
    ),
    Claim(
        statement="With leniency λ one position emits (1 - λ) p + λ E[Q]",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=partial(_one_position, leniency=0.3),
    ),
    Claim(
        statement="Lossless verification of any multi-step draft is jointly exact",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.FAILS,
        check=_any_draft,
    ),
    *(
        Claim(
            statement=f"Joint exactness: {name}",
            source="Proposition 2",
            method=Method.ENUMERATION,
            expected=Verdict.HOLDS,
            check=partial(_joint, orders=orders, efforts=efforts, **settings),
        )
        for name, orders, efforts, settings in EXACT_CLASSES
    ),
    Claim(
        statement="Joint exactness of all these classes is an identity of fractions, not of rounded numbers",
        source="Proposition 2",
        method=Method.EXACT_ARITHMETIC,
        expected=Verdict.HOLDS,
        check=_in_fractions,
    ),
    Claim(
        statement="The first token of a multi-step draft is exact for every order that looks at distributions alone",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=_first_token,
    ),
    Claim(
        statement="The first token of any multi-step draft is exact",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.FAILS,
        check=_first_token_of_any_draft,
    ),
    Claim(
        statement="The mean proposal E[Q] serves verification as well as the realised Q",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.FAILS,
        check=_mean_proposal,
    ),
    Claim(
        statement="The recorded exactness (joint, first_token, none) is what each commit order and effort really keeps",
        source="Proposition 2",
        method=Method.ENUMERATION,
        expected=Verdict.HOLDS,
        check=_guarantees,
    ),
)
