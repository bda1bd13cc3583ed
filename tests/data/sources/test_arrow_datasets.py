"""Lance datasets: lazy, with random access, and with the version in the fingerprint."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.testing import laws

lance: Any = pytest.importorskip("lance", reason="pylance is not installed: the extra lance")

TABLE = pa.table({"x": range(5000), "t": [f"word {i % 7}" for i in range(5000)], "ids": [[i, i + 1] for i in range(5000)]})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return lance.write_dataset(TABLE, str(tmp_path_factory.mktemp("lance") / "rows.lance"), max_rows_per_file=1300)


def test_the_laws_of_datasets_and_cursors_hold(dataset):
    rows = fp.from_table(dataset)
    assert fp.to_table(rows).equals(TABLE)
    for law in (laws.assert_repeatable, laws.assert_resumable):
        law(fp.pipe(rows, fp.batch(700)))


def test_random_access_reads_rows_by_index(dataset):
    rows = fp.from_table(dataset)
    assert fp.length(rows) == 5000
    assert fp.to_table(fp.select([4999, 3, 3, 0])(rows)).equals(TABLE.take([4999, 3, 3, 0]))
    shuffled = [row["x"] for row in fp.pipe(rows, fp.shuffle(seed=0))]
    assert shuffled != list(range(5000))
    assert sorted(shuffled) == list(range(5000))


def test_only_the_needed_columns_are_read(dataset):
    plan = fp.pipe(fp.from_table(dataset), fp.select_columns(["x"])).plan
    assert plan.source.kept == ("x",)


def test_workers_give_the_same_batches(dataset):
    batches = fp.pipe(
        fp.from_table(dataset), fp.select_columns(["x"]), fp.shuffle(seed=0), fp.batch(512), fp.collate(fp.collators.default())
    )
    expected = [batch["x"].tolist() for batch in batches]
    assert [batch["x"].tolist() for batch in fp.prefetch(2, workers=3)(batches)] == expected


def test_a_new_version_has_another_fingerprint_and_the_old_version_stays_readable(tmp_path):
    path = str(tmp_path / "rows.lance")
    first = fp.from_table(lance.write_dataset(pa.table({"x": [1, 2]}), path))
    cursor = next(cursor for _, cursor in fp.iterate(fp.pipe(first, fp.batch(1))))
    second = fp.from_table(lance.write_dataset(pa.table({"x": [3]}), path, mode="append"))
    assert [row["x"] for row in first] == [1, 2]
    assert [row["x"] for row in second] == [1, 2, 3]
    assert fp.inspect.fingerprint(first) != fp.inspect.fingerprint(second)
    with pytest.raises(fp.errors.CursorMismatchError):
        next(iter(fp.iterate(fp.pipe(second, fp.batch(1)), cursor)))
    again = fp.from_table(lance.dataset(path, version=1))
    assert fp.inspect.fingerprint(again) == fp.inspect.fingerprint(first)
    assert [[row["x"] for row in group] for group, _ in fp.iterate(fp.pipe(again, fp.batch(1)), cursor)] == [[2]]


def test_a_pipeline_of_lance_rows_pickles(dataset):
    rows = fp.pipe(fp.from_table(dataset), fp.batch(64))
    assert pickle.loads(pickle.dumps(rows)) == rows
