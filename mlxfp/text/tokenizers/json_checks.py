"""What the `tokenizers` package does not check in the JSON of a tokenizer, and fails on: by a panic, an abort, or a loop without end."""

import json as jsons
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlxfp.support.errors import DataError

GIVE = "Give the text of a tokenizer.json file; load_tokenizer(folder) reads other files too."

_MOST = 1 << 24  # ids: the largest vocabularies have a million. The package goes through all numbers up to the largest id.


def read_json(text: str) -> dict[str, Any]:
    """Return the JSON of a tokenizer; raise `DataError` for what is not one."""
    try:
        data = jsons.loads(text)
    except RecursionError as error:
        raise malformed("it is nested too deeply") from error
    except ValueError as error:
        raise malformed(error) from error
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise malformed("it must be an object that holds an object named model")
    vocab = data["model"].get("vocab")
    check_ids([*(vocab.values() if isinstance(vocab, dict) else ()), *_numbers(data.get("post_processor"))])
    _check_prefix(data["model"])
    return data


def malformed(reason: object) -> DataError:
    """Return the error for the JSON of a tokenizer."""
    return DataError(f"The JSON of a tokenizer is malformed: {reason}. {GIVE}")


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of the package, which is not an `Exception`; its class is not exported."""
    return type(error).__name__ == "PanicException"


def check_ids(numbers: Iterable[Any]) -> None:
    """Raise `DataError` for an id that is too large; the package checks everything else about them."""
    large = next((number for number in numbers if isinstance(number, int) and number >= _MOST), None)
    if large is not None:
        raise malformed(f"it has the id {large:,}, and ids are below {_MOST:,}")


def _numbers(part: Any) -> Iterator[Any]:
    if isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _numbers(inner)
    else:
        yield part


def _check_prefix(model: Mapping[str, Any]) -> None:
    """Check that the prefix of tokens that continue a word can be taken from the second token of each merge."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not (prefix and isinstance(prefix, str) and isinstance(merges, list)):
        return
    for merge in merges:
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[1] if isinstance(merge, list) and len(merge) == 2 else prefix
        if isinstance(second, str) and not second.startswith(prefix):
            raise malformed(f"the second token of the merge {merge!r:.60} does not begin with continuing_subword_prefix={prefix!r:.60}")
