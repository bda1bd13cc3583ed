"""Collator `foreign` for collate functions of other libraries."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from attrs import field, frozen

from mlxfp.collators.columns import Collator, check_group, narrow
from mlxfp.core.arrow.array_values import is_array
from mlxfp.core.arrow.named_arrays import named_arrays
from mlxfp.core.chunks import Example
from mlxfp.core.identity import comparable
from mlxfp.core.nodes import Part, brief
from mlxfp.support.checks import as_strings, check_callable, explain_call
from mlxfp.support.errors import ArgumentError, DataError


@explain_call
def foreign(function: Callable[[list[dict[str, Any]]], Any], *, names: Sequence[str] = ()) -> Collator:
    """Return a collator for a collate function of another library, for example of transformers or of torch's `DataLoader`.

    `function` gets a list of dicts, one per example, with lists for list columns and NumPy arrays for tensors. The function gets all
    columns and returns a mapping of arrays and lists of texts. If the function returns a tuple or a single array, `names` gives a name
    to each part.

    Arrays of NumPy, torch, JAX or MLX on any device become `mx.array`: int64 becomes int32, float64 is rounded to float32, other dtypes
    stay. Nested names are joined by dots.

    `function` must be pure. Saved cursors need a fingerprint of `function`. A collator of transformers that holds a tokenizer has no
    fingerprint. Call such a collator in a function `collate`, and set a version: `collate.__fingerprint__ = "v1"`.

    Raises `ArgumentTypeError` for other results, `ArgumentError` for `names` of another length, and `DataError` for a number beyond 32 bits
    and for arrays of other values than numbers.

    >>> import numpy as np
    >>> def pad(examples):
    ...     width = max(len(example["x"]) for example in examples)
    ...     return np.array([example["x"] + [0] * (width - len(example["x"])) for example in examples]), len(examples) * ["text"]
    >>> collator = foreign(pad, names=("x", "kind"))
    >>> collator([{"x": [1, 2]}, {"x": [3]}])
    {'x': array([[1, 2],
           [3, 0]], dtype=int32), 'kind': ('text', 'text')}

    See also: `testing.laws.check`, which finds mistakes in such functions.
    """
    check_callable(function=function)
    return _Foreign(function, as_strings("names", names))


@frozen(repr=False)
class _Foreign(Part):
    function: Callable[[list[dict[str, Any]]], Any] = field(eq=comparable)
    names: tuple[str, ...] = ()

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        __tracebackhide__ = True
        check_group(examples)
        batch = self.function([dict(example) for example in examples])
        return {name: self._converted(name, part) for name, part in named_arrays(self._named(batch)).items()}

    def _named(self, batch: Any) -> Any:
        """Return the arrays of a batch by name. If the batch is a tuple or a single array, `names` contains the names."""
        parts = (batch,) if is_array(type(batch)) else batch
        if not isinstance(parts, tuple | list):
            if self.names:
                raise ArgumentError(
                    f"names= is only for tuples, but {brief(self.function)} returned {type(batch).__name__}. Remove names=."
                )
            return batch
        if len(parts) != len(self.names):
            raise ArgumentError(
                f"collators.foreign needs one name for each value that {brief(self.function)} returns. The function "
                f"returned {len(parts)} values in a {type(batch).__name__}, got names={list(self.names)}. Example: "
                'foreign(function, names=("x", "y")).'
            )
        return dict(zip(self.names, parts, strict=True))

    def _converted(self, name: str, part: Any) -> Any:
        if isinstance(part, tuple):
            return part
        if part.dtype.kind == "U" and part.ndim == 1:
            return tuple(part.tolist())
        if part.dtype.kind not in "biufc":
            raise DataError(
                f"The array {name!r} in the result of {brief(self.function)} must contain numbers or texts, got the dtype {part.dtype}. "
                "If the rows of this array differ in length, pad the rows to the same length in the function."
            )
        return mx.array(narrow(part, lambda at: f"Element {at} of {name!r} in the result of {brief(self.function)}"))
