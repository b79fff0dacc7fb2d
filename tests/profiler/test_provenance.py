import subprocess
from importlib import metadata

import torch
import transformers

from profiler import provenance as module
from profiler.provenance import provenance


def test_provenance_names_code_versions_weights_and_device(tiny_pair):
    origin = provenance(tiny_pair)

    assert origin["versions"]["torch"] == metadata.version("torch")
    assert origin["versions"]["transformers"] == transformers.__version__
    assert origin["weights"] == tiny_pair.weights
    assert origin["device"] == f"cpu, {torch.get_num_threads()} threads"


def test_a_commit_is_named_and_marked_where_files_differ_from_it(tiny_pair, tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, capture_output=True
        )

    source = tmp_path / "provenance.py"
    source.write_text("1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    monkeypatch.setattr(module, "__file__", str(source))
    commit = provenance(tiny_pair)["commit"]
    assert len(commit) >= 7
    assert not commit.endswith("+")

    source.write_text("2\n")
    assert provenance(tiny_pair)["commit"] == f"{commit}+"


def test_without_git_the_commit_is_unknown(tiny_pair, monkeypatch):
    def missing(*args, **settings):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)

    assert provenance(tiny_pair)["commit"] is None


def test_outside_of_a_checkout_the_commit_is_unknown(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "provenance.py"))

    assert provenance(tiny_pair)["commit"] is None
