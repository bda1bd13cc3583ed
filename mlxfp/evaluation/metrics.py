"""Metrics, as a sum and a weight: what is added up over batches in any grouping, and divided once at the end."""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isfinite

import mlx.core as mx

from mlxfp.core.errors import ArgumentError, ArgumentTypeError, DataError

Totals = Mapping[str, tuple[float, float]]  # name -> (sum, weight)


def accuracy(logits: mx.array, labels: mx.array, *, ignore_index: int = -100) -> tuple[mx.array, mx.array]:
    """Count the rows whose largest logit is the label's: (hits, rows), two scalars.

    `logits` are float[..., C], `labels` int[...]; rows whose label is `ignore_index` do not count. Raises `ArgumentError` if the
    shapes do not fit and `ArgumentTypeError` for labels that are not integers.

    >>> hits, rows = accuracy(mx.array([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]]), mx.array([0, 1, -100]))
    >>> hits.item(), rows.item()
    (1.0, 2.0)
    """
    labels = class_labels("accuracy", logits, labels)
    counts = labels != ignore_index
    return ((logits.argmax(axis=-1) == labels) & counts).astype(mx.float32).sum(), counts.astype(mx.float32).sum()


def add_up(parts: Iterable[Totals]) -> dict[str, tuple[float, float]]:
    """Add up sums and weights, name by name.

    The additions are exact (`math.fsum`) and rounded once, so the order of the parts does not matter.

    >>> add_up([{"accuracy": (3, 4)}, {"accuracy": (1, 4), "loss": (2.5, 4)}])
    {'accuracy': (4.0, 8.0), 'loss': (2.5, 4.0)}
    """
    gathered: dict[str, list[tuple[float, float]]] = {}
    for part in parts:
        for name, pair in part.items():
            gathered.setdefault(name, []).append(pair)
    return {name: (_add(sums), _add(weights)) for name, pairs in gathered.items() for sums, weights in [zip(*pairs, strict=True)]}


def means(totals: Totals) -> dict[str, float]:
    """Divide every sum by its weight.

    Raises `DataError` for a metric without weight: a mean over nothing.

    >>> means({"accuracy": (4, 8)})
    {'accuracy': 0.5}
    """
    for name, (_, weight) in totals.items():
        if weight == 0:
            raise DataError(
                f"The metric {name!r} has a total weight of 0: there is nothing to average over. Check the labels and the mask."
            )
    return {name: total / weight for name, (total, weight) in totals.items()}


def class_labels(function: str, logits: mx.array, labels: mx.array) -> mx.array:
    """Return the labels as int32: in an unsigned type, -100 would wrap around to a class.

    Raises `ArgumentError` unless there is one label for each row of logits, `ArgumentTypeError` for labels that are not integers.

    >>> class_labels("accuracy", mx.zeros((2, 3)), mx.array([0, 2], mx.uint8))
    array([0, 2], dtype=int32)
    """
    if logits.shape[:-1] != labels.shape:
        raise ArgumentError(
            f"{function} needs one label for each row of logits, got logits of shape {logits.shape} and labels of shape {labels.shape}. "
            "The logits have one axis more than the labels: the classes, last."
        )
    if mx.issubdtype(labels.dtype, mx.inexact):
        raise ArgumentTypeError(f"{function} needs integer labels, got {labels.dtype}. For numbers as targets there is losses.mse.")
    return labels.astype(mx.int32)


def _add(values: Sequence[float]) -> float:
    return fsum(values) if all(map(isfinite, values)) else float(sum(values))  # fsum raises for inf - inf, which is NaN
