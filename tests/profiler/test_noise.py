import pytest
import torch

from profiler.noise import Gumbel, Uniforms
from profiler.streams import Stream, Streams
from profiler.verification import Coupling, Place, RatioTest
from tests.profiler.scripted import FALSE_ALARM, p_value
from theory.acceptance import LinearAcceptance

SIZE, STEPS, BLOCK = 5, 3, 4
STREAMS = Streams(seed=1, request=2)
PLACE = Place(index=6, position=9)
CPU = torch.device("cpu")
PROBS = torch.rand(BLOCK, SIZE, generator=torch.Generator().manual_seed(0)).softmax(-1)


def of(way, place=PLACE, block=BLOCK):
    if way == "ratio":
        test = RatioTest(rule=LinearAcceptance(leniency=0.0), streams=STREAMS, device=CPU)
        return test.noise(place, STEPS, block)
    return Coupling(streams=STREAMS, device=CPU, vocabulary_size=SIZE).noise(place, STEPS, block)


@pytest.mark.parametrize("way", ["ratio", "coupled"])
def test_a_part_draws_what_the_whole_draws_at_its_slots(way):
    noise = of(way)
    for slots in (slice(0, 2), slice(3, 4), slice(1, BLOCK)):
        for step in range(STEPS):
            assert torch.equal(noise.part(slots).draw(PROBS[slots], step), noise.draw(PROBS, step)[slots])
        assert torch.equal(noise.part(slots).random_ids(1, 90), noise.random_ids(1, 90)[slots])


@pytest.mark.parametrize("way", ["ratio", "coupled"])
def test_random_ids_are_those_of_a_stream_of_their_own(way):
    expected = 10 + STREAMS.uniforms(Stream.CANVAS, PLACE.index, (BLOCK,)).mul(7).floor()

    assert of(way).random_ids(10, 17).tolist() == expected.tolist()


def test_random_ids_are_as_likely_each_and_independent_of_what_is_drawn():
    """Where ids came from the uniforms of the first step, the canvas would know the draw."""
    law = torch.tensor([0.5, 0.5]).expand(4000, -1)
    noise = of("ratio", block=4000)

    counts = torch.bincount(3 * noise.draw(law, 0) + noise.random_ids(0, 3), minlength=6)
    dependent = Uniforms(noise.values, canvas=noise.values[0])
    wrong = torch.bincount(3 * dependent.draw(law, 0) + dependent.random_ids(0, 3), minlength=6)

    assert p_value(counts, [1 / 6] * 6) > FALSE_ALARM > p_value(wrong, [1 / 6] * 6)


@pytest.mark.parametrize("kind", [Uniforms, Gumbel])
def test_random_ids_stay_below_their_bound(kind):
    largest = kind(torch.zeros(1, 1), canvas=torch.tensor([1 - 2.0**-53], dtype=torch.float64))

    assert largest.random_ids(0, 262144).tolist() == [262143]
