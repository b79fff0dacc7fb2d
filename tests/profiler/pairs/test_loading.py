import json
import shutil

import huggingface_hub
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from profiler import pairs
from profiler.pairs.checkpoints import Checkpoints
from profiler.pairs.families import FAMILIES, MaskedSpec, ModelSpec
from profiler.pairs.loading import banned_ids, mask_id
from profiler.training.data import MASK_ID, TOKEN_IDS

COMMITS = {"main": "a" * 40, "next": "b" * 40}


@pytest.fixture
def own_pair(tiny_pair_file, tmp_path):
    """A copy of the tiny pair that a test may spoil; the path of its TOML file."""
    shutil.copytree(tiny_pair_file.parent, tmp_path / "pair")
    return tmp_path / "pair" / tiny_pair_file.name


def edit(path, change):
    """Change a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def tokenizer_of(*words, mask=None, eos=None):
    model = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token=words[0]))
    return PreTrainedTokenizerFast(tokenizer_object=model, mask_token=mask, eos_token=eos)


def test_a_loaded_pair_has_what_its_description_says(pair):
    assert pair.vocabulary_size == len(TOKEN_IDS)
    assert pair.stop_ids == {TOKEN_IDS["<eos>"]}
    assert pair.drafter.canvas.order == pair.spec.drafter.order
    assert pair.verifier.sampling == pair.spec.verifier.sampling
    assert pair.drafter.canvas.sampling == pair.spec.drafter.sampling
    assert {next(model.parameters()).dtype for model in (pair.drafter.model, pair.verifier.model)} == {torch.float32}
    assert not pair.verifier.model.training
    assert not pair.drafter.model.training


@pytest.mark.parametrize(("threads", "used"), [("1", 1), ("2", 2), ("0", 3)])
@pytest.mark.usefixtures("restored_torch")
def test_a_pair_sets_the_threads_of_torch_if_it_names_them(own_pair, threads, used):
    torch.set_num_threads(3)
    own_pair.write_text(own_pair.read_text().replace("threads = 1", f"threads = {threads}"))
    pairs.load(str(own_pair))

    assert torch.get_num_threads() == used


def test_weights_are_named_by_their_contents(own_pair, tiny_pair):
    assert pairs.load(str(own_pair)).weights == tiny_pair.weights

    shutil.copyfile(own_pair.parent / "verifier/model.safetensors", own_pair.parent / "verifier/more.safetensors")
    changed = pairs.load(str(own_pair)).weights

    assert changed["verifier"] != tiny_pair.weights["verifier"]
    assert changed["drafter"] == tiny_pair.weights["drafter"] != tiny_pair.weights["verifier"]


def test_weights_in_bin_files_are_named_by_their_contents_too(own_pair, tiny_pair):
    folder, weights = own_pair.parent / "verifier", tiny_pair.verifier.model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    first = pairs.load(str(own_pair)).weights["verifier"]
    torch.save(weights | {"model.norm.weight": weights["model.norm.weight"] * 2}, folder / "pytorch_model.bin")

    assert pairs.load(str(own_pair)).weights["verifier"] != first


def test_a_folder_without_weights_has_no_digest(own_pair):
    spec = pairs.read(str(own_pair))
    checkpoints = Checkpoints(pair=spec.name, folder=spec.folder, device=torch.device("cpu"))
    (own_pair.parent / "verifier/model.safetensors").unlink()

    with pytest.raises(
        ValueError, match=r"tiny: .*verifier must hold weights in \*.safetensors or \*.bin files, got none"
    ):
        checkpoints.fingerprint(spec.verifier)


@pytest.fixture
def hub(own_pair, tmp_path, monkeypatch):
    """The verifier of the pair in a hub's cache instead, at each of two commits; the branches are main and next."""
    cache = tmp_path / "hub/models--own--verifier"
    (cache / "refs").mkdir(parents=True)
    for branch, commit in COMMITS.items():
        (cache / "refs" / branch).write_text(commit)
        shutil.copytree(own_pair.parent / "verifier", cache / "snapshots" / commit)
    shutil.rmtree(own_pair.parent / "verifier")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    own_pair.write_text(own_pair.read_text().replace('checkpoint = "verifier"', 'checkpoint = "own/verifier"'))
    return cache / "snapshots"


