import itertools
import random
import re

import pytest

from profiler import pairs, tasks
from profiler.tasks import word_problems
from profiler.tasks.task import Prompt
from profiler.tasks.word_problems import (
    equation,
    final_number,
    is_correct,
    problems,
    prompts,
    random_problem,
    vocabulary,
)
from profiler.training.data import LONGEST

MANY = 2000
# Written down again here, so that a slip in the module's own tables is noticed: operator and equals of each notation.
NOTATIONS = {
    "=": {"*": "*", "+": "+", "-": "-"},
    "makes": {"times": "*", "plus": "+", "minus": "-"},
    "is": {"x": "*", "and": "+", "less": "-"},
    "gives": {"by": "*", "with": "+", "without": "-"},
}
AGREEING = {
    "lead": {"now": "it", "then": "this", "so": "that", "next": "all", "here": "them", "well": "these"},
    "verb": {"get": "from", "find": "via", "count": "using", "see": "in", "work": "through", "read": "off"},
}
EQUATION = r"((?:\d )+)(\S+) ((?:\d )+)(\S+) ((?:\d )+[<>])"
STEP = re.compile(rf"(\w+) (\w+) (\w+) (\w+) {EQUATION}")


def some(seed=0, count=MANY, held_out=True):
    return list(itertools.islice(problems(seed, held_out=held_out), count))


def number(spaced):
    """The number that digits spell, read from the right where an arrow points to the left."""
    spelled = re.sub(r"[ <>]", "", spaced)
    return int(spelled[::-1] if "<" in spaced else spelled)


def apply(sign, left, right):
    return {"*": left * right, "+": left + right, "-": left - right}[sign]


def solve(prompt):
    """The answer, from the question alone."""
    text = re.sub(r"(?<=\d) (?=\d)", "", prompt)
    owned = re.match(r"\w+ has (\d+) ", text)
    total = int(owned[1]) if owned else 0
    for groups, each in re.findall(r"(?:buys|gets) (\d+) \w+ of (\d+) ", text):
        total += int(groups) * int(each)
    for sign, count in re.findall(r"(gives|finds) (\d+) \w+ (?:to \w+ )?\.", text):
        total += int(count) * (1 if sign == "finds" else -1)
    return total


@pytest.mark.parametrize("held_out", [True, False])
def test_every_equation_of_every_answer_is_true_and_the_last_one_answers_the_question(held_out):
    seen = set()
    for problem in some(held_out=held_out):
        body, mark, answer = problem.answer.partition(" # ")
        steps = STEP.findall(body)
        assert " ".join("".join(f"{part} " for part in step).replace("  ", " ").strip() for step in steps) == body
        for lead, verb, thing, source, left, operator, right, equals, result in steps:
            assert AGREEING["lead"][lead] == thing
            assert AGREEING["verb"][verb] == source
            assert apply(NOTATIONS[equals][operator], number(left), number(right)) == number(result)
            seen |= {(equals, operator), lead, verb, result[-1]}
        assert mark
        assert number(answer) == number(steps[-1][-1]) == problem.value == solve(problem.prompt)
        assert len(steps) in (2, 3)
    assert len(seen) == 12 + 6 + 6 + 2  # every notation, opening, verb and direction occurs


def test_steps_build_on_the_numbers_before_them():
    """A step uses numbers of the question and results of earlier steps only."""
    for problem in some(count=500):
        known = {int(each) for each in re.findall(r"\d+", re.sub(r"(?<=\d) (?=\d)", "", problem.prompt))}
        for *_, left, _, right, _, result in STEP.findall(problem.answer.partition(" # ")[0]):
            assert {number(left), number(right)} <= known
            known.add(number(result))


@pytest.mark.parametrize("operator", "*+-")
def test_equations_are_true_in_every_notation_and_order(operator):
    rng = random.Random(0)
    written = {equation(operator, 37, 5, rng) for _ in range(200)}

    assert len(written) == (8 if operator == "-" else 16)  # notations, directions of the result, orders
    for line in written:
        left, sign, right, equals, result = re.fullmatch(EQUATION, line).groups()
        assert apply(NOTATIONS[equals][sign], number(left), number(right)) == number(result) == apply(operator, 37, 5)


def test_intermediate_results_have_two_digits_so_that_answers_of_one_kind_have_one_length():
    for problem in some():
        for *_, result in STEP.findall(problem.answer.partition(" # ")[0]):
            assert 10 <= number(result) <= 99


