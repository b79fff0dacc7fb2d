import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache

from profiler import pairs
from profiler.decode import decode
from profiler.drafters.feature import DFlashDrafter, DSparkDrafter
from profiler.drafters.feature_backbone import DSparkModel, FeatureBackbone
from profiler.sampling import Sampling, permitted_logits, probabilities
from profiler.streams import Streams
from profiler.verifier import Verifier
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

BLOCK = 4
BANNED = torch.arange(tiny.SIZE) == tiny.MASK_ID


@pytest.fixture(scope="module", params=["dflash", "dspark"])
def variant(request):
    return request.param


@pytest.fixture(scope="module")
def pair(variant, tmp_path_factory):
    temperature = {"dflash": 0.0, "dspark": 1.0}[variant]
    path = tiny.pair_file(
        tmp_path_factory.mktemp("pair"),
        f'family = "feature"\nvariant = "{variant}"\ntemperature = {temperature}',
        drafter=getattr(tiny, variant)(seed=1),
        verifier=tiny.qwen3(seed=2),
        block_size=BLOCK,
        mask=True,
    )
    return pairs.load(str(path), device="cpu")


def drafter_of(pair, sampling=Sampling()):  # noqa: B008 - frozen
    """A drafter of the pair's kind with a verifier of its own, and other sampling."""
    verifier = Verifier(pair.verifier.model, banned=BANNED, sampling=Sampling())
    return type(pair.drafter)(pair.drafter.backbone, verifier, mask_id=tiny.MASK_ID, banned=BANNED, sampling=sampling)


def rotated(heads, positions):
    """Rotary embedding (H, n, 8) after its formula, with base 10,000."""
    half = heads.shape[-1] // 2
    angles = positions[:, None] / 10_000 ** (torch.arange(half) / half)
    left, right = heads[..., :half], heads[..., half:]
    return torch.cat([left * angles.cos() - right * angles.sin(), right * angles.cos() + left * angles.sin()], -1)


def normed(weight, rows):
    return weight * rows / (rows.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def written_out(backbone, rows, features):
    """The backbone after its description, layer by layer, without a cache: (B, d)."""
    context = normed(backbone.hidden_norm.weight, backbone.fc(features))
    places = torch.arange(len(context) + len(rows))
    for layer in backbone.layers:
        attention, new = layer.self_attn, normed(layer.input_layernorm.weight, rows)
        seen = torch.cat([context, new])
        query = normed(attention.q_norm.weight, attention.q_proj(new).unflatten(-1, (2, 8))).transpose(0, 1)
        key = normed(attention.k_norm.weight, attention.k_proj(seen).unflatten(-1, (1, 8))).transpose(0, 1)
        value = attention.v_proj(seen)
        scores = rotated(query, places[-len(rows) :]) @ rotated(key, places).transpose(-1, -2) / math.sqrt(8)
        rows = rows + attention.o_proj((scores.softmax(-1) @ value).transpose(0, 1).flatten(1))
        rows = rows + layer.mlp(normed(layer.post_attention_layernorm.weight, rows))
    return normed(backbone.norm.weight, rows)


def expected_probs(pair, prefix, draft, sampling):
    """The distribution of each drafted token, from a fresh pass of the verifier and the backbone written out."""
    model, backbone, block = pair.verifier.model, pair.drafter.backbone, len(draft.tokens)
    features = torch.empty(0, 2 * tiny.COMMON["hidden_size"])
    if len(prefix) > 1:
        states = model(input_ids=prefix[None, :-1], output_hidden_states=True).hidden_states
        features = torch.cat([states[1][0], states[2][0]], dim=-1)
    if isinstance(pair.drafter, DFlashDrafter):
        ids = torch.tensor([int(prefix[-1])] + [tiny.MASK_ID] * block)
        logits = model.lm_head(written_out(backbone, model.model.embed_tokens(ids), features)[1:])
    else:
        ids = torch.tensor([int(prefix[-1])] + [tiny.MASK_ID] * (block - 1))
        logits = backbone.lm_head(written_out(backbone, backbone.embed_tokens(ids), features))
        before = torch.cat([prefix[-1:], draft.tokens[:-1]])
        table = backbone.markov_head["markov_w1"].weight @ backbone.markov_head["markov_w2"].weight.T
        logits = logits + table[before]
    return probabilities(permitted_logits(logits, BANNED), sampling)


def test_a_checkpoint_is_loaded_to_the_bit(pair, variant):
    model = getattr(tiny, variant)(seed=1)

    assert type(pair.drafter) is {"dflash": DFlashDrafter, "dspark": DSparkDrafter}[variant]
    assert type(pair.drafter.backbone) is {"dflash": FeatureBackbone, "dspark": DSparkModel}[variant]
    assert pair.drafter.backbone.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(*both) for both in zip(pair.drafter.backbone.parameters(), model.parameters(), strict=True))
    assert pair.drafter.exactness(1) == "joint"


@settings(max_examples=15)
@given(
    start=st.integers(1, 8),
    rounds=st.lists(st.integers(1, 4).flatmap(lambda b: st.tuples(st.just(b), st.integers(0, b))), max_size=4),
    seed=st.integers(0, 1000),
)
def test_O17_a_drafter_that_went_along_draws_from_what_its_description_gives(pair, start, rounds, seed):
    """Cached context changes no distribution, whatever was accepted and however long the blocks were."""
    drafter = drafter_of(pair)
    text = torch.randint(0, 5, (start,), generator=torch.Generator().manual_seed(seed))
    drafter.verifier.start(text)
    for index, (block, accepted) in enumerate([*rounds, (4, 0)]):
        draft = drafter.draft(text, block=block, effort=1, noise=noise(seed + index, 1, block))
        fresh = expected_probs(pair, text, draft, Sampling())
        torch.testing.assert_close(draft.probs, fresh, rtol=0, atol=PASS_TOLERANCE)
        drafter.verifier.score(text[-1:], draft.tokens)
        drafter.verifier.keep(len(text) + accepted)
        text = torch.cat([text, draft.tokens[:accepted], torch.tensor([(seed + index) % 5])])


