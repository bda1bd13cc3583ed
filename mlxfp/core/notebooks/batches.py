"""Notebook output of a batch: dtypes and shapes, the share of padding, and the first rows decoded."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from mlxfp.core.notebooks.rows import COLUMNS, ROWS, VALUE, show
from mlxfp.core.notebooks.tokens import IGNORED, Decoder, decoded, holds_tokens
from mlxfp.support.html import Html, clip, element, joined, table

_TEXT = 500  # maximum number of characters of a decoded row


def batch_html(batch: Mapping[str, Any], decoder: Decoder | None) -> Html:
    """Return a table of the arrays of a batch. With a tokenizer, add the text of the first rows."""
    arrays = [(clip(name, VALUE), show(value), _shares(name, value)) for name, value in islice(batch.items(), COLUMNS)]
    more = [element("p", f"and {len(batch) - COLUMNS:,} more", class_="muted")] if len(batch) > COLUMNS else []
    rows = list(islice(_decoded(batch, decoder), COLUMNS * ROWS))
    return joined([table(["name", "array", "share"], arrays), *more, *([table(["name", "row", "text"], rows)] if rows else [])])


def _shares(name: str, value: Any) -> str:
    """Return the percentage of padding in a mask, or of ignored labels in labels. Return an empty text for other arrays."""
    if name.endswith("attention_mask") and value.ndim == 2 and value.size:
        return f"{np.mean(np.asarray(value) == 0):.1%} padding"
    if name.endswith("labels") and _is_whole(value) and value.size and (ignored := np.mean(np.asarray(value) == IGNORED)):
        return f"{ignored:.1%} ignored"
    return ""


def _decoded(batch: Mapping[str, Any], decoder: Decoder | None) -> Iterator[tuple[str, int, str]]:
    """Yield (array name, row index, text) for the first rows of each token array, without padding."""
    shapes = {value.shape for name, value in batch.items() if name.endswith("input_ids") and _is_whole(value)}  # labels have equal shapes
    for name, value in batch.items() if decoder is not None else ():
        if not (holds_tokens(name) and _is_whole(value) and value.ndim == 2 and value.shape in shapes):
            continue
        mask = batch.get(f"{name.removesuffix('input_ids')}attention_mask")
        for index, ids in enumerate(np.asarray(value[:ROWS])):
            real = ids if mask is None or mask.shape != value.shape else ids[np.asarray(mask[index]) != 0]
            yield clip(name, VALUE), index, clip(decoded(real.tolist(), decoder), _TEXT)


def _is_whole(value: Any) -> bool:
    return hasattr(value, "ndim") and "int" in str(value.dtype)
