"""Characters that each engine encodes correctly, for each kind of tokenizer. Fuzzing has found no differences for these characters.

The command `python -m benchmarks.fuzz_tokens --write` writes the data file.
"""

import json as jsons
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.text.tokenizers.configuration import Configuration

CODES = 0x110000
_FILE = "cleared.json"
# Tokenizer options that `kind_of` ignores. If such an option changes ids, the test texts of an engine show the difference.
_SILENT = ("vocab", "merges", "unk_token", "unk_id", "dropout", "trim_offsets")


@frozen
class Trial:
    """Fuzzing result of an engine: the tested versions and, for each kind of tokenizer, the ranges of characters encoded correctly."""

    versions: Mapping[str, str]  # versions of the engine and of `tokenizers`
    kinds: Mapping[str, str]  # ranges of correctly encoded characters, such as "20-7e a0-2ff", by kind of tokenizer


def kind_of(configuration: Configuration) -> str:
    """Return the kind of a tokenizer as JSON: all options that affect ids, except the vocabulary."""
    parts = {"model": configuration.model, "normalizers": configuration.normalizers, "splitters": configuration.splitters}
    return jsons.dumps(_bare(parts), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _bare(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {name: _bare(value) for name, value in part.items() if name not in _SILENT and value not in (None, "")}
    return [_bare(inner) for inner in part] if isinstance(part, list) else part


@cache
def read_trials() -> dict[str, Trial]:
    """Return the results of large random tests of fast encoding packages (engines), by name of the package."""
    data = jsons.loads(files(__package__).joinpath(_FILE).read_text("utf-8"))
    return {name: Trial(**trial) for name, trial in data.items()}


def trial_of(name: str) -> Trial:
    """Return the fuzzing result of a fast encoding package (engine). For an untested engine, the result has no versions and no ranges."""
    return read_trials().get(name, Trial({}, {}))


def read_ranges(text: str) -> Iterator[range]:
    """Parse hexadecimal ranges of code points.

    >>> list(read_ranges("20-22 a0"))
    [range(32, 35), range(160, 161)]
    """
    for part in text.split():
        first, _, last = part.partition("-")
        yield range(int(first, 16), int(last or first, 16) + 1)


def to_table(ranges: Iterable[range]) -> NDArray[np.bool_]:
    """Return a table with True for each code point in one of the ranges, bool[0x110000]."""
    table = np.zeros(CODES, bool)
    for codes in ranges:
        table[codes.start : codes.stop] = True
    return table
