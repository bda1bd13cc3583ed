"""Hypothesis strategies for batches of MLX arrays and for states of small models."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

if TYPE_CHECKING:  # importing this module must not import MLX
    from mlxfp.core.stages import Batch
    from mlxfp.training.steps.state import TrainState

_DTYPES = ("int32", "float32", "uint8", "bool_", "float16", "bfloat16")


@st.composite
def batches(draw: st.DrawFn, arrays: Mapping[str, tuple[int, ...]] | None = None, *, classes: int = 3, max_rows: int = 4) -> "Batch":
    """Return a strategy for batches as made by a collator: MLX arrays [B, ...] with one row per example.

    With `arrays`, a dict from name to row shape, a batch holds float32 arrays of these shapes and `labels`, int32[B] below `classes`.
    Without `arrays`, a batch holds arrays of any name, shape and dtype, and texts.

    >>> from hypothesis import find
    >>> sorted(find(batches({"x": (2,)}), lambda batch: len(batch["labels"]) > 1))
    ['labels', 'x']
    """
    import mlx.core as mx

    rows = draw(st.integers(1, max_rows))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    if arrays is not None:
        drawn: dict[str, Any] = {name: mx.array(random.normal(size=(rows, *shape)).astype(np.float32)) for name, shape in arrays.items()}
        return drawn | {"labels": mx.array(random.integers(0, classes, rows).astype(np.int32))}
    shapes = st.lists(st.integers(1, 3), max_size=3)
    kinds = draw(st.dictionaries(st.text(max_size=3), st.tuples(shapes, st.sampled_from(_DTYPES)), max_size=3))
    arrays_by_name: dict[str, Any] = {
        name: mx.array(random.integers(0, 9, (rows, *shape)).astype(np.int32)).astype(getattr(mx, dtype))
        for name, (shape, dtype) in kinds.items()
    }
    mx.eval(arrays_by_name)  # evaluate now, because only the thread that created a lazy array can evaluate the array
    carried = draw(
        st.dictionaries(st.text(min_size=4, max_size=5), st.lists(st.text(max_size=3), min_size=rows, max_size=rows), max_size=1)
    )
    return arrays_by_name | {name: tuple(texts) for name, texts in carried.items()}


@st.composite
def train_states(draw: st.DrawFn) -> "TrainState":
    """Return a strategy for training states of small random models, with several optimizers.

    The models have any number of layers, with or without buffers and dropout.

    >>> from hypothesis import find
    >>> state = find(train_states(), lambda state: state.step > 0)
    >>> state.step, state.seed
    (1, 0)
    """
    import mlx.core as mx
    from attrs import evolve
    from mlx import nn, optimizers

    from mlxfp.training.optimization.optimizers import adamw
    from mlxfp.training.steps.state import train_state

    width, depth = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    layers: list[Callable[[], Any]] = [lambda: nn.Linear(width, width), lambda: nn.BatchNorm(width), lambda: nn.Dropout(0.5), nn.ReLU]
    makers: list[Callable[[], Any]] = [
        lambda: optimizers.SGD(0.1),
        lambda: optimizers.SGD(0.1, momentum=0.9),
        lambda: optimizers.Lion(1e-4),
        lambda: adamw(1e-3),
    ]
    model = nn.Sequential(nn.Linear(width, width), *(draw(st.sampled_from(layers))() for _ in range(depth)))
    key = mx.random.key(draw(st.integers(0, 99)))
    model.apply(lambda array: mx.random.normal(array.shape, key=key).astype(array.dtype))
    state = train_state(model, draw(st.sampled_from(makers))(), seed=draw(st.integers(0, 9)))
    return evolve(state, step=draw(st.integers(0, 1000)))