@pytest.mark.parametrize("effort", [0, 2])
def test_other_efforts_than_1_are_refused_with_the_reason(pair, effort):
    with pytest.raises(ValueError, match=rf"`effort` .* must be 1, got {effort}: .* a further pass of the verifier"):
        drafts_of(pair.drafter, block=BLOCK, effort=effort, count=1)


def test_O28_the_anchor_of_a_dflash_block_is_no_draft(pair, variant):
    """Blocks of 5 rows draft 4 tokens where the first row is the anchor's alone; blocks of 4 where it drafts too."""
    assert pair.drafter.backbone.block_size == {"dflash": 5, "dspark": 4}[variant]
    drafter = drafter_of(pair)
    drafter.verifier.start(torch.tensor(PROMPT))
    (draft,) = drafts_of(drafter, block=4, effort=1, count=1)
    assert len(draft.tokens) == 4
    with pytest.raises(ValueError, match="`block` must be at most the 4 tokens that the drafter proposes, got 5"):
        drafts_of(drafter, block=5, effort=1, count=1)


def test_a_round_is_one_pass_of_each_model(pair, monkeypatch):
    model, backbone = pair.verifier.model, pair.drafter.backbone
    monkeypatch.setattr(model, "forward", counting(model.forward))
    monkeypatch.setattr(backbone, "forward", counting(backbone.forward))
    endless = dataclasses.replace(pair, stop_ids=frozenset())
    rounds = list(decode(endless, PROMPT, effort=1, rule=LOSSLESS, streams=Streams(seed=0, request=0), token_limit=12))

    assert [each.passes for each in rounds] == [1] * len(rounds)
    assert backbone.forward.calls == len(rounds)
    assert model.forward.calls == len(rounds) + 1  # the prompt


def test_a_text_that_the_verifier_has_not_read_is_refused(pair):
    drafter = drafter_of(pair)
    drafter.verifier.start(torch.tensor(PROMPT[:3]))

    with pytest.raises(ValueError, match="the verifier has read 2 tokens of a text of 5"):
        drafts_of(drafter, block=BLOCK, effort=1, count=1)


def test_O04_greedy_drafts_are_recorded_as_certain(pair):
    drafter = drafter_of(pair, Sampling(temperature=0.0))
    drafter.verifier.start(torch.tensor(PROMPT))
    (draft,) = drafts_of(drafter, block=BLOCK, effort=1, count=1)

    assert torch.equal(draft.probs, torch.nn.functional.one_hot(draft.tokens, tiny.SIZE).float())


def test_tokens_are_drawn_from_the_recorded_distributions(pair):
    drafter = drafter_of(pair)
    drafter.verifier.start(torch.tensor(PROMPT))
    right, wrong = draws_p_values(drafts_of(drafter, block=BLOCK, effort=1, count=150))

    assert right > FALSE_ALARM > wrong


def test_two_tokens_follow_the_verifiers_law(pair):
    """With the pair's own sampling: greedy for DFlash, whose drafts are then certain, and temperature 1 for DSpark."""
    assert pair_law_p_value(pair.drafter, effort=1, block=2, verifier=pair.verifier, draws=300) > FALSE_ALARM
    assert pair_law_p_value(Liar(pair.drafter), effort=1, block=2, verifier=pair.verifier, draws=100) < FALSE_ALARM


def test_dspark_without_its_markov_head_is_another_drafter(pair, variant):
    """The distribution of a token depends on the one before it, which a draw of all at once could not give."""
    drafter = drafter_of(pair)
    drafter.verifier.start(torch.tensor(PROMPT))
    laws = {
        tuple(draft.tokens[:1].tolist()): draft.probs[1] for draft in drafts_of(drafter, block=2, effort=1, count=20)
    }
    distances = [float((law - next(iter(laws.values()))).abs().max()) for law in laws.values()]

    assert len(laws) > 1
    assert (max(distances) > 0.01) == (variant == "dspark")


def test_settings_that_no_checkpoint_of_the_kind_has_are_refused():
    config = tiny.dflash(seed=1).config
    config.layer_types = ["full_attention", "sliding_attention"]
    with pytest.raises(ValueError, match=r"`layer_types` .* must all be full_attention, got sliding_attention"):
        FeatureBackbone(config)
    config = tiny.dspark(seed=1).config
    config.markov_head_type = "gated"
    with pytest.raises(ValueError, match="`markov_head_type` must be vanilla, got 'gated'"):
        DSparkModel(config)
    del config.target_layer_ids
    with pytest.raises(ValueError, match="the drafter's config must have `target_layer_ids`, got none"):
        FeatureBackbone(config)


def test_the_network_is_that_of_the_dflash_package():
    """Where it is installed: its own class on the same weights, one call with the whole context."""
    package = pytest.importorskip("dflash.model")
    backbone = tiny.dflash(seed=1)
    config = backbone.config
    config.num_target_layers = 2
    published = package.DFlashDraftModel(config).eval()
    published.load_state_dict(backbone.state_dict())
    features = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    rows = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))

    ours = backbone(rows, features, DynamicCache())
    theirs = published(
        position_ids=torch.arange(11)[None],
        noise_embedding=rows[None],
        target_hidden=features[None],
        past_key_values=DynamicCache(),
        use_cache=True,
    )[0]

    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
