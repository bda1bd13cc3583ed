"""Combination of several collators."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from toolz import concat, unique

from mlxfp.collators.columns import Choosing, Collator, Prepared, as_view
from mlxfp.core.chunks import Example, Schema
from mlxfp.core.nodes import brief
from mlxfp.support.checks import check_callable, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError


@explain_call
def multimodal(collators: Sequence[Callable[[Any], dict[str, Any]]]) -> "_Multimodal":
    """Return a collator that merges the batches of several collators. Each collator reads its columns of the same examples.

    Raises `ArgumentError` if two collators create an array of the same name. For example, only a single collator may create labels.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> collator = fp.collators.multimodal([fp.collators.text(pad_id=0, label="y"), fp.collators.vision()])
    >>> batch = collator([{"input_ids": [5, 6], "image": np.zeros((8, 8, 3), np.uint8), "y": 1}])
    >>> {name: values.shape for name, values in batch.items()}
    {'input_ids': (1, 2), 'attention_mask': (1, 2), 'labels': (1,), 'images': (1, 8, 8, 3)}
    """
    if not isinstance(collators, Sequence):
        raise ArgumentTypeError(f"collators must be a list of collators, got {type(collators).__name__}. Write multimodal([...]).")
    for index, collator in enumerate(collators):
        check_callable(**{f"collator {index} of multimodal": collator})
    if len(collators) < 2:
        raise ArgumentError(f"multimodal combines at least two collators, got {len(collators)}.")
    return _Multimodal(tuple(collators))


@frozen(repr=False)
class _Multimodal(Choosing):
    collators: tuple[Collator, ...]

    @property
    def uses(self) -> tuple[str, ...] | None:
        parts = [getattr(collator, "uses", None) for collator in self.collators]
        return None if None in parts else tuple(unique(concat(parts)))

    def check(self, schema: Schema) -> None:
        for collator in self.collators:
            if isinstance(collator, Choosing):
                collator.check(schema)

    def prepared(self, schema: Schema) -> Prepared | None:
        parts: tuple[Any, ...] = self.collators
        prepared_parts: list[Prepared | None] = [part.prepared(schema) if isinstance(part, Choosing) else None for part in parts]
        columns = tuple(concat(part.columns for part in prepared_parts if part is not None))
        readers = [getattr(collator, "uses", None) or schema.names for collator in self.collators]
        # Workers may convert a column only if a single collator reads the column.
        if not columns or any(sum(name in names for names in readers) > 1 for name in columns):
            return None
        rest = [collator if part is None else part.collator for collator, part in zip(self.collators, prepared_parts, strict=True)]
        return Prepared(columns, tuple(concat(part.stages for part in prepared_parts if part is not None)), _Multimodal(tuple(rest)))

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        batch: dict[str, Any] = {}
        sources: dict[str, Collator] = {}
        for collator in self.collators:
            arrays = collator(view)
            duplicate = next((name for name in arrays if name in sources), None)
            if duplicate is not None:
                raise ArgumentError(
                    f"Two collators of multimodal create {duplicate!r}: {brief(sources[duplicate])} and {brief(collator)}. "
                    f"Remove {duplicate!r} from one collator, or rename {duplicate!r} in a wrapper function."
                )
            sources |= dict.fromkeys(arrays, collator)
            batch |= arrays
        return batch
