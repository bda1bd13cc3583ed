"""Arrow columns of every kind with formats that fit their values: shared by the tests of templates."""

import datetime as dt
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

# Each kind of column: its type, its values, and formats that fit them.
SHORT_TEXT = st.text(max_size=8) | st.sampled_from(["", " ", "{x}", "a. b", "é\u0301", "\0", "\U0001f468\u200d\U0001f469", "\n"])
_INTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 1000, -(2**63), 2**63 - 1])
_FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1e16, 1e-7, 0.5, 2.675, -0.001, float("inf"), float("-inf"), float("nan"), 5e-324])
_WHEN = st.datetimes()
_DECIMALS = st.decimals(-999999, 999999, places=3, allow_nan=False)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], tuple[str, ...]]] = {
    "string": (pa.string(), SHORT_TEXT, ("", ":s", ":>6", ":^7.2", "!r", "!a:<9", "!s")),
    "large_string": (pa.large_string(), SHORT_TEXT, ("", ":.1")),
    "string_view": (pa.string_view(), SHORT_TEXT, ("", ":*^5")),
    "words": (pa.dictionary(pa.int8(), pa.string()), SHORT_TEXT, ("", ":>4", "!r")),
    "levels": (pa.dictionary(pa.int32(), pa.float64()), _FLOATS, ("", ":.1f")),
    "runs": (pa.run_end_encoded(pa.int32(), pa.int64()), _INTS, ("", ":x")),
    "int64": (pa.int64(), _INTS, ("", ":d", ":,", ":_", ":+", ":08d", ":x", ":#b", ":e", ":.2f", ":%", "!r", "!s:>5")),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), ("", ":d", ":,")),
    "int8": (pa.int8(), st.integers(-128, 127), ("", "!r:>5")),
    "double": (pa.float64(), _FLOATS, ("", ":.2f", ":.0f", ":g", ":e", ":,.3f", ":+.1%", ":10", ":n", "!r", "!s:.3")),
    "float": (pa.float32(), st.floats(width=32), ("", ":.2f")),
    "half": (pa.float16(), st.floats(width=16), ("", ":.3f")),
    "bool": (pa.bool_(), st.booleans(), ("", ":d", ":>6", "!s:>6")),
    "date": (pa.date32(), st.dates(), ("", ":%d.%m.%y", "!r")),
    "timestamp": (pa.timestamp("us"), _WHEN, ("", ":%H:%M", "!s:.10")),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), st.datetimes(dt.datetime(1980, 1, 1), dt.datetime(2029, 12, 31)), ("", ":%c")),
    "time": (pa.time64("us"), st.times(), ("", ":%M")),
    "duration": (pa.duration("us"), st.timedeltas(dt.timedelta(-999), dt.timedelta(999)), ("", "!s:>9")),
    "decimal": (pa.decimal128(12, 3), _DECIMALS, ("", ":.1f", ":>12", "!r")),
    "small_decimal": (pa.decimal32(9, 3), _DECIMALS, ("", ":.1f")),
    "big_decimal": (pa.decimal256(60, 3), _DECIMALS, ("",)),
    "bytes": (pa.binary(), st.binary(max_size=4), ("", "!s:>4")),
    "fixed_bytes": (pa.binary(2), st.binary(min_size=2, max_size=2), ("", "!r")),
    "byte_view": (pa.binary_view(), st.binary(max_size=4), ("",)),
    "list": (pa.list_(pa.float64()), st.lists(_FLOATS | st.none(), max_size=3), ("", "!r", "!s:>9")),
    "struct": (pa.struct({"a": pa.int64()}), st.fixed_dictionaries({"a": _INTS | st.none()}), ("", "!s")),
    "map": (pa.map_(pa.string(), pa.int8()), st.lists(st.tuples(SHORT_TEXT, st.integers(0, 9)), max_size=2), ("",)),
    "interval": (pa.month_day_nano_interval(), st.tuples(*[st.integers(-99, 99)] * 3), ("", "!r")),
    "null": (pa.null(), st.none(), ("", ":.2f")),
}
