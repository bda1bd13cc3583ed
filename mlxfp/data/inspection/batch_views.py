"""A batch to look at: a dict of arrays does not know how to show itself."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from mlxfp.core.notebooks.batches import batch_html
from mlxfp.core.notebooks.tokens import Decoder
from mlxfp.data.inspection.previews import batch_lines
from mlxfp.support.checks import check_types
from mlxfp.support.html import fragment


@frozen(repr=False)
class BatchView:
    """A batch for printing, shown as a table in a notebook; returned by `show_batch`.

    >>> import numpy as np
    >>> BatchView({"labels": np.array([3, 4])})
    batch: labels int64[2]
        row 0
            labels  3
        row 1
            labels  4
    """

    batch: Mapping[str, Any] = field(eq=False)
    tokenizer: Decoder | None = None

    def __repr__(self) -> str:
        return "\n".join(batch_lines(self.batch, "batch", 3, self.tokenizer))

    def _repr_html_(self) -> str:
        """Show arrays, the share of padding, and the first rows decoded."""
        return fragment(batch_html(self.batch, self.tokenizer))


def show_batch(batch: Mapping[str, Any], *, tokenizer: Decoder | None = None) -> BatchView:
    """Show a batch that a loop holds: dtypes and shapes, the share of padding and of ignored labels, and its first rows, decoded.

    A batch is a plain dict of arrays, which a notebook prints number by number. What comes back prints as `preview` does, and is a table in
    a notebook. Raises `ArgumentTypeError` for what is not a mapping.

    >>> import numpy as np
    >>> show_batch({"input_ids": np.array([[5, 6, 0]]), "attention_mask": np.array([[1, 1, 0]])})
    batch: input_ids int64[1, 3], attention_mask int64[1, 3]
        row 0
            place  input_ids  attention_mask
                0          5               1
                1          6               1
                2          0               0

    See also: `preview`, for the first batches of a dataset.
    """
    check_types(Mapping, batch=batch)
    return BatchView(batch, tokenizer)
