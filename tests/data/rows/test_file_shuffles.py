"""A shuffle over many files: a permutation of all rows, that resumes anywhere, differs in each epoch, and parts neighbours."""

import gzip
import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, CursorError, DataError, MissingFileError, PipelineError
from mlxfp.testing import laws


def write_jsonl(path: Path, rows: list[int]) -> None:
    path.write_text("".join(json.dumps({"x": row, "name": f"row {row}"}) + "\n" for row in rows))


def write_tar(path: Path, rows: list[int]) -> None:
    with tarfile.open(path, "w") as archive:
        for row in rows:
            member = tarfile.TarInfo(f"{row:04}.x")
            member.size = len(str(row))
            archive.addfile(member, BytesIO(str(row).encode()))


def write_table(write: Callable[[pa.Table, Path], Any]) -> Callable[[Path, list[int]], None]:
    return lambda path, rows: write(pa.table({"x": pa.array(rows, pa.int64()), "name": [f"row {row}" for row in rows]}), path)


def to_feather(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        for first in range(0, max(1, table.num_rows), 3):
            writer.write_table(table.slice(first, 3))


# Each: the suffix, what writes a file of rows, and what reads the files.
FORMATS: dict[str, tuple[str, Callable[[Path, list[int]], Any], Callable[[Any], fp.Dataset[Any]]]] = {
    "jsonl": ("jsonl", write_jsonl, fp.read_jsonl),
    "gzip": ("csv.gz", lambda path, rows: path.write_bytes(gzip.compress(b"x\n" + b"".join(b"%d\n" % row for row in rows))), fp.read_csv),
    "csv": ("csv", lambda path, rows: path.write_text("x,name\n" + "".join(f"{row},row {row}\n" for row in rows)), fp.read_csv),
    "text": ("txt", lambda path, rows: path.write_text("".join(f"{row}\n" for row in rows)), fp.read_text),
    "parquet": ("parquet", write_table(lambda table, path: pq.write_table(table, path, row_group_size=4)), fp.read_parquet),
    "arrow": ("arrow", write_table(to_feather), fp.read_arrow),
    "tar": ("tar", write_tar, fp.read_tar),
}
every_format = pytest.mark.parametrize("name", FORMATS)


def written(folder: str | Path, name: str, sizes: list[int]) -> fp.Dataset[Any]:
    """Write files of so many rows, numbered through, and read them."""
    suffix, write, read = FORMATS[name]
    first = 0
    for number, size in enumerate(sizes):
        write(Path(folder, f"part-{number:03}.{suffix}"), list(range(first, first + size)))
        first += size
    return read(str(Path(folder, f"part-*.{suffix}")))


def numbers(rows: Any) -> list[int]:
    return [int(next(value for key, value in row.items() if key in ("x", "text"))) for row in rows]


SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=7).filter(lambda sizes: sizes[0] > 0)


@every_format
@given(sizes=SIZES, seed=st.integers(0, 99), buffer=st.integers(1, 9), files=st.integers(1, 8), data=st.data())
def test_every_row_comes_once_and_a_run_resumes_at_any(name: str, sizes: list[int], seed: int, buffer: int, files: int, data: Any):
    with TemporaryDirectory() as folder:
        shuffled = fp.pipe(written(folder, name, sizes), fp.shuffle(seed=seed, buffer=buffer, files=files))
        for epoch in (0, 1):
            whole = list(fp.iterate(shuffled, epoch=epoch))
            assert sorted(numbers(row for row, _ in whole)) == list(range(sum(sizes)))
            stop = data.draw(st.integers(0, len(whole) - 1))
            cursor = fp.Cursor.from_bytes(whole[stop][1].to_bytes())
            assert [row for row, _ in fp.iterate(shuffled, cursor)] == [row for row, _ in whole[stop + 1 :]]


@every_format
def test_it_obeys_the_laws_of_datasets(name: str, tmp_path: Path):
    shuffled = fp.pipe(written(tmp_path, name, [9, 0, 5, 12, 3]), fp.shuffle(seed=1, buffer=4, files=2))
    laws.assert_value(shuffled)
    laws.assert_described(shuffled)
    laws.assert_repeatable(shuffled)
    laws.assert_resumable(shuffled)
    laws.assert_resumable(fp.pipe(shuffled, fp.repeat(2), fp.batch(4)))
    laws.assert_plans_agree(fp.pipe(shuffled, fp.select_columns([shuffled.plan.schema.names[0]]), fp.batch(3)))
    laws.assert_told_apart(shuffled, fp.pipe(written(tmp_path, name, [9, 0, 5, 12, 3]), fp.shuffle(seed=1, buffer=4, files=3)))


