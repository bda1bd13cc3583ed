"""Conversion of dates to numbers: days since 1970, month, day, weekday and hour."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_ISO = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])([T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?)?$"
PARTS = 5  # numbers per date


def are_dates(texts: pa.Array) -> bool:
    """Return True if all texts are ISO dates, optionally with a time: 2026-11-23 or 2026-11-23 18:30.

    >>> are_dates(pa.array(["2026-11-23", None, "2026-11-23T18:30"])), are_dates(pa.array(["2026"]))
    (True, False)
    """
    known = texts.drop_null()
    return len(known) > 0 and bool(pc.all(pc.match_substring_regex(known, _ISO)).as_py())


def date_numbers(texts: pa.Array) -> NDArray[np.float64]:
    """Return float64[N, 5]: fractional days since 1970, month, day of the month, weekday (0 is Monday), hour.

    Missing and invalid dates are NaN. February 30 counts as the second day after February 28.

    >>> date_numbers(pa.array(["1970-01-05 12:00", None])).tolist()
    [[4.5, 1.0, 5.0, 0.0, 12.0], [nan, nan, nan, nan, nan]]
    """
    known = pc.if_else(pc.match_substring_regex(texts, _ISO), texts, None).to_pylist()
    months = np.array(["NaT" if text is None else text[:7] for text in known], "datetime64[M]")
    missing = np.isnat(months)
    days = np.array([np.nan if text is None else int(text[8:10]) for text in known])
    hours = np.array([np.nan if text is None else _hours(text[11:]) for text in known])
    since = np.where(missing, np.nan, months.astype("datetime64[D]").astype(np.int64)) + days - 1
    month = np.where(missing, np.nan, months.astype(np.int64) % 12 + 1)
    return np.stack([since + hours / 24, month, days, (since + 3) % 7, np.floor(hours)], axis=1)


def _hours(time: str) -> float:
    """Return the hours since midnight, 0 without a time."""
    return sum(float(part) / 60**power for power, part in enumerate(time.split(":"))) if time else 0.0
