"""The collator of another library's collate function."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from attrs import field, frozen

from mlxfp.collators.built_in import BuiltIn
from mlxfp.collators.columns import Collator, narrow
from mlxfp.core.arrow.array_values import is_array
from mlxfp.core.arrow.named_arrays import named_arrays
from mlxfp.core.chunks import Example
from mlxfp.core.identity import comparable
from mlxfp.core.nodes import Part, brief
from mlxfp.support.checks import as_strings, check_callable, explain_call
from mlxfp.support.errors import ArgumentError, DataError


@explain_call
def foreign(function: Callable[[list[dict[str, Any]]], Any], *, names: Sequence[str] = ()) -> Collator:
    """Make a collator of a collate function written for another library, such as those of transformers and of torch's `DataLoader`.

    `function` gets a list of plain dicts, one for each example, with lists for columns of lists and numpy arrays for tensors. It returns a
    mapping of arrays and lists of texts; a tuple or a single array needs `names`, one for each part. Arrays may be those of numpy, torch,
    JAX or MLX on any device, and become `mx.array`: int64 becomes int32, float64 float32, other dtypes stay; nested names are joined by a
    dot. Every column is read.

    It must be pure. The cursors of a pipeline are saved with a fingerprint, which an object that holds a tokenizer of transformers does not
    have: call it in a function `collate`, and name the version of that, as in `collate.__fingerprint__ = "v1"`.

    Raises `ArgumentTypeError` for a result that is none of these, `ArgumentError` for names that do not fit it, and `DataError`
    for a number beyond 32 bits and for arrays that hold no numbers.

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
        if not len(examples):
            raise DataError("A collator was given an empty group. A batch needs at least one example.")
        batch = self.function([dict(example) for example in examples])
        return {name: self._converted(name, part) for name, part in named_arrays(self._named(batch)).items()}

    def _named(self, batch: Any) -> Any:
        """Name the parts of a tuple."""
        parts = (batch,) if is_array(type(batch)) else batch
        if not isinstance(parts, tuple | list):
            if self.names:
                raise ArgumentError(
                    f"names= are for the parts of a tuple, but {brief(self.function)} returned {type(batch).__name__}. Leave names= out."
                )
            return batch
        if len(parts) != len(self.names):
            raise ArgumentError(
                f"collators.foreign needs a name for each part of what {brief(self.function)} returns: {len(parts)} in a "
                f'{type(batch).__name__}, got names={list(self.names)}. As in foreign(function, names=("x", "y")).'
            )
        return dict(zip(self.names, parts, strict=True))

    def _converted(self, name: str, part: Any) -> Any:
        if isinstance(part, tuple):
            return part
        if part.dtype.kind == "U" and part.ndim == 1:
            return tuple(part.tolist())
        if part.dtype.kind not in "biufc":
            raise DataError(
                f"{name!r} of what {brief(self.function)} returns must hold numbers or texts, got an array of {part.dtype}. "
                "Rows of different lengths must be padded."
            )
        return mx.array(narrow(part, lambda at: f"Element {at} of {name!r} of what {brief(self.function)} returns"))


FOREIGN = BuiltIn("foreign", foreign)
