"""The laws of orders and parts: a shuffle is a permutation that seed and epoch decide, a split is a partition, no token is lost."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlxfp.core.chunks import HIDDEN
from mlxfp.core.datasets import Dataset
from mlxfp.core.nodes import brief
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import Transform, collect

__tracebackhide__ = True

ENOUGH = 12  # with 12 rows, two orders are the same by chance once in 479 million times


def assert_shuffles(shuffle: Callable[[int], Transform], dataset: Dataset[Any], *, seed: int = 0) -> None:
    """Law: shuffling gives each row once, in an order that only (seed, epoch) decides and that changes with either.

    `shuffle` takes the seed. That orders differ is checked from 12 rows on: fewer rows can have the same order by chance.

    >>> import mlxfp as fp
    >>> assert_shuffles(lambda seed: fp.shuffle(seed=seed), fp.from_examples([{"x": i} for i in range(20)]))
    """
    shuffled = shuffle(seed)(dataset)
    original = collect(dataset)
    found = {(s, epoch): collect(shuffle(s)(dataset), epoch=epoch) for s in (seed, seed + 1) for epoch in (0, 1)}
    for (_, epoch), rows in found.items():
        expected = collect(dataset, epoch=epoch)
        ordered = rows.sort_by("__key__"), expected.sort_by("__key__")
        assert_same(*ordered, f"{shuffled!r} gives each row of its input once, in epoch {epoch}")
    assert_same(collect(shuffle(seed)(dataset), epoch=1), found[seed, 1], f"{shuffled!r} gives one order for one seed and epoch")
    if original.num_rows >= ENOUGH:
        orders = {case: tuple(rows["__row__"].to_pylist()) for case, rows in found.items()}
        doubled = [case for case, order in orders.items() if Counter(orders.values())[order] > 1]
        assert not doubled, f"{shuffled!r} has a different order for each (seed, epoch), but these have the same: {doubled}"


def assert_partitions(parts: Sequence[Dataset[Any]], whole: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: each row of `whole` is in exactly one of the parts, once, and the parts have no other rows. For shards, splits, `concat`, `mix`.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}, {"x": 2}, {"x": 3}])
    >>> assert_partitions([fp.shard(0, 2)(rows), fp.shard(1, 2)(rows)], rows)
    """
    found, expected = sum((_rows(part, epoch) for part in parts), Counter()), _rows(whole, epoch)
    lost, added = list((expected - found).elements()), list((found - expected).elements())
    wrong = " and ".join(f"{what} {rows}" for what, rows in (("lose", lost), ("add", added)) if rows)
    assert not wrong, f"the parts {list(parts)} are a partition of {whole!r}, but they {wrong}"


def assert_stay_apart(parts: Sequence[Dataset[Any]], whole: Dataset[Any], *, epochs: int = 3) -> None:
    """Law: in every epoch the parts are a partition of `whole`, and each row of its source is in the same part as in the epochs before.

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
    """Law: the tokens that come out, in any rows and groups, are those that went in, each as many times.

    `rows` are a dataset for a stage of ours, and a list of dicts for any other function, which returns dicts, or a dict of columns. Padding
    counts as tokens.

    >>> import mlxfp as fp
    >>> assert_conserves_tokens(fp.pack(4), fp.from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}]))
    >>> join = lambda rows: [{"input_ids": sum((row["input_ids"] for row in rows), [])}]
    >>> assert_conserves_tokens(join, [{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}])
    """
    before = _tokens(rows, column, epoch)
    changed = transform(rows if isinstance(rows, Dataset) else [dict(row) for row in rows])
    after = _tokens(changed, column, epoch)
    wrong = " and ".join(f"{what} {dict(some)}" for what, some in (("lost", before - after), ("added", after - before)) if some)
    name = repr(changed) if isinstance(changed, Dataset) else brief(transform)
    assert not wrong, f"{name} conserves tokens, but it {wrong}, as token: times"


def _rows(dataset: Dataset[Any], epoch: int) -> Counter[str]:
    """Count rows by their repr, in which NaN equals NaN, and which can always be hashed."""
    return Counter(map(repr, collect(dataset, epoch=epoch).drop_columns(list(HIDDEN)).to_pylist()))


def _tokens(rows: Any, column: str, epoch: int) -> Counter[int]:
    if isinstance(rows, Dataset):
        found = collect(rows, epoch=epoch)
        chunks = found if isinstance(found, list) else found.to_batches()
        return Counter(token for chunk in chunks for row in chunk.column(column).to_pylist() for token in row)
    lists = rows[column] if isinstance(rows, Mapping) else [row[column] for row in rows]
    return Counter(int(token) for row in lists for token in row)