@every_format
def test_epochs_and_seeds_have_orders_of_their_own(name: str, tmp_path: Path):
    rows = written(tmp_path, name, [10] * 6)
    orders = {
        tuple(numbers(row for row, _ in fp.iterate(fp.pipe(rows, fp.shuffle(seed=seed, buffer=5, files=3)), epoch=epoch)))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


def test_neighbours_are_parted_that_a_buffer_alone_keeps_together(tmp_path: Path):
    rows = written(tmp_path, "jsonl", [500] * 64)
    alone, mixed = (np.array(numbers(fp.pipe(rows, fp.shuffle(seed=0, buffer=1000, **more)))) for more in ({}, {"files": 16}))
    places = np.arange(len(alone))
    assert np.corrcoef(alone, places)[0, 1] > 0.98
    assert abs(np.corrcoef(mixed, places)[0, 1]) < 0.3
    assert (np.abs(np.diff(mixed)) == 1).mean() < 0.005


def test_the_files_open_at_a_time_give_one_row_each_in_turn(tmp_path: Path):
    rows = written(tmp_path, "jsonl", [4, 4, 4, 4])
    shuffled = fp.pipe(rows, fp.shuffle(seed=3, buffer=1, files=2))
    order = [number // 4 for number in numbers(shuffled)]
    assert len(set(order[:8:2])) == len(set(order[1:8:2])) == 1
    assert len(set(order[:8])) == len(set(order[8:])) == 2


@frozen
class Named:
    def __call__(self, row: fp.parts.Example) -> fp.parts.Example:
        return {"x": row["x"], "name": f"{row['name']}!"}


@frozen
class Drawn:
    def __call__(self, row: fp.parts.Example, random: np.random.Generator) -> fp.parts.Example:
        return {"x": row["x"], "drawn": int(random.integers(0, 2**60))}


@frozen
class Twice:
    def __call__(self, row: fp.parts.Example) -> list[fp.parts.Example]:
        return [dict(row), {**row, "x": -row["x"]}]


@frozen
class Even:
    def __call__(self, row: fp.parts.Example) -> bool:
        return bool(row["x"] % 2 == 0)


def test_stages_that_work_on_each_row_come_before_it(tmp_path: Path):
    rows = written(tmp_path, "jsonl", [7, 3, 8])
    before = fp.pipe(rows, fp.map(Named()), fp.filter(Even()), fp.flat_map(Twice()), fp.filter_by([("x", ">=", 0)]))
    shuffled = fp.pipe(before, fp.shuffle(seed=0, buffer=3, files=2))
    assert sorted(map_to_pairs(shuffled)) == sorted(map_to_pairs(before))
    laws.assert_resumable(shuffled)
    laws.assert_value(shuffled)


def map_to_pairs(rows: Any) -> list[tuple[int, str]]:
    return [(row["x"], row["name"]) for row in rows]


def test_what_is_drawn_differs_between_files_and_epochs(tmp_path: Path):
    shuffled = fp.pipe(written(tmp_path, "jsonl", [5] * 4), fp.map(Drawn(), seed=0), fp.shuffle(seed=0, buffer=3, files=2))
    drawn = [row["drawn"] for epoch in (0, 1) for row, _ in fp.iterate(shuffled, epoch=epoch)]
    assert len(set(drawn)) == 40
    assert drawn[:20] == [row["drawn"] for row in shuffled]


def test_a_column_that_the_first_file_alone_would_not_have_is_there(tmp_path: Path):
    for place in ("year=2023", "year=2024"):
        (tmp_path / place).mkdir()
        write_jsonl(tmp_path / place / "a.jsonl", [1, 2, 3])
    rows = fp.read_jsonl(tmp_path)
    found = list(fp.pipe(rows, fp.shuffle(seed=0, buffer=2, files=2)))
    assert sorted(str(row) for row in found) == sorted(str(row) for row in rows)


def test_rows_are_named_by_their_file(tmp_path: Path):
    rows = written(tmp_path, "jsonl", [4, 4, 4])
    shuffled = fp.pipe(rows, fp.shuffle(seed=0, buffer=3, files=2), fp.batch(4))
    origins = fp.inspect.row_origins(shuffled, 1)
    assert [int(repr(origin.source)[-10:-8]) * 4 + origin.row for origin in origins] == numbers(list(shuffled)[1])
    number = list(shuffled)[1].rows[2]
    assert numbers(fp.inspect.trace_row(shuffled, int(number)).steps[0].items) == [numbers(list(shuffled)[1])[2]]
    inside = fp.pipe(fp.mix([rows, fp.pipe(rows, fp.shuffle(seed=0, buffer=3, files=2))], [1, 1], stop="all"), fp.batch(24))
    (group,) = inside
    (found,) = [fp.inspect.row_origins(inside, 0)]
    assert [int(repr(each.source)[-10:-8]) * 4 + each.row for each in found if "*" not in repr(each.source)] == numbers(
        row for row, each in zip(group, found, strict=True) if "*" not in repr(each.source)
    )


def test_rows_that_fail_are_skipped_with_their_file(tmp_path: Path):
    rows = written(tmp_path, "jsonl", [30, 30])
    broken = tmp_path / "part-001.jsonl"
    broken.write_text(broken.read_text().replace('"x": 41', '"x": 4x1'))
    shuffled = fp.pipe(rows, fp.shuffle(seed=0, buffer=8, files=2), fp.on_error("skip", max_rate=0.5))
    items = list(fp.iterate(shuffled))
    assert sorted(numbers(row for row, _ in items)) == [number for number in range(60) if number != 41]
    (skipped,) = fp.inspect.skipped_rows(shuffled, items[-1][1])
    assert skipped.origin.row == 11
    assert "line 12 of" in skipped.reason
    assert "part-001.jsonl" in skipped.reason


def test_files_that_changed_since_a_cursor_are_noticed(tmp_path: Path):
    def made() -> fp.Dataset[Any]:
        return fp.pipe(fp.read_jsonl(str(tmp_path / "*.jsonl")), fp.shuffle(seed=0, buffer=2, files=2))

    written(tmp_path, "jsonl", [9] * 6)
    cursor = [cursor for _, cursor in fp.iterate(made())][40]
    write_jsonl(tmp_path / "part-009.jsonl", [1])
    with pytest.raises(CursorError, match=r"The files have changed since the cursor was made: there were 6, now 7\."):
        list(fp.iterate(made(), cursor))


def test_a_damaged_file_is_named(tmp_path: Path):
    rows = written(tmp_path, "jsonl", [5, 5, 5])
    (tmp_path / "part-002.jsonl").write_text('{"y": 1}\n')
    with pytest.raises(DataError, match=r"part-002\.jsonl"):
        list(fp.pipe(rows, fp.shuffle(seed=0, buffer=2, files=3)))


def test_building_reads_nothing(tmp_path: Path):
    shuffled = fp.pipe(fp.read_jsonl(tmp_path / "later*.jsonl"), fp.shuffle(seed=0, buffer=2, files=2))
    with pytest.raises(MissingFileError, match="No file matches"):
        list(shuffled)
    write_jsonl(tmp_path / "later.jsonl", [1, 2])
    assert sorted(numbers(fp.pipe(fp.read_jsonl(tmp_path / "later*.jsonl"), fp.shuffle(seed=0, buffer=2, files=2)))) == [1, 2]
    assert repr(shuffled).endswith("shuffle(seed=0, buffer=2, files=2))")
    assert repr(fp.shuffle(seed=0, buffer=2, files=2)) == "shuffle(seed=0, buffer=2, files=2)"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda rows: fp.shuffle(seed=0, files=2),
            ArgumentError,
            r"shuffle\(files=2\) needs a buffer for the rows of the open files\. Add buffer=n, or remove files= for an exact",
        ),
        (lambda rows: fp.shuffle(seed=0, buffer=2, files=0), ArgumentError, "files must be at least 1"),
        (
            lambda rows: fp.shuffle(seed=0, buffer=2, files=2)(fp.from_examples([{"x": 1}])),
            PipelineError,
            r"needs a file reader, such as read_jsonl or read_parquet, got from_examples\(1 rows\)\. Between the reader",
        ),
        (lambda rows: fp.pipe(rows, fp.take(3), fp.shuffle(seed=0, buffer=2, files=2)), PipelineError, r"got take\(count=3\)"),
        (
            lambda rows: fp.pipe(rows, fp.shuffle(seed=0, buffer=2), fp.shuffle(seed=0, buffer=2, files=2)),
            PipelineError,
            r"shuffle\(seed=0, buffer=2\) combines rows of several files\. Put shuffle before this stage",
        ),
        (lambda rows: fp.pipe(rows, fp.batch(2), fp.shuffle(seed=0, buffer=2, files=2)), PipelineError, "takes examples"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_built(make: Any, error: type[Exception], message: str, tmp_path: Path):
    with pytest.raises(error, match=message):
        make(fp.read_jsonl(tmp_path / "a.jsonl"))
