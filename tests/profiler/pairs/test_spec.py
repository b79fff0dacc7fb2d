import dataclasses
import json
import re
import tomllib

import pytest

from profiler import pairs
from profiler.pairs.spec import DrafterSpec, ModelSpec, PairSpec, TaskSpec
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
    assert spec.drafter == DrafterSpec(checkpoint="drafter", family="masked")
    assert spec.verifier.sampling.top_p == 0.95
    assert spec.drafter.sampling == ModelSpec(checkpoint="").sampling
    assert spec.task == TaskSpec(name="word_problems", token_limit=24)


def test_settings_are_plain_values_from_which_the_description_can_be_made_again(described):
    spec = described()
    settings = spec.settings()

    assert json.loads(json.dumps(settings)) == settings
    assert "folder" not in settings
    again = PairSpec(
        **settings
        | {
            "efforts": tuple(settings["efforts"]),
            "drafter": DrafterSpec(**settings["drafter"]),
            "verifier": ModelSpec(**settings["verifier"]),
            "task": TaskSpec(**settings["task"]),
            "folder": spec.folder,
        }
    )
    assert again == spec


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(DrafterSpec)])
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
