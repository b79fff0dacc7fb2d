"""Every named pair runs as its description says, on models of its architecture shrunk to a few thousand parameters."""

import json
import tomllib

import pytest

from profiler import calibrate, pairs
from profiler.pairs.families import FAMILIES
from tests.profiler.commands import Command
from theory.calibration import Calibration
from theory.rounds import Rounds

NAMED = [name for name in pairs.names() if pairs.read(name).verifier.config]
MASK = 60
SMALL = {
    "hidden_size": 16, "intermediate_size": 24, "vocab_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "mask_token_id": MASK, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
    "global_head_dim": 16, "num_global_key_value_heads": 1, "sliding_window": 6, "markov_rank": 4,
    "draft_vocab_size": 32,
    "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8, "canvas_length": 8,
}  # fmt: skip
VISION = {
    "model_type": "gemma4_vision", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "position_embedding_size": 16,
}  # fmt: skip


def shrunk(config):
    """The same architecture with small numbers, and only where the config has them."""
    small = config | {name: value for name, value in SMALL.items() if name in config}
    if "num_hidden_layers" in config:
        small["num_hidden_layers"] = 2
    if "layer_types" in config:
        small["layer_types"] = config["layer_types"][-2:]
    if "target_layer_ids" in config:
        small["target_layer_ids"] = [0, 1]
    if "dflash_config" in config:
        small["dflash_config"] = {"mask_token_id": MASK, "target_layer_ids": [0, 1]}
    if "text_config" in config:
        small |= {"text_config": shrunk(config["text_config"]), "vision_config": VISION}
    return small


@pytest.fixture
def write(tmp_path):
    """A named pair over shrunk configs: the path of its TOML file, otherwise the shipped one."""

    def shrink(name):
        spec = pairs.read(name)
        for model in (spec.drafter, spec.verifier):
            config = json.loads((spec.folder / model.config).read_text())
            (tmp_path / model.config).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / model.config).write_text(json.dumps(shrunk(config)))
        text = (spec.folder / f"{name}.toml").read_text().replace("token_limit = 512", "token_limit = 20")
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return path

    return shrink


def test_a_shrunk_description_differs_in_its_token_limit_alone(write):
    name = "sdar-8b-qwen3-8b"
    shipped = pairs.read(name).folder / f"{name}.toml"
    ours, theirs = (tomllib.loads(path.read_text()) for path in (write(name), shipped))

    for task in theirs["task"]:
        task["token_limit"] = 20
    assert ours == theirs


@pytest.mark.parametrize("name", NAMED)
def test_a_named_pair_is_timed_at_every_effort_without_its_checkpoints(name, write, tmp_path, capsys):
    spec = pairs.read(name)
    efforts = tuple(effort for effort in spec.efforts if effort <= 8)
    command = Command(calibrate.main, write(name), tmp_path / "results", capsys)
    options = ("--efforts", ",".join(map(str, efforts)), *(("--block-size", "8") if spec.block_size > 8 else ()))
    times = ("--latency.rounds", "3", "--latency.prompt-tokens", "10")
    command("--weights", "random", "--prompts", "1", "--run", "mine", *times, *options)

    calibration = Calibration.from_json(command.run("mine") / "calibration.json")
    rounds = Rounds.read(command.run("mine") / "rounds.parquet")
    assert calibration.efforts == efforts
    assert calibration.latency.verify_seconds > 0
    assert (rounds.passes <= rounds.effort * (8 if spec.drafter.family == "autoregressive" else 1)).all()
    assert not (rounds.q_drafted[rounds.proposed] == 0).any(), "each token has the law that it was drawn from"


def test_every_family_has_a_named_pair():
    assert {pairs.read(name).drafter.family for name in pairs.names()} == set(FAMILIES)