@pytest.mark.usefixtures("hub")
def test_weights_of_a_hub_are_named_by_the_commit_that_was_loaded(own_pair, tiny_pair):
    main = pairs.load(str(own_pair))
    own_pair.write_text(own_pair.read_text().replace("[verifier]", '[verifier]\nrevision = "next"'))

    assert main.weights == tiny_pair.weights | {"verifier": f"own/verifier@{COMMITS['main']}"}
    assert pairs.load(str(own_pair)).weights["verifier"] == f"own/verifier@{COMMITS['next']}"


def test_a_tokenizer_is_that_of_the_revision_unless_it_is_another_repositorys(own_pair, hub):
    edit(hub / COMMITS["next"] / "tokenizer.json", swap)
    spec = pairs.read(str(own_pair))
    checkpoints = Checkpoints(pair=spec.name, folder=spec.folder, device=torch.device("cpu"))
    own = ModelSpec(checkpoint="own/verifier", tokenizer="own/verifier", revision="next")
    other = ModelSpec(checkpoint="other/drafter", tokenizer="own/verifier", revision="next")

    ids = [checkpoints.tokenizer(model).get_vocab()["pens"] for model in (own, other)]
    assert ids == [TOKEN_IDS["books"], TOKEN_IDS["pens"]]


@pytest.mark.parametrize("name", ["drafter", "verifier"])
def test_a_missing_checkpoint_folder_is_reported_in_one_line_with_pair_and_folder(own_pair, name):
    shutil.rmtree(own_pair.parent / name)

    expected = rf"^tiny: no tokenizer at '{name}' \(a folder beside the pair's TOML"
    with pytest.raises(ValueError, match=expected) as caught:
        pairs.load(str(own_pair))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "part"), [("tokenizer.json", "tokenizer"), ("model.safetensors", "model"), ("config.json", "model")]
)
def test_a_missing_file_of_a_checkpoint_is_reported_in_one_line(own_pair, file, part):
    (own_pair.parent / "verifier" / file).unlink()

    with pytest.raises(ValueError, match=f"^tiny: no {part} at 'verifier'") as caught:
        pairs.load(str(own_pair))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 100, 20_000])
def test_weights_that_are_cut_off_are_reported_in_one_line(own_pair, kept):
    weights = own_pair.parent / "verifier/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])

    with pytest.raises(ValueError, match=r"^tiny: no model at 'verifier'") as caught:
        pairs.load(str(own_pair))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value"), [("num_hidden_layers", 4), ("intermediate_size", 32), ("hidden_size", 64)]
)
def test_weights_that_do_not_fill_the_model_are_refused(own_pair, setting, value):
    """Missing ones would be drawn at random, with a warning that nobody reads."""

    def enlarge(content):
        content[setting] = value
        content.pop("layer_types", None)

    edit(own_pair.parent / "verifier/config.json", enlarge)

    with pytest.raises(ValueError, match=r"^tiny: no model at 'verifier'") as caught:
        pairs.load(str(own_pair))
    assert "\n" not in str(caught.value)


def test_a_damaged_tokenizer_is_reported_in_one_line(own_pair):
    (own_pair.parent / "verifier/tokenizer.json").write_text('{"version"')

    with pytest.raises(ValueError, match=r"^tiny: no tokenizer at 'verifier'") as caught:
        pairs.load(str(own_pair))
    assert "\n" not in str(caught.value)


def test_a_family_that_is_not_built_yet_is_refused_before_anything_is_loaded(own_pair, monkeypatch):
    monkeypatch.setitem(FAMILIES, "planned", MaskedSpec)
    own_pair.write_text(own_pair.read_text().replace('"masked"', '"planned"'))
    shutil.rmtree(own_pair.parent / "drafter")

    with pytest.raises(ValueError, match="tiny: drafters of the family 'planned' are not built yet, built are masked"):
        pairs.load(str(own_pair))


