import dataclasses
import json
import re
import tomllib

import pytest

from profiler import pairs
from profiler.pairs.families import MaskedSpec, ModelSpec
from profiler.pairs.spec import PairSpec, TaskSpec
from tests.profiler.conftest import TINY


@pytest.fixture
def described(tmp_path):
    """Read a description after replacing one line of the tiny pair's."""

    def read(old="", new="", text=TINY):
        assert old in text
        path = tmp_path / "mine.toml"
        path.write_text(text.replace(old, new, 1))
        return pairs.read(str(path))

    return read


@pytest.mark.parametrize("name", pairs.names())
def test_every_shipped_pair_can_be_read(name):
    spec = pairs.read(name)

    assert spec.name == name
    assert spec.efforts
    assert all(1 <= effort <= (spec.block_size or spec.task.token_limit) for effort in spec.efforts)


def test_the_embedded_pair_is_shipped():
    assert "embedded" in pairs.names()


def test_a_description_says_what_its_file_says(described):
    spec = described()

    assert (spec.name, spec.block_size, spec.efforts) == ("mine", 8, (1, 2, 4))
    assert spec.drafter == MaskedSpec(checkpoint="drafter", family="masked")
    assert spec.verifier.sampling.top_p == 0.95
    assert spec.drafter.sampling == ModelSpec(checkpoint="").sampling
    assert spec.task == TaskSpec(name="word_problems", token_limit=24, efforts=(1, 2, 4))


def test_settings_are_plain_values_from_which_the_description_can_be_made_again(described):
    spec = described()
    settings = spec.settings()

    assert json.loads(json.dumps(settings)) == settings
    assert "folder" not in settings
    again = PairSpec(
        **settings
        | {
            "efforts": tuple(settings["efforts"]),
            "drafter": MaskedSpec(**settings["drafter"]),
            "verifier": ModelSpec(**settings["verifier"]),
            "task": TaskSpec(**settings["task"], efforts=spec.efforts),
            "folder": spec.folder,
        }
    )
    assert dataclasses.replace(again, tasks=spec.tasks) == spec


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(MaskedSpec)])
def test_settings_hold_every_field_of_the_drafter(described, name):
    assert name in described().settings()["drafter"]


def test_an_unknown_pair_is_refused_with_the_known_ones():
    expected = f"`pair` must be a TOML file or one of {', '.join(pairs.names())}, got 'dream'"
    with pytest.raises(ValueError, match=expected):
        pairs.read("dream")


def test_a_file_that_does_not_exist_is_refused_by_name(tmp_path):
    path = tmp_path / "none.toml"

    with pytest.raises(ValueError, match=re.escape(f"`pair` must be a file that exists, got {path}")):
        pairs.read(str(path))


def test_a_file_that_is_not_toml_is_refused_with_the_place(described):
    with pytest.raises(ValueError, match=r"mine.toml is not TOML: .*line 3"):
        described("block_size = 8", "block_size 8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('order = "left_to_right"', 'ordre = "entropy"', r"\[drafter\] has unknown keys ordre; known are .*order"),
        ("block_size = 8", "block_size = 8\nbloc = 1", "mine.toml has unknown keys bloc; known are block_size"),
        ('checkpoint = "verifier"', "", r"\[verifier\] lacks the keys checkpoint"),
        ('family = "masked"', "", r"\[drafter\] lacks the keys family"),
        ("token_limit = 24", "", r"\[task\] lacks the keys token_limit"),
        ("block_size = 8", "", "mine.toml lacks the keys block_size"),
    ],
)
def test_unknown_and_missing_keys_are_refused_by_name(described, old, new, message):
    with pytest.raises(ValueError, match=message):
        described(old, new)


