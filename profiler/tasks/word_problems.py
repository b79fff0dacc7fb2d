"""Grade-school word problems made by a seeded generator, with worked answers and an exact score.

A problem takes two or three steps of arithmetic. Its worked answer is full of choices that nothing announces: which
words open a step, which notation, which factor first, and which way round a result is written, ``1 2 >`` or ``2 1 <``.
Each has a word a few tokens later that must agree with it. A verifier reads the choice before it writes the match; a
drafter that writes both in one denoising step can only guess. That is what makes the effort K matter.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from profiler.tasks.task import Prompt

END = "<eos>"
MASK = "<mask>"
PAD = "<pad>"
RIGHTWARDS, LEFTWARDS = ">", "<"  # after a result: how its digits are to be read

_PRONOUN = {
    "Ann": "She", "Ben": "He", "Cara": "She", "Dan": "He", "Eve": "She", "Finn": "He", "Gus": "He", "Hana": "She",
}  # fmt: skip
_DIGITS = tuple("0123456789")
_ITEMS = ("pens", "books", "cups", "balls", "cards", "coins", "shells", "stamps")
_CONTAINERS = ("packs", "boxes", "bags")

# A step opens with `lead verb object source`; the object must agree with the lead, the source with the verb.
_LEAD_OBJECT = (
    ("now", "it"), ("then", "this"), ("so", "that"), ("next", "all"), ("here", "them"), ("well", "these"),
)  # fmt: skip
_VERB_SOURCE = (
    ("get", "from"), ("find", "via"), ("count", "using"), ("see", "in"), ("work", "through"), ("read", "off"),
)  # fmt: skip
# Four notations; the word for "equals" must agree with the operator.
_EQUALS = ("=", "makes", "is", "gives")
_OPERATORS = {
    "*": ("*", "times", "x", "by"),
    "+": ("+", "plus", "and", "with"),
    "-": ("-", "minus", "less", "without"),
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question, one worked answer of many possible ones, and the number that a right answer ends with."""

    prompt: str
    answer: str
    value: int


@dataclass(frozen=True)
class _Step:
    operator: str
    left: int
    right: int

    @property
    def result(self) -> int:
        return {"*": self.left * self.right, "+": self.left + self.right, "-": self.left - self.right}[self.operator]


def digits(number: int) -> str:
    """`number` as the vocabulary writes it: its digits apart, ``24 -> "2 4"``."""
    return " ".join(str(number))


def written(number: int, rng: random.Random) -> str:
    """A result of two digits, either way round, with the arrow that says how to read it: ``"2 4 >"`` or ``"4 2 <"``."""
    if rng.random() < 0.5:
        return f"{digits(number)} {RIGHTWARDS}"
    return f"{digits(number)[::-1]} {LEFTWARDS}"


def equation(operator: str, left: int, right: int, rng: random.Random) -> str:
    """One equation in a random notation; factors and summands in random order."""
    step = _Step(operator, left, right)
    if operator != "-" and rng.random() < 0.5:
        left, right = right, left
    style = rng.randrange(len(_EQUALS))
    result = written(step.result, rng)
    return f"{digits(left)} {_OPERATORS[operator][style]} {digits(right)} {_EQUALS[style]} {result}"


