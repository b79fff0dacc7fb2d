import itertools

import torch

from profiler.tasks import word_problems
from profiler.training.data import END_ID, LONGEST, MASK_ID, PAD_ID, TOKEN_IDS, Batch, batches

WORDS = {index: word for word, index in TOKEN_IDS.items()}


def words(row, start, stop):
    return " ".join(WORDS[int(token)] for token in row[start:stop])


def test_ids_follow_the_vocabulary():
    assert list(TOKEN_IDS) == word_problems.vocabulary()
    assert (PAD_ID, END_ID, MASK_ID) == (0, 1, 2)


def test_rows_are_a_question_its_answer_the_end_and_padding():
    (batch,) = itertools.islice(batches(seed=0, size=64, drill_share=0.0, steps=10), 1)

    for row, start, length in zip(batch.tokens, batch.answer_start, batch.length, strict=True):
        assert words(row, 0, start).endswith("now ? A:")
        assert word_problems.final_number(words(row, start, length)) is not None
        assert row[length - 1] == END_ID
        assert row[length:].tolist() == [PAD_ID] * (LONGEST - int(length))
        assert PAD_ID not in row[:length]


def test_the_answer_is_marked_with_its_end_token():
    batch = Batch(torch.zeros(2, 6, dtype=torch.long), torch.tensor([2, 1]), torch.tensor([5, 6]))

    assert batch.in_answer().int().tolist() == [[0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1]]


def test_batches_are_reproducible_and_differ_between_seeds():
    first, again, other = (list(batches(seed=seed, size=4, drill_share=0.3, steps=3)) for seed in (1, 1, 2))

    assert len(first) == 3
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0].tokens, other[0].tokens)


def test_only_training_questions_are_used():
    """A held-out question is what `problems(held_out=True)` would yield; none of them may be trained on."""
    questions = {
        words(row, 0, start)
        for batch in batches(seed=0, size=64, drill_share=0.0, steps=10)
        for row, start in zip(batch.tokens, batch.answer_start, strict=True)
    }
    held_out = {problem.prompt for problem in itertools.islice(word_problems.problems(0, held_out=True), 700)}

    assert len(questions) > 600
    assert not questions & held_out


def test_drills_fade_to_none_at_half_of_the_steps():
    def drills(batch):
        return int((batch.answer_start == 1).sum())

    counts = [drills(batch) for batch in batches(seed=0, size=100, drill_share=1.0, steps=20)]

    assert counts[0] == 100
    assert counts[10:] == [0] * 10
    assert 30 < counts[5] < 70  # half of a hundred


def test_drills_are_true_equations_that_fill_the_row():
    (batch,) = itertools.islice(batches(seed=0, size=200, drill_share=1.0, steps=1), 1)

    for row, length in zip(batch.tokens, batch.length, strict=True):
        assert LONGEST - 9 <= length <= LONGEST
        assert row[length - 1] == END_ID
        assert END_ID not in row[: length - 1]
