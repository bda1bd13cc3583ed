"""Recipes and pipelines in other engines, where these are installed: the rows of one run of mlxfp, and of random stages the same draws."""

from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import mlxfp as fp

ENGINE = pytest.mark.filterwarnings("default")  # the warnings of other packages are theirs

COUNT = 1000
TABLE = pa.table(
    {
        "id": pa.array(range(COUNT), pa.int64()),
        "tokens": pa.array([list(range(number % 7 + 5)) for number in range(COUNT)], pa.list_(pa.int32())),
        "price": pa.array([number * 0.5 for number in range(COUNT)], pa.float64()),
    }
)
RECIPE = fp.compose(fp.filter_by([("id", ">", 20)]), fp.drop_tokens(0.3, seed=1, column="tokens"), fp.rename_columns({"price": "cost"}))
LIFTED = fp.lift(RECIPE, key="id")
DATASET = fp.pipe(fp.from_table(TABLE), RECIPE)
EXPECTED = {row["id"]: row for row in DATASET}


def check(rows: Any) -> None:
    """Check that these are the rows of one run, in any order."""
    found = [{name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()} for row in rows]
    assert len(found) == len(EXPECTED)
    assert {row["id"]: row for row in found} == EXPECTED


@ENGINE
def test_duckdb_reads_a_pipeline_and_its_errors_name_the_row():
    duckdb = pytest.importorskip("duckdb")
    rows = DATASET
    assert duckdb.sql("select count(*), sum(cost) from rows").fetchall() == [(len(EXPECTED), sum(row["cost"] for row in EXPECTED.values()))]
    check(duckdb.sql("select * from rows").to_arrow_table().to_pylist())
    failing = fp.pipe(rows, fp.map(fails, schema=pa.schema({"id": pa.int64()})))
    with pytest.raises(duckdb.Error, match="The value 500 is not a price"):
        duckdb.sql("select sum(id) from failing").fetchall()
    assert failing is not None


def fails(row: Any) -> Any:
    if row["id"] == 500:
        raise fp.DataError("The value 500 is not a price, in the column 'id'. Correct it.")
    return {"id": row["id"]}


@ENGINE
def test_polars_and_pandas_read_a_pipeline():
    polars = pytest.importorskip("polars")
    check(polars.DataFrame(DATASET).to_dicts())
    pandas = pytest.importorskip("pandas")
    if hasattr(pandas.DataFrame, "from_arrow"):
        check(pandas.DataFrame.from_arrow(DATASET).to_dict("records"))
    assert LIFTED(polars.from_arrow(TABLE)).to_dicts() == list(EXPECTED.values())


def test_a_pipeline_is_written_in_files_chunk_by_chunk(tmp_path):
    reader = pa.RecordBatchReader.from_stream(DATASET)
    pads.write_dataset(reader, tmp_path, format="parquet", max_rows_per_file=400, max_rows_per_group=400)
    assert len(list(tmp_path.glob("*.parquet"))) == 3
    check(fp.read_parquet(tmp_path))


@ENGINE
def test_datasets_runs_a_recipe_with_keys_or_with_indices():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset(TABLE).with_format("arrow")
    check(rows.map(LIFTED, batched=True, batch_size=64).with_format(None))
    plain = fp.lift(RECIPE)
    check(rows.map(lambda table, at: plain(table, offset=at[0]), batched=True, batch_size=64, with_indices=True).with_format(None))
    columns = datasets.Dataset(TABLE)  # which gives mappings of columns, and adds what comes out to what there was
    check(columns.map(LIFTED, batched=True, batch_size=64, remove_columns=columns.column_names))
    again = fp.lift(RECIPE, key="id")
    assert datasets.fingerprint.Hasher.hash(again) == datasets.fingerprint.Hasher.hash(LIFTED)
    check(datasets.Dataset(pa.table(DATASET)))


def noisy(row: Any, random: Any) -> Any:
    return {"id": row["id"], "noise": float(random.normal())}


@ENGINE
def test_dask_runs_a_recipe_in_partitions():
    frames = pytest.importorskip("dask.dataframe")
    recipe = fp.compose(fp.filter_by([("id", ">", 20)]), fp.map(noisy, seed=1, schema=pa.schema({"id": pa.int64(), "noise": pa.float64()})))
    lifted = fp.lift(recipe, key="id")
    frame = frames.from_pandas(TABLE.select(["id", "price"]).to_pandas(), npartitions=7).shuffle("id")
    meta = lifted(TABLE.select(["id", "price"]).schema.empty_table()).to_pandas()
    found = frame.map_partitions(lifted, meta=meta).compute(scheduler="threads")
    assert sorted(found.to_dict("records"), key=lambda row: row["id"]) == list(fp.pipe(fp.from_table(TABLE), recipe))


@ENGINE
def test_daft_runs_a_recipe_in_partitions():
    daft = pytest.importorskip("daft")
    frame = daft.from_arrow(TABLE).into_partitions(5)
    check([row for part in frame.iter_partitions() for row in LIFTED(part.to_arrow()).to_pylist()])
    assert daft.from_arrow(DATASET).count_rows() == len(EXPECTED)


@ENGINE
def test_ray_runs_a_recipe_in_blocks():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        rows = ray.data.from_arrow(TABLE).repartition(5)
        check(rows.map_batches(LIFTED, batch_format="pyarrow", batch_size=None).take_all())
        check(rows.map_batches(LIFTED, batch_format="numpy", batch_size=64).take_all())
    finally:
        ray.shutdown()


@ENGINE
def test_spark_runs_a_recipe_in_partitions():
    sql = pytest.importorskip("pyspark.sql")
    session = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = session.createDataFrame(TABLE.to_pandas()).repartition(4)
        found = frame.mapInArrow(lambda batches: map(LIFTED, batches), "id long, tokens array<int>, cost double")
        check(row.asDict() for row in found.collect())
    finally:
        session.stop()