def random_problem(rng: random.Random) -> Problem:
    """A problem of one of four kinds: ``a + bc``, ``a + bc - d``, ``a + bc + d``, ``bc + de``."""
    numbers, kind = _numbers(rng)
    name, other = rng.sample(sorted(_PRONOUN), 2)
    he = _PRONOUN[name]
    item, container = rng.choice(_ITEMS), rng.choice(_CONTAINERS)
    a, b, c, d, e = numbers
    buys = f"buys {b} {container} of {c} {item} ."
    product = _Step("*", b, c)
    if kind == "groups":
        text = f"{name} {buys} {he} gets {d} {rng.choice(_CONTAINERS)} of {e} {item} ."
        products = [product, _Step("*", d, e)]
        rng.shuffle(products)
        steps = [*products, _Step("+", products[0].result, products[1].result)]
    else:
        text = f"{name} has {digits(a)} {item} . {he} {buys}"
        if kind == "plain":
            steps = [product, _Step("+", a, product.result)]
        else:
            sign, sentence = (
                ("-", f"gives {d} {item} to {other} .") if kind == "gives" else ("+", f"finds {d} {item} .")
            )
            text += f" {he} {sentence}"
            if rng.random() < 0.5:  # either order of the two changes is a right answer, of the same length
                total = _Step("+", a, product.result)
                steps = [product, total, _Step(sign, total.result, d)]
            else:
                changed = _Step(sign, a, d)
                steps = [changed, product, _Step("+", changed.result, product.result)]
    answer = " ".join(f"{_opening(rng)} {equation(step.operator, step.left, step.right, rng)}" for step in steps)
    value = steps[-1].result
    return Problem(
        prompt=f"{text} How many {item} does {he.lower()} have now ? A:",
        answer=f"{answer} # {written(value, rng)}",
        value=value,
    )


def problems(seed: int, *, held_out: bool) -> Iterator[Problem]:
    """An endless stream of problems; the held-out half never shares a question with the training half."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible stream, not a secret
    while True:
        problem = random_problem(rng)
        if _is_held_out(problem.prompt) == held_out:
            yield problem


def prompts(count: int, seed: int) -> list[Prompt]:
    """The first `count` held-out problems of a seed (Task)."""
    chosen = itertools.islice(problems(seed, held_out=True), count)
    return [
        Prompt(id=f"word_problems/{seed}/{index}", text=problem.prompt, reference=str(problem.value))
        for index, problem in enumerate(chosen)
    ]


def is_correct(prompt: Prompt, completion: str) -> bool:
    """Whether the completion's final number is the problem's (Task)."""
    return final_number(completion) == int(prompt.reference)


def final_number(text: str) -> int | None:
    """The number after the last ``#`` of a completion, read as its arrow says; None if there is none: no guessing."""
    _, mark, tail = text.partition(END)[0].rpartition("#")
    *numerals, arrow = tail.split() or [""]
    if not mark or not numerals or arrow not in (RIGHTWARDS, LEFTWARDS) or not all(n in _DIGITS for n in numerals):
        return None
    return int("".join(numerals if arrow == RIGHTWARDS else reversed(numerals)))


def vocabulary() -> list[str]:
    """All symbols, padding, end and mask first; the list's order is the token id."""
    words = [PAD, END, MASK, *_DIGITS, *".?#", RIGHTWARDS, LEFTWARDS]
    words += ["A:", "How", "many", "does", "have", "now", "has", "buys", "of", "gives", "gets", "finds", "to"]
    words += ["She", "He", "she", "he", *sorted(_PRONOUN), *_ITEMS, *_CONTAINERS]
    words += [word for pair in (*_LEAD_OBJECT, *_VERB_SOURCE) for word in pair]
    words += [*_EQUALS, *(word for style in _OPERATORS.values() for word in style)]
    return list(dict.fromkeys(words))


def _opening(rng: random.Random) -> str:
    (lead, thing), (verb, source) = rng.choice(_LEAD_OBJECT), rng.choice(_VERB_SOURCE)
    return f"{lead} {verb} {thing} {source}"


def _numbers(rng: random.Random) -> tuple[tuple[int, int, int, int, int], str]:
    """Numbers whose every intermediate result has two digits, so that answers of one kind have one length."""
    kind = rng.choice(("plain", "gives", "finds", "groups"))
    while True:
        a, b, c, d, e = rng.randint(11, 79), rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9)
        product = b * c
        reached = {
            "plain": (product, a + product),
            "gives": (product, a - d, a + product, a + product - d),
            "finds": (product, a + d, a + product + d),
            "groups": (product, d * e, product + d * e),
        }[kind]
        if all(10 <= number <= 99 for number in reached):
            return (a, b, c, d, e), kind


def _is_held_out(prompt: str) -> bool:
    return hashlib.sha256(prompt.encode()).digest()[0] % 2 == 0
