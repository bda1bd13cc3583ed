"""What is printed about data stays on its lines: names that it chose are clipped, and cannot control the terminal."""

from collections.abc import Callable
from typing import Any

import pytest

from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import explain
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.data.inspection.previews import preview
from mlxfp.data.inspection.profiling import profile
from mlxfp.data.inspection.provenance import trace_row
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.columns import drop_columns
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.sources.in_memory import from_examples

NAME = "a\x1b[31m\u202ered\r" + "x" * 3000
ROWS = from_examples(
    [{NAME: "v\x1b[2J" + "y" * 5000, f"{NAME}2": {NAME: number}, "input_ids": [1, 2], "b\n": [1, 1]} for number in range(9)]
)
WIDE = from_examples([{f"column {number}": number for number in range(5_000)}] * 3)
PRINTED: dict[str, Callable[[Dataset[Any]], str]] = {
    "explain": explain,
    "preview": preview,
    "group": lambda dataset: repr(next(iter(pipe(dataset, batch(2))))),
    "groups": lambda dataset: preview(pipe(dataset, batch(2))),
    "cursor": lambda dataset: repr(next(iterate(dataset))[1]),
    "profile": lambda dataset: repr(profile(dataset)),
    "trace": lambda dataset: repr(trace_row(dataset, 2)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_names_cannot_control_a_terminal(name: str):
    text = PRINTED[name](pipe(ROWS, shuffle(seed=0), drop_columns(["b\n"])))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < 5_000


@pytest.mark.parametrize("name", PRINTED)
def test_many_columns_are_not_all_printed(name: str):
    assert len(PRINTED[name](pipe(WIDE, shuffle(seed=0)))) < 20_000
