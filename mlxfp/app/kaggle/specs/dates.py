"""Recognition of dates, and conversion to numbers: days since 1970, month, day, weekday and hour."""

import re
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from mlxfp.app.kaggle.specs.cells import are_numbers
from mlxfp.support.errors import ArgumentError
from mlxfp.support.formatted_numbers import rare_words, without_words

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
_COMPACT = r"(?:19|20)\d\d{0}(?:0[1-9]|1[0-2]){0}(?:0[1-9]|[12]\d|3[01])"
_NAMES = (  # English names of months
    *("jan(?:uary)?", "feb(?:ruary)?", "mar(?:ch)?", "apr(?:il)?", "may", "june?", "july?", "aug(?:ust)?", "sept?(?:ember)?"),
    *("oct(?:ober)?", "nov(?:ember)?", "dec(?:ember)?"),
)
# A name of a month between an optional day and the year, such as 5 Jan 2026, Jan 5, 2026 or Jan-2026. Groups: day, day, year.
_NAMED = r"(?i)^(?:(\d\d?)[-/. ]+)?(?:{})\.?[-/., ]+(?:(\d\d?),? +)?((?:19|20)\d\d)"
# Forms without a day, such as 2026-11 and 11/2026, and the replacement with the first day of the month.
_MONTHS = {
    r"^((?:19|20)\d\d)[-/](0[1-9]|1[0-2])-?$": r"\1-\2-01",
    r"^(0?[1-9]|1[0-2])[-/.]((?:19|20)\d\d)$": r"\2-\1-01",
}
# Patterns of ids that begin with a date, by the length of the date. Other characters, or the digits of a time, follow the date.
_STARTS = {8: rf"^{_COMPACT.format('')}(?:\D.*|\d\d|\d{{4}}|\d{{6}})?$", 10: rf"^{_COMPACT.format('[-/.]')}(?:\D.*)?$"}
_SECONDS = 946_684_800, 2_051_222_400  # the beginnings of 2000 and 2035, in seconds since 1970
_DAY_LENGTH, _SPARSE = 86_400, 10  # ids closer than 10 seconds on average, or within one day, are probably counters
_PERIOD = re.compile(  # a period that begins with the year: 2023-1, 2023-W05, 2023Q1, 2023-W05-1 or 2023-01-05 07
    r"\d{4}(?:[-/. ]?[A-Z]?\d{1,3}|[-/. ]?[A-Z]\d\d-\d|[-/. ]?(?:0\d|1[0-2])[-/. ]?[0-3]\d[-_T ]?[\d:.]*Z?)", re.ASCII
)


def date_order(texts: pa.Array | pa.ChunkedArray) -> Order | None:
    """Return the order of day, month and year if all texts are dates, otherwise None. A time and a time zone may follow each date.

    A month, such as 2026-11 or Nov 2026, is a date: its first day. Months may have English names, as in 5 Jan 2026.
    Dates that begin with the year fit every order. The result is "year" only if all dates begin with the year. If all dates are valid in
    both orders, as 1/2/1997 is, the day is first in dates with dots, and the month is first in other dates.

    >>> date_order(pa.array(["2026-11-23", None, "2026-11-23T18:30:00Z"])), date_order(pa.array(["2026"]))
    ('year', None)
    >>> date_order(pa.array(["5/22/1997 0:00:00"])), date_order(pa.array(["1.2.1997"])), date_order(pa.array(["1/2/1997"]))
    ('month', 'day', 'month')
    >>> date_order(pa.array(["23.11.2026", "2026-11-24", "11/2026"])), date_order(pa.array(["2026-11", "11/2026"]))
    ('day', 'year')
    """
    known = _year_first(texts.drop_null().unique())
    others = known.filter(pc.invert(pc.match_substring_regex(known, _PATTERNS["year"])))
    if not len(others):
        return "year" if len(known) else None
    orders: list[Order] = [order for order in ("month", "day") if pc.all(pc.match_substring_regex(others, _PATTERNS[order])).as_py()]
    return orders[-1 if "." in others[0].as_py().partition(" ")[0] else 0] if orders else None


