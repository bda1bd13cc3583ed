"""Views of batches for printing, because a plain dict of arrays has no readable print form."""

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
    """View of a batch for printing, shown as a table in a notebook. Created by `show_batch`.

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
        """Return HTML with the arrays, the share of padding, and the first rows as decoded text."""
        return fragment(batch_html(self.batch, self.tokenizer))


def show_batch(batch: Mapping[str, Any], *, tokenizer: Decoder | None = None) -> BatchView:
    """Return a view of a batch: dtypes, shapes, share of padding and of ignored labels, and the first rows as decoded text.

    A printed view has the same format as `preview`. In a notebook, the view is a table. Raises `ArgumentTypeError` unless the batch is a
    mapping.

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
