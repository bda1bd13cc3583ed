"""Cursors whose bytes have a valid checksum and values that mlxfp never wrote: items or a CursorError, never a foreign error."""

import random
import re
from contextlib import suppress
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.core.arrow.serialization import pack, unpack
from mlxfp.core.cursors import KINDS, Cursor, Snapshot


def twice(row: Any) -> list[Any]:
    """Return a row twice."""
    return [row, row]


def is_even(row: Any) -> bool:
    """Return True for every second row."""
    return row["x"] % 2 == 0


ROWS = fp.from_examples([{"x": number, "ids": list(range(number % 5))} for number in range(60)])
PIPELINES = {
    "rows": ROWS,
    "batch": fp.pipe(ROWS, fp.batch(7)),
    "shuffle": fp.pipe(ROWS, fp.shuffle(seed=0)),
    "buffer": fp.pipe(ROWS, fp.shuffle(seed=0, buffer=8), fp.batch(3)),
    "repeat": fp.pipe(ROWS, fp.repeat(2), fp.batch(4)),
    "pack": fp.pipe(fp.from_iterable(lambda: iter(ROWS)), fp.pack(8, column="ids")),
    "take": fp.pipe(ROWS, fp.skip(2), fp.take(20)),
    "bucket": fp.pipe(ROWS, fp.bucket_by_length([2, 5], size=4, column="ids")),
    "interleave": fp.interleave([ROWS, fp.pipe(ROWS, fp.shuffle(seed=1))]),
    "mix": fp.pipe(fp.mix([ROWS, ROWS], [0.5, 0.5], stop="all"), fp.batch(3)),
    "concat": fp.concat([ROWS, ROWS]),
    "prefetch": fp.pipe(ROWS, fp.batch(5), fp.prefetch(2)),
    "windows": fp.pipe(ROWS, fp.windows(4, column="ids")),
    "tokens": fp.pipe(ROWS, fp.batch_by_tokens(12, column="ids")),
    "plan": fp.pipe(ROWS, fp.pack(8, column="ids"), fp.shuffle(seed=3)),
    "unbatch": fp.pipe(ROWS, fp.batch(7), fp.unbatch(), fp.flat_map(twice)),
    "select": fp.pipe(ROWS, fp.select([5, 3, 8]), fp.repeat(3)),
    "filter": fp.pipe(ROWS, fp.filter(is_even), fp.shuffle(seed=0)),
    "shard": fp.pipe(ROWS, fp.shard(0, 2), fp.batch(2)),
}
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 3, 2**40, 1.5, float("nan"), "text", b"bytes", (), (1, 2), {}, {"a": 1}, np.int64(3), np.arange(3),
    pa.record_batch({"y": [1, 2]}), pa.record_batch({"__row__": [1]}), Cursor(Snapshot(0), 1), pa.schema({"x": pa.int64()}),
)  # fmt: skip


def changed(value: Any, chance: random.Random) -> Any:
    """Return a value with one changed part."""
    if isinstance(value, tuple) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return (*value[:at], changed(value[at], chance), *value[at + 1 :])
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        return {**value, key: changed(value[key], chance)}
    if isinstance(value, Cursor | Snapshot) and chance.random() < 0.95:
        fields = {item.name: getattr(value, item.name) for item in attrs.fields(type(value)) if item.name != "owner"}
        name = chance.choice(list(fields))
        return attrs.evolve(value, **{name: changed(fields[name], chance)})
    return chance.choice(VALUES)


@pytest.mark.parametrize("name", list(PIPELINES))
def test_case_e4_a_forged_cursor_gives_items_or_a_cursor_error_that_names_a_part(name: str):
    dataset: Any = PIPELINES[name]
    chance = random.Random(name)
    cursors = [cursor.to_bytes() for _, cursor in fp.iterate(dataset)]
    answers = []
    for _ in range(60):
        parts, division, level, contents, cursor = unpack(chance.choice(cursors), KINDS)
        forged = pack((parts, division, level, contents, changed(cursor, chance)), KINDS)
        with np.errstate(divide="ignore"):
            try:
                list(islice(fp.iterate(dataset, Cursor.from_bytes(forged)), 200))
            except fp.errors.CursorError as error:
                answers.append(str(error))
    named = r"the [a-z ]+ is |the bytes hold| in \w+\(|states of|belongs to another|cursor (cannot|refers|has)"
    assert len(answers) > 20
    assert [answer for answer in answers if not re.search(named, answer)] == []


def fail_late(row: Any) -> Any:
    """Fail for a row after the first chunks."""
    if row["x"] == 9_000:
        raise ValueError("an error of the user")
    return row


def test_an_error_of_a_user_function_after_resuming_is_unchanged():
    rows = fp.pipe(fp.from_iterable(lambda: iter([{"x": number} for number in range(10_000)])), fp.map(fail_late))
    cursor: Any = None
    with suppress(ValueError):
        for _, after in fp.iterate(rows):
            cursor = after
    with pytest.raises(ValueError, match="an error of the user"):
        next(iter(fp.iterate(rows, Cursor.from_bytes(cursor.to_bytes()))))
