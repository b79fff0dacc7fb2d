import itertools
import random

import pytest

from profiler import tasks
from profiler.tasks import code, instructions, mathematics
from profiler.tasks.templates import Request, TemplateTask, is_held_out

TASKS = (code.TASK, instructions.TASK, mathematics.TASK)
everyone = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def texts(task, held_out, count=None, seed=0):
    return list(itertools.islice(task.texts(seed, held_out=held_out), count))


@everyone
def test_a_task_is_known_by_its_name(task):
    assert tasks.load(task.name) is task


@everyone
def test_the_halves_share_no_prompt_and_repeat_none(task):
    training, held_out = texts(task, False, 400), [text for seed in (0, 1) for text in texts(task, True, 100, seed)]

    assert len(set(training)) == 400
    assert len(set(held_out[:100])) == 100
    assert not set(training) & set(held_out)


@everyone
def test_a_seed_gives_the_same_prompts_and_a_smaller_count_is_their_beginning(task):
    prompts = task.prompts(20, seed=3)

    assert [prompt.text for prompt in prompts] == texts(task, True, 20, seed=3)
    assert task.prompts(5, seed=3) == prompts[:5]
    assert task.prompts(5, seed=4) != prompts[:5]
    assert len({prompt.id for prompt in prompts}) == 20


@everyone
def test_templates_are_filled_in_and_not_scored(task):
    prompt = task.prompts(1, seed=0)[0]

    assert not any("{" in text for text in texts(task, False, 200))
    assert task.is_correct(prompt, "42") is None


def test_code_asked_for_in_other_words_stays_in_its_half():
    rng = random.Random(0)
    words = {}
    for request in (code.random_request(rng) for _ in range(2000)):
        words.setdefault(request.content, set()).add(request.text)
    halves = [{text for content in words if is_held_out(content) == half for text in words[content]} for half in (0, 1)]

    assert max(map(len, words.values())) > 3
    assert not halves[0] & halves[1]


def test_more_prompts_than_there_are_is_refused():
    few = TemplateTask(name="few", make=lambda rng: Request(content=f"{rng.randrange(40)}", text="a"))
    held_out = sum(is_held_out(f"{number}") for number in range(40))

    assert len(few.prompts(held_out, seed=0)) == held_out
    with pytest.raises(ValueError, match=f"--prompts must be at most {held_out}, all that few has, got 99"):
        few.prompts(99, seed=0)
