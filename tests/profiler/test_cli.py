import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch

from profiler import calibrate, pairs
from profiler.cli import RunOptions, guarded, numbers
from profiler.pairs.families import FAMILIES
from profiler.tasks import word_problems
from profiler.tasks.task import Prompt
from profiler.training.data import TOKEN_IDS
from tests.profiler.commands import copy_pair
from tests.profiler.conftest import TINY

PROMPTS = [Prompt(id=f"mine/{number}", text=f"text {number}", reference="") for number in range(3)]


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


def test_a_dtype_is_that_of_both_models_and_makes_another_pair_of_them(options):
    spec = options(dtype="bfloat16").spec()

    assert (spec.drafter.dtype, spec.verifier.dtype) == ("bfloat16", "bfloat16")
    assert spec.settings() != options().spec().settings()
    pair = options(dtype="bfloat16").load(spec)
    assert pair.verifier.model.dtype == torch.bfloat16
    pair.verifier.start(torch.tensor([5, 6]))
    assert pair.verifier.score(torch.tensor([6]), torch.tensor([7])).dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"efforts": "0,1"}, r"--efforts must lie in \[1, 8\], got 0"),
        ({"efforts": "-1"}, r"--efforts must lie in \[1, 8\], got -1"),
        ({"efforts": "9"}, r"--efforts must lie in \[1, 8\], got 9"),
        ({"efforts": ","}, "--efforts must"),
        ({"block_size": 2}, r"--efforts must lie in \[1, 2\], got 4"),
        ({"block_size": -1}, "--block-size must be at least 0, got -1; 0 is the remaining canvas"),
        ({"drafter": "a"}, "--drafter and --verifier make a pair together; give both, or --pair"),
        ({"verifier": "a"}, "--drafter and --verifier make a pair together; give both, or --pair"),
        ({"drafter": "a", "verifier": "b"}, "--block-size must be given with --drafter and --verifier"),
        ({"drafter": "a", "verifier": "b", "block_size": 4, "family": "x"}, r"\[drafter\]: `family` must be one of"),
        (
            {"drafter": "a", "verifier": "b", "block_size": 4, "family": "uniform"},
            r"--drafter and --verifier: \[drafter\] lacks the keys final_temperature",
        ),
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


def test_two_checkpoints_make_a_pair_without_a_file(options):
    spec = options(drafter="some/small", verifier="other/large", block_size=3, token_limit=12).spec()

    assert (spec.name, spec.block_size, spec.efforts) == ("small-large", 3, (1, 2))
    assert (spec.drafter.family, spec.drafter.checkpoint, spec.verifier.checkpoint) == (
        "masked",
        "some/small",
        "other/large",
    )
    assert (spec.task.name, spec.task.token_limit) == ("own", 12)


def test_the_help_names_the_families_that_need_a_file(capsys):
    given = {"family", "checkpoint"}
    needy = [
        name
        for name, spec in FAMILIES.items()
        if any(field.default is dataclasses.MISSING and field.name not in given for field in dataclasses.fields(spec))
    ]
    with pytest.raises(SystemExit):
        calibrate.main(["--help"])
    printed = " ".join(re.findall(r"[\w:]+", capsys.readouterr().out))

    assert needy == ["uniform", "lora", "feature"]
    assert "The families uniform lora and feature need one: they have settings without a default" in printed


def test_a_confidence_is_set_where_the_family_has_one(options):
    assert options(confidence=0.5).spec().drafter.confidence == 0.5
    with pytest.raises(ValueError, match="--confidence does not apply to drafters of the family autoregressive"):
        RunOptions(pair="qwen2.5-1.5b-qwen2.5-32b", confidence=0.5).spec()


def test_blocks_are_aligned_or_whole_where_the_family_has_the_choice(options):
    assert RunOptions(pair="sdar-8b-qwen3-8b").spec().drafter.aligned
    assert not RunOptions(pair="sdar-8b-qwen3-8b", aligned=False).spec().drafter.aligned
    with pytest.raises(ValueError, match="--aligned does not apply to drafters of the family masked"):
        options(aligned=False).spec()


