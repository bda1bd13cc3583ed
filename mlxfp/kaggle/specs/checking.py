"""Checking files against a spec: one error lists every mismatch."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from mlxfp.core.checks import check_types
from mlxfp.core.errors import DataError, MlxfpError
from mlxfp.kaggle.specs.cells import not_numbers
from mlxfp.kaggle.specs.reading import PARTS, Part, folder_of, hash_file, kept_null_texts, part_file, read_strings
from mlxfp.kaggle.specs.specs import CLASSED, DatasetSpec, FileSpec
from mlxfp.kaggle.specs.spellings import find_spelling

_SHOWN = 5  # values in a message: enough to recognize what is wrong


def check_spec(spec: DatasetSpec, path: str | Path) -> None:
    r"""Check the files of a competition's folder against its spec; raise `DataError` that lists every mismatch.

    Checked are: missing files, and files with another hash or number of rows; missing columns; missing or duplicate ids; targets that are
    missing, not among the classes, or not numbers; numerical columns with cells that are not numbers; values without a name in categorical
    columns whose values have names; the columns and the spelling of the sample, and whether its ids are those of the test file. Columns
    that the spec does not name are ignored. Reads the files, one at a time, into memory.

    >>> from tempfile import TemporaryDirectory
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec
    >>> about = {"id": "id", "target": ["y"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> columns = [ColumnSpec(name="size", type="numerical"), ColumnSpec(name="age", type="numerical")]
    >>> spec = DatasetSpec(name="x", kind="binary", train=FileSpec(name="train.csv"), columns=columns, **about)
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.csv").write_text("id,size,y\n1,5,0\n1,big,2\n")
    ...     check_spec(spec, folder)
    Traceback (most recent call last):
    mlxfp.core.errors.DataError: 4 mismatches between the spec of 'x' and the files in ...
      train.csv: the column 'age' is missing; the file has 'id', 'size', 'y'
      train.csv: 1 duplicate id in 'id': '1'
      train.csv: the target 'y' has 1 value not among the classes '0', '1': '2'
      train.csv: the numerical column 'size' has 1 value not written as numbers: 'big'
    Fix the files, or change the spec to describe them.

    See also: `infer_spec`.
    """
    check_types(DatasetSpec, spec=spec)
    folder = folder_of(path)
    found = {part: _check_part(spec, folder, part) for part in PARTS}
    problems = [problem for checked in found.values() for problem in checked.problems]
    problems += _sample_problems(spec, found["test"].ids, found["sample"].ids)
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        count = f"{len(problems)} mismatches" if len(problems) > 1 else "A mismatch"
        raise DataError(
            f"{count} between the spec of {spec.name!r} and the files in {str(folder)!r}:{lines}\n"
            "Fix the files, or change the spec to describe them."
        )


@frozen
class _Checked:
    """What was found in a file: problems, and its ids if it has an id column."""

    problems: tuple[str, ...] = ()
    ids: pa.ChunkedArray | None = None


def _check_part(spec: DatasetSpec, folder: Path, part: Part) -> _Checked:
    file = part_file(spec, part)
    if file is None:
        return _Checked()
    path = folder / file.name
    if not path.is_file():
        return _Checked((f"{file.name}: the file is missing",))
    try:
        table = read_strings(path, kept_null_texts(spec))
    except MlxfpError as error:
        return _Checked((f"{file.name}: {error}",))
    check = _FileCheck(spec, table)
    problems = (*_file_problems(file, path, table.num_rows), *(check.sample() if part == "sample" else check.rows(part)))
    return _Checked(tuple(f"{file.name}: {problem}" for problem in problems), table[spec.id] if spec.id in table.column_names else None)


def _file_problems(file: FileSpec, path: Path, rows: int) -> Iterator[str]:
    if file.rows is not None and file.rows != rows:
        yield f"it has {rows:,} rows, the spec says {file.rows:,}"
    if file.sha256 is not None and (found := hash_file(path)) != file.sha256:
        yield f"its sha256 is {found}, the spec says {file.sha256}"


def _sample_problems(spec: DatasetSpec, ids: pa.ChunkedArray | None, sampled: pa.ChunkedArray | None) -> list[str]:
    if ids is None or sampled is None or spec.sample is None:
        return []
    pairs = ((ids, sampled, "in the test file and not here"), (sampled, ids, "here and not in the test file"))
    return [
        f"{spec.sample.name}: {_count(only, 'id')} {where}: {_shown(only)}"
        for some, others, where in pairs
        if len(only := some.filter(pc.invert(pc.is_in(some, others))))
    ]


@frozen
class _FileCheck:
    """The mismatches of one file."""

    spec: DatasetSpec
    table: pa.Table

    def rows(self, part: Part) -> Iterator[str]:
        spec = self.spec
        targets = spec.target if part == "train" else ()
        others = [name for name in (spec.id, *targets, spec.group, spec.time) if name is not None]
        yield from self._columns(list(dict.fromkeys([*others, *(column.name for column in spec.columns)])))
        yield from self._ids()
        for name in targets:
            yield from self._target(name)
        for column in spec.columns:
            what = f"the {column.type} column {column.name!r}"
            if column.values:
                yield from self._unknown(column.name, [value for value, _ in column.values], what, "not named in the spec")
            elif column.name in self.table.column_names:
                yield from _list(column.kind.unfit(self.table[column.name]), what, f"not written as {column.kind.holds}")

    def sample(self) -> Iterator[str]:
        submission = self.spec.submission
        yield from self._ids()
        if submission is None:
            return
        if tuple(self.table.column_names) != submission.columns:
            wanted, found = (", ".join(map(repr, names)) for names in (submission.columns, self.table.column_names))
            yield f"its columns are {found}, the spec says {wanted}"
        for name in submission.columns:
            if name != self.spec.id and name in self.table.column_names:
                values = self.table[name].drop_null()
                distinct = values.unique()
                spelling = find_spelling(distinct.to_pylist(), submission.spelling)
                odd = values.filter(
                    pc.is_in(values, distinct.filter(pa.array([not spelling.fits(cell) for cell in distinct.to_pylist()], pa.bool_())))
                )
                if len(odd):
                    yield f"the column {name!r} has {_count(odd, 'value')} not spelled as {submission.spelling}: {_shown(odd)}"

    def _columns(self, wanted: list[str]) -> Iterator[str]:
        present = ", ".join(map(repr, self.table.column_names))
        missing = [name for name in wanted if name not in self.table.column_names]
        if missing:
            verb = "column {} is" if len(missing) == 1 else "columns {} are"
            yield f"the {verb.format(', '.join(map(repr, missing)))} missing; the file has {present}"

    def _ids(self) -> Iterator[str]:
        name = self.spec.id
        if name is None or name not in self.table.column_names:
            return
        ids = self.table[name]
        if ids.null_count:
            yield f"{ids.null_count} of the ids in {name!r} are missing"
        counted = pc.value_counts(ids.drop_null())
        doubled = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
        if len(doubled):
            yield f"{_count(doubled, 'duplicate id')} in {name!r}: {_shown(doubled)}"

    def _target(self, name: str) -> Iterator[str]:
        if name not in self.table.column_names:
            return
        if missing := self.table[name].null_count:
            yield f"the target {name!r} is missing in {missing} row{'s' if missing > 1 else ''}"
        if self.spec.kind in CLASSED:
            classes = ", ".join(map(repr, self.spec.classes))
            yield from self._unknown(name, self.spec.classes, f"the target {name!r}", f"not among the classes {classes}")
        else:
            yield from _list(not_numbers(self.table[name]), f"the target {name!r}", "not written as numbers")

    def _unknown(self, name: str, known: Sequence[str], what: str, how: str) -> Iterator[str]:
        if name in self.table.column_names:
            values = self.table[name].drop_null().unique()
            yield from _list(values.filter(pc.invert(pc.is_in(values, pa.array(known)))), what, how)


def _list(values: pa.Array, what: str, how: str) -> Iterator[str]:
    if len(values):
        yield f"{what} has {_count(values, 'value')} {how}: {_shown(values)}"


def _count(values: pa.Array, noun: str) -> str:
    return f"{len(values):,} {noun}{'s' if len(values) > 1 else ''}"


def _shown(values: pa.Array) -> str:
    first = ", ".join(repr(value) for value in values[:_SHOWN].to_pylist())
    return f"{first}, ..." if len(values) > _SHOWN else first
