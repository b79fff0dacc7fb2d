import numpy as np
import pytest
import torch
from scipy import stats

from profiler import streams
from profiler.streams import Stream, Streams
from tests.profiler.scripted import FALSE_ALARM

STREAMS = Streams(seed=3, request=5)


@pytest.mark.parametrize("name", ["seed", "request"])
@pytest.mark.parametrize("value", [-1, 2**63])
def test_keys_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"`{name}` must lie in \[0, 2\*\*63\), got {value}"):
        Streams(**({"seed": 0, "request": 0} | {name: value}))


def test_the_same_key_gives_the_same_numbers_whatever_was_drawn_before():
    first = STREAMS.uniforms(Stream.DRAFT, 7, (2, 3))
    STREAMS.uniforms(Stream.DRAFT, 6, (100,))
    torch.rand(3)
    np.random.default_rng(0).random(3)

    assert torch.equal(Streams(seed=3, request=5).uniforms(Stream.DRAFT, 7, (2, 3)), first)


def test_O06_every_part_of_the_key_counts():
    keys = {
        (seed, request, stream, index): Streams(seed=seed, request=request).uniforms(stream, index, (4,))
        for seed in (0, 1, 2**63 - 1)
        for request in (0, 1, 2**63 - 1)
        for stream in Stream
        for index in (0, 1, 2)
    }

    distinct = {tuple(numbers.tolist()) for numbers in keys.values()}
    assert len(distinct) == len(keys) == 135


def test_rounds_do_not_overlap_even_in_long_blocks():
    first, second = (STREAMS.uniforms(Stream.DRAFT, index, (100_000,)) for index in (0, 1))

    assert not np.intersect1d(first.numpy(), second.numpy()).size


def test_numbers_are_uniform_in_float64_below_one():
    numbers = torch.cat([STREAMS.uniforms(stream, index, (50,)) for stream in Stream for index in range(200)])

    assert numbers.dtype == torch.float64
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    assert stats.kstest(numbers.numpy(), "uniform").pvalue > FALSE_ALARM


def test_gumbel_noise_belongs_to_its_position_and_token_alone():
    """However long the block and the vocabulary are, and wherever the block begins (`gumbel` has no round)."""
    whole = STREAMS.gumbel(40, 9, 100)

    assert torch.equal(STREAMS.gumbel(43, 2, 100), whole[3:5])
    assert torch.equal(STREAMS.gumbel(40, 9, 61), whole[:, :61])
    assert whole.unique().numel() == whole.numel()


@pytest.mark.parametrize("other", [{"seed": 4}, {"request": 6}])
def test_gumbel_noise_of_other_requests_is_other_noise(other):
    noise = Streams(**({"seed": 3, "request": 5} | other)).gumbel(40, 9, 100)

    assert not np.intersect1d(noise.numpy(), STREAMS.gumbel(40, 9, 100).numpy()).size


def test_gumbel_noise_has_the_law_of_its_name_in_float64():
    noise = STREAMS.gumbel(0, 500, 40)

    assert noise.dtype == torch.float64
    assert stats.kstest(noise.ravel().numpy(), "gumbel_r").pvalue > FALSE_ALARM
    assert stats.pearsonr(noise[:-1].ravel().numpy(), noise[1:].ravel().numpy()).pvalue > FALSE_ALARM


def test_gumbel_noise_of_the_least_and_the_greatest_uniform_is_finite(monkeypatch):
    ends = torch.tensor([[0.0, 1 - 2.0**-53]], dtype=torch.float64)
    monkeypatch.setattr(streams, "_hashed", lambda keys, size: ends)

    low, high = STREAMS.gumbel(0, 1, 2)[0].tolist()

    assert (low, high) == pytest.approx((-np.log(54 * np.log(2)), 53 * np.log(2)))


def splitmix64(state, count):
    """SplitMix64 in whole numbers of Python."""
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        yield mixed ^ (mixed >> 31)


def test_the_hash_is_splitmix64_to_the_last_bit():
    assert list(splitmix64(1234567, 2)) == [6457827717110365317, 3203168211198807973]  # as published
    keys = [1234567, 0, 2**63 - 1, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15]

    found = streams._hashed(torch.tensor([[key - 2**64 * (key >= 2**63)] for key in keys]), 200)

    assert found.tolist() == [[(bits >> 11) * 2.0**-53 for bits in splitmix64(key, 200)] for key in keys]


def test_gumbel_noise_of_neighbours_is_independent():
    """Between positions, between tokens, and of the low bits too: false alarm 1e-6 each."""
    uniforms = torch.exp(-torch.exp(-STREAMS.gumbel(0, 400, 400))).numpy()
    low = (uniforms * 2**20) % 1

    for numbers in (uniforms, low):
        assert stats.kstest(numbers.ravel(), "uniform").pvalue > FALSE_ALARM
        for one, other in ((numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1])):
            assert stats.pearsonr(one.ravel(), other.ravel()).pvalue > FALSE_ALARM


def test_a_scalar_shape_gives_a_scalar():
    assert STREAMS.uniforms(Stream.REPLACEMENT, 0, ()).shape == ()


@pytest.mark.parametrize("other", [Stream.ACCEPTANCE, Stream.REPLACEMENT])
def test_O06_streams_of_one_round_are_not_correlated(other):
    draft, second = (
        np.array([float(STREAMS.uniforms(stream, index, (1,))[0]) for index in range(2000)])
        for stream in (Stream.DRAFT, other)
    )

    assert stats.pearsonr(draft, second).pvalue > FALSE_ALARM
