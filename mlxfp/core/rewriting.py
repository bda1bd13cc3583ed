"""Rebuilding a pipeline with other parts: the datasets that its sources hold included, however deep."""

from typing import TYPE_CHECKING, Any

import attrs

from mlxfp.core.parts import Pipeline, children

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxfp.core.datasets import Dataset, Source, Stage


def rewrite(
    dataset: "Dataset[Any]", source: "Callable[[Source], Source]", stages: "Callable[[Dataset[Any]], tuple[Stage, ...]]"
) -> "Dataset[Any]":
    """Rebuild a dataset: of every source, once the datasets that it holds are rebuilt, and of every dataset the stages to have instead.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.batching import batch
    >>> from mlxfp.data.repeating import repeat
    >>> from mlxfp.data.sources import from_examples
    >>> rewrite(pipe(from_examples([{"x": 1}]), batch(2), repeat(3)), lambda source: source, lambda dataset: ())
    pipe(from_examples(1 rows), repeat(epochs=3))
    """
    part: Any = dataset.source
    if children(part):
        values = {field.name: getattr(part, field.name) for field in attrs.fields(type(part))}
        part = attrs.evolve(part, **{name: value for name, old in values.items() if (value := _renewed(old, source, stages)) is not old})
    return type(dataset)(source(part), stages(dataset))


def _renewed(value: Any, source: Any, stages: Any) -> Any:
    """Rewrite a dataset, or the datasets of a tuple; return any other value as it is."""
    if isinstance(value, Pipeline):
        return rewrite(value, source, stages)  # type: ignore[arg-type]  # a Dataset: there is no other Pipeline
    if isinstance(value, tuple) and any(isinstance(item, Pipeline) for item in value):
        return tuple(_renewed(item, source, stages) for item in value)
    return value
