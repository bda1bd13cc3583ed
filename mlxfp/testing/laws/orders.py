"""Laws of shuffling, splitting and packing rows.

Shuffling gives a permutation that depends on seed and epoch. Splitting puts each row into exactly one part. Packing loses no token.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlxfp.core.chunks import HIDDEN
from mlxfp.core.datasets import Dataset
from mlxfp.core.nodes import brief
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import Transform, collect

__tracebackhide__ = True

ENOUGH = 12  # Minimum number of rows to compare orders. Two random orders of 12 rows are equal once in 479 million cases.


def assert_shuffles(shuffle: Callable[[int], Transform], dataset: Dataset[Any], *, seed: int = 0) -> None:
    """Check that shuffling returns each row once. The order must depend only on seed and epoch, and differ between seeds and epochs.

    `shuffle` takes the seed. Different orders are required only for 12 or more rows, because shorter orders can be equal by chance.

    >>> import mlxfp as fp
    >>> assert_shuffles(lambda seed: fp.shuffle(seed=seed), fp.from_examples([{"x": i} for i in range(20)]))
    """
    shuffled = shuffle(seed)(dataset)
    original = collect(dataset)
    shuffles = {(s, epoch): collect(shuffle(s)(dataset), epoch=epoch) for s in (seed, seed + 1) for epoch in (0, 1)}
    for (_, epoch), rows in shuffles.items():
        expected = collect(dataset, epoch=epoch)
        ordered = rows.sort_by("__key__"), expected.sort_by("__key__")
        assert_same(*ordered, f"{shuffled!r} gives each row of its input once, in epoch {epoch}")
    assert_same(collect(shuffle(seed)(dataset), epoch=1), shuffles[seed, 1], f"{shuffled!r} gives one order for one seed and epoch")
    if original.num_rows >= ENOUGH:
        orders = {case: tuple(rows["__row__"].to_pylist()) for case, rows in shuffles.items()}
        doubled = [case for case, order in orders.items() if Counter(orders.values())[order] > 1]
        assert not doubled, f"{shuffled!r} has a different order for each (seed, epoch), but these have the same: {doubled}"


def assert_partitions(parts: Sequence[Dataset[Any]], whole: Dataset[Any], *, epoch: int = 0) -> None:
    """Check that each row of `whole` is in exactly one of the datasets `parts`, such as shards or splits, and that there are no other rows.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}, {"x": 2}, {"x": 3}])
    >>> assert_partitions([fp.shard(0, 2)(rows), fp.shard(1, 2)(rows)], rows)
    """
    actual, expected = sum((_rows(part, epoch) for part in parts), Counter()), _rows(whole, epoch)
    lost, added = list((expected - actual).elements()), list((actual - expected).elements())
    differences = " and ".join(f"{verb} {rows}" for verb, rows in (("lose", lost), ("add", added)) if rows)
    assert not differences, f"the parts {list(parts)} are a partition of {whole!r}, but they {differences}"


def assert_stay_apart(parts: Sequence[Dataset[Any]], whole: Dataset[Any], *, epochs: int = 3) -> None:
    """Check that each row of `whole` is in exactly one dataset of `parts`, the same in all epochs. `parts` must have no other rows.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": i} for i in range(20)])
    >>> assert_stay_apart(fp.pipe(rows, fp.shuffle(seed=0), fp.split([0.5, 0.5], seed=0)), rows)
    """
    owners: dict[int, int] = {}
    for epoch in range(epochs):
        assert_partitions(parts, whole, epoch=epoch)
        for number, part in enumerate(parts):
            for row in collect(part, epoch=epoch)["__row__"].to_pylist():
                first = owners.setdefault(row, number)
                assert first == number, f"row {row} is in part {number} in epoch {epoch} and was in part {first}, of {list(parts)}"


def assert_conserves_tokens(
    transform: Callable[[Any], Any], rows: Dataset[Any] | Sequence[Mapping[str, Any]], *, column: str = "input_ids", epoch: int = 0
) -> None:
    """Check that a transform keeps all tokens. Rows may be joined, cut or reordered, but each token must occur as often as before.

    Padding counts as a token. If `transform` is an mlxfp stage, `rows` is a dataset. For any other function, `rows` is a list of dicts, and
    the function returns dicts or a dict of columns.

    >>> import mlxfp as fp
    >>> assert_conserves_tokens(fp.pack(4), fp.from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}]))
    >>> join = lambda rows: [{"input_ids": sum((row["input_ids"] for row in rows), [])}]
    >>> assert_conserves_tokens(join, [{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}])
    """
    before = _tokens(rows, column, epoch)
    changed = transform(rows if isinstance(rows, Dataset) else [dict(row) for row in rows])
    after = _tokens(changed, column, epoch)
    differences = " and ".join(f"{verb} {dict(counts)}" for verb, counts in (("lost", before - after), ("added", after - before)) if counts)
    name = repr(changed) if isinstance(changed, Dataset) else brief(transform)
    assert not differences, f"{name} conserves tokens, but it {differences} (token: count)"


def _rows(dataset: Dataset[Any], epoch: int) -> Counter[str]:
    """Return how often each row occurs. Rows are compared as text (repr), because dicts are not hashable and NaN differs from NaN."""
    return Counter(map(repr, collect(dataset, epoch=epoch).drop_columns(list(HIDDEN)).to_pylist()))


def _tokens(rows: Any, column: str, epoch: int) -> Counter[int]:
    if isinstance(rows, Dataset):
        collected = collect(rows, epoch=epoch)
        chunks = collected if isinstance(collected, list) else collected.to_batches()
        return Counter(token for chunk in chunks for row in chunk.column(column).to_pylist() for token in row)
    lists = rows[column] if isinstance(rows, Mapping) else [row[column] for row in rows]
    return Counter(int(token) for row in lists for token in row)
