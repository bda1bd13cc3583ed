"""Data set specs: immutable descriptions of the files, columns and target of a competition, without any data."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pyarrow as pa
from attrs import Factory, field, frozen

from mlxfp.app.kaggle.specs.column_kinds import COLUMN_KINDS, ColumnKind, ColumnType
from mlxfp.app.kaggle.specs.kinds import METRIC_NAMES, TASK_KINDS, Kind, TaskKind
from mlxfp.app.kaggle.specs.spellings import Spelling
from mlxfp.support.checks import check_choice, check_not_negative, check_text, check_types, check_unique, explain_class
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, suggest
from mlxfp.support.file_formats import NULL_VALUES

_BREAK = re.compile(r"[\W_]+|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)")


def humanize(name: str) -> str:
    """Split a column name into words."""
    words = [word for word in _BREAK.split(name) if word]
    return " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words) or name


def _known_metric(name: str) -> str | None:
    return None if name in METRIC_NAMES else f"the name of a metric ({', '.join(METRIC_NAMES)}){suggest(name, METRIC_NAMES).rstrip()}"


def _to_texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ArgumentTypeError(f"A list of texts is needed, got the string {values!r}. Write [{values!r}].")
    check_types((list, tuple), texts=values)
    check_text(**{f"text {index}": value for index, value in enumerate(values)})
    return tuple(values)


def _to_pairs(values: Any) -> tuple[tuple[str, str], ...]:
    check_types((Mapping, tuple), values=values)
    pairs = tuple((value, name) for value, name in (values.items() if isinstance(values, Mapping) else values))
    for value, name in pairs:
        check_text(**{f"value {value!r}": value, f"the name of the value {value!r}": name})
    return pairs


def _to_columns(columns: Any) -> tuple["ColumnSpec", ...]:
    check_types((list, tuple), columns=columns)
    check_types(ColumnSpec, **{f"column {index}": column for index, column in enumerate(columns)})
    return tuple(columns)


@explain_class
@frozen(kw_only=True)
class FileSpec:
    """Name of a file in a competition folder, with optional hash and number of rows.

    >>> FileSpec(name="train.csv", rows=891)
    FileSpec(name='train.csv', sha256=None, rows=891)
    """

    name: str
    sha256: str | None = None
    rows: int | None = None

    def __attrs_post_init__(self) -> None:
        check_text(name=self.name)
        check_types((str, type(None)), sha256=self.sha256)
        if self.rows is not None:
            check_not_negative(rows=self.rows)


@explain_class
@frozen(kw_only=True)
class ColumnSpec:
    """Type and title of an input column, with names for its values.

    `values` maps values of a categorical column, such as "1" in the file, to names, such as "first class". `absent` lists values that mark
    the absence of something, such as a pool area of 0 for a house without a pool. Rows written as text omit absent values or contain the
    word "none" instead.

    The texts None and NA usually mean a missing value (see `read_part`). To keep such a text as a value, add it to `values` or `absent`.
    Texts for missing values, such as "k.A.", belong in `null_values` of the `DatasetSpec`.

    >>> ColumnSpec(name="Pclass", type="categorical", title="class", values={"1": "first class"})
    ColumnSpec(name='Pclass', type='categorical', title='class', values=(('1', 'first class'),), absent=())
    """

    name: str
    type: ColumnType
    title: str = field(default=Factory(lambda self: humanize(self.name), takes_self=True))
    values: tuple[tuple[str, str], ...] = field(default=(), converter=_to_pairs)
    absent: tuple[str, ...] = field(default=(), converter=_to_texts)

    def __attrs_post_init__(self) -> None:
        check_text(name=self.name, title=self.title)
        check_choice(get_args(ColumnType), type=self.type)
        if not self.name or not self.title:
            raise ArgumentError(f"A column needs a name and a title, got name={self.name!r}, title={self.title!r}.")
        if self.values and not self.kind.has_names:
            raise ArgumentError(
                f"Column {self.name!r} is {self.type}, but only categorical columns can have values. Set type='categorical' or omit values."
            )
        unfit = self.kind.unfit(pa.array(self.absent, pa.string())).to_pylist()
        if unfit:
            raise ArgumentError(
                f"Column {self.name!r} holds {self.kind.holds}, but the list absent=[...] of this column contains {unfit[0]!r}. "
                f"Remove {unfit[0]!r} from the list. For missing values, add {unfit[0]!r} to null_values of the spec."
            )
        check_unique(
            {
                f"values of column {self.name!r}": [value for value, _ in self.values],
                f"names of the values of column {self.name!r}": [name for _, name in self.values],
            }
        )

    @property
    def kind(self) -> ColumnKind:
        """Entry of `COLUMN_KINDS` with the reader, checks and text format of this column type."""
        return COLUMN_KINDS[self.type]


@explain_class
@frozen(kw_only=True)
class SubmissionSpec:
    """Format of a submission. `columns` lists all columns in file order, including the id. `spelling` is the text format of predictions.

    >>> SubmissionSpec(columns=["PassengerId", "Survived"], spelling="integer").columns
    ('PassengerId', 'Survived')
    """

    columns: tuple[str, ...] = field(converter=_to_texts)
    spelling: Spelling

    def __attrs_post_init__(self) -> None:
        check_choice(get_args(Spelling), spelling=self.spelling)
        check_unique({"columns": self.columns})


@explain_class
@frozen(kw_only=True)
class DatasetSpec:
    """Description of the data set of a competition.

    - `target`: the columns to predict. Only `multilabel` and `regression` allow several columns.
    - `classes`: the values of the target, spelled as in the file. The position in `classes` is the class number. Binary and
      multilabel targets have two classes. Classes of an ordinal target are in ascending order.
    - `columns`: the input columns of a model. All other columns are ignored.
    - `group`: the column with group keys. Rows with equal keys belong together.
    - `time`: the column with the time of each row.
    - `metric`: a name in `METRICS` suitable for the kind. Pass a custom metric to `score` instead.
    - `null_values` and `encoding`: texts for missing values, and the encoding of all CSV files, as in `read_csv`.

    Raises `UnknownNameError` for an unknown kind or metric, and `ArgumentError` for contradictory fields.

    >>> spec = DatasetSpec(
    ...     name="cats",
    ...     kind="binary",
    ...     train=FileSpec(name="train.csv"),
    ...     target=["purrs"],
    ...     classes=["no", "yes"],
    ...     columns=[ColumnSpec(name="fur_length", type="numerical")],
    ...     metric="accuracy",
    ... )
    >>> spec.columns[0].title
    'fur length'

    See also: `infer_spec`, which proposes a spec; `check_spec`; `SPECS`, the shipped specs.
    """

    name: str
    kind: Kind
    train: FileSpec
    test: FileSpec | None = None
    sample: FileSpec | None = None
    id: str | None = None
    target: tuple[str, ...] = field(converter=_to_texts)
    classes: tuple[str, ...] = field(default=(), converter=_to_texts)
    group: str | None = None
    time: str | None = None
    columns: tuple[ColumnSpec, ...] = field(converter=_to_columns)
    metric: str = field(metadata={"checks": (_known_metric,)})
    submission: SubmissionSpec | None = None
    null_values: tuple[str, ...] = field(default=NULL_VALUES, converter=_to_texts)
    encoding: str = "utf-8"

    def __attrs_post_init__(self) -> None:
        check_text(name=self.name, metric=self.metric, encoding=self.encoding)
        check_choice(METRIC_NAMES, metric=self.metric)
        check_choice(TASK_KINDS, kind=self.kind)
        check_types((str, type(None)), id=self.id, group=self.group, time=self.time)
        names = [column.name for column in self.columns]
        titles = [column.title for column in self.columns]
        check_unique({"columns": names, "titles of columns": titles, "target": self.target, "classes": self.classes})
        for problem in self._problems():
            raise ArgumentError(f"The spec of {self.name!r}: {problem}")

    @property
    def task(self) -> TaskKind:
        """Entry of `TASK_KINDS` with the loss, metrics and output format for this kind."""
        return TASK_KINDS[self.kind]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model outputs: the classes if each row has exactly one class, otherwise the targets."""
        return self.classes if self.task.one_class else self.target

    def _problems(self) -> Iterator[str]:
        hidden = sorted({*self.target, self.id or ""} & {column.name for column in self.columns})
        task, count = self.task, len(self.classes)
        least, most = task.class_counts
        if not self.target:
            yield "target is empty. Give the name of the column to predict."
        if hidden:
            yield f"a model must not see the id or the target. Remove {', '.join(map(repr, hidden))} from columns."
        if task.column is not None and getattr(self, task.column) is None:
            yield f"kind={self.kind!r} needs the name of a column in {task.column!r}."
        if task.one_class and len(self.target) > 1:
            yield f"kind={self.kind!r} allows only one target, got {len(self.target)}. Choose another kind, or keep one target."
        if count < least or (most is not None and count > most):
            yield f"kind={self.kind!r} needs {least if least == most else f'at least {least}'} classes, got {count}. Correct classes."
        if unfit := task.unfit_metric(self.metric):
            yield f"{unfit}."
