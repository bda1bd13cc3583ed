"""Groups of examples to collate: columns by name, drawn together, with empty rows and rows of one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from mlxfp.core.chunks import from_rows, number_rows
from mlxfp.core.examples import Examples

IDS = 30  # ids are below it; 0 pads, 1 masks, 2 and 3 are special

Draw = Callable[[int], st.SearchStrategy[Any]]  # the number of tokens -> the value of one row


def numbers_from(low: int, high: int) -> Draw:
    return lambda count: st.lists(st.integers(low, high), min_size=count, max_size=count)


def arrays(shape: tuple[int, ...], dtype: Any) -> Draw:
    def array(seed: int) -> np.ndarray:
        bits = np.random.default_rng(seed)
        return bits.integers(0, 256, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else bits.random(shape).astype(dtype)

    return lambda count: st.integers(0, 2**32 - 1).map(array)


def floats(count: int) -> st.SearchStrategy[Any]:
    return st.lists(st.floats(-1, 1, width=32), min_size=count, max_size=count)


def spans(count: int) -> st.SearchStrategy[Any]:
    """Draw spans of two characters that do not overlap."""
    starts = st.lists(st.sampled_from([0, 3, 6]), unique=True)
    return starts.flatmap(lambda places: st.tuples(*(st.builds(_span, st.just(place), st.integers(1, 2)) for place in places)).map(list))


def _span(start: int, label: int) -> dict[str, int]:
    return {"start": start, "end": start + 2, "label": label}


_SPAN = pa.struct([("start", pa.int32()), ("end", pa.int64()), ("label", pa.int8())])
COLUMNS: dict[str, tuple[Draw, pa.DataType]] = {
    "input_ids": (numbers_from(2, IDS - 1), pa.list_(pa.int32())),
    "token_type_ids": (numbers_from(0, 1), pa.list_(pa.int32())),
    "prompt": (numbers_from(0, 1), pa.list_(pa.int8())),
    "labels": (lambda count: st.integers(0, 5).flatmap(numbers_from(2, IDS - 1)), pa.large_list(pa.int64())),
    "answer": (lambda count: st.integers(0, 5).flatmap(numbers_from(2, IDS - 1)), pa.list_(pa.int32())),
    "word_ids": (numbers_from(-1, 3), pa.list_(pa.int32())),
    "tags": (lambda count: st.integers(4, 6).flatmap(numbers_from(0, 4)), pa.list_(pa.int8())),
    "token_starts": (numbers_from(0, 8), pa.list_(pa.int32())),
    "token_ends": (numbers_from(0, 8), pa.list_(pa.int32())),
    "spans": (spans, pa.list_(_SPAN)),
    "y": (lambda count: st.integers(0, 4), pa.int8()),
    "score": (lambda count: st.floats(-9, 9, width=32), pa.float32()),
    "name": (lambda count: st.text(max_size=3), pa.string()),
    "flag": (lambda count: st.booleans(), pa.bool_()),
    "waveform": (floats, pa.list_(pa.float32())),
    "frames": (lambda count: st.lists(floats(3), min_size=count + 1, max_size=count + 1), pa.list_(pa.list_(pa.float32(), 3))),
    "samples": (numbers_from(-32768, 32767), pa.list_(pa.int16())),
    "tone": (arrays((40,), np.float32), pa.fixed_shape_tensor(pa.float32(), [40])),
    "values": (floats, pa.list_(pa.float64())),
    "pair": (lambda count: numbers_from(-5, 5)(2), pa.list_(pa.int16(), 2)),
    "image": (arrays((4, 5, 3), np.uint8), pa.fixed_shape_tensor(pa.uint8(), [4, 5, 3])),
    "grey": (arrays((6, 4), np.float32), pa.fixed_shape_tensor(pa.float32(), [6, 4])),
    "vector": (arrays((3,), np.float16), pa.fixed_shape_tensor(pa.float16(), [3])),
    "small": (arrays((2, 2), np.int8), pa.fixed_shape_tensor(pa.int8(), [2, 2])),
}


@st.composite
def groups(draw: st.DrawFn, columns: Sequence[str], longest: int = 9) -> list[dict[str, Any]]:
    """Draw one example or several with these columns; lists of tokens in one row have one length."""
    counts = draw(st.lists(st.integers(0, longest), min_size=1, max_size=5))
    return [{name: draw(COLUMNS[name][0](count)) for name in columns} for count in counts]


def view_of(rows: Sequence[dict[str, Any]], *, epoch: int = 0, first: int = 0) -> Examples:
    """Make the view that a pipeline makes of such rows: typed, numbered and keyed."""
    schema = pa.schema([(name, COLUMNS[name][1]) for name in rows[0]])
    return Examples(number_rows(from_rows(rows, schema, range(len(rows))), epoch, first))