def column_order(texts: pa.Array | pa.ChunkedArray) -> Order | None:
    """Return the `date_order` of a column of dates. The `rare_words`, such as "k.A.", count as missing dates.

    >>> column_order(pa.array(["23.11.2026", "24.11.2026", "25.11.2026", "k.A."])), column_order(pa.array(["23.11.2026", "k.A."]))
    ('day', None)
    """
    return date_order(without_words(texts, rare_words(texts)))


def dates_in_ids(name: str, texts: pa.Array | pa.ChunkedArray) -> str | None:
    """Return pandas code that extracts the dates of ids, such as 20110101_3 or seconds since 1970. Return None for ids without dates.

    The argument `name` is the name of the id column.

    >>> dates_in_ids("id", pa.array(["20110101_3", "20110102_1"])), dates_in_ids("id", pa.array(["1293840000", "1293926460"]))
    ("pandas.to_datetime(frame['id'].astype(str).str[:8])", "pandas.to_datetime(frame['id'].astype('int64'), unit='s')")
    >>> dates_in_ids("id", pa.array(["1500000001", "1500000002"])), dates_in_ids("id", pa.array(["20110101_1", "20110101_2"]))
    (None, None)
    """
    known = texts.drop_null().unique()
    for size, pattern in _STARTS.items():
        if pc.all(pc.match_substring_regex(known, pattern)).as_py() and len(pc.utf8_slice_codeunits(known, 0, size).unique()) > 1:
            return f"pandas.to_datetime(frame[{name!r}].astype(str).str[:{size}])"
    for size, unit, second in ((10, "s", 1), (13, "ms", 1000)):
        if pc.all(pc.match_substring_regex(known, rf"^\d{{{size}}}$")).as_py():
            ends = pc.min_max(known.cast(pa.int64())).as_py()
            spread = (ends["max"] - ends["min"]) // second
            if (
                _SECONDS[0] <= ends["min"] // second
                and ends["max"] // second < _SECONDS[1]
                and spread > max(_DAY_LENGTH, _SPARSE * len(known))
            ):
                return f"pandas.to_datetime(frame[{name!r}].astype('int64'), unit={unit!r})"
    return None


def date_numbers(texts: pa.Array | pa.ChunkedArray, order: Order = "year") -> NDArray[np.float64]:
    """Return float64[N, 5]: fractional days since 1970, month, day of the month, weekday (0 is Monday), hour.

    A month is read as its first day. Only the days since 1970 depend on the time zone. The argument `order` is the result of `date_order`.
    Dates that begin with the year are read in every order. Missing texts and texts that are not dates become NaN. A day after the end of
    its month falls into the next month: February 30 is read as March 2, or March 1 in a leap year.

    >>> date_numbers(pa.array(["1970-01-05 12:00", "1970-01-05T12:00:00+06:00", None])).tolist()
    [[4.5, 1.0, 5.0, 0.0, 12.0], [4.25, 1.0, 5.0, 0.0, 12.0], [nan, nan, nan, nan, nan]]
    """
    texts = _year_first(texts)
    readings = [pc.extract_regex(texts, _PATTERNS[first]) for first in dict.fromkeys(("year", order))]
    names = ("year", "month", "day", "hour", "minute", "second", "zone_hours", "zone_minutes", "half", "sign")
    *digits, half, sign = (pc.coalesce(*(pc.struct_field(reading, name) for reading in readings)) for name in names)
    year, month, day, hour, minute, second, zone_hours, zone_minutes = map(_floats, digits)
    half, sign = (np.array(marks.to_pylist(), object) for marks in (half, sign))
    hour = np.where((half == "p") | (half == "P"), hour % 12 + 12, np.where((half == "a") | (half == "A"), hour % 12, hour))
    missing = np.isnan(year)
    months = np.where(missing, 0, 12 * (year - 1970) + month - 1).astype(np.int64).astype("datetime64[M]")
    days = np.where(missing, np.nan, months.astype("datetime64[D]").astype(np.int64) + day - 1)
    hours = hour + minute / 60 + second / 3600
    offset = np.where(sign == "-", -1, 1) * (zone_hours + zone_minutes / 60)
    numbers = np.stack([days + (hours - offset) / 24, month, day, (days + 3) % 7, hour], axis=1)
    return np.where(missing[:, None], np.nan, numbers)