def test_prompts_are_a_number_of_the_tasks_or_those_of_a_file(options, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("".join(f"text {number}\n" for number in range(9)))
    spec = options().spec()

    assert [p.id for p in options(prompts=2).requests(spec, 0)] == [p.id for p in word_problems.prompts(2, 0)]
    everything = options(prompts=file).requests(spec, 0)
    assert {p.text for p in everything} == {f"text {number}" for number in range(9)}
    assert options(prompts=file, sample=4).requests(spec, 0) == everything[:4]
    assert options(prompts=file, sample=4).requests(spec, 1) != everything[:4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": 0}, "--prompts must be at least 1, got 0"),
        ({"prompts": 3, "sample": 2}, "--sample takes some of the prompts of a file"),
        ({"sample": -1}, "--sample must be at least 0, got -1"),
        ({"sample": 10}, "--prompts must be at most 9, all that there are, got 10"),
        ({"prompts": Path("none.txt")}, "--prompts must be a number or a file that exists, got none.txt"),
    ],
)
def test_impossible_prompts_are_refused(options, tmp_path, changes, message):
    file = tmp_path / "mine.txt"
    file.write_text("".join(f"text {number}\n" for number in range(9)))

    with pytest.raises(ValueError, match=message):
        options(**{"prompts": file} | changes).requests(options().spec(), 0)


def test_the_manifest_names_the_prompts_and_their_contents(options, tiny_pair, tmp_path):
    first = options(out=tmp_path).open(tiny_pair, "calibrate", PROMPTS, {})
    changed = [Prompt(id=prompt.id, text=f"{prompt.text}!", reference="") for prompt in PROMPTS]

    assert first.settings["prompts"] == ["mine/0", "mine/1", "mine/2"]
    assert options(out=tmp_path).open(tiny_pair, "calibrate", changed, {}).path != first.path
    with pytest.raises(ValueError, match="recorded with other settings: prompts_digest"):
        options(out=tmp_path, run=first.path.name).open(tiny_pair, "calibrate", changed, {})


def test_O29_the_manifest_carries_the_format_of_the_prompts(options, tiny_pair, tmp_path):
    task = dataclasses.replace(tiny_pair.spec.task, format="qwen3-no-thinking")
    other = dataclasses.replace(tiny_pair, spec=dataclasses.replace(tiny_pair.spec, task=task))
    plain, thinking = (options(out=tmp_path).open(each, "calibrate", PROMPTS, {}) for each in (tiny_pair, other))

    assert plain.settings["format_digest"] != thinking.settings["format_digest"]
    assert plain.path != thinking.path


def test_O29_a_format_of_ones_own_lies_beside_the_pair_and_is_named_by_its_contents(
    tiny_pair_file, tmp_path, monkeypatch
):
    """From another working directory; no path of this machine is in the manifest, whichever way the file is named."""
    path = copy_pair(tiny_pair_file, tmp_path / "pair")
    (path.parent / "own").mkdir()
    file = path.parent / "own/mine.txt"
    file.write_text("{prompt} books")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    runs, text = [], path.read_text()
    for name in ("own/mine.txt", str(file)):
        path.write_text(text.replace("[task]", f'[task]\nformat = "{name}"'))
        options = RunOptions(pair=str(path), out=tmp_path / "results")
        pair = options.load(options.spec())
        runs.append(options.open(pair, "calibrate", PROMPTS, {}))
        assert pair.encode("pens") == [TOKEN_IDS["pens"], TOKEN_IDS["books"]]
    file.write_text("{prompt} pens")
    runs.append(options.open(pair, "calibrate", PROMPTS, {}))
    for run in runs:
        run.claim()

    assert runs[0].settings == runs[1].settings
    assert runs[0].settings["pair"]["task"]["format"] == "mine.txt"
    assert str(tmp_path) not in json.dumps(runs[0].identity())
    assert runs[2].path != runs[0].path
    runs[0].require_same_pair(runs[1].identity(), runs[1].path)
    with pytest.raises(ValueError, match="recorded with other settings: format_digest"):
        runs[0].require_same_pair(runs[2].identity(), runs[2].path)


def test_the_run_folder_is_named_after_its_settings_and_found_again(options, tiny_pair, tmp_path):
    first = options(out=tmp_path).open(tiny_pair, "calibrate", PROMPTS, {"seed": 0})
    again = options(out=tmp_path).open(tiny_pair, "calibrate", PROMPTS, {"seed": 0})
    others = [
        options(out=tmp_path).open(tiny_pair, "calibrate", PROMPTS, {"seed": 1}),
        options(out=tmp_path).open(tiny_pair, "sweep", PROMPTS, {"seed": 0}),
        options(out=tmp_path, run="mine").open(tiny_pair, "calibrate", PROMPTS, {"seed": 0}),
    ]

    assert first.path == again.path
    assert first.path.parent == tmp_path / "tiny"
    assert len({first.path, *(run.path for run in others)}) == 4
    assert others[2].path.name == "mine"


def test_the_manifest_says_what_decides_a_recording(options, tiny_pair, tmp_path):
    run = options(out=tmp_path).open(tiny_pair, "calibrate", PROMPTS, {"seed": 5})

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
