"""Arguments of all losses and metrics: batches without rows, and values that are not numbers, labels or arrays."""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from mlxfp.evaluation import metrics
from mlxfp.models import create
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.training import losses


def linear(logits, labels, **options):
    """Return `linear_cross_entropy` for a matrix that changes nothing."""
    return losses.linear_cross_entropy(logits, mx.eye(3), labels, **options)


OF_LABELS = {
    "cross_entropy": losses.cross_entropy,
    "smoothed": partial(losses.cross_entropy, label_smoothing=0.1, class_weights=[1, 2, 3]),
    "linear_cross_entropy": linear,
    "accuracy": metrics.accuracy,
    "log_loss": metrics.log_loss,
    "perplexity": metrics.perplexity,
    "f1": partial(metrics.f1, average="macro"),
    "micro f1": partial(metrics.f1, average="micro"),
}
OF_TARGETS = {
    "mse": losses.mse,
    "huber": losses.huber,
    "mae": losses.mae,
    "binary_cross_entropy": losses.binary_cross_entropy,
    "contrastive": lambda rows, others, **options: losses.contrastive(rows[:, None], others[:, None], **options),
    "rmse": metrics.rmse,
    "r2": metrics.r2,
    "roc_auc": metrics.roc_auc,
}
LOGITS, LABELS = mx.array([[1.0, 2.0, 0.0], [3.0, 1.0, 1.0]]), mx.array([1, 2])
CASES = [(function, LOGITS, LABELS) for function in OF_LABELS.values()] + [
    (function, mx.array([0.5, 0.1]), mx.array([1.0, 0.0])) for function in OF_TARGETS.values()
]
NAMES = [*OF_LABELS, *OF_TARGETS]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("function", "outputs", "labels"), CASES, ids=NAMES)
def test_a_batch_without_rows_changes_no_result(function, outputs, labels, compiled):
    """Law: the sums of a batch, merged with the sums of no rows, are the sums of the batch. Sums of no rows are 0."""

    def sums(outputs, labels):
        result = function(outputs, labels)
        return list(result) if isinstance(result, tuple) else [getattr(result, field.name) for field in result.__attrs_attrs__]

    compute = mx.compile(sums) if compiled else sums
    empty = [np.array(part) for part in compute(outputs[:0], labels[:0])]
    assert all(not part.any() for part in empty)
    whole = function(outputs, labels)
    assert metrics.compute(metrics.merge([{"x": whole}, {"x": function(outputs[:0], labels[:0])}])) == metrics.compute({"x": whole})


@pytest.mark.parametrize(("function", "outputs", "labels"), CASES[:3] + CASES[8:13], ids=NAMES[:3] + NAMES[8:13])
def test_a_batch_without_rows_has_an_empty_gradient(function, outputs, labels):
    """A training step on no rows is possible."""
    total, gradient = mx.value_and_grad(lambda x: function(x, labels[:0])[0])(outputs[:0])
    assert (total.item(), gradient.shape) == (0, outputs[:0].shape)


def test_language_losses_of_no_rows_are_0():
    """The losses call the model without rows."""
    model, empty = create("decoder", size="tiny", head="causal_lm", vocab_size=20), mx.zeros((0, 3), mx.int32)
    assert [part.item() for part in losses.causal_lm(model, dict.fromkeys(("input_ids", "attention_mask", "labels"), empty))] == [0, 0]
    pairs = {f"{side}_{name}": empty for side in ("chosen", "rejected") for name in ("input_ids", "attention_mask", "labels")}
    references = dict.fromkeys(("reference_chosen", "reference_rejected"), mx.zeros(0))
    assert [part.shape for part in losses.answer_log_probabilities(model, pairs)] == [(0,), (0,)]
    assert [part.item() for part in losses.dpo(model, pairs | references)] == [0, 0]


@pytest.mark.parametrize("function", OF_LABELS.values(), ids=OF_LABELS)
@pytest.mark.parametrize("ignore_index", [None, True, -100.0, "x"])
def test_an_ignored_label_is_an_integer(function, ignore_index):
    """None and True are no labels. A float never equals a label beyond 2**24."""
    with pytest.raises(ArgumentTypeError, match=f"ignore_index must be an int, got ignore_index={ignore_index!r}"):
        function(LOGITS, LABELS, ignore_index=ignore_index)
    with pytest.raises(ArgumentError, match="ignore_index must be a 32-bit integer, got ignore_index=1099511627776"):
        function(LOGITS, LABELS, ignore_index=2**40)


