"""Checks of tokenizer JSON. Invalid JSON would cause a panic, an abort or an endless loop in the `tokenizers` package."""

import json as jsons
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlxfp.support.errors import DataError

GIVE = "Pass the text of a tokenizer.json file, or load other files with fp.load_tokenizer(folder)."

# Maximum id. The `tokenizers` package loops over all ids up to the largest. The largest known vocabularies have a million ids.
_MOST = 1 << 24


def read_json(text: str) -> dict[str, Any]:
    """Parse the JSON of a tokenizer. Raises `DataError` if the JSON is malformed."""
    try:
        data = jsons.loads(text)
    except RecursionError as error:
        raise malformed("it is nested too deeply") from error
    except ValueError as error:
        raise malformed(error) from error
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise malformed("expected a JSON object with an object under the key 'model'")
    vocab = data["model"].get("vocab")
    check_ids([*(vocab.values() if isinstance(vocab, dict) else ()), *_numbers(data.get("post_processor"))])
    _check_prefix(data["model"])
    return data


def malformed(reason: object) -> DataError:
    """Return the error that reports malformed tokenizer JSON."""
    return DataError(f"The JSON of a tokenizer is malformed: {reason}. {GIVE}")


def is_panic(error: BaseException) -> bool:
    """Return True for a panic of the `tokenizers` package. A panic is not an `Exception`, and its class is not exported."""
    return type(error).__name__ == "PanicException"


def check_ids(numbers: Iterable[Any]) -> None:
    """Raise `DataError` for an id that is too large. The `tokenizers` package itself checks all other properties of ids."""
    large = next((number for number in numbers if isinstance(number, int) and number >= _MOST), None)
    if large is not None:
        raise malformed(f"the id {large:,} is too large; ids must be below {_MOST:,}")


def _numbers(part: Any) -> Iterator[Any]:
    if isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _numbers(inner)
    else:
        yield part


def _check_prefix(model: Mapping[str, Any]) -> None:
    """Raise `DataError` unless the second token of each merge begins with the prefix for tokens inside a word, such as "##"."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not (prefix and isinstance(prefix, str) and isinstance(merges, list)):
        return
    for merge in merges:
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[1] if isinstance(merge, list) and len(merge) == 2 else prefix
        if isinstance(second, str) and not second.startswith(prefix):
            raise malformed(f"the second token of the merge {merge!r:.60} does not begin with continuing_subword_prefix={prefix!r:.60}")
