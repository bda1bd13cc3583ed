"""Ids and labels outside of their tables: MLX would read foreign memory, so an error names the first of them, and nothing else changes."""

import pickle

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx import nn

import mlxfp as fp
from mlxfp.evaluation import metrics
from mlxfp.models.bounds import Bound, BoundError, checked
from mlxfp.models.layers import Embedding, QuantizedEmbedding
from mlxfp.support.errors import DataError
from tests.models.samples import VOCABULARY, body, models, rows

KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
MODELS = models()
IDS, MASK = rows([3, 5])


@st.composite
def numbers_and_bounds(draw):
    """Whole numbers of any type, [rows, places], around the edges of a table; a number to ignore; weights of the rows."""
    kind = draw(st.sampled_from(KINDS))
    size, limits = draw(st.integers(1, 100)), np.iinfo(kind)
    edges = [
        edge
        for edge in (-100, -1, size - 1, size, size + 1, 2**32 - 100, 2**64 - 100, limits.min, limits.max)
        if limits.min <= edge <= limits.max
    ]
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    values = draw(st.lists(st.integers(0, size - 1) | st.sampled_from(edges), min_size=height * width, max_size=height * width))
    weights = draw(st.none() | st.lists(st.sampled_from([0.0, 1.0]), min_size=height, max_size=height))
    bound = Bound("classes", size, draw(st.sampled_from([None, -100])))
    return np.array(values, kind).reshape(height, width), bound, None if weights is None else np.array(weights)


@given(numbers_and_bounds())
def test_the_first_number_outside_is_found_in_every_type(case):
    numbers, bound, weights = case

    def allowed(row, number):
        return 0 <= number < bound.size or number == bound.ignored or (weights is not None and weights[row] == 0)

    wrong = [(row, place) for row, line in enumerate(numbers.tolist()) for place, one in enumerate(line) if not allowed(row, one)]
    assert bound.outside(numbers, weights) == (wrong[0] if wrong else None)


@given(st.lists(st.floats(width=32) | st.sampled_from([0.0, 1.0, 0.5]), max_size=5))
def test_probabilities_are_from_0_to_1(values):
    wrong = [(place,) for place, value in enumerate(values) if not 0 <= value <= 1]
    assert Bound("classes", None).outside(np.array(values, np.float32), None) == (wrong[0] if wrong else None)


def test_the_message_names_the_number_its_place_and_what_to_do():
    bound = Bound("tokens", 5000)
    assert str(BoundError("input_ids", 5216, (3, 7), 32, bound)) == (
        "input_ids holds 5216 at row 3, position 7, and the model has 5,000 tokens: 0 to 4,999. Use the tokenizer of the model, "
        "or create the model with vocab_size=tokenizer.vocab_size."
    )
    assert str(BoundError("labels", 3, (5,), 32, Bound("classes", 2, -100), "row 17 of read_csv('train.csv')")) == (
        "labels holds 3 at row 5 (row 17 of read_csv('train.csv')), and the model has 2 outputs: 0 to 1 (-100 is ignored). "
        "Number the classes from 0, and create the model with one output per class."
    )
    with pytest.raises(DataError) as raised:
        fp.losses.binary_cross_entropy(mx.zeros(3), mx.array([0, 1, 2]))
    assert str(raised.value) == (
        "The array of labels holds 2 at row 2, but labels of yes-or-no questions must be 0, 1 or a probability. "
        "Use cross_entropy for more than two classes, mse for numbers."
    )
    for error in (raised.value, BoundError("input_ids", 5216, (3, 7), 32, bound)):
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.index, copy.rows) == (str(error), error.index, error.rows)


@pytest.mark.parametrize("name", sorted(MODELS))
@given(row=st.integers(0, 1), place=st.integers(0, 4), wrong=st.sampled_from([-1, VOCABULARY, 2**31 - 1]))
def test_every_model_refuses_ids_that_are_not_in_its_vocabulary(name, row, place, wrong):
    ids = np.array(IDS)
    ids[row, place] = wrong  # at padding too: it is looked up like the others
    for kind in (mx.int32, mx.int64, *([mx.uint32] if wrong > 0 else [])):
        with pytest.raises(DataError, match=rf"holds {wrong} at row {row}, position {place}, and the model has 20 tokens: 0 to 19"):
            MODELS[name](mx.array(ids, kind), MASK)


def test_bert_refuses_types_and_positions_that_it_has_not():
    bert, fine = body("bert"), mx.zeros((2, 5), mx.int32)
    with pytest.raises(DataError, match=r"holds 2 at row 0, position 0, and the model has 2 token types: 0 to 1\. .* type_vocab_size"):
        bert(IDS, MASK, token_type_ids=fine + 2)
    with pytest.raises(DataError, match=r"the model has 24 positions: 0 to 23\. .* max_position_embeddings"):
        bert(IDS, MASK, positions=fine + 24)
    assert bert(IDS, MASK, positions=fine + 23, token_type_ids=fine + 1).shape == (2, 5, 8)


def test_extending_a_decoder_checks_too_and_generate_says_which_prompt():
    decoder = body("decoder")
    with pytest.raises(DataError, match="holds 20 at row 0, position 1"):
        decoder.extend(mx.array([[3, VOCABULARY]]), decoder.cache(1, 4))
    with pytest.raises(ValueError, match="Prompt 1 has the id 20"):
        fp.models.generate(MODELS["decoder causal"], [[1], [VOCABULARY]], max_tokens=1)


