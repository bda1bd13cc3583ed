"""Suffixes of compressed files, and texts that mark a missing value in a table file, such as "NA"."""

from collections.abc import Mapping

# Texts read as missing values: the defaults of pandas (pandas.read_csv, na_values), so that both libraries read equal tables.
NULL_VALUES = (
    *("", " ", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
COMPRESSIONS: Mapping[str, str] = {".gz": "gzip", ".zst": "zstd", ".zip": "zip"}  # maps the suffix of a compressed file to the compression


def with_compressions(*suffixes: str) -> tuple[str, ...]:
    """Return the suffixes of plain and compressed files, such as `.csv` and `.csv.gz`.

    >>> with_compressions(".csv")
    ('.csv', '.csv.gz', '.csv.zst', '.csv.zip')
    """
    return tuple(suffix + compression for suffix in suffixes for compression in ("", *COMPRESSIONS))
