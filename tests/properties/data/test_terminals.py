"""What is printed about data stays on its lines: names that it chose are clipped, and cannot control the terminal."""

from collections.abc import Callable
from typing import Any

import pytest

import mlxfp as fp

NAME = "a\x1b[31m\u202ered\r" + "x" * 3000
ROWS = fp.from_examples(
    [{NAME: "v\x1b[2J" + "y" * 5000, f"{NAME}2": {NAME: number}, "input_ids": [1, 2], "b\n": [1, 1]} for number in range(9)]
)
WIDE = fp.from_examples([{f"column {number}": number for number in range(5_000)}] * 3)
PRINTED: dict[str, Callable[[fp.Dataset[Any]], str]] = {
    "explain": fp.explain,
    "preview": fp.inspect.preview,
    "group": lambda dataset: repr(next(iter(fp.pipe(dataset, fp.batch(2))))),
    "groups": lambda dataset: fp.inspect.preview(fp.pipe(dataset, fp.batch(2))),
    "cursor": lambda dataset: repr(next(fp.iterate(dataset))[1]),
    "profile": lambda dataset: repr(fp.inspect.profile(dataset)),
    "trace": lambda dataset: repr(fp.inspect.trace_row(dataset, 2)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_names_cannot_control_a_terminal(name: str):
    text = PRINTED[name](fp.pipe(ROWS, fp.shuffle(seed=0), fp.drop_columns(["b\n"])))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < 5_000


@pytest.mark.parametrize("name", PRINTED)
def test_many_columns_are_not_all_printed(name: str):
    assert len(PRINTED[name](fp.pipe(WIDE, fp.shuffle(seed=0)))) < 20_000
