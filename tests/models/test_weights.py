"""Folders of models: what is saved is loaded, and all that does not fit is said at once."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from attrs import asdict, evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn

import mlxfp as fp
from mlxfp.models.layers import named_arrays
from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    DataError,
    MissingFileError,
    MlxfpError,
    UnknownNameError,
)
from mlxfp.training.steps.state import same_arrays
from tests.models.samples import CONFIGS, body, gap, models, rows

REFERENCES = Path(__file__).parent / "references"
MODELS = models()
IDS, MASK = rows([3, 8])


def assert_loads_what_was_saved(model, loaded):
    """Law: what was saved comes back: the same class, settings, config and weights, bit for bit."""
    assert type(loaded) is type(model)
    assert getattr(loaded, "settings", None) == getattr(model, "settings", None)
    assert getattr(loaded, "body", loaded).config == getattr(model, "body", model).config
    assert same_arrays(loaded.parameters(), model.parameters()), "the weights are others"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_was_saved_is_loaded(name, tmp_path):
    fp.models.save(tmp_path, MODELS[name])
    assert_loads_what_was_saved(MODELS[name], fp.models.load(tmp_path))
    assert gap(fp.models.load(tmp_path).eval()(IDS, MASK), MODELS[name](IDS, MASK)) == 0


def test_the_law_catches_other_weights(tmp_path):
    fp.models.save(tmp_path, fp.models.Classifier(body("bert", seed=1), 3))
    with pytest.raises(AssertionError, match="the weights are others"):
        assert_loads_what_was_saved(fp.models.Classifier(body("bert"), 3), fp.models.load(tmp_path))


@pytest.mark.parametrize("name", ["bert", "decoder", "encoder", "modernbert", "text_cnn"])
def test_configs_that_transformers_has_no_words_for_come_back_too(name, tmp_path):
    changes = {
        "bert": {
            "pooler": False,
            "hidden_act": "gelu_pytorch_tanh",
            "type_vocab_size": 3,
            "layer_norm_eps": 1e-6,
            "attention_probs_dropout_prob": 0.0,
        },
        "decoder": {"hidden_dropout_prob": 0.25, "rope_theta": 500.0, "qkv_bias": True},
        "encoder": {"hidden_dropout_prob": 0.25, "num_hidden_layers": 1},
        "modernbert": {
            "global_attn_every_n_layers": 5,
            "num_hidden_layers": 2,
            "local_attention": 7,
            "mlp_dropout": 0.25,
            "local_rope_theta": 77.0,
            "hidden_activation": "silu",
        },
        "text_cnn": {"hidden_size": 9, "kernel_sizes": (1, 2, 7)},
    }
    model = body(name, **changes[name])
    fp.models.save(tmp_path, model)
    assert_loads_what_was_saved(model, fp.models.load(tmp_path))


HEADS_OF_TRANSFORMERS = {
    "BertModel": ("bert", lambda body: body),
    "BertForMaskedLM": ("bert", fp.models.MaskedLM),
    "BertForSequenceClassification": ("bert", lambda body: fp.models.Classifier(body, 3, pooling="pooler")),
    "BertForTokenClassification": ("bert", lambda body: fp.models.TokenClassifier(body, 3)),
    "ModernBertForMaskedLM": ("modernbert", fp.models.MaskedLM),
    "ModernBertForSequenceClassification": (
        "modernbert",
        lambda body: fp.models.Classifier(body, 3, pooling="first", transform=True, multi_label=True),
    ),
    "ModernBertForTokenClassification": ("modernbert", lambda body: fp.models.TokenClassifier(body, 3, transform=True)),
    "LlamaForSequenceClassification": ("decoder", lambda body: fp.models.Regressor(body, pooling="last", bias=False, dropout=0.0)),
}


@pytest.mark.parametrize("name", sorted(HEADS_OF_TRANSFORMERS))
def test_what_transformers_has_is_written_as_its_own(name, tmp_path):
    kind, make = HEADS_OF_TRANSFORMERS[name]
    fp.models.save(tmp_path, make(body(kind)))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [name]
    assert config.get("mlxfp", {}).get("head") is None
    assert not any(weight.startswith("mlxfp") for weight in mx.load(f"{tmp_path}/model.safetensors"))


@pytest.mark.parametrize("name", ["bert mean", "modernbert max", "decoder masked", "encoder tokens"])
def test_a_head_that_transformers_has_not_is_not_written_as_if_it_had(name, tmp_path):
    fp.models.save(tmp_path, MODELS[name])
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == []
    assert any(weight.startswith("mlxfp_head.") for weight in mx.load(f"{tmp_path}/model.safetensors"))


def test_models_made_of_names_are_those_of_transformers(tmp_path):
    for name, head, expected in (
        ("bert", "classifier", "BertForSequenceClassification"),
        ("modernbert", "multi_label", "ModernBertForSequenceClassification"),
        ("decoder", "causal_lm", "LlamaForCausalLM"),
    ):
        fp.models.save(tmp_path, fp.models.create(name, size="tiny", head=head, labels=None if head == "causal_lm" else 3, vocab_size=30))
        assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [expected]


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "ModernBertForMaskedLM", "LlamaForCausalLM"])
def test_what_transformers_wrote_is_written_back_with_the_same_names_and_numbers(name, tmp_path):
    fp.models.save(tmp_path, fp.models.load(REFERENCES / name))
    assert same_arrays(*(dict(sorted(mx.load(f"{folder}/model.safetensors").items())) for folder in (tmp_path, REFERENCES / name)))
    mine, other = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, REFERENCES / name))
    written = set(mine) & set(other) - {"id2label", "label2id", "classifier_dropout", "problem_type", "pad_token_id"}
    assert {key: mine[key] for key in written} == {key: other[key] for key in written}


def test_a_body_is_read_from_a_model_with_any_head(tmp_path):
    for name, model in MODELS.items():
        inner = getattr(model, "body", model)
        fp.models.save(tmp_path, model)
        assert same_arrays(fp.models.load_body(tmp_path).parameters(), inner.parameters()), name


def test_weights_are_in_the_dtype_that_was_asked_for(tmp_path):
    model = body("modernbert")
    model.set_dtype(mx.bfloat16)
    fp.models.save(tmp_path, model)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert {array.dtype for array in named_arrays(fp.models.load(tmp_path)).values()} == {mx.float32}
    assert same_arrays(fp.models.load(tmp_path, dtype=mx.bfloat16).parameters(), model.parameters())
    with pytest.raises(ArgumentError, match=r"dtype must be a floating-point type, got mlx\.core\.int32"):
        fp.models.load(tmp_path, dtype=mx.int32)


@pytest.mark.parametrize("size", [1, 500, 2000, 10**9])
def test_shards_hold_what_one_file_holds(size, tmp_path):
    model = MODELS["bert tokens"]
    fp.models.save(tmp_path, model, shard_size=size)
    files = sorted(path.name for path in tmp_path.iterdir())
    if size == 10**9:
        assert files == ["config.json", "model.safetensors"]
    else:
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"].values()) == {name for name in files if name.startswith("model-")}
        assert index["metadata"]["total_size"] == sum(array.nbytes for array in named_arrays(model).values())
        sizes = {name: sum(array.nbytes for array in mx.load(f"{tmp_path}/{name}").values()) for name in index["weight_map"].values()}
        assert all(total <= size or len(mx.load(f"{tmp_path}/{name}")) == 1 for name, total in sizes.items())
    assert_loads_what_was_saved(model, fp.models.load(tmp_path))


def test_saving_over_another_model_leaves_nothing_of_it(tmp_path):
    for size in (500, 10**9, 2000, 500, 10**9):
        model = fp.models.Classifier(body("bert", seed=size % 7), 3)
        fp.models.save(tmp_path, model, shard_size=size)
        assert_loads_what_was_saved(model, fp.models.load(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_the_tokenizer_goes_along_and_gives_its_ids(tmp_path):
    tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "a hat, a cat"}]), kind="wordpiece", vocab_size=20)
    fp.models.save(tmp_path / "new" / "folder", MODELS["bert tokens"], tokenizer=tokenizer)
    assert fp.load_tokenizer(tmp_path / "new" / "folder") == tokenizer
    config = json.loads((tmp_path / "new" / "folder" / "config.json").read_text())
    assert (config["pad_token_id"], config["cls_token_id"], config["bos_token_id"]) == (tokenizer.pad_id, tokenizer.cls_id, None)
    small = fp.models.Classifier(body("bert", vocab_size=10), 2)
    with pytest.raises(ArgumentError, match=r"The tokenizer has \d+ tokens, but the model's vocabulary has 10\. Save the tokenizer used"):
        fp.models.save(tmp_path, small, tokenizer=tokenizer)


def copy_with(tmp_path, name, *, weights=lambda weights: weights, **changes):
    """Copy a reference folder with other weights and other keys in its config."""
    folder = tmp_path / "model"
    shutil.copytree(REFERENCES / name, folder)
    path = folder / "model.safetensors"
    mx.save_safetensors(f"{tmp_path}/new.safetensors", weights(dict(mx.load(str(path)))))
    Path(f"{tmp_path}/new.safetensors").replace(path)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))
    return folder


BERT = "BertForSequenceClassification"


def test_all_that_does_not_fit_is_said_at_once(tmp_path):
    def change(weights):
        del weights["bert.embeddings.LayerNorm.bias"], weights["classifier.weight"]
        weights["bert.pooler.dense.weight"] = mx.zeros((8, 9))
        weights["classifier.bias"] = mx.zeros(3, mx.int32)
        return weights | {"stray.weight": mx.zeros((2, 2))}

    with pytest.raises(CheckpointError) as error:
        fp.models.load(copy_with(tmp_path, BERT, weights=change))
    lines = str(error.value).splitlines()
    assert lines[0].endswith("do not match the Classifier in config.json:")
    assert [line.strip() for line in lines[1:]] == [
        "missing: classifier.weight float[3, 8]",
        "missing: bert.embeddings.LayerNorm.bias float[8]",
        "unexpected: stray.weight float[2, 2]",
        "different: classifier.bias is int32[3], expected float[3]",
        "different: bert.pooler.dense.weight is float[8, 9], expected float[8, 8]",
    ]


def test_a_head_without_its_pooler_says_what_is_missing(tmp_path):
    folder = copy_with(tmp_path, BERT, weights=lambda found: {name: array for name, array in found.items() if "pooler" not in name})
    with pytest.raises(CheckpointError, match=r"missing: bert\.pooler\.dense\.weight float\[8, 8\]"):
        fp.models.load(folder)
    assert fp.models.load_body(folder).config.pooler is False


def test_old_names_of_weights_are_known(tmp_path):
    fp.models.save(tmp_path / "plain", MODELS["bert masked"])
    plain = dict(mx.load(f"{tmp_path}/plain/model.safetensors"))

    def old(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    weights = {old(name): array for name, array in plain.items()}
    weights |= {
        "cls.predictions.decoder.weight": plain["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": weights.pop("cls.predictions.bias"),
        "cls.seq_relationship.weight": mx.zeros((2, 8)),
        "cls.seq_relationship.bias": mx.zeros(2),
        "bert.embeddings.position_ids": mx.arange(24)[None],
    }
    mx.save_safetensors(f"{tmp_path}/plain/model.safetensors", weights)
    config = json.loads((tmp_path / "plain" / "config.json").read_text()) | {"architectures": ["BertForPreTraining"]}
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    assert_loads_what_was_saved(MODELS["bert masked"], fp.models.load(tmp_path / "plain"))


def test_configs_of_older_versions_are_read(tmp_path):
    new = fp.models.load(REFERENCES / "LlamaForCausalLM")
    old = fp.models.load(copy_with(tmp_path, "LlamaForCausalLM", rope_parameters=..., head_dim=..., rope_theta=10000.0, rope_scaling=None))
    assert old.body.config == new.body.config
    older = copy_with(tmp_path / "modern", "ModernBertForMaskedLM", rope_parameters=..., layer_types=..., global_attn_every_n_layers=2)
    config = fp.models.load(older).body.config
    assert config == evolve(fp.models.load(REFERENCES / "ModernBertForMaskedLM").body.config, global_attn_every_n_layers=2)


CANNOT_BE = {
    r"is_decoder is True, not False; hidden_act is 'gelo', not one of 'gelu', ": (BERT, {"hidden_act": "gelo", "is_decoder": True}),
    r"the type of rotary positions is 'llama3', not 'default'": ("LlamaForCausalLM", {"rope_parameters": {"rope_type": "llama3"}}),
    r"head_dim is 6, not hidden_size / num_attention_heads = 2": ("LlamaForCausalLM", {"head_dim": 6}),
    r"attention_bias is True, not False": ("LlamaForCausalLM", {"attention_bias": True}),
    r"layer_types must have 'full_attention' at equal intervals": (
        "ModernBertForMaskedLM",
        {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    r"tie_word_embeddings is false, but masked language models": ("ModernBertForMaskedLM", {"tie_word_embeddings": False}),
    r"classifier_activation is 'relu', but must be equal to hidden": ("ModernBertForMaskedLM", {"classifier_activation": "relu"}),
    r"num_hidden_layers is 1000000000, but the files have only \d+ arrays": (BERT, {"num_hidden_layers": 10**9}),
    r"config\.json does not describe a model: ZeroDivisionError": ("LlamaForCausalLM", {"num_attention_heads": 0}),
    r"The weights are quantized": (BERT, {"quantization_config": {"bits": 4}}),
    r"config\.json has no architectures.*load_body": (BERT, {"architectures": None}),
}


@pytest.mark.parametrize("message", CANNOT_BE)
def test_a_config_that_no_model_here_has_is_an_error_that_says_why(message, tmp_path):
    name, changes = CANNOT_BE[message]
    with pytest.raises(DataError, match=message) as error:
        fp.models.load(copy_with(tmp_path, name, **changes))
    assert f"{tmp_path / 'model' / 'config.json'}" in "".join([str(error.value), *getattr(error.value, "__notes__", ())])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=2)
)


@settings(max_examples=100)
@given(st.sampled_from(["BertForSequenceClassification", "ModernBertForMaskedLM", "LlamaForCausalLM"]), st.data())
def test_whatever_a_config_says_there_is_a_model_or_an_error_of_ours(tmp_path_factory, name, data):
    config = json.loads((REFERENCES / name / "config.json").read_text()) | {"mlxfp": {}, "id2label": None, "num_labels": 2}
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(config)), VALUES, min_size=1, max_size=2))
    try:
        loaded = fp.models.load(copy_with(tmp_path_factory.mktemp("any"), name, **changes))
    except MlxfpError:
        return
    assert np.isfinite(np.array(loaded(IDS[:, :4] % min(12, loaded.body.config.vocab_size)))).all()


def test_a_config_with_a_wrong_section_of_ours_is_refused(tmp_path):
    for place, section in enumerate(
        [{"config": {"width": 8}}, {"head": "classifier"}, {"config": {}, "head": "no", "settings": {}}, [1], "x"]
    ):
        with pytest.raises(MlxfpError):
            fp.models.load(copy_with(tmp_path / str(place), BERT, mlxfp=section))


def test_an_unknown_key_in_our_section_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(UnknownNameError, match=r"No key of 'mlxfp' is named 'config'\. Known: head, numbers, settings\."):
        fp.models.load(copy_with(tmp_path, BERT, mlxfp={"config": {"hidden_size": 8}}))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_fields_of_a_config_are_keys_of_config_json(name, tmp_path):
    fp.models.save(tmp_path, MODELS[name])
    written = json.loads((tmp_path / "config.json").read_text())
    fields = json.loads(json.dumps(asdict(CONFIGS[name])))  # tuples are lists
    assert {key: written.get(key) for key in fields} == fields | {key: None for key in ("pooler", "qkv_bias") if key in fields}


def test_impossible_sizes_in_a_config_name_the_file(tmp_path):
    with pytest.raises(ArgumentError, match=r"hidden_size must be a multiple of num_attention_heads, got .*=8 and .*=3\.") as error:
        fp.models.load(copy_with(tmp_path, BERT, num_attention_heads=3))
    assert error.value.__notes__ == [f"while reading {tmp_path / 'model' / 'config.json'}"]


def test_unknown_architectures_and_heads_are_said(tmp_path):
    with pytest.raises(UnknownNameError, match=r"No model_type is named 'gpt2'\. Known: bert, llama, "):
        fp.models.load(copy_with(tmp_path, BERT, model_type="gpt2"))
    answering = copy_with(tmp_path / "other", BERT, architectures=["BertForQuestionAnswering"])
    with pytest.raises(UnknownNameError, match=r"No bert model is named 'BertForQuestionAnswering'\..*Known: .*BertForTokenClassification"):
        fp.models.load(answering)
    assert fp.models.load_body(answering).config.pooler is True


def test_labels_and_problems_are_those_of_the_config(tmp_path):
    names = {str(number): name for number, name in enumerate(["sad", "glad", "mad"])}
    for place, (problem, kind) in enumerate(
        {None: fp.models.Classifier, "regression": fp.models.Regressor, "multi_label_classification": fp.models.Classifier}.items()
    ):
        model = fp.models.load(copy_with(tmp_path / str(place), BERT, problem_type=problem, id2label=names))
        assert type(model) is kind
        assert model.settings["outputs"] == 3
        assert model.settings.get("multi_label") == {None: False, "regression": None}.get(problem, True)


def test_pickles_are_refused_and_the_way_out_is_said(tmp_path):
    folder = copy_with(tmp_path, BERT)
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingFileError, match=r"has no weights: neither model\.safetensors nor model\.safetensors\.index\.json"):
        fp.models.load(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(
        MissingFileError, match=r"only as pytorch_model\.bin, .* reading pickles such as pytorch_model\.bin can execute code"
    ):
        fp.models.load(folder)


def test_folders_that_are_not_there_or_hold_no_model_are_said(tmp_path):
    with pytest.raises(
        MissingFileError,
        match=r"There is no config\.json in '.*nowhere'\. Pass the folder of a model, or a name on the hub",
    ):
        fp.models.load(tmp_path / "nowhere")
    folder = tmp_path / "text-model"
    folder.mkdir()
    with pytest.raises(MissingFileError) as caught:
        fp.models.load(folder)
    assert str(caught.value) == (
        f"There is no config.json in {str(folder)!r}, so {str(folder)!r} is not the folder of a model. Pass the folder of a model, or a "
        "name on the hub, such as google-bert/bert-base-uncased."
    )
    (folder / "config.yaml").touch()
    with pytest.raises(MissingFileError, match=r"To write the models of a run to a folder: mlxfp export .*text-model --out FOLDER"):
        fp.models.load(folder)
    for load in (fp.models.load, fp.load_tokenizer):
        with pytest.raises(MissingFileError, match=r"text-modl'\. Did you mean 'text-model'\? Pass the "):
            load(tmp_path / "text-modl")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json is not valid JSON"):
        fp.models.load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(DataError, match=r"config\.json must contain a JSON object, got list"):
        fp.models.load(tmp_path)


def test_an_index_cannot_lead_out_of_the_folder_and_misses_no_file(tmp_path):
    folder = copy_with(tmp_path, BERT)
    index = folder / "model.safetensors.index.json"
    for place in ("../other.safetensors", "/etc/passwd", "weights.bin", "sub/model.safetensors"):
        index.write_text(json.dumps({"weight_map": {"a": place}}))
        with pytest.raises(DataError, match="but only safetensors files in the same folder are allowed"):
            fp.models.load(folder)
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "model.safetensors"}}))
    with pytest.raises(MissingFileError, match=r"lists missing files: one\.safetensors, two\.safetensors"):
        fp.models.load(folder)
    index.write_text(json.dumps({"weight_map": ["a"]}))
    with pytest.raises(DataError, match="has no weight_map"):
        fp.models.load(folder)


def test_damaged_weights_are_an_error_wherever_they_are_cut(tmp_path):
    folder = copy_with(tmp_path, BERT)
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="is not a safetensors file, or is damaged"):
            fp.models.load(folder)


def test_a_loaded_model_is_in_evaluation_mode(tmp_path):
    fp.models.save(tmp_path, fp.models.Classifier(body("bert", hidden_dropout_prob=0.5), 3))
    assert same_arrays(fp.models.load(tmp_path)(IDS, MASK), fp.models.load(tmp_path)(IDS, MASK))


def test_an_untied_embedding_does_not_matter_where_there_is_no_language_model(tmp_path):
    assert fp.models.load(copy_with(tmp_path, BERT, tie_word_embeddings=False)).outputs == 3


def test_models_with_other_layers_than_their_config_says_are_not_saved(tmp_path):
    quantized = body("bert", hidden_size=64, intermediate_size=64)
    nn.quantize(quantized, group_size=32)
    with pytest.raises(ArgumentError, match=r"do not match its config: .*biases.*If layers are quantized, save the model first"):
        fp.models.save(tmp_path, quantized)
    grown = body("bert")
    grown.tokens = nn.Embedding(30, 8)
    with pytest.raises(
        ArgumentError, match=r"different: tokens\.weight is float\[30, 8\], expected float\[20, 8\]\. .*create a model with this size"
    ):
        fp.models.save(tmp_path, grown)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["save", "save_adapters", "load_adapters"])
def test_a_folder_and_a_state_are_not_a_model(name, tmp_path):
    model = nn.Linear(2, 3)
    state = fp.train_state(model, fp.optimizers.adamw(0.1))
    write = getattr(fp.models, name)
    with pytest.raises(ArgumentTypeError) as caught:
        write(model, "folder")
    assert str(caught.value) == f"model must be an mlx.nn.Module, got str: 'folder'. Write fp.models.{name}(folder, model)."
    with pytest.raises(ArgumentTypeError) as caught:
        write(tmp_path, state)
    assert str(caught.value) == (
        f"model must be an mlx.nn.Module, got TrainState: {state!r:.60}. Pass the module of the training: "
        "model.update(state.params) returns the module with the trained weights."
    )
    assert model.update(state.params) is model


def test_other_modules_are_not_saved(tmp_path):
    class Own(type(body("encoder"))):
        pass

    with pytest.raises(ArgumentTypeError, match=r"save writes the models of mlxfp\.models, got Classifier of Own"):
        fp.models.save(tmp_path, fp.models.Classifier(Own(body("encoder").config), 2))
    with pytest.raises(ArgumentTypeError) as caught:
        fp.models.save(tmp_path, "model")  # type: ignore[arg-type]
    assert str(caught.value) == "model must be an mlx.nn.Module, got str: 'model'. Write fp.models.save(folder, model)."
    with pytest.raises(ArgumentError, match="shard_size must be at least 1"):
        fp.models.save(tmp_path, MODELS["bert"], shard_size=0)
