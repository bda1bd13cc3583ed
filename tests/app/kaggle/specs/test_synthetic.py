"""Synthetic files fit their spec, and a model can learn their targets."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlxfp as fp
from mlxfp.app.kaggle.specs.reading import PARTS, part_file, read_part
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.support.file_formats import NULL_VALUES
from tests.app.kaggle.drawing import dataset_specs

_SERIES = fp.kaggle.DatasetSpec(
    name="shops",
    kind="time_series",
    train=fp.kaggle.FileSpec(name="train.csv"),
    test=fp.kaggle.FileSpec(name="test.csv.gz"),
    sample=fp.kaggle.FileSpec(name="more/sample.csv.zst"),
    id="id",
    target=["sold"],
    group="shop",
    time="day",
    columns=[fp.kaggle.ColumnSpec(name="day", type="text"), fp.kaggle.ColumnSpec(name="price", type="numerical", absent=["-1"])],
    metric="rmsle",
    submission=fp.kaggle.SubmissionSpec(columns=["id", "sold"], spelling="number"),
)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@st.composite
def clean_specs(draw: st.DrawFn) -> fp.kaggle.DatasetSpec:
    """Draw specs whose files can be files: names that a folder and Arrow can hold, values that are not read as missing."""
    spec = draw(dataset_specs())
    names = {"train": "train.csv", "test": "test.csv", "sample": "sample.csv"}
    files = {part: file and fp.kaggle.FileSpec(name=names[part]) for part, file in ((part, part_file(spec, part)) for part in PARTS)}
    assume(spec.submission is None or spec.submission.columns)
    columns = [column.name for column in spec.columns]
    spec = evolve(spec, group=draw(st.sampled_from([spec.group, *columns])), time=draw(st.sampled_from([spec.time, *columns])))
    said = [*spec.target, spec.id, spec.group, spec.time, *(spec.submission.columns if spec.submission else ())]
    assume(not any("\0" in str(name) for name in said))
    assume(not {spec.id, *spec.target} & {spec.group, spec.time} - {None})
    assume(not {*spec.classes} & {"", " "})
    return evolve(spec, **files)


@given(spec=clean_specs(), rows=st.integers(4, 30), test_rows=st.integers(1, 9), seed=st.integers(0, 3))
def test_synthetic_files_fit_their_spec(
    tmp_path_factory: pytest.TempPathFactory, spec: fp.kaggle.DatasetSpec, rows: int, test_rows: int, seed: int
):
    folder = tmp_path_factory.mktemp("made")
    made = fp.kaggle.write_synthetic(spec, folder, rows=rows, test_rows=test_rows, seed=seed)
    fp.kaggle.check_spec(spec, folder)
    fp.kaggle.check_spec(made, folder)
    for part in PARTS:
        if part_file(spec, part) is not None:
            table = fp.to_table(read_part(made, folder, part=part))
            assert table.num_rows == (rows if part == "train" else test_rows)
            empty = {column.name for column in spec.columns if {code for code, _ in column.values} & {*NULL_VALUES}}
            whole = {spec.id, *(spec.target if part == "train" else ()), *({spec.group, spec.time} - empty)}
            assert not any(table[name].null_count for name in table.column_names if name in whole)


@pytest.mark.parametrize("name", fp.kaggle.SPECS)
def test_the_known_data_sets_are_synthesized_equally_twice_and_inferred(tmp_path: Path, name: str):
    spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS[name], tmp_path / "a", seed=3)
    fp.kaggle.check_spec(spec, tmp_path / "a")
    assert fp.kaggle.write_synthetic(fp.kaggle.SPECS[name], tmp_path / "b", seed=3) == spec
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert fp.kaggle.write_synthetic(fp.kaggle.SPECS[name], tmp_path / "c", seed=4).train != spec.train
    found = fp.kaggle.infer_spec(tmp_path / "a")
    assert (found.id, found.target, found.kind, found.classes) == (spec.id, spec.target, spec.kind, spec.classes)
    assert [column.name for column in found.columns] == [column.name for column in spec.columns]
    with pytest.raises(DataError, match="but the spec has"):
        fp.kaggle.check_spec(fp.kaggle.SPECS[name], tmp_path / "a")  # the hashes are those of the real files


def inputs_of(spec: fp.kaggle.DatasetSpec):
    """Make the usual features of a table: numbers scaled, categories one-hot, words counted."""
    kinds = {kind: [column.name for column in spec.columns if column.type == kind] for kind in ("numerical", "categorical", "text")}
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), kinds["numerical"]),
        (OneHotEncoder(handle_unknown="ignore"), kinds["categorical"]),
        *((CountVectorizer(), name) for name in kinds["text"]),
    )


def rows_of(spec: fp.kaggle.DatasetSpec, folder: Path):
    rows = fp.to_table(read_part(fp.kaggle.write_synthetic(spec, folder), folder)).to_pandas()
    texts = [column.name for column in spec.columns if column.type != "numerical"]
    return rows.assign(**rows[texts].fillna("none"))


@pytest.mark.parametrize("name", ["titanic", "spaceship_titanic", "disaster_tweets"])
def test_classes_can_be_learned(tmp_path: Path, name: str):
    spec = fp.kaggle.SPECS[name]
    rows = rows_of(spec, tmp_path)
    labels = rows[spec.target[0]]
    accuracy = cross_val_score(make_pipeline(inputs_of(spec), LogisticRegression(max_iter=1000)), rows, labels, cv=3).mean()
    assert labels.value_counts(normalize=True).max() == 0.5
    assert 0.65 < accuracy < 0.97


def test_numbers_can_be_learned(tmp_path: Path):
    spec = fp.kaggle.SPECS["house_prices"]
    rows = rows_of(spec, tmp_path)
    r2 = cross_val_score(make_pipeline(inputs_of(spec), Ridge(10)), rows, np.log(rows[spec.target[0]]), cv=3).mean()
    assert 0.3 < r2 < 0.97


def test_groups_times_and_files_are_as_in_a_real_competition(tmp_path: Path):
    spec = fp.kaggle.write_synthetic(_SERIES, tmp_path, rows=13, test_rows=4)
    assert sorted(bytes_of(tmp_path)) == ["more/sample.csv.zst", "test.csv.gz", "train.csv"]
    train, test = (fp.to_table(read_part(spec, tmp_path, part=part)) for part in ("train", "test"))
    assert train.column_names == ["id", "day", "price", "shop", "sold"]
    assert test.column_names == ["id", "day", "price", "shop"]
    assert train["shop"].to_pylist() == [*"1111122222333"]
    assert test["shop"].to_pylist() == [*"4444"]
    days = train["day"].to_pylist() + test["day"].to_pylist()
    assert days == sorted(set(days))
    assert (days[0], days[-1]) == ("2020-01-01", "2020-01-17")
    assert pa.compute.min(train["sold"]).as_py() > 0


def test_a_tenth_is_missing_and_a_quarter_is_absent(tmp_path: Path):
    rows = fp.to_table(read_part(fp.kaggle.write_synthetic(_SERIES, tmp_path, rows=4000), tmp_path))
    prices = rows["price"].to_pylist()
    assert prices.count(None) == pytest.approx(400, abs=60)
    assert prices.count(-1.0) == pytest.approx(900, abs=90)
    assert min(price for price in prices if price not in (None, -1.0)) > 0
    assert rows.drop_columns("price").combine_chunks().drop_null().num_rows == 4000


@pytest.mark.parametrize("name", fp.kaggle.SPECS)
def test_a_submission_for_synthetic_rows_fits_their_sample(tmp_path: Path, name: str):
    spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS[name], tmp_path, test_rows=7)
    assert spec.test is not None
    assert spec.sample is not None
    test, sample = tmp_path / spec.test.name, tmp_path / spec.sample.name
    fp.kaggle.submission({spec.target[0]: np.ones(7)}, test=test, sample=sample).write(tmp_path / "mine.csv")
    assert fp.kaggle.check_submission(tmp_path / "mine.csv", sample=sample) == ()


def test_several_targets_differ(tmp_path: Path):
    spec = evolve(fp.kaggle.SPECS["titanic"], kind="multilabel", target=["a", "b", "c"], test=None, sample=None)
    train = fp.to_table(read_part(fp.kaggle.write_synthetic(spec, tmp_path), tmp_path))
    assert len({tuple(train[name].to_pylist()) for name in spec.target}) == 3
    assert all(train[name].to_pylist().count("1") == 300 for name in spec.target)


def test_a_file_that_is_there_already_stays_and_one_that_is_not_is_written(tmp_path: Path):
    spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (tmp_path / "test.csv").unlink()
    assert fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path) == spec
    changed = [path.name for path in tmp_path.iterdir() if before[path] != path.stat().st_mtime_ns]
    assert changed == ["test.csv"]


def test_no_file_is_replaced(tmp_path: Path):
    (tmp_path / "test.csv").write_text("PassengerId\n1\n")
    with pytest.raises(
        ArgumentError, match=r"test\.csv' exists with different content, and synthetic files never replace files\. Choose an empty folder\."
    ):
        fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path)
    assert [*bytes_of(tmp_path)] == ["test.csv"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": fp.kaggle.FileSpec(name="../test.csv")}, r"The spec names a file outside the folder: '\.\./test\.csv'"),
        ({"test": fp.kaggle.FileSpec(name="/test.csv")}, r"outside the folder: '/test\.csv'"),
        (
            {"test": fp.kaggle.FileSpec(name="./train.csv")},
            r"uses the file name '\./train\.csv' twice\. Give train, test and sample different file names",
        ),
        (
            {"classes": [str(kind) for kind in range(601)], "kind": "multiclass"},
            r"rows must be at least 601, one for each class of 'titanic'",
        ),
    ],
)
def test_files_that_cannot_be_written_are_refused(tmp_path: Path, changes, message: str):
    with pytest.raises(ArgumentError, match=message):
        fp.kaggle.write_synthetic(evolve(fp.kaggle.SPECS["titanic"], **changes), tmp_path)
    assert not bytes_of(tmp_path)


def test_arguments_are_checked(tmp_path: Path):
    with pytest.raises(ArgumentTypeError, match="spec must be DatasetSpec"):
        fp.kaggle.write_synthetic("titanic", tmp_path)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ArgumentError, match="rows must be at least 1"):
        fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path, rows=0)
    with pytest.raises(ArgumentTypeError, match="seed must be an int"):
        fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path, seed=0.5)  # type: ignore[arg-type]  # the mistake
