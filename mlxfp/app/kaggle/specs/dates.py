"""Recognition of dates, and conversion to numbers: days since 1970, month, day, weekday and hour."""

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Order = Literal["year", "month", "day"]  # first part of a date: "year" for 2026-11-23, "month" for 11/23/2026, "day" for 23.11.2026
PARTS = 5  # number of columns in the result of `date_numbers`

_TIME = (
    r"(?:(?:T|,? )(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d(?:\.\d{1,9})?))?(?: ?(?P<half>[AaPp])[Mm])?)?"
    r"(?: ?(?:Z|z|UTC|GMT|(?P<sign>[-+])(?P<zone_hours>[01]\d):?(?P<zone_minutes>[0-5]\d)?))?"
)
_MONTH, _DAY = r"(?P<month>0?[1-9]|1[0-2])", r"(?P<day>0?[1-9]|[12]\d|3[01])"
_PATTERNS: dict[Order, str] = {
    "year": rf"^(?P<year>\d{{4}})[-/.]{_MONTH}[-/.]{_DAY}{_TIME}$",
    "month": rf"^{_MONTH}[-/.]{_DAY}[-/.](?P<year>\d{{4}}){_TIME}$",
    "day": rf"^{_DAY}[-/.]{_MONTH}[-/.](?P<year>\d{{4}}){_TIME}$",
}


def date_order(texts: pa.Array | pa.ChunkedArray) -> Order | None:
    """Return the order of day, month and year if all texts are dates, otherwise None. A time and a time zone may follow each date.

    If both orders are possible, dates with points begin with the day, and other dates with the month.

    >>> date_order(pa.array(["2026-11-23", None, "2026-11-23T18:30:00Z"])), date_order(pa.array(["2026"]))
    ('year', None)
    >>> date_order(pa.array(["5/22/1997 0:00:00"])), date_order(pa.array(["1.2.1997"])), date_order(pa.array(["1/2/1997"]))
    ('month', 'day', 'month')
    """
    known = texts.drop_null().unique()
    orders = [order for order, pattern in _PATTERNS.items() if len(known) and pc.all(pc.match_substring_regex(known, pattern)).as_py()]
    return orders[-1 if orders and "." in known[0].as_py().partition(" ")[0] else 0] if orders else None


def date_numbers(texts: pa.Array | pa.ChunkedArray, order: Order = "year") -> NDArray[np.float64]:
    """Return float64[N, 5]: fractional days since 1970, month, day of the month, weekday (0 is Monday), hour.

    Only the first number depends on the time zone. Missing and invalid dates are NaN. February 30 counts as the second day after
    February 28.

    >>> date_numbers(pa.array(["1970-01-05 12:00", "1970-01-05T12:00:00+06:00", None])).tolist()
    [[4.5, 1.0, 5.0, 0.0, 12.0], [4.25, 1.0, 5.0, 0.0, 12.0], [nan, nan, nan, nan, nan]]
    """
    parts = pc.extract_regex(texts, _PATTERNS[order])
    year, month, day, hour, minute, second, zone_hours, zone_minutes = (
        _floats(pc.struct_field(parts, name)) for name in ("year", "month", "day", "hour", "minute", "second", "zone_hours", "zone_minutes")
    )
    half, sign = (np.array(pc.struct_field(parts, name).to_pylist(), object) for name in ("half", "sign"))
    hour = np.where((half == "p") | (half == "P"), hour % 12 + 12, np.where((half == "a") | (half == "A"), hour % 12, hour))
    missing = np.isnan(year)
    months = np.where(missing, 0, 12 * (year - 1970) + month - 1).astype(np.int64).astype("datetime64[M]")
    days = np.where(missing, np.nan, months.astype("datetime64[D]").astype(np.int64) + day - 1)
    hours = hour + minute / 60 + second / 3600
    offset = np.where(sign == "-", -1, 1) * (zone_hours + zone_minutes / 60)
    numbers = np.stack([days + (hours - offset) / 24, month, day, (days + 3) % 7, hour], axis=1)
    return np.where(missing[:, None], np.nan, numbers)


def _floats(texts: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Convert texts with numbers to float64[N]. An empty text becomes 0, and a missing text becomes NaN."""
    return np.asarray(pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
