"""Small Python functions to write: one result of some parts of a list or a text, asked for in several ways."""

from __future__ import annotations

import random

from profiler.tasks.templates import Request, TemplateTask

PHRASINGS = (
    "Write a Python function that takes {input} and returns {output}.",
    "Write a short Python function named `{name}`. It takes {input} and returns {output}.",
    "In Python, how do I get {output}, given {input}? Show me a function.",
    "Implement `def {name}(values):` in Python. Given {input}, it should return {output}. Only show the code.",
    "I have {input}. Please write a Python function with a docstring that returns {output}.",
)
_NAMES = ("solve", "compute", "process", "transform", "analyze", "find_result", "evaluate")

_OF_NUMBERS = (
    "the sum of {part}", "the product of {part}", "the average of {part}", "the largest of {part}",
    "the smallest of {part}", "the number of {part}", "a list of {part}", "a sorted list of {part}",
    "a list of the squares of {part}", "a set of {part}", "the median of {part}", "the last of {part}",
    "the running total of {part}", "the difference between the largest and the smallest of {part}",
    "a dictionary that counts {part}", "a reversed list of {part}",
)  # fmt: skip
_NUMBERS = (
    "all its numbers", "its even numbers", "its odd numbers", "its positive numbers", "its negative numbers",
    "its numbers greater than 10", "its numbers divisible by 3", "its prime numbers", "its distinct numbers",
    "its perfect squares", "its numbers that occur twice", "its numbers at even positions", "its multiples of 5",
    "its numbers with two digits", "its numbers below the average", "its first three numbers",
)  # fmt: skip
_OF_WORDS = (
    "the number of {part}", "a list of {part}", "a sorted list of {part}", "{part} joined by commas",
    "{part} in upper case", "a dictionary from {part} to how often they occur", "the longest of {part}",
    "the text without {part}", "whether there are any {part}", "a list of {part} without repetitions",
    "{part} in reversed order", "the positions of {part}", "the most frequent of {part}", "the first of {part}",
)  # fmt: skip
_WORDS = (
    "its words", "its vowels", "its consonants", "its digits", "its capital letters", "its words of four letters",
    "its words that start with a vowel", "its words that are palindromes", "its punctuation marks", "its spaces",
    "its words that end with s", "its repeated letters", "its lines", "its sentences", "its words longer than five "
    "letters",
)  # fmt: skip
_OF_STRINGS = (
    "the number of {part}", "a list of {part} in lower case", "{part} joined by spaces", "the longest of {part}",
    "the shortest of {part}", "a dictionary from {part} to their lengths", "a list of {part} sorted by length",
    "the total length of {part}", "a list of the first letters of {part}", "the last of {part} in the alphabet",
    "a list of {part} reversed", "a list of the lengths of {part}", "whether all of {part} are different",
)  # fmt: skip
_STRINGS = (
    "its strings", "its names that start with A", "its strings with a digit", "its empty strings", "its palindromes",
    "its strings longer than five characters", "its strings in capitals", "its email addresses", "its strings "
    "without vowels", "its strings that end with a question mark", "its duplicates", "its file names that end in .txt",
)  # fmt: skip
_KINDS = (
    (("a list of integers", "a list of numbers", "a tuple of integers"), _OF_NUMBERS, _NUMBERS),
    (("a string", "a text", "a sentence"), _OF_WORDS, _WORDS),
    (("a list of strings", "a list of names", "a set of strings"), _OF_STRINGS, _STRINGS),
)


def random_request(rng: random.Random) -> Request:
    """A function to write; the same result of another input is the same content."""
    inputs, results, parts = rng.choice(_KINDS)
    output = rng.choice(results).format(part=rng.choice(parts))
    text = rng.choice(PHRASINGS).format(input=rng.choice(inputs), output=output, name=rng.choice(_NAMES))
    return Request(content=output, text=text)


TASK = TemplateTask(name="code", make=random_request)