@pytest.mark.parametrize("kind", [mx.int32, mx.uint32, mx.int64, mx.uint8])
def test_rows_of_ids_are_those_of_mlx_bit_for_bit(kind):
    stock, ids = nn.Embedding(7, 4), mx.array([[0, 6, 3]], kind)
    own = Embedding(7, 4, table="tokens")
    own.weight = stock.weight
    assert mx.array_equal(own(ids), stock(ids)).item()
    quantized = nn.QuantizedEmbedding.from_embedding(nn.Embedding(7, 64), 32, 4)
    other = QuantizedEmbedding(7, 64, 32, 4)
    other.update(quantized.parameters())
    assert mx.array_equal(other(ids), quantized(ids)).item()
    with pytest.raises(DataError, match="an embedding of the model has 7 rows"):
        other(ids + 1)


@pytest.mark.parametrize("compile", [mx.compile, lambda function: mx.vmap(function, in_axes=(None, 0))], ids=["compile", "vmap"])
def test_in_a_foreign_transformation_rows_outside_are_nan_and_the_others_stay(compile):
    own = Embedding(7, 4, table="tokens")
    ids = mx.array([[0, 7, 6], [-1, 2, 2**31 - 1]])

    def look_up(weight, ids):
        own.weight = weight
        return own(ids)

    weight = own.weight
    found = np.array(compile(look_up)(weight, ids))
    inside = (np.array(ids) >= 0) & (np.array(ids) < 7)
    assert np.isnan(found[~inside]).all()
    assert np.array_equal(found[inside], np.array(weight)[np.array(ids)[inside]])


def test_a_compiled_function_checks_its_arguments_at_every_call_and_what_it_computes_becomes_nan():
    own = Embedding(5, 1, table="tokens")
    own.weight = mx.arange(5.0)[:, None]

    def look_up(inputs, shift):
        return own(inputs["ids"]), own(inputs["ids"] + shift)

    compiled = fp.jit(look_up)
    for _ in range(2):  # while it is traced, and from its trace
        with pytest.raises(BoundError, match=r"^ids holds 5 at row 1, and"):
            compiled({"ids": mx.array([0, 5])}, mx.array(0))
    plain, shifted = compiled({"ids": mx.array([0, 4])}, mx.array(1))
    assert plain.tolist() == [[0.0], [4.0]]
    assert np.array_equal(np.array(shifted), [[1.0], [np.nan]], equal_nan=True)
    assert compiled.variants == 1
    with pytest.raises(BoundError, match=r"^inputs\.ids holds 9 at row 0"):
        compiled(inputs={"ids": mx.array([9])}, shift=mx.array(0))


def test_compiled_functions_in_compiled_functions_are_checked_by_the_outermost():
    own = Embedding(5, 1, table="tokens")
    own.weight = mx.arange(5.0)[:, None]
    inner = fp.jit(own)
    outer = fp.jit(lambda batch: (inner(batch["ids"]), inner(batch["ids"] + 1)))
    plain, more = outer({"ids": mx.array([0, 3])})
    assert (plain.tolist(), more.tolist()) == ([[0.0], [3.0]], [[1.0], [4.0]])
    with pytest.raises(BoundError, match="ids holds 5 at row 0"):
        outer({"ids": mx.array([5])})
    assert np.isnan(outer({"ids": mx.array([0, 4])})[1].tolist()[1])
    assert inner(mx.array([4])).tolist() == [[4.0]]  # also alone, after and before
    with pytest.raises(BoundError, match="An argument holds 7"):
        inner(mx.array([7]))
    assert np.isnan(mx.compile(inner)(mx.array([7])).item())


@pytest.mark.parametrize("label", [3, -1, 1000])
def test_a_label_that_is_not_a_class_is_refused_unless_it_does_not_count(label):
    logits, labels, first = mx.zeros((2, 3)), mx.array([0, label]), mx.array([1.0, 0.0])
    functions = {
        "cross_entropy": fp.losses.cross_entropy,
        "linear": lambda logits, labels, **more: fp.losses.linear_cross_entropy(mx.zeros((2, 4)), mx.zeros((3, 4)), labels, **more),
        "binary": lambda logits, labels, **more: fp.losses.binary_cross_entropy(logits[:, 0], labels, **more),
        "accuracy": metrics.accuracy,
        "log_loss": metrics.log_loss,
        "f1": lambda *arrays, **more: metrics.f1(*arrays, average="macro", **more),
        "perplexity": metrics.perplexity,
    }
    for name, function in functions.items():
        with pytest.raises(DataError, match=f"The array of labels holds {label} at row 1, (and|but)"):
            function(logits, labels)
        expected, found = function(logits, mx.array([0, 1]), example_weights=first), function(logits, labels, example_weights=first)
        assert metrics.compute({name: found}) == metrics.compute({name: expected})
        assert metrics.compute({"ignored": functions["accuracy"](logits, mx.array([0, -100]))}) == {"ignored": 1.0}


def test_weights_that_a_compiled_function_computes_leave_the_labels_to_become_nan():
    compiled = fp.jit(lambda batch: fp.losses.cross_entropy(mx.zeros((2, 3)), batch["labels"], example_weights=batch["weight"] * 2))
    assert compiled({"labels": mx.array([0, 3]), "weight": mx.array([1.0, 0.0])})[1].item() == 2
    assert np.isnan(compiled({"labels": mx.array([0, 3]), "weight": mx.array([1.0, 1.0])})[0].item())


def test_nothing_is_checked_of_empty_arrays_and_of_scalars_the_only_place():
    assert checked(mx.zeros((0, 3), mx.int32), Bound("tokens", 1))
    with pytest.raises(DataError, match="holds 1 at row 0"):
        checked(mx.array(1), Bound("tokens", 1))