def test_training_never_sees_a_held_out_question():
    training = {problem.prompt for problem in some(count=5000, held_out=False)}
    held_out = {problem.prompt for seed in range(3) for problem in some(seed, 1500)}

    assert not training & held_out
    assert len(training) > 4900


def test_prompts_are_the_same_for_every_run_and_differ_between_seeds():
    assert prompts(20, 3) == prompts(20, 3)
    assert prompts(20, 3)[:5] == prompts(5, 3)
    assert not {each.text for each in prompts(20, 3)} & {each.text for each in prompts(20, 4)}


def test_prompts_do_not_depend_on_the_global_random_state():
    random.seed(1)
    first = prompts(5, 0)
    random.seed(2)

    assert prompts(5, 0) == first


def test_prompts_have_distinct_ids_and_the_value_as_their_reference():
    chosen = prompts(200, 5)

    assert len({each.id for each in chosen}) == 200
    assert [int(each.reference) for each in chosen] == [solve(each.text) for each in chosen]
    assert {each.id for each in chosen}.isdisjoint({each.id for each in prompts(200, 6)})


def test_the_vocabulary_covers_everything_once():
    words = vocabulary()

    assert len(words) == len(set(words))
    assert words[:3] == ["<pad>", "<eos>", "<mask>"]
    used = {word for problem in some(count=5000) for word in f"{problem.prompt} {problem.answer}".split()}
    assert used == set(words[3:])


def test_the_longest_problem_fits_with_its_end_token():
    lengths = [len(f"{each.prompt} {each.answer}".split()) + 1 for each in some(count=5000, held_out=False)]

    assert max(lengths) <= LONGEST


def test_the_embedded_pairs_token_limit_leaves_room_for_every_answer():
    limit = pairs.read("embedded").task.token_limit
    assert max(len(each.answer.split()) for each in some()) < limit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("now get it from 3 * 4 = 1 2 > # 2 4 >", 24),
        ("# 2 4 > <eos>", 24),
        ("# 2 4 <", 42),
        ("# 4 0 <", 4),
        ("# 2 4 > <eos> # 9 9 >", 24),
        ("# 2 4 > <eos> 5", 24),
        ("# 1 > # 2 4 >", 24),
        ("# 0 >", 0),
        ("#   2 4   >", 24),
        ("1 2 + 1 2 = 2 4 >", None),
        ("# 2 4", None),
        ("", None),
        ("#", None),
        ("# >", None),
        ("# > 2 4", None),
        ("# 2 > 4", None),
        ("# 2 4 > >", None),
        ("# 24 >", None),
        ("# <eos> 2 4 >", None),
        ("# 2 4 > pens", None),
        ("# 2 . 4 >", None),
        ("# - 4 >", None),
        ("# two >", None),
        ("# 2 ² >", None),
        ("# ٣ >", None),
        ("2 4 > #", None),
        ("<eos> # 2 4 >", None),
    ],
)
def test_the_final_number_is_what_stands_after_the_last_mark_before_the_end(text, value):
    assert final_number(text) == value


def test_an_answer_is_right_if_its_final_number_is_the_problems():
    prompt = Prompt(id="a", text="", reference="24")

    assert is_correct(prompt, "so read that off # 2 4 > <eos>")
    assert is_correct(prompt, "# 4 2 <")
    assert not is_correct(prompt, "# 2 5 >")
    assert not is_correct(prompt, "# 2 4 <")
    assert not is_correct(prompt, "2 4 >")


def test_every_worked_answer_is_scored_as_right_and_its_neighbour_as_wrong():
    for problem in some(count=300):
        prompt = Prompt(id="", text=problem.prompt, reference=str(problem.value))
        assert is_correct(prompt, f"{problem.answer} <eos>")
        assert not is_correct(prompt, f"{problem.answer.replace('#', '# 1')} <eos>")


def test_random_problems_come_from_the_generator_they_are_given():
    assert random_problem(random.Random(4)) == random_problem(random.Random(4))
    assert random_problem(random.Random(4)) != random_problem(random.Random(5))


def test_a_task_is_found_by_name_and_an_unknown_one_refused_with_the_known():
    assert tasks.load("word_problems") is word_problems
    with pytest.raises(ValueError, match=r"`task` must be one of .*word_problems.*, got 'trivia'"):
        tasks.load("trivia")
