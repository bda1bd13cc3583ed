"""Clusters write the same bytes: Ray, and Spark by Sail, where they are installed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp import runners
from mlxfp.core.running.segments import Job, Segment
from mlxfp.core.sources import ChunkTask
from mlxfp.data.running.engines import SparkPool, all_done
from mlxfp.support.errors import MissingExtraError, WorkerError
from mlxfp.testing.laws import assert_written_alike

pytestmark = [  # of pyspark, about the versions of other packages
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def squared(row: Any) -> Any:
    return {**row, "square": row["x"] ** 2, "tensor": np.ones((2, 3), np.float32)}


def fails_at_190(row: Any) -> Any:
    return {"x": 1 // (row["x"] - 190)}


ROWS = fp.from_examples([{"x": i, "text": None if i % 9 == 4 else f"row {i}"} for i in range(200)])


class Sent:
    """A session as Spark's, in this process: it calls the function on the frame of a row."""

    def createDataFrame(self, rows: Any, schema: str) -> Any:  # noqa: N802  # as in Spark
        assert schema == "job binary"
        self.frame = pa.record_batch({"job": pa.array([job for (job,) in rows], pa.binary())})
        return self

    def mapInArrow(self, function: Any, schema: str) -> Any:  # noqa: N802  # the same
        assert (function, schema) == (all_done, "work binary")
        self.made = pa.Table.from_batches(list(function(iter([self.frame]))))
        return self

    def collect(self) -> Any:
        return [tuple(row.values()) for row in self.made.to_pylist()]


# Once for all tests of this file, in whatever order they run: a client of Spark keeps its session, and Ray starts once in a process.
@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    sail, sql = pytest.importorskip("pysail.spark"), pytest.importorskip("pyspark.sql")
    server = sail.SparkConnectServer()
    server.start()
    made = sql.SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
    yield made
    made.stop()
    server.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture(params=["as bytes", "sail", "ray"])
def runner(request: pytest.FixtureRequest) -> fp.runners.Runner:
    if request.param == "as bytes":
        return runners.spark(Sent(), workers=1)
    if request.param == "sail":
        return runners.spark(request.getfixturevalue("session"), workers=2)
    request.getfixturevalue("cluster")
    return runners.ray(2)


def test_a_cluster_writes_the_same_bytes(runner: fp.runners.Runner, tmp_path: Path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"x": {i}, "text": "{"word " * (i % 9)}"}}\n' for i in range(200)))
    for dataset in (
        fp.pipe(ROWS, fp.map(squared), fp.filter(lambda row: row["x"] % 3 > 0)),
        fp.pipe(fp.read_jsonl(lines), fp.map(squared), fp.shuffle(seed=0, buffer=20)),
    ):
        assert_written_alike(dataset, runner, rows_per_file=40)


def test_an_error_is_that_of_the_function(runner: fp.runners.Runner, tmp_path: Path):
    with pytest.raises(ZeroDivisionError) as raised:
        fp.write(fp.pipe(ROWS, fp.map(fails_at_190)), tmp_path, rows_per_file=40, on=runner)
    assert any("on source row 190" in note for note in raised.value.__notes__)


def test_rows_of_a_slice_are_sent_without_the_others():
    chunk = pa.record_batch({"x": np.arange(100_000)})
    sizes: list[int] = []

    class Measuring(Sent):
        def createDataFrame(self, rows: Any, schema: str) -> Any:  # noqa: N802  # as in Spark
            sizes.append(len(rows[0][0]))
            return super().createDataFrame(rows, schema)

    pool = SparkPool(Measuring(), 1)
    dataset = fp.pipe(ROWS, fp.map(lambda row: {"x": row["x"] + 1}))
    job = Job(ChunkTask(chunk.slice(7, 3)), 0, 7, Segment(dataset.plan.segment, dataset.hooks))
    (made,) = pool.submit(job, lambda: False).result().chunks
    pool.close()
    assert made.column("x").to_pylist() == [8, 9, 10]
    assert sizes[0] < 50_000


def test_a_cluster_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"runners.ray needs ray. Install it with: pip install \"mlxfp\[ray\]\""):
        runners.ray(2).open()


def test_a_worker_of_ray_that_ends_is_named(cluster: Any, tmp_path: Path):
    def ends(row: Any) -> Any:
        import os

        import ray

        if row["x"] == 190 and ray.get_runtime_context().get_task_id():
            os._exit(1)
        return row

    ends.__fingerprint__ = "ends"  # type: ignore[attr-defined]
    with pytest.raises(WorkerError, match="Ray workers end repeatedly"):
        fp.write(fp.pipe(ROWS, fp.map(ends)), tmp_path, rows_per_file=40, on=runners.ray(2))


def shortened(row: Any) -> Any:
    return {"id": row["id"], "text": row["text"][:6]}


TABLE = pa.table({"id": np.arange(100), "text": [f"row {i} of all" for i in range(100)], "fare": np.arange(100) % 10 / 2})
LIFTED = fp.lift(
    fp.compose(
        fp.filter_by([("fare", ">", 1.0)]),
        fp.map(shortened, schema=pa.schema({"id": pa.int64(), "text": pa.string()})),
        fp.template("Of {id}: {text}"),
    )
)
SHAPE = LIFTED.schema(TABLE.schema)


def assert_lifted(found: pa.Table):
    """The rows that an engine has made are those of the recipe, in whatever order the engine gives them."""
    assert set(found.column_names) == set(SHAPE.names)
    expected = LIFTED(TABLE).sort_by("id").to_pylist()
    assert 0 < len(expected) < 100
    assert found.select(SHAPE.names).cast(SHAPE).sort_by("id").to_pylist() == expected


def test_a_lifted_recipe_runs_in_ray_data(cluster: Any):
    data = pytest.importorskip("ray.data")
    rows = data.from_arrow([TABLE.slice(0, 33), TABLE.slice(33)]).map_batches(LIFTED, batch_format="pyarrow", batch_size=None)
    assert_lifted(pa.concat_tables([table for table in cluster.get(rows.to_arrow_refs()) if table.num_rows]))


def test_a_lifted_recipe_runs_in_sail(session: Any):
    types = pytest.importorskip("pyspark.sql.pandas.types")
    made = session.createDataFrame(TABLE).mapInArrow(lambda batches: (LIFTED(batch) for batch in batches), types.from_arrow_schema(SHAPE))
    assert_lifted(made.toArrow())


def test_a_lifted_recipe_runs_in_datasets():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset(TABLE).with_format("arrow").map(LIFTED, batched=True, batch_size=33)
    assert_lifted(rows.data.table)
