"""What every family of drafters must show, whatever its network, on the tiny vocabulary."""

import numpy as np
import torch

from profiler.decode import decode
from profiler.drafters.draft import Draft, Drafter
from profiler.streams import Streams
from profiler.verifier import Verifier
from tests.profiler import tiny_checkpoints as tiny
from tests.profiler.scripted import MarkovVerifier, noise, p_value, pair_of, uniform_p_value
from theory.acceptance import LinearAcceptance

LOSSLESS = LinearAcceptance(leniency=0.0)
PROMPT = [0, 3, 1, 4, 2]
PASS_TOLERANCE = 2e-5
"""Between two float32 forward passes that sum in another order, in a probability; ten times what is seen."""
_ROWS = torch.rand(tiny.SIZE, tiny.SIZE, generator=torch.Generator().manual_seed(0)) ** 3
_ROWS[:, tiny.MASK_ID] = 0
MARKOV = _ROWS / _ROWS.sum(-1, keepdim=True)


def drafts_of(drafter: Drafter, *, block: int, effort: int, count: int, prefix: list[int] = PROMPT) -> list[Draft]:
    """Independent drafts after one prefix."""
    text = torch.tensor(prefix)
    return [drafter.draft(text, block=block, effort=effort, noise=noise(seed, effort, block)) for seed in range(count)]


def draws_p_values(drafts: list[Draft]) -> tuple[float, float]:
    """Whether tokens were drawn from the recorded distributions; and from those of the next ids, which is wrong."""
    tokens = torch.cat([draft.tokens for draft in drafts])
    right = torch.cat([draft.probs for draft in drafts])
    wrong = torch.cat([draft.probs.roll(1, dims=-1) for draft in drafts])
    return uniform_p_value(right, tokens), uniform_p_value(wrong, tokens)


class Liar:
    """A drafter that says it hardly ever draws what it drew, so that nearly all is accepted and the law its own."""

    def __init__(self, drafter: Drafter):
        self.drafter = drafter

    def start(self) -> None:
        self.drafter.start()

    def draft(self, *args: object, **kwargs: object) -> Draft:
        draft = self.drafter.draft(*args, **kwargs)
        drawn = torch.nn.functional.one_hot(draft.tokens, draft.probs.shape[-1])
        probs = 0.001 * drawn + 0.999 * drawn.roll(1, dims=-1)
        return Draft(tokens=draft.tokens, probs=probs, commit_step=draft.commit_step, passes=draft.passes)


def pair_law_p_value(
    drafter: object,
    *,
    effort: int,
    block: int,
    draws: int = 300,
    size: int = tiny.SIZE,
    verifier: Verifier | None = None,
) -> float:
    """Whether the first two tokens after the prompt, decoded at leniency 0, follow the verifier's joint law.

    The verifier is a Markov chain over `size` tokens, or a real one for drafters that read it.
    """
    judge = verifier or MarkovVerifier(MARKOV[:size, :size])
    pair = pair_of(drafter, judge, vocabulary_size=size, block_size=block)
    counts = np.zeros((size, size))
    for request in range(draws):
        streams = Streams(seed=0, request=request)
        rounds = decode(pair, PROMPT, effort=effort, rule=LOSSLESS, streams=streams, token_limit=2)
        counts[tuple(token for each in rounds for token in each.tokens)] += 1
    return p_value(counts, _pair_law(judge, size))


@torch.inference_mode()
def _pair_law(verifier: MarkovVerifier | Verifier, size: int) -> np.ndarray:
    law = torch.zeros(size, size, dtype=torch.float64)
    for token in range(size):
        verifier.start(torch.tensor(PROMPT))
        scores = verifier.score(torch.tensor(PROMPT[-1:]), torch.tensor([token])).double()
        law[token] = scores[0, token] * scores[1]
    return law.numpy()
