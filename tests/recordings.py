"""Small recordings for tests: tables whose columns are plausible unless a test says otherwise."""

from typing import Any

import numpy as np

from theory.measurements import Requests
from theory.rounds import Rounds


def make_rounds(count: int, width: int, **columns: Any) -> Rounds:
    """Return ``count`` untimed rounds at leniency 0, each of its own prompt, whole blocks and nothing accepted."""
    drafted = np.asarray(columns.get("drafted", np.full(count, width)))
    accepted = np.asarray(columns.get("accepted", np.zeros(count, int)))
    proposed = np.arange(width) < drafted[:, None]
    unknown = np.full(count, np.nan)
    default = {
        "prompt": [f"prompt {row}" for row in range(count)],
        "round": np.zeros(count, int),
        "replica": np.zeros(count, int),
        "prefix_length": np.full(count, 10),
        "effort": np.ones(count, int),
        "passes": np.ones(count, int),
        "rule": ["linear:0"] * count,
        "drafted": drafted,
        "accepted": accepted,
        "emitted": accepted + 1,
        "ended": [""] * count,
        "eos_slot": np.full(count, -1),
        "p_drafted": np.where(proposed, 0.5, np.nan),
        "q_drafted": np.where(proposed, 0.5, np.nan),
        "divergence": np.where(proposed, 0.5, np.nan),
        "commit_step": np.where(proposed, 0, -1),
        "draft_seconds": unknown,
        "verify_seconds": unknown,
        "overhead_seconds": unknown,
        "prefill_seconds": unknown,
    }
    return Rounds(**(default | columns))


def make_requests(count: int, **columns: Any) -> Requests:
    """Return ``count`` correct requests of ten tokens and a second each, at effort 1 and leniency 0."""
    default = {
        "prompt": [f"prompt {row}" for row in range(count)],
        "effort": np.ones(count, int),
        "rule": ["linear:0"] * count,
        "replica": np.zeros(count, int),
        "tokens": np.full(count, 10),
        "seconds": np.ones(count),
        "correct": np.ones(count),
        "ended": ["eos"] * count,
    }
    return Requests(**(default | columns))


def record_pair(
    p: np.ndarray,
    q: np.ndarray,
    prompts: int,
    rounds_each: int,
    width: int,
    rng: np.random.Generator,
    acceptance: Any,
    **columns: Any,
) -> Rounds:
    """Run the rounds of a pair whose laws do not depend on the prefix: draws y ~ q, and tests them with a rule."""
    count = prompts * rounds_each
    drafted = rng.choice(q.size, size=(count, width), p=q)
    p_drafted, q_drafted = p[drafted], q[drafted]
    passed = rng.random((count, width)) < acceptance.probability(p_drafted, q_drafted)
    return make_rounds(
        count,
        width,
        prompt=[f"prompt {row // rounds_each}" for row in range(count)],
        round=np.arange(count) % rounds_each,
        rule=[acceptance.label] * count,
        accepted=np.cumprod(passed, axis=1).sum(axis=1),
        p_drafted=p_drafted,
        q_drafted=q_drafted,
        divergence=np.full((count, width), np.abs(p - q).sum() / 2),
        **columns,
    )


STRANGE = 2
CLEAN_LAWS = np.array([0.6, 0.4, 0.0]), np.array([0.5, 0.3, 0.2])
BROKEN_LAWS = np.array([0.2, 0.8, 0.0]), np.array([0.7, 0.2, 0.1])


def record_breaking_pair(
    prompts: int, width: int, token_limit: int, rng: np.random.Generator, acceptance: Any
) -> Rounds:
    """Run whole requests of a pair whose verifier never writes a third word, and breaks for good where the text has it.

    Verifier and drafter differ by .2 on clean texts and by .6 on broken ones. The drafter sees the text before the
    block, the verifier the drafted words too. Texts end at the limit.
    """
    p_laws, q_laws = np.stack([CLEAN_LAWS[0], BROKEN_LAWS[0]]), np.stack([CLEAN_LAWS[1], BROKEN_LAWS[1]])
    broken, produced = np.zeros(prompts, int), np.zeros(prompts, int)
    rows: list[dict[str, Any]] = []
    while (prompt := np.flatnonzero(produced < token_limit)).size:
        q = q_laws[broken[prompt]]
        drafted = (rng.random((prompt.size, width, 1)) > q.cumsum(axis=1)[:, None]).sum(axis=2)
        strange = np.cumsum(drafted == STRANGE, axis=1) > 0
        seen = np.maximum(np.pad(strange, ((0, 0), (1, 0)))[:, :-1], broken[prompt, None])
        p_drafted = np.take_along_axis(p_laws[seen], drafted[..., None], axis=2)[..., 0]
        q_drafted = np.take_along_axis(q, drafted, axis=1)
        passed = rng.random(drafted.shape) < acceptance.probability(p_drafted, q_drafted)
        accepted = np.cumprod(passed, axis=1).sum(axis=1)
        room = token_limit - produced[prompt]
        emitted = np.minimum(accepted + 1, room)
        rows.append({
            "prompt": prompt,
            "round": np.full(prompt.size, len(rows)),
            "prefix_length": 10 + produced[prompt],
            "accepted": accepted,
            "emitted": emitted,
            "ended": np.where(emitted == room, "limit", ""),
            "p_drafted": p_drafted,
            "q_drafted": q_drafted,
            "divergence": np.abs(p_laws[seen] - q[:, None]).sum(axis=2) / 2,
        })  # fmt: skip
        kept = np.arange(width) < accepted[:, None]
        broken[prompt] |= (kept & (drafted == STRANGE)).any(axis=1)
        produced[prompt] += emitted
    columns = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    columns["prompt"] = np.char.mod("prompt %04d", columns["prompt"])
    count = len(columns["prompt"])
    return make_rounds(count, width, rule=[acceptance.label] * count, **columns)
