import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import DynamicCache

from profiler import pairs
from profiler.decode import decode
from profiler.drafters.lora import GatedAdapter, LoraDrafter
from profiler.sampling import Sampling, permitted_logits, probabilities
from profiler.streams import Streams
from tests.profiler import tiny_checkpoints as tiny
from tests.profiler.drafters.checks import (
    LOSSLESS,
    PASS_TOLERANCE,
    PROMPT,
    Liar,
    drafts_of,
    draws_p_values,
    pair_law_p_value,
)
from tests.profiler.scripted import FALSE_ALARM, counting, noise

pytestmark = pytest.mark.usefixtures("no_gradients")

BLOCK, SIZE, RANK, ALPHA = 4, tiny.MASK_ID, 2, 3.0
BANNED = torch.zeros(SIZE, dtype=torch.bool)
SETTINGS = f'family = "lora"\nrank = {RANK}\nalpha = {ALPHA}'


@pytest.fixture(scope="module")
def pair_file(tmp_path_factory):
    """A bundle as Uno's: the verifier's own weights, and an adapter in a folder of its own."""
    base = tiny.qwen3(seed=1)
    folder = tmp_path_factory.mktemp("pair")
    path = tiny.pair_file(folder, SETTINGS, drafter=base, verifier=base, block_size=BLOCK)
    tiny.name_own_code(folder / "drafter", "sdar")
    tiny.write_adapter(base, folder / "drafter/adapter", rank=RANK, seed=5)
    return path


@pytest.fixture(scope="module")
def pair(pair_file):
    return pairs.load(str(pair_file), device="cpu")


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """The base with the adapter added to its weights."""
    model = tiny.qwen3(seed=1)
    weights = tiny.write_adapter(model, tmp_path_factory.mktemp("merged") / "adapter", rank=RANK, seed=5)
    with torch.no_grad():
        for name, layer in model.named_modules():
            if name.endswith("_proj"):
                down, up = (weights[f"base_model.model.{name}.lora_{key}.weight"] for key in "AB")
                layer.weight += ALPHA / RANK * up @ down
    return model


@pytest.fixture
def drafter(pair):
    pair.drafter.start()
    return pair.drafter


def fresh_probs(drafter, merged, prefix, slots, known):
    """Distributions of the slots from `known` on: the base reads what is known, the merged model the noise after it."""
    clean, rest, cache = torch.cat([prefix, slots[:known]]), slots[known:-1], DynamicCache()
    logits = drafter.model(input_ids=clean[None], cache=cache).logits[0, -1:]
    if len(rest):
        logits = torch.cat([logits, merged(input_ids=rest[None], cache=cache).logits[0]])
    return probabilities(permitted_logits(logits, BANNED), Sampling())


def test_the_drafter_is_the_verifier_with_an_adapter_of_its_own(pair):
    model = tiny.qwen3(seed=1)

    assert isinstance(pair.drafter, LoraDrafter)
    assert pair.drafter.model is pair.verifier.model
    assert all(torch.equal(*both) for both in zip(pair.drafter.model.parameters(), model.parameters(), strict=True))


def test_a_draft_leaves_the_verifier_as_it_was(drafter):
    text = torch.tensor([PROMPT])
    before = drafter.model(input_ids=text).logits
    drafts_of(drafter, block=BLOCK, effort=2, count=1)

    assert torch.equal(drafter.model(input_ids=text).logits, before)
    assert not any(module._forward_hooks for module in drafter.model.modules())


def test_a_draft_that_fails_leaves_the_verifier_as_it_was(drafter):
    with pytest.raises(IndexError):
        drafter.draft(torch.tensor([tiny.ROWS]), block=BLOCK, effort=1, noise=noise(0, 1, BLOCK))

    assert not any(module._forward_hooks for module in drafter.model.modules())


@settings(max_examples=15)
@given(
    start=st.integers(1, 8),
    grown=st.lists(st.integers(1, 5), max_size=4),
    block=st.integers(1, 5),
    data=st.data(),
    seed=st.integers(0, 1000),
)
def test_O17_every_step_agrees_with_a_pass_without_cache(pair, merged, start, grown, block, data, seed):
    """Known rows run the base, noise rows the base with the adapter; the cache keeps the text alone."""
    drafter, effort = pair.drafter, data.draw(st.integers(1, block))
    drafter.start()
    text = torch.randint(0, 5, (start + sum(grown),), generator=torch.Generator().manual_seed(seed))
    length = start
    for growth in (*grown, 0):
        uniforms = noise(seed, effort, block)
        draft = drafter.draft(text[:length], block=block, effort=effort, noise=uniforms)
        slots = 1 + (uniforms.canvas * (SIZE - 1)).long()
        for step in range(effort):
            fresh = fresh_probs(drafter, merged, text[:length], slots, step)
            now = slice(step, step + 1 if step < effort - 1 else block)
            torch.testing.assert_close(draft.probs[now], fresh[: now.stop - step], rtol=0, atol=PASS_TOLERANCE)
            drawn = uniforms.draw(torch.cat([draft.probs[:step], fresh]), step)
            slots = torch.cat([draft.tokens[: step + 1], drawn[step + 1 :]])
        assert drafter._cache.get_seq_length() == length - 1
        length += growth


