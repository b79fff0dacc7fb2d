import re

import pytest

from profiler import pairs
from profiler.cli import RunOptions, guarded, numbers
from tests.profiler.conftest import TINY


@pytest.fixture
def options(tiny_pair_file):
    def build(**changes):
        return RunOptions(pair=str(tiny_pair_file), **changes)

    return build


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("1,2,4", int, (1, 2, 4)),
        ("4, 2 ,1", int, (4, 2, 1)),
        ("1,1,2", int, (1, 2)),
        ("0,.1,0.10,1e-1", float, (0.0, 0.1)),
        ("3", int, (3,)),
    ],
)
def test_numbers_are_read_from_a_list_with_commas(text, kind, values):
    assert numbers("efforts", text, kind) == values


@pytest.mark.parametrize(
    ("text", "kind"),
    [("1;2", int), ("1.5", int), ("two", float), ("1 2", int), ("0x1", float), ("1,", int), (",", int), ("", int)],
)
def test_other_text_is_refused_with_the_name_of_the_option(text, kind):
    with pytest.raises(ValueError, match=f"--efforts must be numbers separated by commas, got '{text}'"):
        numbers("efforts", text, kind)


def test_without_options_the_pairs_own_description_is_used(options, tiny_pair_file):
    assert options().spec() == pairs.read(str(tiny_pair_file))


def test_options_replace_what_the_description_says(options):
    spec = options(order="entropy", block_size=4, efforts="2,1,2").spec()

    assert (spec.drafter.order, spec.block_size, spec.efforts) == ("entropy", 4, (1, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"efforts": "0,1"}, r"--efforts must lie in \[1, 8\], got 0"),
        ({"efforts": "-1"}, r"--efforts must lie in \[1, 8\], got -1"),
        ({"efforts": "9"}, r"--efforts must lie in \[1, 8\], got 9"),
        ({"efforts": ","}, "--efforts must"),
        ({"block_size": 2}, r"--efforts must lie in \[1, 2\], got 4"),
        ({"block_size": 0}, "--block-size must be at least 1, got 0"),
        ({"prompts": 0}, "--prompts must be at least 1, got 0"),
    ],
)
def test_impossible_options_are_refused_by_name(options, changes, message):
    with pytest.raises(ValueError, match=message):
        options(**changes).spec()


def test_a_task_that_the_pair_does_not_have_is_refused(options):
    assert options(task="word_problems").spec() == options().spec()
    with pytest.raises(ValueError, match="tiny: `task` must be one of word_problems, got 'gsm8k'"):
        options(task="gsm8k").spec()


def test_a_commit_order_is_refused_where_the_family_has_none(options, tiny_pair_file, tmp_path):
    text = re.sub(
        r"\[drafter\].*?\[", '[drafter]\nfamily = "autoregressive"\ncheckpoint = "x"\n[', TINY, flags=re.DOTALL
    )
    (tmp_path / "own.toml").write_text(text)

    with pytest.raises(ValueError, match="--order does not apply to drafters of the family autoregressive"):
        RunOptions(pair=str(tmp_path / "own.toml"), order="entropy").spec()


def test_the_run_folder_is_named_after_its_settings_and_found_again(options, tiny_pair, tmp_path):
    first = options(out=tmp_path).open(tiny_pair, "calibrate", {"seed": 0})
    again = options(out=tmp_path).open(tiny_pair, "calibrate", {"seed": 0})
    others = [
        options(out=tmp_path).open(tiny_pair, "calibrate", {"seed": 1}),
        options(out=tmp_path).open(tiny_pair, "sweep", {"seed": 0}),
        options(out=tmp_path, run="mine").open(tiny_pair, "calibrate", {"seed": 0}),
    ]

    assert first.path == again.path
    assert first.path.parent == tmp_path / "tiny"
    assert len({first.path, *(run.path for run in others)}) == 4
    assert others[2].path.name == "mine"


def test_the_manifest_says_what_decides_a_recording(options, tiny_pair, tmp_path):
    run = options(out=tmp_path).open(tiny_pair, "calibrate", {"seed": 5})

    assert run.settings["command"] == "calibrate"
    assert run.settings["seed"] == 5
    assert run.settings["warmup_requests"] >= 1
    assert run.settings["pair"]["verifier"]["top_p"] == 0.95
    assert run.provenance["weights"] == tiny_pair.weights
    assert run.provenance["device"].startswith("cpu")
    assert {"torch", "transformers", "numpy"} <= set(run.provenance["versions"])


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (None, 0, ""),
        (ValueError("`x` must be 1"), 2, "error: `x` must be 1\n"),
        (OSError(28, "No space left on device"), 2, "error: [Errno 28] No space left on device\n"),
        (FileNotFoundError(2, "No such file", "a.json"), 2, "error: [Errno 2] No such file: 'a.json'\n"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(error, code, told, capsys):
    def main(argv):
        if error is not None:
            raise error

    assert guarded(main) == code
    assert capsys.readouterr().err == told


def test_ctrl_c_says_that_nothing_is_lost_and_exits_with_130(capsys):
    def main(argv):
        raise KeyboardInterrupt

    assert guarded(main) == 130
    assert capsys.readouterr().err.strip() == (
        "interrupted; what was recorded is kept, the same command goes on from there"
    )


@pytest.mark.parametrize("error", [TypeError("bug"), KeyError("bug"), AssertionError("bug")])
def test_a_bug_keeps_its_traceback(error):
    def main(argv):
        raise error

    with pytest.raises(type(error)):
        guarded(main)


def test_arguments_are_passed_on():
    seen = []

    guarded(seen.append, ["--prompts", "3"])

    assert seen == [["--prompts", "3"]]
