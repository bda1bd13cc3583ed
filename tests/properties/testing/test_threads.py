"""The law of threads catches another order, and errors that vanish or come too early."""

from typing import Any

import pytest
from attrs import frozen

import mlxfp as fp
from mlxfp.testing.laws import assert_transparent
from mlxfp.testing.probing import from_chunks
from tests.testing.laws import broken

WHOLE = fp.parts.one_chunk(broken.TABLE)
ROWS = from_chunks([WHOLE.slice(row, 1) for row in range(WHOLE.num_rows)])


@frozen
class FailsAt:
    place: int

    def __call__(self, row: Any) -> Any:
        if row["x"] == self.place:
            raise ValueError(f"bad row {self.place}")
        return row


@pytest.mark.parametrize("dataset", [ROWS, fp.pipe(ROWS, fp.map(FailsAt(3), schema=broken.TABLE.schema))], ids=repr)
def test_prefetching_passes_with_and_without_an_error(dataset: Any):
    assert_transparent(fp.prefetch(1), dataset)
    assert_transparent(fp.prefetch(5), dataset)


@pytest.mark.parametrize(
    ("kind", "fails"),
    [(broken.OrderOfArrival, False), (broken.ForgetsResume, False), (broken.SwallowsErrors, True), (broken.FailsEarly, True)],
)
def test_the_law_catches(kind: type[fp.parts.Wrapper], fails: bool):  # a column of the table above
    dataset = fp.pipe(ROWS, fp.map(FailsAt(3), schema=broken.TABLE.schema)) if fails else ROWS
    with pytest.raises(AssertionError):
        assert_transparent(broken.wrapped(kind), dataset)
