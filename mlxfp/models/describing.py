"""Summary of a model as a table: the arrays and the number of parameters of each layer."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxfp.models.layers import named_arrays
from mlxfp.support.checks import check_types


def describe(model: nn.Module) -> str:
    """Return a table of the layers of any module: array shapes and parameter counts.

    Consecutive equal layers in a list share a line, as in `blocks[0-2]`. Frozen arrays are marked. A module that occurs several times has
    lines for each occurrence, but counts once in the totals at the end.

    >>> import mlxfp as fp
    >>> body = fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16, num_hidden_layers=3))
    >>> print(fp.models.describe(fp.models.Classifier(body, outputs=2)))
    layer                              kind       arrays                    parameters
    output                             Linear     weight[2, 16], bias[2]            34
    body.tokens                        Embedding  weight[100, 16]                1,600
    body.positions                     Embedding  weight[512, 16]                8,192
    body.blocks[0-2].attention_norm    LayerNorm  weight[16], bias[16]              96
    body.blocks[0-2].attention.inputs  Linear     weight[48, 16], bias[48]       2,448
    body.blocks[0-2].attention.output  Linear     weight[16, 16], bias[16]         816
    body.blocks[0-2].feed_norm         LayerNorm  weight[16], bias[16]              96
    body.blocks[0-2].feed_in           Linear     weight[64, 16], bias[64]       3,264
    body.blocks[0-2].feed_out          Linear     weight[16, 64], bias[16]       3,120
    body.norm                          LayerNorm  weight[16], bias[16]              32
    19,698 parameters, 19,698 of them train, 0.1 MB
    """
    check_types(nn.Module, model=model)
    rows = [(name.removeprefix("."), kind, arrays, f"{numbers:,}") for name, kind, arrays, numbers in _rows(model)]
    lines = [("layer", "kind", "arrays", "parameters"), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    table = "\n".join("  ".join([*map(str.ljust, line[:3], widths), line[3].rjust(widths[3])]) for line in lines)
    arrays = _once(named_arrays(model).values())
    training: Any = tree_flatten(model.trainable_parameters())
    trained, size = sum(array.size for array in _once(array for _, array in training)), sum(array.nbytes for array in arrays) / 1e6
    return f"{table}\n{sum(array.size for array in arrays):,} parameters, {trained:,} of them train, {size:.1f} MB"


def _once(arrays: Iterable[mx.array]) -> list[mx.array]:
    return list({id(array): array for array in arrays}.values())


def _rows(value: Any) -> Iterator[tuple[str, str, str, int]]:
    """Yield (name, class, arrays, number of parameters) for each module with arrays of its own, such as (".layers[0]", "Linear", ...)."""
    if isinstance(value, nn.Module):
        arrays_of_module = {name: array for name, array in value.items() if isinstance(array, mx.array) and not name.startswith("_")}
        if arrays_of_module:
            still = value._no_grad  # noqa: SLF001  # MLX has no public attribute
            texts = [f"{name}{list(array.shape)}{' (does not train)' if name in still else ''}" for name, array in arrays_of_module.items()]
            yield "", type(value).__name__, ", ".join(texts), sum(array.size for array in arrays_of_module.values())
    if isinstance(value, dict):
        for name, child in value.items():
            yield from ((f".{name}{inner}", kind, arrays, numbers) for inner, kind, arrays, numbers in _rows(child))
    elif isinstance(value, list | tuple):
        for rows, alike in groupby(enumerate(value), key=lambda item: tuple(_rows(item[1]))):
            indices = [index for index, _ in alike]
            name = f"[{indices[0]}]" if len(indices) == 1 else f"[{indices[0]}-{indices[-1]}]"
            yield from ((name + inner, kind, arrays, numbers * len(indices)) for inner, kind, arrays, numbers in rows)