def test_a_missing_section_is_refused_by_name(described):
    with pytest.raises(ValueError, match=r"mine.toml lacks the keys drafter, verifier"):
        described(text=re.sub(r"\[drafter\].*(?=\[task\])", "", TINY, flags=re.DOTALL))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("block_size = 8", 'block_size = "8"', "mine.toml: `block_size` must be a whole number, got '8'"),
        ("block_size = 8", "block_size = true", "`block_size` must be a whole number, got True"),
        ("block_size = 8", "block_size = 8.5", "`block_size` must be a whole number, got 8.5"),
        ("block_size = 8", "block_size = -1", "`block_size` must be at least 0, got -1; 0 is the remaining canvas"),
        ("efforts = [1, 2, 4]", 'efforts = "1,2"', "`efforts` must be a list of whole numbers, got '1,2'"),
        ("efforts = [1, 2, 4]", "efforts = 3", "`efforts` must be a list of whole numbers, got 3"),
        ("efforts = [1, 2, 4]", 'efforts = [1, "2"]', "`efforts` must be a list of whole numbers, got"),
        ("efforts = [1, 2, 4]", "efforts = []", r"`efforts` must be one or more numbers from 1 on, got \[\]"),
        ("efforts = [1, 2, 4]", "efforts = [0, 1]", r"`efforts` must be one or more numbers from 1 on, got \[0, 1\]"),
        ("threads = 1", "threads = -1", "`threads` must be at least 0, got -1; 0 leaves torch's own choice"),
        ("shifted = true", 'shifted = "yes"', r"\[drafter\]: `shifted` must be true or false, got 'yes'"),
        ("shifted = true", "shifted = 1", r"\[drafter\]: `shifted` must be true or false, got 1"),
        ('"left_to_right"', '"random"', r"\[drafter\]: `order` must be one of left_to_right, entropy, .*got 'random'"),
        ("top_p = 0.95", 'top_p = "0.95"', r"\[verifier\]: `top_p` must be a number, got '0.95'"),
        ("top_p = 0.95", 'dtype = "half"', r"\[verifier\]: `dtype` must be one of float32, .*got 'half'"),
        ('checkpoint = "verifier"', "checkpoint = 1", r"\[verifier\]: `checkpoint` must be a text, got 1"),
        ("token_limit = 24", "token_limit = 0", "`token_limit` must be at least 1, got 0"),
        ("efforts = [1, 2, 4]", "efforts = [1]\ntask = 3\n[other]", "unknown keys other"),
    ],
)
def test_values_of_the_wrong_kind_are_refused_by_name(described, old, new, message):
    text = TINY if "task = 3" not in new else TINY.split("[task]")[0]

    with pytest.raises(ValueError, match=message):
        described(old, new, text)


def test_a_family_that_nobody_knows_is_refused(described):
    with pytest.raises(ValueError, match=r"\[drafter\]: `family` must be one of masked, block, .*, got 'unmasked'"):
        described('"masked"', '"unmasked"')


def test_a_family_does_not_take_the_settings_of_another(described):
    with pytest.raises(ValueError, match=r"\[drafter\] has unknown keys causal_prefix, shifted; known are aligned"):
        described('"masked"', '"block"')


TASKS = """
[[task]]
name = "word_problems"
token_limit = 24
leniency = [0.0, 0.5, 1]

[[task]]
name = "other"
token_limit = 12
efforts = [3, 1]
[task.cactus]
1 = [0, 0.25]
3 = [0, 1.5]
"""


def test_a_pair_may_have_several_tasks_of_which_the_first_counts_unless_another_is_asked_for(described):
    spec = described(text=TINY.split("[task]")[0] + TASKS)

    assert (spec.task.name, spec.efforts, spec.task.leniency) == ("word_problems", (1, 2, 4), (0, 0.5, 1))
    other = spec.for_task("other")
    assert (other.task.token_limit, other.efforts) == (12, (1, 3))
    assert other.task.cactus == (("1", (0, 0.25)), ("3", (0, 1.5)))
    assert other.for_task("word_problems") == spec
    with pytest.raises(ValueError, match="mine: `task` must be one of word_problems, other, got 'third'"):
        spec.for_task("third")


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("1 = 0.5", r"\[task\]: `cactus` must be a table of lists, got {'1': 0.5"),
        ('1 = ["a"]', "`cactus` must be a table of lists"),
    ],
)
def test_a_grid_of_the_wrong_kind_is_refused(described, new, message):
    with pytest.raises(ValueError, match=message):
        described("1 = [0, 0.25]", new, TINY.split("[task]")[0] + TASKS)


def test_what_is_only_tried_does_not_change_what_a_pair_is(described):
    text = TINY.split("[task]")[0] + TASKS

    assert described(text=text).settings() == described("leniency = [0.0, 0.5, 1]", "leniency = [0.5]", text).settings()


def test_a_section_that_is_no_table_is_refused(described):
    with pytest.raises(ValueError, match=r"mine.toml: `task` must be a table, got 3"):
        described("block_size = 8", "block_size = 8\ntask = 3", TINY.split("[task]")[0])


def test_efforts_are_put_in_order_once_each(described):
    assert described("efforts = [1, 2, 4]", "efforts = [4, 1, 4]").efforts == (1, 4)


def test_whole_numbers_do_for_numbers(described):
    assert described("top_p = 0.95", "temperature = 2").verifier.temperature == 2


@pytest.mark.parametrize("new", ["top_p = 0.0", "temperature = -1.0", "top_k = -1"])
def test_impossible_sampling_is_refused(described, new):
    with pytest.raises(ValueError, match=f"`{new.split(' ')[0]}` must"):
        _ = described("top_p = 0.95", new).verifier.sampling


def test_the_test_pair_has_the_keys_of_the_embedded_one():
    embedded = tomllib.loads((pairs.read("embedded").folder / "embedded.toml").read_text())
    tiny = tomllib.loads(TINY)

    assert embedded.keys() == tiny.keys()
    assert all(embedded[section].keys() == tiny[section].keys() for section in ("drafter", "verifier", "task"))
