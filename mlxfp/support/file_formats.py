"""Suffixes of compressed files, and the texts that stand for missing values."""

from collections.abc import Mapping

# What pandas reads as a missing value (pandas.read_csv, na_values), so that both read the same values from a file.
NULL_VALUES = (
    *("", " ", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
COMPRESSIONS: Mapping[str, str] = {".gz": "gzip", ".zst": "zstd", ".zip": "zip"}  # by suffix


def with_compressions(*suffixes: str) -> tuple[str, ...]:
    """Return the suffixes, alone and followed by the suffix of each compression.

    >>> with_compressions(".csv")
    ('.csv', '.csv.gz', '.csv.zst', '.csv.zip')
    """
    return tuple(suffix + compression for suffix in suffixes for compression in ("", *COMPRESSIONS))
