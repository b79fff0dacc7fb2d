"""Grade-school word problems in plain English, of two or three steps, for a chat model to work out."""

from __future__ import annotations

import random

from profiler.tasks.templates import Request, TemplateTask

_NAMES = (
    "Alice", "Ahmed", "Bruno", "Carla", "Chen", "Daniel", "Elena", "Farid", "Grace", "Hiro", "Ines", "Jack", "Kofi",
    "Laura", "Maria", "Nadia", "Oscar", "Priya", "Quinn", "Rosa", "Samuel", "Tara", "Umar", "Vera", "William", "Zoe",
)  # fmt: skip
_THINGS = (
    "apples", "balloons", "beads", "books", "buttons", "candles", "cards", "cookies", "cupcakes", "eggs", "flowers",
    "lemons", "marbles", "muffins", "notebooks", "oranges", "pencils", "shells", "stamps", "stickers",
)  # fmt: skip
_BOXES = ("bags", "baskets", "boxes", "crates", "jars", "packs", "trays")
_PLACES = ("bakery", "farm", "garden", "library", "market", "school", "shop", "workshop")
_RELATIVES = ("brother", "cousin", "friend", "mother", "neighbor", "sister", "teacher")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

TEMPLATES = (
    "{name} has {large} {things} and buys {small} {boxes} with {few} {things} in each. How many {things} does {name} "
    "have now?",
    "A {place} sells {things} for ${few} each. On {day} it sells {large} of them and on the next day {small} more "
    "than that. How many dollars does it take in over the two days?",
    "{name} picks {large} {things} in the morning and twice as many in the afternoon, then gives {small} to a "
    "{relative}. How many {things} are left?",
    "There are {large} {things} in a {place}. {name} puts them into {boxes} of {few}. How many full {boxes} are there, "
    "and how many {things} are left over?",
    "{name} earns ${large} a day and spends ${small} of it on lunch. How much does {name} save in {few} days?",
    "{name} reads {large} pages on {day} and {few} times as many on the day after. The book has {huge} pages. How many "
    "pages are left?",
    "{name} and a {relative} share {huge} {things} equally. {name} then loses {small}. How many {things} does {name} "
    "have in the end?",
    "A train travels at {large} kilometers an hour for {few} hours, then at half that speed for {small} hours. How far "
    "does it travel?",
    "{name} bakes {small} trays of {few} {things}. A third of the {things} are eaten. How many are left?",
    "Each of the {large} children in a {place} gets {few} {things}. The {things} come in {boxes} of {small}. How many "
    "{boxes} are needed?",
    "{name} is {large} years old. {name}'s {relative} is {few} times as old as {name} was {small} years ago. How old "
    "is the {relative}?",
    "{name} buys {few} {things} for ${small} each and pays with a ${huge} bill. How much change does {name} get?",
    "A {place} had {huge} {things}. It sold {large} on {day} and got {few} new {boxes} with {small} {things} in each. "
    "How many {things} does it have now?",
    "{name} runs {few} kilometers every day for {small} days. A {relative} runs {large} kilometers in all. Who runs "
    "farther, and by how much?",
    "A garden is {large} meters long and {small} meters wide. A fence costs ${few} a meter. How much does it cost to "
    "fence the whole garden?",
    "{name} needs {huge} {things} for a party. {name} has {large} already and makes {small} an hour. How many hours "
    "will it take to make the rest?",
    "{name} can paint {few} chairs in an hour. How many hours does it take to paint {large} chairs, if a {relative} "
    "paints {small} of them?",
    "At a {place}, {large} percent of the {huge} visitors are children. A child's ticket costs ${few} and an adult's "
    "${small}. How much is paid in all?",
)


def random_request(rng: random.Random) -> Request:
    """A problem with names, things and numbers filled in."""
    text = rng.choice(TEMPLATES).format(
        name=rng.choice(_NAMES),
        things=rng.choice(_THINGS),
        boxes=rng.choice(_BOXES),
        place=rng.choice(_PLACES),
        relative=rng.choice(_RELATIVES),
        day=rng.choice(_DAYS),
        few=rng.randint(2, 9),
        small=rng.randint(3, 15),
        large=rng.randint(16, 60),
        huge=10 * rng.randint(12, 40),
    )
    return Request(content=text, text=text)


TASK = TemplateTask(name="mathematics", make=random_request)