@pytest.mark.parametrize(("own", "kind"), [("Dream", "qwen2"), ("qwen2", "qwen2")])
def test_checkpoints_that_name_their_own_code_are_loaded_by_transformers_classes(own_pair, tiny_pair, own, kind):
    """A config as Dream's: a model type that transformers does not know, and classes in files beside the weights."""

    def rename(content):
        code = {"AutoConfig": "configuration_dream.DreamConfig", "AutoModelForCausalLM": "modeling_dream.DreamModel"}
        content.update(model_type=own, architectures=["DreamModel"], auto_map=code)

    edit(own_pair.parent / "drafter/config.json", rename)
    (own_pair.parent / "drafter/modeling_dream.py").write_text("raise SystemExit('the code of a checkpoint ran')")
    model = pairs.load(str(own_pair)).drafter.model

    assert type(model) is type(tiny_pair.drafter.model)
    assert model.config.model_type == kind
    for name, weights in tiny_pair.drafter.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weights)


def test_O31_a_model_type_that_transformers_lacks_is_one_line_and_its_code_is_not_executed(own_pair):
    code = {"AutoConfig": "configuration_mine.MineConfig"}
    edit(own_pair.parent / "drafter/config.json", lambda content: content.update(model_type="mine", auto_map=code))
    (own_pair.parent / "drafter/configuration_mine.py").write_text("raise SystemExit('the code of a checkpoint ran')")

    expected = rf"'drafter' has the model type 'mine', which transformers {transformers.__version__} does not have"
    with pytest.raises(ValueError, match=expected):
        pairs.load(str(own_pair))


def test_O31_code_for_another_transformers_is_one_line_with_the_installed_version(own_pair, monkeypatch):
    edit(own_pair.parent / "drafter/config.json", lambda content: content.update(model_type="mine"))

    def broken(*_, trust_remote_code, **__):
        assert trust_remote_code
        raise AttributeError("'MineModel' object has no attribute 'all_tied_weights_keys'")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", broken)

    expected = (
        rf"no model at 'drafter'.*AttributeError: 'MineModel'.*another transformers than {transformers.__version__}"
    )
    with pytest.raises(ValueError, match=expected) as caught:
        pairs.load(str(own_pair), trust_remote_code=True)
    assert "\n" not in str(caught.value)


