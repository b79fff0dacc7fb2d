"""Replay: what recorded rounds give under another acceptance rule, exact for the recorded drafts (survival form)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import LOSSLESS, LinearAcceptance, RatioRule, Rule
from theory.coupled import CoupledAcceptance
from theory.rounds import Rounds


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """Expectations of N rounds over the acceptance tests of one rule, given prefix and drafted block.

    Attributes
    ----------
    survival : (N, B + 1)
        Chance that at least n = 0..B drafted tokens are accepted before the first rejection.
    reached, accepted : (N,)
        Expected slots that the test reaches, and accepted ones among them; none past a drafted stop token.
    divergence, spent : (N,)
        Total variation of drafter and verifier, and deviation from the verifier, expected and summed over the reached
        slots.
    emitted : (N,)
        Expected tokens appended: with the correction or bonus token, without what follows a stop token or the limit.
    accepted_lengths : (N, B + 1)
        Law of the accepted tokens n = 0..B that stay in the text: none that follows a stop token or the limit.
    """

    survival: NDArray[np.float64]
    reached: NDArray[np.float64]
    accepted: NDArray[np.float64]
    divergence: NDArray[np.float64]
    spent: NDArray[np.float64]
    emitted: NDArray[np.float64]
    accepted_lengths: NDArray[np.float64]


def replay(rounds: Rounds, rule: Rule, *, token_limit: int | None = None, cut: bool = True) -> Replay:
    """Put the recorded drafts to the test of another rule.

    Given prefix and draft, the tests of the slots are independent and accept with ``a_i = min(1, target_i / q_i)``, so
    ``P(accepted >= n) = a_1 ... a_n``, and a round appends ``1 + sum_n P(accepted >= n)`` tokens. The draft does not
    depend on the rule: exact for these round starts, without assuming one rate for all slots or independent rounds.
    The rule that recorded them does not matter either, except for the round starts that it came to.

    Parameters
    ----------
    rounds
        Recorded under any rule.
    rule
        The rule to replay.
    token_limit
        Most new tokens of a request, as in the recording; None: no limit.
    cut
        False counts what follows a drafted stop token or the limit as well, as Eq. 7 does.

    Raises
    ------
    ValueError
        The rule is coupled verification, whose acceptance the recorded scalars do not tell; or there is a limit but
        some prompt has no round 0, whose prefix is the prompt.
    """
    probability = np.where(rounds.proposed, tests_ratio(rule).probability(rounds.p_drafted, rounds.q_drafted), 0.0)
    survival = np.concatenate([np.ones((len(rounds), 1)), np.cumprod(probability, axis=1)], axis=1)
    last = np.where(rounds.eos_slot < 0, rounds.drafted, rounds.eos_slot) if cut else rounds.drafted
    tested = rounds.before_stop if cut else rounds.proposed
    kept, most = tested, last
    if cut and token_limit is not None:
        room = _room(rounds, token_limit)
        kept, most = tested & (rounds.slot < room[:, None]), np.minimum(last, room - 1)
    appended = rounds.slot < most[:, None]
    at_least = np.pad(np.where(kept, survival[:, 1:], 0), ((0, 0), (1, 1)))
    at_least[:, 0] = 1
    return Replay(
        survival=survival,
        reached=np.where(tested, survival[:, :-1], 0).sum(axis=1),
        accepted=np.where(tested, survival[:, 1:], 0).sum(axis=1),
        divergence=np.where(tested, survival[:, :-1] * rounds.divergence, 0).sum(axis=1),
        spent=np.where(tested, survival[:, :-1] * deviation(rounds, rule), 0).sum(axis=1),
        emitted=1 + np.where(appended, survival[:, 1:], 0).sum(axis=1),
        accepted_lengths=-np.diff(at_least, axis=1),
    )


def tests_ratio(rule: Rule) -> RatioRule:
    """Return a rule whose acceptance follows from the drafted token's two probabilities, and refuse any other."""
    if isinstance(rule, CoupledAcceptance):
        msg = f"`rule` must test a ratio, got {rule.label}; measure it with python -m profiler.sweep --coupled"
        raise ValueError(msg)
    return rule


def deviation(rounds: Rounds, rule: Rule) -> NDArray[np.float64]:
    """Return what each slot tells about the deviation of a rule's emitted law from the verifier's, (N, B).

    Under linear acceptance the deviation is λ TV(p, q). Under any rule that raises and rescales, Cactus included, it is
    the acceptance gained, ``acceptance - (1 - TV(p, q))``, which the drafted token estimates without bias by
    ``min(1, γ / q) - min(1, p / q)``. Coupled verification emits the verifier's own text. NaN beyond ``drafted``;
    meaningful at slots that the rule reaches.
    """
    ratio: RatioRule = LOSSLESS if isinstance(rule, CoupledAcceptance) else rule
    if isinstance(ratio, LinearAcceptance):
        return ratio.leniency * rounds.divergence
    p, q = rounds.p_drafted, rounds.q_drafted
    return np.asarray(ratio.probability(p, q) - LOSSLESS.probability(p, q))


def _room(rounds: Rounds, token_limit: int) -> NDArray[np.int64]:
    """Tokens that each round may still append, (N,)."""
    prompts, member = np.unique(rounds.prompt, return_inverse=True)
    first = np.full(prompts.size, -1)
    starts = rounds.round == 0
    first[member[starts]] = rounds.prefix_length[starts]
    if (first < 0).any():
        msg = f"`rounds` must hold round 0 of every prompt, got none for {prompts[first < 0][0]}; pass whole requests"
        raise ValueError(msg)
    return np.asarray(token_limit - (rounds.prefix_length - first[member]))
