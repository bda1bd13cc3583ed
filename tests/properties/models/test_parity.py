"""Parity with transformers: live where torch and transformers are installed, and against committed files everywhere."""

import importlib.util
import json
import warnings

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfp.models import load, save
from tests.models.make_references import FOLDER, batch_of, summed_up
from tests.models.make_references import MODELS as REFERENCES
from tests.models.parity import batch, largest_differences, ours, theirs, to_numpy, write_theirs

TOLERANCE = 1e-4
ABSENT = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
live = pytest.mark.skipif(bool(ABSENT), reason=f"{' and '.join(ABSENT)} not installed: pip install 'mlxfp[parity]'")

CASES = [
    ("BertModel", {}),
    ("BertForMaskedLM", {}),
    ("BertForPreTraining", {}),
    ("BertForSequenceClassification", {"num_labels": 2}),
    ("BertForSequenceClassification", {"num_hidden_layers": 1, "hidden_size": 12, "hidden_act": "relu", "type_vocab_size": 3}),
    ("BertForTokenClassification", {"hidden_act": "gelu_new", "num_attention_heads": 4}),
    ("ModernBertModel", {}),
    ("ModernBertForMaskedLM", {"num_hidden_layers": 4, "global_attn_every_n_layers": 2}),
    ("ModernBertForSequenceClassification", {}),
    ("ModernBertForSequenceClassification", {"classifier_pooling": "mean", "local_attention": 2, "hidden_size": 24}),
    ("ModernBertForTokenClassification", {"local_attention": 128, "num_attention_heads": 1}),
    ("LlamaModel", {"num_key_value_heads": 1}),
    ("LlamaForCausalLM", {}),
    ("LlamaForCausalLM", {"tie_word_embeddings": True, "num_key_value_heads": 4, "hidden_size": 16}),
    ("LlamaForSequenceClassification", {}),
    ("LlamaForTokenClassification", {"num_hidden_layers": 1}),
    ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
]
# Of padding on the left, these of transformers take the vector of the first token. Ours take that of the first real one.
FIRST = ("BertForSequenceClassification", "ModernBertForSequenceClassification")


@pytest.fixture(autouse=True)
def _quiet():
    """Let other packages warn, which is an error in tests; about their progress they keep silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not ABSENT:
            from transformers.utils import logging

            logging.set_verbosity_error()
            logging.disable_progress_bar()
        yield


@live
@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize(("name", "changes"), CASES, ids=[f"{name} {number}" for number, (name, _) in enumerate(CASES)])
def test_outputs_and_gradients_are_those_of_transformers(name, changes, padding, tmp_path):
    if padding == "left" and name in FIRST and changes.get("classifier_pooling") != "mean":
        pytest.skip("transformers classifies the vector of a padding token here")
    write_theirs(tmp_path, name, **changes)
    given = batch(padding, types=name.startswith("Bert"))
    outputs, gradients = largest_differences(ours(tmp_path, given), theirs(tmp_path, name, given), given["mask"])
    assert outputs < TOLERANCE
    assert gradients < TOLERANCE


@live
@settings(max_examples=15)
@given(st.sampled_from(CASES), st.lists(st.integers(1, 14), min_size=1, max_size=4), st.integers(0, 99))
def test_any_lengths_and_weights_agree(tmp_path_factory, case, lengths, seed):
    name, changes = case
    folder = tmp_path_factory.mktemp("model")
    write_theirs(folder, name, seed=seed, **changes)
    given = batch("right", lengths=lengths, types=name.startswith("Bert"))
    expected = theirs(folder, name, given)
    outputs, gradients = largest_differences(ours(folder, given), expected, given["mask"])
    assert outputs < TOLERANCE
    assert gradients < TOLERANCE * max(1, *(abs(gradient).max() for gradient in expected[1].values()))


@live
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["BertForMaskedLM", "ModernBertForMaskedLM", "LlamaForCausalLM"])
def test_in_half_precision_we_are_as_near_to_the_truth_as_transformers(name, dtype, tmp_path):
    given, mine, other = batch("right"), [], []
    for seed in range(4):
        write_theirs(tmp_path / str(seed), name, seed=seed)
        truth, _ = theirs(tmp_path / str(seed), name, given, weights=dtype)
        mine.append(ours(tmp_path / str(seed), given, dtype=getattr(mx, dtype))[0] - truth)
        other.append(theirs(tmp_path / str(seed), name, given, weights=dtype, dtype=dtype)[0] - truth)
    real = given["mask"] != 0
    errors, their_errors = (np.sqrt(np.square(np.stack(off)[:, real]).mean()) for off in (mine, other))
    assert errors < 1.5 * their_errors


@live
@pytest.mark.parametrize(("name", "changes"), CASES[:-1], ids=[f"{name} {number}" for number, (name, _) in enumerate(CASES[:-1])])
def test_transformers_reads_what_we_write(name, changes, tmp_path):
    write_theirs(tmp_path / "theirs", name, **changes)
    save(tmp_path / "ours", load(tmp_path / "theirs"))
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    (tmp_path / "ours" / "config.json").write_text(json.dumps(config | {"pad_token_id": 0}))  # which save takes from a tokenizer
    name = name.replace("ForPreTraining", "ForMaskedLM")
    given = batch("right", types=name.startswith("Bert"))
    first, second = (theirs(tmp_path / folder, name, given) for folder in ("theirs", "ours"))
    assert max(largest_differences(first, second, given["mask"])) < 1e-12


def test_the_comparison_catches_a_small_mistake(tmp_path):
    given = batch_of("ModernBertForMaskedLM")
    right = ours(FOLDER / "ModernBertForMaskedLM", given)
    model = load(FOLDER / "ModernBertForMaskedLM")
    model.body.norm.weight = model.body.norm.weight * 1.001
    save(tmp_path, model)
    assert max(largest_differences(ours(tmp_path, given), right, given["mask"])) > TOLERANCE


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_outputs_and_gradients_are_those_of_the_reference_files(name):
    given = batch_of(name)
    found = summed_up(*ours(FOLDER / name, given), given["mask"])
    expected = json.loads((FOLDER / name / "expected.json").read_text())
    assert abs(np.array(found["outputs"]) - np.array(expected["outputs"])).max() < TOLERANCE
    assert sorted(found["gradients"]) == sorted(expected["gradients"])
    assert max(abs(found["gradients"][weight] - number) for weight, number in expected["gradients"].items()) < TOLERANCE


def test_half_precision_is_near_the_reference_files():
    for name in REFERENCES:
        given = batch_of(name)
        exact = ours(FOLDER / name, given)[0]
        model = load(FOLDER / name, dtype=mx.bfloat16).eval()
        outputs = to_numpy(model(**{key: mx.array(value) for key, value in given.items()}))
        assert abs((outputs - exact) * (given["mask"][..., None] if exact.ndim == 3 else 1)).max() < 0.15