def test_a_verifier_that_can_also_see_is_loaded_with_its_text_part(own_pair):
    """Gemma 4's checkpoints hold a vision tower, and name a class that has one."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = sizes | {
        "vocab_size": len(TOKEN_IDS), "num_key_value_heads": 1, "head_dim": 8, "global_head_dim": 8,
        "layer_types": ["full_attention"], "hidden_size_per_layer_input": 0, "pad_token_id": 0,
    }  # fmt: skip
    vision = sizes | {"num_key_value_heads": 2, "head_dim": 4, "position_embedding_size": 16}
    config = transformers.Gemma4Config(text_config=text, vision_config=vision, audio_config=None)
    folder = own_pair.parent / "verifier"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.Gemma4ForConditionalGeneration(config).save_pretrained(folder)
    verifier = pairs.load(str(own_pair)).verifier

    prompt, drafted = torch.tensor([20, 21, 22]), torch.tensor([23, 24])
    with torch.inference_mode():
        verifier.start(prompt)
        p = verifier.score(prompt[-1:], drafted)
        verifier.start(torch.cat([prompt, drafted]))
        again = verifier.score(drafted[-1:], drafted[:0])
    assert p.shape == (3, len(TOKEN_IDS))
    torch.testing.assert_close(p[-1], again[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["drafter", "verifier"])
def test_O09_a_head_without_rows_for_the_shared_ids_is_refused(own_pair, name):
    edit(own_pair.parent / name / "config.json", lambda content: content.update(vocab_size=len(TOKEN_IDS) - 1))

    expected = f"the {name} has {len(TOKEN_IDS) - 1} output rows for {len(TOKEN_IDS)} token ids"
    with pytest.raises(ValueError, match=expected):
        pairs.load(str(own_pair))


def swap(content):
    words = content["model"]["vocab"]
    words["pens"], words["books"] = words["books"], words["pens"]


def test_O08_tokenizers_that_differ_are_refused_with_count_and_first_id(own_pair):
    edit(own_pair.parent / "drafter/tokenizer.json", swap)
    first = min(TOKEN_IDS["pens"], TOKEN_IDS["books"])

    expected = rf"disagree on 2 of {len(TOKEN_IDS)} token ids \(first: {first}, 'books' and 'pens'\); a pair must share"
    with pytest.raises(ValueError, match=expected):
        pairs.load(str(own_pair))


def test_ids_that_both_tokenizers_have_are_permitted_except_the_mask():
    one = tokenizer_of("<pad>", "a", "<mask>", "b", mask="<mask>")

    assert banned_ids(one, one).tolist() == [False, False, True, False]


def test_a_mask_token_that_only_the_drafter_has_is_banned_for_both():
    drafter, verifier = tokenizer_of("<pad>", "a", "b", "<mask>", mask="<mask>"), tokenizer_of("<pad>", "a", "b")

    assert banned_ids(drafter, verifier).tolist() == [False, False, False, True]
    assert banned_ids(verifier, drafter).tolist() == [False, False, False, True]


def test_tokens_that_only_one_tokenizer_has_are_banned():
    longer, shorter = tokenizer_of("<pad>", "a", "b", "c"), tokenizer_of("<pad>", "a")

    assert banned_ids(longer, shorter).tolist() == [False, False, True, True]


def test_O08_a_verifier_without_a_row_for_the_drafters_mask_token_can_be_loaded_and_used(own_pair, tiny_pair):
    """The drafter's tokenizer gets one more token than the verifier's head has rows."""

    def add_mask(content):
        token = content["added_tokens"][0] | {"id": len(TOKEN_IDS), "content": "<extra>"}
        content["added_tokens"].append(token)

    edit(own_pair.parent / "drafter/tokenizer.json", add_mask)
    pair = pairs.load(str(own_pair))

    assert pair.vocabulary_size == len(TOKEN_IDS) + 1
    prompt, drafted = torch.tensor([20, 21]), torch.tensor([22])
    results = []
    for each in (pair, tiny_pair):
        with torch.inference_mode():
            each.verifier.start(prompt)
            results.append(each.verifier.score(prompt[-1:], drafted))
    assert torch.equal(results[0], torch.nn.functional.pad(results[1], (0, 1)))


def test_O23_a_mask_id_that_config_and_tokenizer_disagree_on_is_refused_with_both(own_pair):
    edit(own_pair.parent / "drafter/config.json", lambda content: content.update(mask_token_id=MASK_ID + 3))

    expected = f"config says mask_token_id {MASK_ID + 3}, its tokenizer {MASK_ID}; correct one"
    with pytest.raises(ValueError, match=expected):
        pairs.load(str(own_pair))


class Config:
    def __init__(self, mask_token_id):
        self.mask_token_id = mask_token_id


def test_O23_either_source_of_the_mask_id_is_enough_and_none_is_refused():
    with_mask, without = tokenizer_of("<pad>", "<mask>", mask="<mask>"), tokenizer_of("<pad>", "a")

    assert mask_id(Config(None), with_mask) == 1
    assert mask_id(object(), with_mask) == 1
    assert mask_id(Config(1), without) == 1
    assert mask_id(Config(1), with_mask) == 1
    with pytest.raises(ValueError, match="neither the drafter's config nor its tokenizer names a mask token"):
        mask_id(Config(None), without)
    with pytest.raises(ValueError, match="config says mask_token_id 151666, its tokenizer 1"):
        mask_id(Config(151666), with_mask)


def test_a_mask_id_of_0_counts_as_one():
    with_mask = tokenizer_of("<mask>", "a", mask="<mask>")

    assert mask_id(Config(0), with_mask) == 0
    with pytest.raises(ValueError, match="mask_token_id 0, its tokenizer 1"):
        mask_id(Config(0), tokenizer_of("a", "<mask>", mask="<mask>"))


def test_stop_ids_are_those_of_the_generation_config_and_the_tokenizer(own_pair):
    edit(
        own_pair.parent / "verifier/generation_config.json",
        lambda content: content.update(eos_token_id=[TOKEN_IDS["#"], TOKEN_IDS["."]]),
    )

    assert pairs.load(str(own_pair)).stop_ids == {TOKEN_IDS["#"], TOKEN_IDS["."], TOKEN_IDS["<eos>"]}


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(own_pair, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ValueError, match="use --device cpu"):
        pairs.load(str(own_pair), device="cuda")


def test_the_block_is_the_pairs_own_or_the_remaining_canvas(own_pair, tiny_pair):
    own_pair.write_text(own_pair.read_text().replace("block_size = 8", "block_size = 0"))

    assert tiny_pair.block(3) == 8
    assert pairs.load(str(own_pair)).block(3) == 3
