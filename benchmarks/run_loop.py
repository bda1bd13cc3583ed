"""loop-overhead: the time of the run loop itself."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from attrs import frozen

import mlxfp as fp
from benchmarks.measuring import Row, best


@frozen(repr=False)
class _Identity(fp.Stage):
    accepts = frozenset({"examples", "groups"})

    def step(self, state: Any, chunk: Any) -> tuple[Any, Iterable[Any]]:
        return state, (chunk,)


def rows(*, small: bool) -> list[Row]:
    """Iterate over 200,000 rows in batches of 32, with four identity stages and a cursor for every batch."""
    table = fp.from_table({"a": np.arange(200_000), "b": np.arange(200_000)})
    dataset = fp.pipe(table, _Identity(), _Identity(), fp.batch(32), _Identity(), _Identity())
    count = 200_000 // 32
    (seconds,) = best([lambda: sum(1 for _ in fp.iterate(dataset))], repeats=7)
    micros = seconds / count * 1e6
    work = "run loop, 4 identity stages, batches of 32, cursors"
    return [Row("loop-overhead", work, f"{micros:.2f} us a batch", "-", micros, 3, "at most")]
