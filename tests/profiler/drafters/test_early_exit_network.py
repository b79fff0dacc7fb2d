import pytest
import torch
from transformers import DynamicCache

from profiler.drafters.attention import hiding
from profiler.drafters.early_exit_network import EarlyExitNetwork, prefix_of
from tests.profiler import tiny_checkpoints as tiny

LAYERS = 2
HEAD_IDS = torch.tensor([0, 2, 3, 5])
TEXT = torch.tensor([[0, 3, 1, 4, 2, 2, 0]])
PASS_TOLERANCE = 1e-5
"""Between two float32 passes that sum in another order, in a representation of size 1."""


@pytest.fixture(scope="module")
def verifier():
    return tiny.llama(seed=1, num_hidden_layers=3)


@pytest.fixture(scope="module")
def embeddings(verifier):
    return verifier.get_input_embeddings().weight.detach()


@pytest.fixture
def network(verifier):
    return EarlyExitNetwork.copied_from(verifier, layers=LAYERS, head_ids=HEAD_IDS)


@torch.no_grad()
def read(verifier, text):
    cache = DynamicCache()
    verifier(input_ids=text, cache=cache)
    return prefix_of(cache, LAYERS)


def test_an_untrained_copy_says_what_the_verifiers_first_layers_say(verifier, network, embeddings):
    """Rows that look back alone, over the verifier's own prefix: the verifier cut off after those layers."""
    cut = tiny.llama(seed=1, num_hidden_layers=3)
    cut.model.layers = cut.model.layers[:LAYERS]
    cut.config.num_hidden_layers = LAYERS
    rows, first = TEXT.shape[1] - 4, 4
    later = hiding(torch.ones(rows, TEXT.shape[1]).triu(first + 1).bool(), torch.float32)
    hidden = network(
        network.rows(TEXT[:, first:], embeddings),
        positions=torch.arange(first, TEXT.shape[1])[None],
        prefix=read(verifier, TEXT[:, :first]),
        mask=later,
    )

    expected = cut(input_ids=TEXT).logits[0, first:, HEAD_IDS]
    torch.testing.assert_close((hidden @ network.head(embeddings).T)[0], expected, rtol=0, atol=PASS_TOLERANCE)


def test_each_row_sees_the_whole_block_and_the_whole_prefix(verifier, network, embeddings):
    positions = torch.arange(4, 7)[None]

    def hidden(block, prefix):
        return network(network.rows(block, embeddings), positions=positions, prefix=read(verifier, prefix))

    before = hidden(TEXT[:, 4:], TEXT[:, :4])
    other_end = hidden(torch.tensor([[2, 2, 1]]), TEXT[:, :4])
    other_start = hidden(TEXT[:, 4:], torch.tensor([[1, 3, 1, 4]]))
    assert ((before - other_end).abs().amax(-1) > 1e-3).all()
    assert ((before - other_start).abs().amax(-1) > 1e-3).all()


def test_blocks_of_different_texts_in_one_batch_are_those_one_by_one(verifier, network, embeddings):
    """Prefixes of 4 and 2 tokens, the shorter one padded and the padding hidden."""
    mask_id = network.config.mask_token_id
    rows = network.rows(torch.tensor([[2, mask_id, mask_id], [1, mask_id, mask_id]]), embeddings)
    one, other = read(verifier, TEXT[:, :4]), read(verifier, TEXT[:, :2])
    padded = [
        tuple(torch.cat([a, torch.nn.functional.pad(b, (0, 0, 0, 2))]) for a, b in zip(*layer, strict=True))
        for layer in zip(one, other, strict=True)
    ]
    hidden_keys = torch.zeros(2, 1, 3, 7)
    hidden_keys[1, ..., 2:4] = torch.finfo(torch.float32).min
    positions = torch.stack([torch.arange(4, 7), torch.arange(2, 5)])
    together = network(rows, positions=positions, prefix=padded, mask=hidden_keys)

    for index, prefix in enumerate((one, other)):
        alone = network(rows[index : index + 1], positions=positions[index : index + 1], prefix=prefix)
        torch.testing.assert_close(together[index], alone[0], rtol=0, atol=PASS_TOLERANCE)


def test_a_text_of_the_anchor_alone_has_no_prefix(network, embeddings):
    assert prefix_of(DynamicCache(), LAYERS) == []
    hidden = network(network.rows(TEXT[:, :3], embeddings), positions=torch.arange(3)[None], prefix=[])
    assert hidden.shape == (1, 3, 16)


def test_what_is_trained_gets_gradients_and_nothing_else(verifier, network, embeddings):
    block = torch.tensor([[2, network.config.mask_token_id]])
    hidden = network(
        network.rows(block, embeddings), positions=torch.arange(4, 6)[None], prefix=read(verifier, TEXT[:, :4])
    )
    (hidden @ network.head(embeddings).T).logsumexp(-1).sum().backward()

    assert all(weights.grad.abs().sum() > 0 for weights in network.parameters())
    assert all(weights.grad is None for weights in verifier.parameters())


def test_a_saved_network_is_the_same_when_loaded(network, tmp_path):
    with torch.no_grad():
        network.mask_embedding.normal_()
    network.bfloat16().save_pretrained(tmp_path)
    loaded = EarlyExitNetwork.from_pretrained(tmp_path, dtype=torch.float32)

    assert loaded.config.mask_token_id == tiny.ROWS
    assert loaded.head_ids.tolist() == HEAD_IDS.tolist()
    assert loaded.head_ids.dtype == torch.int32
    assert {name.split(".")[0] for name in loaded.state_dict()} == {"layers", "norm", "mask_embedding", "head_ids"}
    for name, weights in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weights.to(loaded.state_dict()[name]))
