"""Tables of thousands of columns, as competitions have: the work grows with the number of columns, not with its square."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlxfp as fp
from mlxfp.data.sources.files import BLOCK
from mlxfp.support.checks import as_strings, check_columns

COUNT = 300


class Name(str):
    """A name of a column that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def names() -> list[str]:
    return [Name(f"column {number}") for number in range(COUNT)]


WORK: dict[str, Callable[[list[str]], Any]] = {
    "check_columns": lambda wanted: check_columns(wanted, names(), "a stage"),
    "as_strings": lambda wanted: as_strings("columns", wanted),
    "select_columns": lambda wanted: fp.select_columns(wanted).traits.projection(names()),
    "drop_columns": lambda wanted: fp.drop_columns(wanted).traits.projection(names()),
    "rename_columns": lambda wanted: fp.rename_columns({name: f"new {name}" for name in wanted}).traits.projection(names()),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_names_are_looked_up_and_not_searched_for(work: Callable[[list[str]], Any]):
    wanted, Name.compared = names(), 0
    work(wanted)
    assert Name.compared < 10 * COUNT


def test_blocks_of_a_wide_file_hold_many_of_its_rows(tmp_path: Path):
    """Parsing takes a time for each column of a block, however few rows it has."""
    path, count = tmp_path / "train.csv", 4000
    rows = [",".join(str(number % 1000) for number in range(row, row + count)) for row in range(150)]
    path.write_text("\n".join([",".join(f"c{number}" for number in range(count)), *rows]))
    dataset = fp.read_csv(path)
    assert path.stat().st_size > 4 * BLOCK
    assert len(list(dataset.source.read(0, None))) == 1
    assert [row["c3999"] for row in dataset] == [(row + 3999) % 1000 for row in range(150)]


def test_a_wide_table_goes_through_a_pipeline():
    wide = fp.from_table({f"c{number}": [number, -number] for number in range(3000)})
    dataset = fp.pipe(
        wide,
        fp.filter(lambda row: row["c1"] > 0),
        fp.rename_columns({f"c{number}": f"d{number}" for number in range(1500)}),
        fp.drop_columns([f"d{number}" for number in range(10, 1500)]),
        fp.template(" ".join(f"{{d{number}}}" for number in range(10))),
        fp.select_columns(["text", *(f"c{number}" for number in range(1500, 3000))]),
        fp.batch(1),
    )
    (group,) = dataset
    assert (len(group.names), group[0]["text"], group[0]["c2999"]) == (1501, "0 1 2 3 4 5 6 7 8 9", 2999)
