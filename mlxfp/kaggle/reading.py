"""The files of a competition as rows, with the types that its spec says."""

from hashlib import file_digest
from pathlib import Path
from typing import Literal

import pyarrow as pa

from mlxfp.core.checks import check_choice, check_types
from mlxfp.core.chunks import Example
from mlxfp.core.cursors import run, start
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.errors import ArgumentError, MissingFileError
from mlxfp.data.csv_files import read_csv
from mlxfp.kaggle.specs import CLASSED, DatasetSpec, FileSpec

Part = Literal["train", "test", "sample"]
PARTS: tuple[Part, ...] = ("train", "test", "sample")


def read_part(spec: DatasetSpec, path: str | Path, *, part: Part = "train") -> Dataset[Example]:
    r"""Read a file of a competition's folder, lazily: its train, test or sample file, with the types of the spec.

    Numerical columns are float64, text and categorical ones strings, just as the file writes them: the class 3 is "3", and an id keeps
    its leading zeros. Targets are strings where they are classes, float64 otherwise; the sample is strings throughout. Columns that the
    spec does not name are there too, with the types that they look like. Raises `MissingFileError` if there is no such file.

    >>> from tempfile import TemporaryDirectory
    >>> from mlxfp.kaggle.specs import ColumnSpec
    >>> columns = [ColumnSpec(name="code", type="categorical"), ColumnSpec(name="size", type="numerical")]
    >>> spec = DatasetSpec(name="x", kind="regression", train=FileSpec(name="a.csv"), target=["y"], id="id", columns=columns, metric="mae")
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("id,code,size,y\n007,1,2,3\n")
    ...     next(iter(read_part(spec, folder)))
    {'id': '007', 'code': '1', 'size': 2.0, 'y': 3.0}

    See also: `read_csv`.
    """
    check_types(DatasetSpec, spec=spec)
    check_choice(PARTS, part=part)
    file = part_file(spec, part)
    if file is None:
        raise ArgumentError(
            f"The spec of {spec.name!r} names no {part} file. Name it with {part}=FileSpec(name=...), or read another part."
        )
    found = folder_of(path) / file.name
    if not found.is_file():
        raise MissingFileError(f"There is no {part} file at {str(found)!r}. Give the folder that holds the files of {spec.name!r}.")
    if part == "sample":
        return read_csv(found, schema=dict.fromkeys(schema(read_csv(found)).names, pa.string()))
    return read_csv(found, schema=_types(spec, with_target=part == "train"))


def part_file(spec: DatasetSpec, part: Part) -> FileSpec | None:
    """Return the file of a part, if the spec names one."""
    return {"train": spec.train, "test": spec.test, "sample": spec.sample}[part]


def folder_of(path: str | Path) -> Path:
    """Return the folder of a competition, also where one of its files is given."""
    return Path(path).parent if Path(path).is_file() else Path(path)


def read_strings(path: Path) -> pa.Table:
    """Read a CSV file whole, every column as strings; missing values are null."""
    names = schema(read_csv(path)).names
    rows = read_csv(path, schema=dict.fromkeys(names, pa.string()))
    chunks = [chunk.select(names) for chunk, _ in run(rows, start(0, None))]
    return pa.Table.from_batches(chunks, pa.schema([(name, pa.string()) for name in names]))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal digits."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _types(spec: DatasetSpec, *, with_target: bool) -> dict[str, pa.DataType]:
    beside = {name: pa.string() for name in (spec.id, spec.group, spec.time) if name is not None}
    target = dict.fromkeys(spec.target if with_target else (), pa.string() if spec.kind in CLASSED else pa.float64())
    return beside | target | {column.name: pa.float64() if column.type == "numerical" else pa.string() for column in spec.columns}
