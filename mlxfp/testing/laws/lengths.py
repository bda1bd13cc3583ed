"""The law of stages that cut, pack and group tokens: none is lost, and none is duplicated."""

from collections import Counter
from typing import Any

from mlxfp.core.datasets import Dataset
from mlxfp.testing.laws.datasets import Transform, collect


def assert_conserves_tokens(transform: Transform, dataset: Dataset[Any], *, column: str = "input_ids", epoch: int = 0) -> None:
    """Law: the tokens that come out, in any rows and groups, are those that went in, each as many times.

    >>> import mlxfp as fp
    >>> assert_conserves_tokens(fp.pack(4), fp.from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}]))
    """
    changed = transform(dataset)
    before, after = _tokens(dataset, column, epoch), _tokens(changed, column, epoch)
    assert before == after, f"{changed!r} conserves tokens, but it lost {dict(before - after)} and added {dict(after - before)}"


def _tokens(dataset: Dataset[Any], column: str, epoch: int) -> Counter[int]:
    found = collect(dataset, epoch=epoch)
    chunks = found if isinstance(found, list) else found.to_batches()
    return Counter(token for chunk in chunks for row in chunk.column(column).to_pylist() for token in row)
