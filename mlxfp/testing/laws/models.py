"""Laws of models: the output for a token or row must not depend on padding, other rows, other documents or later tokens.

A model is any function from (ids, mask) to outputs. Outputs have shape [B, L, ...] with one output per token, or [B, ...] with one output
per row. Outputs at padding are ignored. `ids` may be an array of MLX, torch or numpy. The law then calls the model with arrays of the same
package. Laws that create the ids themselves use MLX arrays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.arrow.named_arrays import host_array

__tracebackhide__ = True

Model = Callable[..., Any]


def assert_ignores_padding(  # noqa: PLR0913  # a model, its input and the kind of padding
    model: Model, ids: Any, mask: Any, *, extra: int = 1, side: str = "right", filler: int = 0, tolerance: float = 1e-4
) -> None:
    """Check that more padding tokens on one side do not change the outputs of a model.

    The law adds `extra` tokens with the id `filler` to each row. `ids` and `mask` are int[B, L]. The mask is 1 on real tokens.

    >>> import mlx.core as mx
    >>> total = lambda ids, mask: (ids * mask).sum(axis=1)
    >>> assert_ignores_padding(total, mx.array([[3, 4], [5, 0]]), mx.array([[1, 1], [1, 0]]), extra=2, side="left", filler=9)
    """
    before, after = (0, extra) if side == "right" else (extra, 0)
    wide_ids = np.pad(host_array(ids), ((0, 0), (before, after)), constant_values=filler)
    wide_mask = np.pad(host_array(mask), ((0, 0), (before, after)))
    off = _gap(_real(model(ids, mask), mask), _real(model(_as_array_of(ids, wide_ids), _as_array_of(mask, wide_mask)), wide_mask))
    assert off < tolerance, f"padding changes no output, but {extra} padding tokens {filler} on the {side} change outputs by {off}"


def assert_rows_stand_alone(model: Model, ids: Any, mask: Any, *, tolerance: float = 1e-4) -> None:
    """Check that the output for a row does not depend on the other rows of the batch.

    >>> import mlx.core as mx
    >>> assert_rows_stand_alone(lambda ids, mask: (ids * mask).sum(axis=1), mx.array([[3, 4], [5, 0]]), mx.array([[1, 1], [1, 0]]))
    """
    together = model(ids, mask)
    for row in range(len(ids)):
        row_slice = slice(row, row + 1)
        off = _gap(_real(together[row_slice], mask[row_slice]), _real(model(ids[row_slice], mask[row_slice]), mask[row_slice]))
        assert off < tolerance, f"rows do not affect each other, but the output for row {row} of {len(ids)} is off by {off}"


def assert_documents_stand_alone(model: Model, documents: Sequence[Sequence[int]], length: int, *, tolerance: float = 1e-4) -> None:
    """Check that a model returns the same outputs for a document alone and in a packed row.

    The law packs the documents into rows of `length` tokens with `pack`. For each row, the law calls `model(ids, mask, segment_ids=...,
    positions=...)` and `model(ids, segment_ids=..., positions=...)`. The model must return one output per token.

    >>> assert_documents_stand_alone(lambda ids, mask=None, **where: ids[..., None], [[3, 4], [5]], 4)
    """
    import mlx.core as mx

    from mlxfp.core.pipelines import pipe
    from mlxfp.data.lengths.packing import pack
    from mlxfp.data.sources.in_memory import from_examples

    for packed in pipe(from_examples([{"input_ids": list(document)} for document in documents]), pack(length)):
        arrays = {name: mx.array([[*values, *[0] * (length - len(values))]]) for name, values in packed.items()}
        ids, segments = arrays.pop("input_ids"), np.array(arrays["segment_ids"])[0]
        masked = model(ids, (arrays["segment_ids"] != 0).astype(mx.int32), **arrays)
        unmasked = model(ids, **arrays)
        for segment in range(1, segments.max() + 1):
            positions = np.flatnonzero(segments == segment).tolist()
            alone = model(ids[:, positions])
            off = max(_gap(masked[:, positions], alone), _gap(unmasked[:, positions], alone))
            assert off < tolerance, f"documents in a row do not affect each other, but one of {len(positions)} tokens is off by {off}"


def assert_causal(model: Model, ids: Any, position: int, *, changed: Any, tolerance: float = 1e-6) -> None:
    """Check that tokens after `position` change no output up to and including this position.

    `changed` holds other ids, int[B, L]. Only the ids after the position are used.

    >>> import mlx.core as mx
    >>> assert_causal(lambda ids: ids.cumsum(axis=1), mx.array([[1, 2, 3]]), 1, changed=mx.array([[7, 8, 9]]))
    """
    other = _as_array_of(ids, np.where(np.arange(ids.shape[1]) > position, host_array(changed), host_array(ids)))
    off = _gap(model(ids)[:, : position + 1], model(other)[:, : position + 1])
    assert off < tolerance, (
        f"outputs do not depend on later tokens, but tokens after position {position} change outputs up to this position by {off}"
    )


def assert_generates_the_likeliest(model: Model, prompts: Sequence[Sequence[int]], generated: Sequence[Sequence[int]]) -> None:
    """Check that each generated token is the most likely token in a full forward pass over all earlier tokens, without a cache.

    >>> import mlx.core as mx
    >>> counting = lambda ids: -mx.abs(mx.arange(10) - ids[..., None] - 1)
    >>> assert_generates_the_likeliest(counting, [[3, 4], [7]], [[5, 6], [8, 9]])
    """
    import mlx.core as mx

    for prompt, tokens in zip(prompts, generated, strict=True):
        ids = list(prompt)
        for _ in tokens:
            ids.append(int(np.argmax(np.array(model(mx.array([ids]))[0, -1]))))
        likeliest = ids[len(prompt) :]
        assert list(tokens) == likeliest, f"{list(prompt)} continues with {likeliest}, but {list(tokens)} was generated"


def _real(answers: Any, mask: Any) -> NDArray[Any]:
    """Return the outputs at real tokens, in order, if the model has one output per token. Otherwise return all outputs."""
    values, marks = host_array(answers), host_array(mask)
    return values[marks != 0] if values.shape[:2] == marks.shape and values.ndim == 3 else values


def _gap(a: Any, b: Any) -> float:
    return float(abs(host_array(a).astype(np.float64) - host_array(b).astype(np.float64)).max(initial=0))


def _as_array_of(array: Any, values: NDArray[Any]) -> Any:
    """Convert values to an array of the same library as `array`."""
    library = type(array).__module__.partition(".")[0]
    if library == "mlx":
        import mlx.core as mx

        return mx.array(values)
    if library == "torch":
        import torch

        return torch.from_numpy(values)
    return values