@pytest.mark.parametrize("function", OF_LABELS.values(), ids=OF_LABELS)
@pytest.mark.parametrize(
    ("label", "kind"), [(2**32 - 100, "int64"), (2**32 - 100, "uint32"), (2**64 - 100, "uint64"), (2**32 + 1, "int64")]
)
def test_a_large_label_is_neither_ignored_nor_a_class(function, label, kind):
    """In 32 bits, 2**32 - 100 would be -100, and 2**32 + 1 would be class 1. In compiled functions, such a label makes the result NaN."""
    labels = mx.array(np.array([0, label], kind))
    with pytest.raises(DataError, match=rf"holds {label} at row 1, and the model has 3 outputs: 0 to 2 \(-100 is ignored\)"):
        function(LOGITS, labels)

    def sums(labels):
        result = function(LOGITS, labels)
        return result[0] if isinstance(result, tuple) else getattr(result, result.__attrs_attrs__[0].name)

    assert np.isnan(np.array(mx.compile(sums)(labels))).all()


@pytest.mark.parametrize("wrong", [None, [0.5, 1.0], np.array([0.5, 1.0]), 3.0])
@pytest.mark.parametrize("function", [*OF_LABELS.values(), *list(OF_TARGETS.values())[:4], *list(OF_TARGETS.values())[5:]])
def test_other_values_than_mlx_arrays_are_named(function, wrong):
    """NumPy arrays, lists and None raise an error with the name of the argument and the conversion."""
    for arguments in ((wrong, LABELS), (LABELS, wrong)):
        with pytest.raises(ArgumentTypeError, match=r"needs MLX arrays, got \w+=.* \(\w+\)\. Pass mx\.array\(\w+\)\."):
            function(*arguments)
    if wrong is not None:
        outputs = LOGITS if function in OF_LABELS.values() else mx.array([0.5, 0.1])
        with pytest.raises(ArgumentTypeError, match=r"got example_weights=.*Pass mx\.array\(example_weights\)"):
            function(outputs, LABELS, example_weights=wrong)


@pytest.mark.parametrize(
    ("function", "first"), [(losses.binary_cross_entropy, "logits"), (metrics.roc_auc, "scores"), (losses.mae, "predictions")]
)
def test_an_error_names_the_argument_of_the_function(function, first):
    """The name in the error is the name in the signature."""
    with pytest.raises(ArgumentTypeError, match=f"{function.__name__} needs MLX arrays, got {first}=None"):
        function(None, LABELS)
    for name in ("hidden", "matrix", "labels", "bias"):
        arrays = {"hidden": LOGITS, "matrix": mx.eye(3), "labels": LABELS, "bias": mx.zeros(3)} | {name: [0]}
        with pytest.raises(ArgumentTypeError, match=f"linear_cross_entropy needs MLX arrays, got {name}="):
            losses.linear_cross_entropy(**arrays)


@pytest.mark.parametrize("wrong", [None, "x", True])
def test_settings_of_losses_are_numbers(wrong):
    """None, a text and True are refused with the name of the setting."""
    rows = mx.zeros((2, 3))
    for name, call in (
        ("label_smoothing", lambda: losses.cross_entropy(LOGITS, LABELS, label_smoothing=wrong)),
        ("temperature", lambda: losses.contrastive(rows, rows, temperature=wrong)),
        ("delta", lambda: losses.huber(rows, rows, delta=wrong)),
        ("beta", lambda: losses.dpo(create("decoder", size="tiny", head="causal_lm", vocab_size=20), {}, beta=wrong)),
    ):
        with pytest.raises(ArgumentTypeError, match=f"{name} must be a number, got {name}={wrong!r}"):
            call()


@pytest.mark.parametrize("weights", [3, "123", [1, None, 2], {0: 1.0, 1: 5.0, 2: 1.0}, [1, float("inf"), 1]])
def test_class_weights_are_a_list_of_numbers(weights):
    """A dict would give its keys as weights."""
    with pytest.raises(ArgumentError, match=r"needs 3 class weights of at least 0, .*\. Pass a list with a number for each class"):
        losses.cross_entropy(LOGITS, LABELS, class_weights=weights)
    expected = losses.cross_entropy(LOGITS, LABELS, class_weights=[1, 2, 3])[0].item()
    for array in (np.array([1, 2, 3]), mx.array([1, 2, 3])):
        assert losses.cross_entropy(LOGITS, LABELS, class_weights=array)[0].item() == expected


@pytest.mark.parametrize("function", [function for function in OF_LABELS.values() if function is not linear])
def test_logits_need_an_axis_of_classes(function):
    """Logits without classes have no largest logit."""
    for shape in ((), (0, 0), (2, 0)):
        with pytest.raises(ArgumentError, match="the last axis for classes"):
            function(mx.zeros(shape), mx.zeros(shape[:-1], mx.int32))


def test_settings_of_numpy_have_gradients():
    """A NumPy number must not turn the loss into a NumPy value, which has no gradient."""
    setting, labels = np.float32(0.5), mx.array([0, 1])
    functions = [
        lambda x: losses.cross_entropy(x, labels, label_smoothing=setting)[0],
        lambda x: losses.huber(x, mx.ones((2, 2)), delta=setting)[0],
        lambda x: losses.contrastive(x, mx.eye(2), temperature=setting)[0],
    ]
    for loss in functions:
        assert mx.grad(loss)(mx.array([[1.0, 2.0], [3.0, 5.0]])).dtype == mx.float32
