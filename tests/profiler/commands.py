"""Run the command lines in the process of the test, on the tiny pair, and read what they leave behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler import recording
from profiler.cli import guarded

TORN = b'{"prompt": "word_problems/0/0", "eff'


class Command:
    """One of the two command lines with the options that every test gives it."""

    def __init__(self, main: Callable[[list[str] | None], None], pair: Path, out: Path, capsys: pytest.CaptureFixture):
        self.main, self.pair, self.out, self.capsys = main, pair, out, capsys

    def __call__(self, *options: str, code: int = 0) -> str:
        """Run it, check its exit code, and give what it printed; of an error, the one line on stderr."""
        defaults = ["--pair", str(self.pair), "--out", str(self.out), "--device", "cpu"]
        self.capsys.readouterr()
        found = guarded(self.main, [*defaults, *options])
        printed = self.capsys.readouterr()
        assert found == code, printed.err
        if code != 2:
            return printed.out
        errors = [line for line in printed.err.replace("\r", "\n").splitlines() if "error" in line.lower()]
        assert len(errors) == 1
        assert printed.err.splitlines()[-1] == errors[0]
        assert errors[0].startswith("error: ")
        assert "Traceback" not in printed.err
        return errors[0]

    def run(self, name: str) -> Path:
        """The run folder called `name`."""
        return self.out / self.pair.stem / name

    def rows(self, name: str) -> list[dict]:
        """The journal of a run."""
        journal = self.run(name) / "journal.jsonl"
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


class Interruptions:
    """Counts the requests that are decoded, and stops the program like Ctrl-C after some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.decoded, self.left = 0, -1
        self.original = recording.decode
        monkeypatch.setattr(recording, "decode", self.decode)

    def decode(self, *args: object, **settings: object) -> object:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.decoded += 1
        return self.original(*args, **settings)


def copy_pair(pair: Path, folder: Path) -> Path:
    """A copy of a pair's TOML file and checkpoints that a test may spoil."""
    shutil.copytree(pair.parent, folder)
    return folder / pair.name


def steady(row: dict) -> dict:
    """A row of a journal without the times."""
    rounds = {name: value for name, value in row["rounds"].items() if not name.endswith("_seconds")}
    return row | {"rounds": rounds, "request": row["request"] | {"seconds": 0}, "flags": []}
