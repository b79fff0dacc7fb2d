"""Rounds: the recorded table, one row for each round of Algorithm 1, and the rates that are read off it.

Scalars are recorded instead of distributions: the probabilities of the drafted token under verifier and drafter, and
their total variation, at every slot of the block. They replay every acceptance rule exactly.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theory.acceptance import parse_rule
from theory.tables import Constraint, Counts, Reals, SlotCounts, SlotReals, Table, Texts

PROBABILITY_SLACK = 1e-5
"""How far float32 sums over a vocabulary may leave [0, 1]."""

KEY = ("prompt", "effort", "rule", "replica", "round")
ENDINGS = ("", "eos", "limit")


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds(Table):
    """N rounds with blocks of up to B slots.

    Attributes
    ----------
    prompt, round, replica
        Prompt id, number of the round within its request, and 0, or 1 for a cell that is run again to measure noise.
    prefix_length, effort, passes, rule
        Tokens before the block, denoising steps asked for (K), drafter passes really run, label of the rule.
    drafted, accepted, emitted
        Slots really drafted, accepted before the first rejection, and tokens appended: the correction or bonus token
        included, what follows a stop token or the token limit excluded.
    ended, eos_slot
        ``""``, ``"eos"`` or ``"limit"``; the first drafted slot that holds a stop token, or -1.
    p_drafted, q_drafted, divergence : (N, B)
        Verifier's and drafter's probability of the drafted token, and their total variation; NaN beyond ``drafted``.
    commit_step : (N, B)
        Denoising step, from 0, at which each slot was committed; -1 beyond ``drafted``.
    draft_seconds, verify_seconds, overhead_seconds
        The two forwards and the rest of the round. NaN: not measured.
    prefill_seconds
        The prompt's own forward, kept out of ``verify_seconds``; NaN except in round 0.
    """

    prompt: Texts
    round: Counts
    replica: Counts
    prefix_length: Counts
    effort: Counts
    passes: Counts
    rule: Texts
    drafted: Counts
    accepted: Counts
    emitted: Counts
    ended: Texts
    eos_slot: Counts
    p_drafted: SlotReals
    q_drafted: SlotReals
    divergence: SlotReals
    commit_step: SlotCounts
    draft_seconds: Reals
    verify_seconds: Reals
    overhead_seconds: Reals
    prefill_seconds: Reals

    @property
    def slot(self) -> NDArray[np.int64]:
        """Number of each slot within its block, (1, B)."""
        return np.arange(self.p_drafted.shape[1])[None, :]

    @property
    def proposed(self) -> NDArray[np.bool_]:
        """Slots that were drafted, (N, B)."""
        return self.slot < self.drafted[:, None]

    @property
    def before_stop(self) -> NDArray[np.bool_]:
        """Drafted slots up to the first stop token, which is one of them, (N, B)."""
        last = np.where(self.eos_slot < 0, self.drafted, self.eos_slot)
        return self.proposed & (self.slot <= last[:, None])

    @property
    def reached(self) -> NDArray[np.bool_]:
        """Slots that the acceptance test reached, (N, B): up to the first rejection, not past a drafted stop token."""
        return self.before_stop & (self.slot <= self.accepted[:, None])

    def constraints(self) -> Iterator[Constraint]:
        """Yield what must hold in every round."""
        for name in ("round", "replica", "prefix_length", "passes"):
            yield name, getattr(self, name) >= 0, "not be negative", "count from 0"
        yield "effort", self.effort >= 1, "be at least 1", "leave out rounds without a draft"
        canonical = {label: parse_rule(label).label == label for label in np.unique(self.rule)}
        yield "rule", np.array([canonical[label] for label in self.rule]), "be a canonical label", "use `Rule.label`"
        yield from self._count_constraints()
        yield from self._slot_constraints()
        yield from self._second_constraints()
        keys = list(zip(*(getattr(self, name).tolist() for name in KEY), strict=True))
        times = Counter(keys)
        once = np.array([times[key] == 1 for key in keys])
        yield "round", once, f"occur once for each {', '.join(KEY[:-1])}", "drop rows that were appended twice"

    def _count_constraints(self) -> Iterator[Constraint]:
        fits = (self.drafted >= 0) & (self.drafted <= self.slot.size)
        yield "drafted", fits, f"lie between 0 and the {self.slot.size} slots", "record every slot of the block"
        possible = (self.accepted >= 0) & (self.accepted <= self.drafted)
        yield "accepted", possible, "lie between 0 and `drafted`", "leave the correction or bonus token out"
        inside = (self.eos_slot >= -1) & (self.eos_slot < self.drafted)
        yield "eos_slot", inside, "be a drafted slot or -1", "write -1 where no stop token was drafted"
        yield "ended", np.isin(self.ended, ENDINGS), f"be one of {ENDINGS}", 'write "" where the text goes on'
        whole = self.accepted + 1
        most = np.where(self.eos_slot < 0, whole, np.minimum(whole, self.eos_slot + 1))
        cut = (self.emitted >= 0) & (self.emitted <= most)
        yield "emitted", cut, "be at most `accepted` + 1 and end with the stop token", "discard what follows it"
        explained = (self.emitted == whole) | (self.ended != "")
        yield "emitted", explained, "be `accepted` + 1 where the text goes on", "say in `ended` why the block was cut"

    def _slot_constraints(self) -> Iterator[Constraint]:
        for name in ("p_drafted", "q_drafted", "divergence"):
            values = getattr(self, name)
            possible = (values >= -PROBABILITY_SLACK) & (values <= 1 + PROBABILITY_SLACK)
            yield name, possible | ~self.proposed, "lie in [0, 1] at drafted slots", "look for NaN logits"
            yield name, np.isnan(values) | self.proposed, "be NaN beyond `drafted`", "pad with NaN"
        committed = np.where(self.proposed, self.commit_step >= 0, self.commit_step == -1)
        yield "commit_step", committed, "count from 0 at drafted slots and be -1 beyond", "pad with -1"

    def _second_constraints(self) -> Iterator[Constraint]:
        for name in ("draft_seconds", "verify_seconds", "overhead_seconds", "prefill_seconds"):
            seconds = getattr(self, name)
            possible = np.isnan(seconds) | ((seconds >= 0) & np.isfinite(seconds))
            yield name, possible, "be finite and not negative", "use a monotonic clock, and NaN if not measured"
        once = np.isnan(self.prefill_seconds) | (self.round == 0)
        yield "prefill_seconds", once, "be NaN except in round 0", "record the prompt's own forward once"


def acceptance_rate(rounds: Rounds) -> float:
    """Return accepted / reached slots: the chance of acceptance at a slot that the test reaches. NaN without slots."""
    return _quotient(accepted_reached(rounds).sum(), rounds.reached.sum())


def accepted_fraction(rounds: Rounds) -> float:
    """Return accepted / drafted slots, the bonus token in neither; long blocks make it small. NaN without slots."""
    return _quotient(rounds.accepted.sum(), rounds.drafted.sum())


def tokens_per_round(rounds: Rounds) -> float:
    """Return the tokens really appended per round: correction and bonus included, cut at stop token and limit."""
    return _quotient(rounds.emitted.sum(), len(rounds))


def accepted_reached(rounds: Rounds) -> NDArray[np.int64]:
    """Return the accepted slots of each round that the test reached, (N,): none past a drafted stop token."""
    return np.asarray(np.minimum(rounds.accepted, rounds.reached.sum(axis=1)))


def _quotient(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else math.nan