@pytest.mark.parametrize("effort", [1, 2, BLOCK])
def test_tokens_from_known_rows_have_the_verifiers_own_distribution(pair, effort):
    """The first with K = 1, K of them with K steps: their d_K is 0 and they are always accepted."""
    endless = dataclasses.replace(pair, stop_ids=frozenset())
    rounds = decode(endless, PROMPT, effort=effort, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=20)
    for each in rounds:
        known = min(effort, each.drafted)
        assert max(each.divergence[:known]) < PASS_TOLERANCE
        assert each.accepted >= known
        assert each.drafted == known or max(each.divergence[known:]) > 0.01


@pytest.mark.parametrize("effort", [1, 3])
def test_passes_are_the_forward_passes_that_were_run(drafter, effort, monkeypatch):
    monkeypatch.setattr(drafter.model, "forward", counting(drafter.model.forward))
    (draft,) = drafts_of(drafter, block=BLOCK, effort=effort, count=1)

    assert draft.passes == drafter.model.forward.calls == effort
    assert draft.commit_step.tolist() == {1: [0, 0, 0, 0], 3: [0, 1, 2, 2]}[effort]
    assert drafter.exactness(effort) == "joint"


@pytest.mark.parametrize("effort", [0, 5])
def test_an_effort_outside_of_the_block_is_refused(drafter, effort):
    with pytest.raises(ValueError, match=rf"`effort` must lie in \[1, {BLOCK}\].*got {effort}"):
        drafts_of(drafter, block=BLOCK, effort=effort, count=1)


def test_tokens_are_drawn_from_the_recorded_distributions(drafter):
    right, wrong = draws_p_values(drafts_of(drafter, block=BLOCK, effort=2, count=150))

    assert right > FALSE_ALARM > wrong


def test_two_tokens_of_a_two_step_draft_follow_the_verifiers_law(drafter):
    """Of a block of three, where the last two depend on proposals that were drawn over."""
    assert pair_law_p_value(drafter, effort=2, block=3, size=SIZE) > FALSE_ALARM
    assert pair_law_p_value(Liar(drafter), effort=2, block=3, size=SIZE, draws=100) < FALSE_ALARM


def without(weights, part):
    return {name: tensor for name, tensor in weights.items() if part not in name}


@pytest.mark.parametrize(
    ("spoil", "rank", "message"),
    [
        (lambda weights: without(weights, "lora_B"), RANK, "must be a layer of the verifier with lora_A and lora_B"),
        (lambda weights: {"base_model.model.x.lora_A.weight": torch.ones(2, 2)}, RANK, "adapter's base_model.model.x"),
        (lambda weights: weights, RANK + 1, "`rank` must be the adapter's own, 2 at .*, got 3"),
        (lambda weights: without(weights, "lora_A"), RANK, r"must have weights named base_model.model.<layer>.lora_A"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(tmp_path, spoil, rank, message):
    model = tiny.qwen3(seed=1)
    weights = spoil(tiny.write_adapter(model, tmp_path / "adapter", rank=RANK, seed=5))

    with pytest.raises(ValueError, match=message):
        GatedAdapter(model, weights, rank=rank, alpha=ALPHA)


def test_a_missing_adapter_is_reported_in_one_line(tmp_path):
    base = tiny.qwen3(seed=1)
    path = tiny.pair_file(tmp_path / "pair", SETTINGS, drafter=base, verifier=base)

    with pytest.raises(ValueError, match=r"pair: no adapter/adapter_model.safetensors at 'drafter'") as caught:
        pairs.load(str(path), device="cpu")
    assert "\n" not in str(caught.value)


def test_another_adapter_makes_another_drafter(pair, pair_file, tmp_path):
    """The identity of a recording covers the adapter, which does not lie with the other weights."""
    before = pair.weights["drafter"]
    folder = tmp_path / "pair"
    path = tiny.pair_file(folder, SETTINGS, drafter=tiny.qwen3(seed=1), verifier=tiny.qwen3(seed=1))
    weights = tiny.write_adapter(tiny.qwen3(seed=1), folder / "drafter/adapter", rank=RANK, seed=5)
    assert pairs.load(str(path), device="cpu").weights["drafter"] == before

    save_file(
        {name: 2 * tensor for name, tensor in weights.items()}, folder / "drafter/adapter/adapter_model.safetensors"
    )
    assert pairs.load(str(path), device="cpu").weights["drafter"] != before