def date_texts(texts: pa.Array | pa.ChunkedArray, order: Order) -> list[str | None]:
    """Return dates in one form, in Coordinated Universal Time, without a time at midnight. Other texts and missing values stay.

    >>> date_texts(pa.array(["26/08/2024", "2024-08-26 14:32", "k.A.", None]), "day")
    ['2024-08-26', '2024-08-26 14:32', 'k.A.', None]
    """
    days = date_numbers(texts, order)[:, 0]
    dates = np.where(np.isnan(days), 0, np.round(24 * 60 * days)).astype(np.int64).astype("datetime64[m]").astype(str)
    read = zip(texts.to_pylist(), dates.tolist(), np.isnan(days), strict=True)
    return [text if other else date.replace("T", " ").removesuffix(" 00:00") for text, date, other in read]


def _year_first(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Replace dates with names of months, and months without a day, by dates that begin with the year."""
    if pc.any(pc.match_substring_regex(texts, _NAMED.format("|".join(_NAMES)))).as_py():
        for number, name in enumerate(_NAMES, 1):
            texts = pc.replace_substring_regex(texts, _NAMED.format(name), rf"\3-{number:02}-\1\2")
    for pattern, replacement in _MONTHS.items():
        if pc.any(pc.match_substring_regex(texts, pattern)).as_py():  # faster than a replacement without a match
            texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts


def sortable_times(name: str, times: ArrayLike) -> NDArray[Any]:
    """Convert times [N] to numbers or texts that can be sorted by time. The argument `name` describes the times in error messages.

    - Texts that contain numbers or dates become numbers, because "10" sorts before "9" as text.
    - Periods that begin with the year, such as 2026-W05, stay texts if all texts have the same form.
    - Any other text raises `ArgumentError`.
    - Values other than texts stay unchanged.

    >>> sortable_times("week", ["10", "9"]).tolist(), sortable_times("week", ["2026-W10", "2026-W09"]).tolist()
    ([10.0, 9.0], ['2026-W10', '2026-W09'])
    """
    array = np.asarray(times)
    known = [value for value in array.tolist() if value is not None] if array.ndim == 1 else []
    if not known or not all(isinstance(value, str) for value in known):
        return array
    texts = pa.array(array.tolist(), pa.string())
    if (order := date_order(texts)) is not None:
        return date_numbers(texts, order)[:, 0]
    if are_numbers(texts) and not (_matches(texts, r"^\d{4}\.10$") and _matches(texts, r"^\d{4}\.[1-9]$")):
        return _floats(pc.utf8_trim_whitespace(texts))
    form = re.sub(r"\d", "0", known[0])
    wrong = next((text for text in known if not _PERIOD.fullmatch(text) or re.sub(r"\d", "0", text) != form), None)
    if wrong is not None:
        raise ArgumentError(
            "Times as text must be numbers, dates such as 2026-11-21 or 11/21/2026, or periods of equal length such as 2026-W05. "
            f"Got {wrong!r} in {name}. Convert the times to numbers or to dates such as 2026-11-21."
        )
    return array


def _matches(texts: pa.Array, pattern: str) -> bool:
    """Return True if at least one text matches the pattern."""
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _floats(texts: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Convert texts such as "12" to float64[N]. An empty text, such as the hour of a date without a time, becomes 0. Null becomes NaN."""
    return np.asarray(pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
