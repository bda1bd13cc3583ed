"""Rebuilding a pipeline with other parts: the datasets that its sources hold included, however deep."""

from typing import TYPE_CHECKING, Any

import attrs

from mlxfp.core.nodes import Pipeline, children

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfp.core.datasets import Dataset, Source, Stage


def rewrite(
    dataset: "Dataset[Any]", source: "Callable[[Source], Source]", stages: "Callable[[Dataset[Any]], tuple[Stage, ...]]"
) -> "Dataset[Any]":
    """Rebuild a dataset, as it was written: of every source, once the datasets that it holds are rebuilt; of every dataset, other stages.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.rows.repeating import repeat
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rewrite(pipe(from_examples([{"x": 1}]), batch(2), repeat(3)), lambda source: source, lambda dataset: ())
    pipe(from_examples(1 rows), repeat(epochs=3))
    """
    written = dataset.written or dataset
    part = with_datasets(written.source, lambda held: rewrite(held, source, stages))
    return type(dataset)(source(part), stages(written))


def with_datasets(source: "Source", function: "Callable[[Dataset[Any]], Dataset[Any]]") -> "Source":
    """Rebuild a source with what `function` makes of each dataset that it holds; one that holds none is returned as it is."""
    part: Any = source
    if not children(part):
        return source
    values = {field.name: getattr(part, field.name) for field in attrs.fields(type(part))}
    renewed: Source = attrs.evolve(part, **{name: value for name, old in values.items() if (value := _renewed(old, function)) is not old})
    return renewed


def _renewed(value: Any, function: Any) -> Any:
    """Renew a dataset, or the datasets of a tuple; return any other value as it is."""
    if isinstance(value, Pipeline):
        return function(value)
    if isinstance(value, tuple) and any(isinstance(item, Pipeline) for item in value):
        return tuple(_renewed(item, function) for item in value)
    return value
